"""The queue: jobs wait in the store for their turn, run one after the other, and end there, whoever follows them."""

import asyncio
import logging
import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from coordinator.course import Course, dismiss
from coordinator.job import Job
from coordinator.metrics import FINISHED, GIVEN_UP, CoordinatorMetrics, failed
from coordinator.roster import Roster
from coordinator.store import BEGUN, ENDED, State, Store, StoredJob, StoreError
from coordinator.stored_course import StoredCourse
from coordinator.telling import Bell, Telling
from fedora_vfl.errors import FedoraError, PartyError, SettingsError, from_failure, to_failure
from fedora_vfl.process import logs
from fedora_vfl.process.exhaustion import exhausted
from fedora_vfl.process.logs import discreet, unexpected
from fedora_vfl.settings.federation import Federation
from fedora_vfl.settings.files import parse
from fedora_vfl.signing import SigningKey
from fedora_vfl.wire.protocol import COORDINATOR
from protos.fedora.v1.control_pb2 import Result
from protos.fedora.v1.failure_pb2 import Failure

# Jobs that may wait at a time: in all, and of one operator, so that nobody fills the queue alone. An operator of whom
# none waits is always let in: others may have filled it together.
MOST_WAITING, MOST_WAITING_EACH = 64, 32
# Bytes of settings that the waiting jobs of one operator take on the disk: a few jobs that name half a million people.
MOST_WAITING_BYTES = 128 * 1024 * 1024
# Jobs of one operator that are kept once they have ended; older ones make room.
MOST_KEPT_EACH = 50
# How long the parties of a job may take to let go of it when the coordinator is stopped.
STOP_SECONDS = 2.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ending:
    """How a job ended, for its user and for those who watch the coordinator."""

    state: State
    outcome: str
    failure: Failure | None = None
    result: Result | None = None


