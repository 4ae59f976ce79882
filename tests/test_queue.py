"""The queue through many histories: users come and go, the coordinator is killed at any of its writes, no job is lost.

Time, threads and sockets have no part in it: the same history goes the same way always.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from coordinator.metrics import CoordinatorMetrics
from coordinator.queue import JobQueue
from coordinator.roster import Roster
from coordinator.store import ENDED, State, Store, StoredJob
from coordinator.telling import Telling
from fedora_vfl import fault_points
from fedora_vfl.errors import DataError
from fedora_vfl.process.health import Health
from fedora_vfl.settings.federation import Active, Coordinator, Federation
from fedora_vfl.signing import SigningKey
from fedora_vfl.wire.meter import Totals
from protos.fedora.v1.control_pb2 import Result
from tests.virtual_time import Killed, VirtualLoop

FEDERATION = Federation(
    coordinator=Coordinator(address="127.0.0.1:7000"), active=Active(address="127.0.0.1:7001"), passive=["passive-1"]
)
OPERATORS = st.sampled_from(["bank", "hospital"])
PLACES = st.integers(0, 30)  # among the jobs that there are
FATES = st.one_of(st.none(), st.integers(1, 12))  # the instant of a write at which the process is killed, if it is
SETTLED = 60.0  # seconds after which whatever follows from something has followed


class Played(JobQueue):
    """A queue whose jobs end when they are told to."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.ends: asyncio.Future[Result] | None = None

    async def _run(self, job: StoredJob, telling: Telling) -> Result:
        await telling.say(f"{job.id} runs")
        self.ends = asyncio.get_running_loop().create_future()
        return await self.ends


