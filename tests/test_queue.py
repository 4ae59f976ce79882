"""The queue through many histories: users come and go, the coordinator is killed and comes back, no job is lost."""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from coordinator.metrics import CoordinatorMetrics
from coordinator.queue import JobQueue
from coordinator.roster import Roster
from coordinator.store import ENDED, State, Store, StoredJob
from coordinator.telling import Telling
from fedora_vfl.cluster.local import loopback_federation
from fedora_vfl.errors import DataError
from fedora_vfl.process.health import Health
from fedora_vfl.signing import SigningKey
from fedora_vfl.wire.meter import Totals
from protos.fedora.v1.control_pb2 import Result

T = TypeVar("T")
OPERATORS = st.sampled_from(["bank", "hospital"])
MOMENTS = 40  # of the event loop, in which all that can happen does; the store answers from another thread


class Played(JobQueue):
    """A queue whose jobs end when they are told to."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.ends: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    async def _run(self, job: StoredJob, telling: Telling) -> Result:
        await telling.say(f"{job.id} runs")
        self.ends = asyncio.get_running_loop().create_future()
        return await self.ends


class Coordinator(RuleBasedStateMachine):
    """A coordinator's queue and its disk, and what should have become of each job."""

    jobs: Bundle[str] = Bundle("jobs")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="fedora-queue-"))
        self.expected: dict[str, State] = {}  # in the order of submission
        self.tokens = 0
        self.do(self.start())

    def teardown(self) -> None:
        """Leave nothing behind."""
        self.loop.run_until_complete(self.end(gently=False))
        self.loop.close()
        shutil.rmtree(self.folder)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Have something happen, and all that follows from it."""

        async def and_settle() -> T:
            answer = await work
            for _ in range(3):  # whatever is on its way to the store has come back once the store has answered
                await self.store.last_number("")
                for _ in range(MOMENTS):
                    await asyncio.sleep(0)
            return answer

        return self.loop.run_until_complete(and_settle())

    async def start(self) -> None:
        """Start the coordinator's process."""
        federation = loopback_federation(["passive-1"])
        metrics = CoordinatorMetrics(federation.parties)
        self.store = await Store.open(self.folder)
        # Only the processor is ever lost here, never the power.
        await self.store._do(lambda database: database.execute("PRAGMA synchronous = OFF"))
        roster = Roster(federation, metrics, Health(), Totals())
        self.queue = Played(self.store, federation, roster, SigningKey.load_or_make(self.folder / "key"), metrics)
        self.working = asyncio.create_task(self.queue.work())

    async def end(self, *, gently: bool) -> None:
        """End it: in order, or as a kill does, which leaves what is on the disk."""
        if gently:
            await self.queue.stop()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self.store.close()

    def running(self) -> str | None:
        """Return the job that should run: the first that has not ended."""
        return next((id for id, state in self.expected.items() if state not in ENDED), None)

    @rule(target=jobs, by=OPERATORS)
    def submit(self, by: str) -> str:
        """Submit a job."""
        self.tokens += 1
        token = self.tokens.to_bytes(8, "big")

        async def twice() -> tuple[str, str]:
            give = partial(self.queue.submit, token=token, submitted_by=by, origin="job.yaml", settings="seed: 1")
            return (await give())[0], (await give())[0]

        first, again = self.do(twice())
        assert first == again, "the same token is the same job"
        self.expected[first] = State.QUEUED
        return first

    @rule(well=st.booleans())
    def finish(self, well: bool) -> None:
        """Have the job that runs end."""
        if (id := self.running()) is None:
            return
        if well:
            self.queue.ends.set_result(Result(result_json="{}"))
        else:
            self.queue.ends.set_exception(DataError("a file is gone"))
        self.expected[id] = State.FINISHED if well else State.FAILED
        self.do(asyncio.sleep(0))

    @rule(id=jobs)
    def cancel(self, id: str) -> None:
        """Cancel a job, unless it has ended."""
        if self.expected.get(id, State.FINISHED) in ENDED:
            return

        async def work() -> None:
            job = await self.store.job(id)
            assert job
            await self.queue.cancel(job, "bank")

        self.do(work())
        self.expected[id] = State.CANCELLED

    @rule(id=jobs)
    def cancel_and_be_killed_before_that_is_done(self, id: str) -> None:
        """Note that a job is to be cancelled, and end."""
        if self.expected.get(id, State.FINISHED) in ENDED:
            return
        self.do(self.store.want_cancelled(id, "bank"))
        self.restart(gently=False)
        if self.running() == id:
            self.expected[id] = State.CANCELLED
        else:
            self.cancel(id)

    @rule(gently=st.booleans())
    def restart(self, gently: bool) -> None:
        """Restart the coordinator."""
        self.loop.run_until_complete(self.end(gently=gently))
        self.do(self.start())

    @rule(id=consumes(jobs))
    def remove(self, id: str) -> None:
        """Remove a job, which works for those that have ended only."""
        ended = self.expected.get(id, State.QUEUED) in ENDED
        assert self.do(self.store.remove([id])) == int(ended)
        if ended:
            del self.expected[id]

    @invariant()
    def no_job_is_lost_and_the_first_one_runs(self) -> None:
        """Compare with the store."""
        found = {job.id: job.state for job in self.do(self.store.jobs())}
        assert list(found) == list(self.expected), "in the order in which they came"
        running = self.running()
        for id, state in self.expected.items():
            assert found[id] == (State.RUNNING if id == running else state)


TestQueue = Coordinator.TestCase
TestQueue.settings = hypothesis.settings(
    max_examples=30, stateful_step_count=20, deadline=None, derandomize=True, database=None
)