class JobQueue:
    """Runs jobs one at a time: operators take turns, and each one's own jobs run in the order in which they came."""

    def __init__(
        self,
        store: Store,
        federation: Federation,
        roster: Roster,
        key: SigningKey,
        metrics: CoordinatorMetrics,
    ) -> None:
        self._store, self._federation, self._roster = store, federation, roster
        self._key, self._metrics = key, metrics
        self.bell = Bell()
        self._arrived = asyncio.Event()
        # One job of an operator at a time: a large one takes its time, and only its own operator's next one waits.
        self._accepting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._accepted: set[str] = set()  # jobs that came to this process and have not ended
        self._served: dict[str, int] = {}  # by operator, when a job of theirs was taken up last: the first was 1
        self._closing = asyncio.Lock()
        self._stopping = False
        self._current: StoredJob | None = None
        self._work: asyncio.Task[Result] | None = None
        self._telling: Telling | None = None
        self._over = asyncio.Event()  # of the job that runs: its end is on the disk
        self._over.set()

    async def submit(self, *, token: bytes, submitted_by: str, origin: str, settings: str) -> tuple[str, int]:
        """Check a job and put it at the end of the queue; return its id, and how many run before it."""
        async with self._accepting[submitted_by]:
            self._check_open()
            id = await self._store.with_token(submitted_by, token)
            if id is None:
                await self._check_room(submitted_by)
                # In a thread: a job may name half a million people, and others must not wait meanwhile.
                await asyncio.to_thread(parse, settings, Job, origin=origin)
                id = await self._store.add(
                    uuid.uuid4().hex, token=token, submitted_by=submitted_by, origin=origin, settings=settings
                )
                self._accepted.add(id)
                log.info("job %s was submitted%s", id, f" by {submitted_by}" if submitted_by else "")
        await self._count()
        self._arrived.set()
        job = await self._store.job(id)
        return id, await self.waiting(job) if job else 0

    async def waiting(self, job: StoredJob) -> int:
        """Return how many jobs run before one that waits."""
        if job.state != State.QUEUED:
            return 0
        begun = await self._store.in_state(*BEGUN)
        order = [one.id for one in in_turns(await self._store.in_state(State.QUEUED), self._served)]
        return len(begun) + (order.index(job.id) if job.id in order else 0)

    async def cancel(self, job: StoredJob, by: str) -> None:
        """Stop a job that waits or runs, and return once it has ended."""
        await self._store.want_cancelled(job.id, by)
        if self._current and self._current.id == job.id:
            if self._work:
                self._work.cancel()
            await self._over.wait()
        elif (now := await self._store.job(job.id)) and now.state == State.QUEUED:
            await self._end(now, _cancelled(by))
            self.bell.ring_all()  # those behind it have moved up

    async def let_go(self, id: str) -> None:
        """Wait until the parties that are here have let go of a job that has ended, and erased what they kept of it."""
        if self._current and self._current.id == id:
            await self._over.wait()

    async def work(self) -> None:
        """Run jobs as they come, for as long as the coordinator lives."""
        for job in await self._store.in_state(*BEGUN):  # an earlier process ran it
            await self._take(job)
        while not self._stopping:
            self._arrived.clear()
            if not (waiting := await self._store.in_state(State.QUEUED)):
                await self._arrived.wait()
                continue
            job = in_turns(waiting, self._served)[0]
            self._served[job.submitted_by] = 1 + max(self._served.values(), default=0)
            await self._take(job)
            self.bell.ring_all()

    async def stop(self) -> None:
        """Let go of the job that runs: the coordinator's next process goes on with it."""
        self._stopping = self.bell.leaving = True
        if self._current and self._work and not self._work.done():
            self._work.cancel()
            await asyncio.wait([self._work], timeout=STOP_SECONDS)
        self.bell.ring_all()

    async def _take(self, job: StoredJob) -> None:
        """Run one job to its end, whatever that is."""
        if job.cancelled_by is not None:
            await self._end(job, _cancelled(job.cancelled_by))
            return
        self._current = job
        self._over.clear()
        try:
            if not await self._store.begin(job.id):
                return
            await self._count()
            self._telling = Telling(self._store, self.bell, job.id, last=await self._store.last_number(job.id))
            self._metrics.job_began()
            self._work = asyncio.create_task(self._run(job, self._telling))
            now = await self._store.job(job.id)
            if now and now.cancelled_by is not None:  # while it began
                self._work.cancel()
            await asyncio.wait([self._work])
            if self._stopping and self._work.cancelled():
                return
            # First the end is written down: parties that were let go hold nothing that a job could go on from.
            ending = await self._ending(job, self._work)
            await self._end(job, ending)
            await self._let_go(job, ending)
        finally:
            if self._telling:
                await self._telling.stop()
            self._current = self._work = self._telling = None
            self._metrics.job_over()
            self._over.set()

    async def _ending(self, job: StoredJob, work: asyncio.Task[Result]) -> Ending:
        """Say how a job has ended."""
        if work.cancelled():
            now = await self._store.job(job.id)
            return _cancelled(now.cancelled_by or "" if now else "")
        match work.exception():
            case None:
                return Ending(State.FINISHED, FINISHED, result=work.result())
            case StoreError() as error:
                raise error  # nothing can be noted of it: the coordinator ends, and the job is still there
            case FedoraError() as error:
                log.error("%s", discreet(error))
                return Ending(State.FAILED, failed(error.kind), to_failure(error, reporter=""))
            case error:
                failure = unforeseen(error)
                return Ending(State.FAILED, failed(failure.kind), failure)

    async def _end(self, job: StoredJob, ending: Ending) -> None:
        """Write down how a job ended, unless that is known, and tell those who follow it."""
        async with self._closing:
            now = await self._store.job(job.id)
            if now is None or now.has_ended:
                return
            running = self._telling if self._current and self._current.id == job.id else None
            told = await running.stop() if running else []
            settings = await asyncio.to_thread(without_ids, await self._store.settings(job.id))
            await self._store.end(
                job.id, ending.state, settings=settings, failure=ending.failure, result=ending.result, told=told
            )
            self.bell.forget(job.id)
            self._accepted.discard(job.id)
            log.info("the job has ended: %s", ending.outcome)
            if running:
                self._metrics.job_over()
                logs.in_job("")
            self._metrics.job_ended(ending.outcome)
            await self._count()
            await self._make_room(job.submitted_by)

    async def _run(self, job: StoredJob, telling: Telling) -> Result:
        """Wait for all parties, then do what the job asks for."""
        settings = await self._store.settings(job.id)
        content = await asyncio.to_thread(parse, settings, Job, origin=job.origin)
        course = Course(
            self._federation,
            self._roster,
            self._key,
            self._metrics,
            StoredCourse(self._store, job.id, telling),
            telling.put,
            id=job.id,
            submitted_by=job.submitted_by,
            outlived=job.id not in self._accepted,
        )
        return await course.run(content)

    async def _let_go(self, job: StoredJob, ending: Ending) -> None:
        """Have all parties that are here forget a job; the others hear of its end when they come back."""
        # The other parties need not know whose row or label was wrong.
        reason = discreet(from_failure(ending.failure)) if ending.failure else ""
        await dismiss(self._roster.present(), job.id, reason, timeout=self._federation.deadlines.silence)

    async def going_on(self, jobs: list[str]) -> list[str]:
        """Return which of some jobs have not ended."""
        known = [await self._store.job(id) for id in jobs]
        return [job.id for job in known if job and not job.has_ended]

    async def _make_room(self, submitted_by: str) -> None:
        """Remove the oldest of a user's jobs that have ended, if there are many."""
        ended = [one.id for one in await self._store.in_state(*ENDED) if one.submitted_by == submitted_by]
        if len(ended) > MOST_KEPT_EACH:
            await self._store.remove(ended[:-MOST_KEPT_EACH])

    async def _check_room(self, submitted_by: str) -> None:
        """Refuse a job when too many wait."""
        waiting = await self._store.in_state(State.QUEUED)
        own = sum(one.submitted_by == submitted_by for one in waiting)
        large = own and await self._store.waiting_bytes(submitted_by) >= MOST_WAITING_BYTES
        if own >= MOST_WAITING_EACH or large or (own and len(waiting) >= MOST_WAITING):
            said = f"{own} jobs of yours wait" if own >= MOST_WAITING_EACH or large else f"{len(waiting)} jobs wait"
            said = f"{said}, which name very many people" if large else said
            raise PartyError(COORDINATOR, f"takes no further job while {said}: try again later, or cancel some")

    async def _count(self) -> None:
        self._metrics.jobs_wait(len(await self._store.in_state(State.QUEUED)))

    def _check_open(self) -> None:
        if self._stopping:
            raise PartyError(COORDINATOR, "is being stopped", Failure.LOST)