class Histories(RuleBasedStateMachine):
    """A coordinator's queue and its disk, and what should have become of each job."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="fedora-queue-"))
        self.key = SigningKey.load_or_make(self.folder / "key")
        self.expected: dict[str, State] = {}  # in the order of submission; of one that runs it is QUEUED, too
        self.tokens, self.instants = 0, 0
        fault_points.strike = self.strike
        self.start()

    def teardown(self) -> None:
        """Leave nothing behind."""
        self.end()
        fault_points.strike = None
        shutil.rmtree(self.folder)

    def strike(self, name: str) -> None:
        """Kill the process at the instant of a write that was chosen."""
        if name.startswith("store."):
            self.instants -= 1
            if self.instants == 0:
                self.loop.dead = True
                raise Killed

    def start(self) -> None:
        """Start the coordinator's process."""
        self.loop, self.instants = VirtualLoop(), 0

        async def work() -> None:
            metrics = CoordinatorMetrics(FEDERATION.parties)
            self.store = await Store.open(self.folder)
            # Only the processor is ever lost here, never the power.
            await self.store._do(lambda database: database.execute("PRAGMA synchronous = OFF"))
            roster = Roster(FEDERATION, metrics, Health(), Totals())
            self.queue = Played(self.store, FEDERATION, roster, self.key, metrics)
            self.working = asyncio.create_task(self.queue.work())
            await asyncio.sleep(SETTLED)

        self.loop.run_until_complete(work())

    def end(self) -> None:
        """End it as a kill does: what is on the disk stays."""
        self.loop.dead = True

        async def let_all_go() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.loop.run_until_complete(let_all_go())
        self.store._database.close()
        self.store._thread.shutdown()
        self.loop.close()

    def do(self, work: Callable[[], Coroutine[Any, Any, Any]], fate: int | None) -> bool:
        """Have something happen, and all that follows; a process that is killed meanwhile is started again.

        Whether it was not is returned.
        """

        async def and_settle() -> None:
            try:
                await work()
            except Killed:
                return
            await asyncio.sleep(SETTLED)

        self.instants = fate or 0
        self.loop.run_until_complete(and_settle())
        if not self.loop.dead:
            assert not self.working.done(), "the queue works as long as its process lives"
            return True
        self.end()
        self.start()
        return False

    def found(self) -> dict[str, State]:
        """Return the state of every job, as the disk has it."""
        jobs = self.loop.run_until_complete(self.store.jobs())
        return {job.id: job.state for job in jobs}

    def first(self) -> str | None:
        """Return the job that should run: the first that has not ended."""
        return next((id for id, state in self.expected.items() if state not in ENDED), None)

    def one_of(self, place: int) -> str | None:
        return list(self.expected)[place % len(self.expected)] if self.expected else None

    def ended(self, id: str, state: State, *, well: bool) -> None:
        """Note that a job has ended; if the process was killed on the way, it may or may not have been written down."""
        if well or self.found()[id] == state:
            self.expected[id] = state

    @rule(by=OPERATORS, fate=FATES)
    def submit(self, by: str, fate: int | None) -> None:
        """Submit a job, as often as it takes to hear of its id."""
        self.tokens += 1
        token, told = self.tokens.to_bytes(8, "big"), []

        async def work() -> None:
            id, _ = await self.queue.submit(token=token, submitted_by=by, origin="job.yaml", settings="seed: 1")
            told.append(id)

        if not self.do(work, fate):
            assert self.do(work, None)
        assert len({*told}) == 1, "the same token is the same job"
        self.expected[told[-1]] = State.QUEUED

    @rule(well=st.booleans(), fate=FATES)
    def finish(self, well: bool, fate: int | None) -> None:
        """Have the job that runs end."""
        if (id := self.first()) is None:
            return

        async def work() -> None:
            assert self.queue.ends
            if well:
                self.queue.ends.set_result(Result(result_json="{}"))
            else:
                self.queue.ends.set_exception(DataError("a file is gone"))

        lived = self.do(work, fate)
        self.ended(id, State.FINISHED if well else State.FAILED, well=lived)

    @rule(place=PLACES, fate=FATES)
    def cancel(self, place: int, fate: int | None) -> None:
        """Cancel a job, unless it has ended; once more if the coordinator was killed meanwhile."""
        id = self.one_of(place)
        if id is None or self.expected[id] in ENDED:
            return

        async def work() -> None:
            if (job := await self.store.job(id)) and not job.has_ended:
                await self.queue.cancel(job, "bank")

        if not self.do(work, fate):
            assert self.do(work, None)
        self.ended(id, State.CANCELLED, well=True)

    @rule(fate=st.integers(1, 3))
    def restart(self, fate: int) -> None:
        """Stop the coordinator in order, or kill it while it is stopped, and start it again."""

        async def work() -> None:
            await self.queue.stop()
            self.loop.dead = True

        self.do(work, fate)

    @rule(place=PLACES, fate=FATES)
    def remove(self, place: int, fate: int | None) -> None:
        """Remove a job, which works for those that have ended only."""
        if (id := self.one_of(place)) is None:
            return

        async def work() -> None:
            await self.store.remove([id])

        self.do(work, fate)
        if id not in self.found():
            assert self.expected.pop(id) in ENDED

    @invariant()
    def no_job_is_lost_and_the_first_one_runs(self) -> None:
        """Compare with the store."""
        found, running = self.found(), self.first()
        assert list(found) == list(self.expected), "in the order in which they came"
        for id, state in self.expected.items():
            assert found[id] == (State.RUNNING if id == running else state)

    @invariant()
    def a_follower_misses_nothing_and_hears_nothing_twice(self) -> None:
        """Look at the events of all jobs, and at what those that have ended leave."""
        for id, state in self.expected.items():
            told = self.loop.run_until_complete(self.store.told(id))
            assert [one.event.number for one in told] == list(range(1, len(told) + 1))
            result = self.loop.run_until_complete(self.store.result(id))
            assert (result is not None) == (state == State.FINISHED)


TestQueue = Histories.TestCase
TestQueue.settings = hypothesis.settings(
    max_examples=40, stateful_step_count=20, deadline=None, derandomize=True, database=None
)