def in_turns(waiting: Sequence[StoredJob], served: Mapping[str, int]) -> list[StoredJob]:
    """Return waiting jobs in the order in which they run.

    Args:
        waiting: In the order in which they came.
        served: By operator, when a job of theirs was taken up last: whoever was served longest ago comes first.
    """
    own: Counter[str] = Counter()
    places: dict[str, int] = {}
    for job in waiting:
        places[job.id] = own[job.submitted_by]
        own[job.submitted_by] += 1
    return sorted(waiting, key=lambda job: (places[job.id], served.get(job.submitted_by, 0), job.number))


def _cancelled(by: str) -> Ending:
    reason = f"the job was cancelled by {by}" if by else "the job was cancelled"
    return Ending(State.CANCELLED, GIVEN_UP, Failure(kind=Failure.ABORTED, reason=reason))


def unforeseen(error: BaseException) -> Failure:
    """Log an error that nobody foresaw, and say it in a sentence."""
    log.error("%s", unexpected(error))
    missing = exhausted(error)
    reason = missing or f"failed with an unexpected {type(error).__name__}: {error}"
    return Failure(kind=Failure.DATA if missing else Failure.INTERNAL, culprit=COORDINATOR, reason=reason)


def without_ids(settings: str) -> str:
    """Return a job's settings without the ids of those who asked to be forgotten."""
    try:
        job = parse(settings, Job, origin="job")
    except SettingsError:
        return ""  # a plugin that knew it may be gone; better nothing than a name
    if not job.forget or not isinstance(job.forget.ids, list):
        return settings
    content = job.model_dump(mode="json", by_alias=True, exclude_unset=True)
    content["forget"]["ids"] = f"{len(job.forget.ids)} ids"
    return str(yaml.safe_dump(content, sort_keys=False))
