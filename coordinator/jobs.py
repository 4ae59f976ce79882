"""The user's side of the coordinator: who sees which jobs, and what each question about them is answered."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError

from coordinator.metrics import CoordinatorMetrics
from coordinator.queue import JobQueue, unforeseen, without_ids
from coordinator.store import State, Store, StoredJob, Told
from fedora_vfl.errors import FedoraError, PartyError, SettingsError, from_failure, in_one_line, to_failure
from fedora_vfl.process.logs import discreet
from fedora_vfl.wire.protocol import COORDINATOR, check_protocol
from fedora_vfl.wire.tls import caller
from protos.fedora.v1.control_pb2 import (
    DESCRIPTOR,
    Cancelled,
    Event,
    Fetched,
    Following,
    Happening,
    JobDescription,
    JobList,
    JobName,
    JobSummary,
    Listing,
    PhaseFinished,
    PhaseHappening,
    Pruned,
    Pruning,
    Submitted,
)
from protos.fedora.v1.control_pb2 import Job as JobMessage

METHODS: dict[str, MethodDescriptor] = dict(DESCRIPTOR.services_by_name["Jobs"].methods_by_name)

LEAST_LETTERS = 4  # of an id's beginning: fewer are mistyped too easily
MOST_HAPPENINGS = 20_000  # that are shown; the last ones
TOKEN_BYTES = range(8, 65)

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[bytes, bytes]


class Message(Protocol):
    """What is common to all messages."""

    def SerializeToString(self) -> bytes:  # noqa: N802
        """Return the bytes."""


Request = TypeVar("Request")


class Jobs:
    """Answers what users ask.

    An operator sees the jobs that came with a certificate of the same name, and no others: to everybody else they are
    not there, and nobody learns whether they are. Whoever has the coordinator's own certificate could read its disk,
    and sees all. Without certificates there is one user.
    """

    def __init__(self, store: Store, queue: JobQueue, metrics: CoordinatorMetrics) -> None:
        self._store, self._queue, self._metrics = store, queue, metrics

    def handlers(self) -> "dict[MethodDescriptor, grpc.RpcMethodHandler[Any, Any]]":
        """Return the methods of the service, for a server to listen for."""
        unary = {
            "Submit": self._answering(JobMessage, self._submit, Submitted),
            "List": self._answering(Listing, self._list, JobList),
            "Show": self._answering(JobName, self._show, JobDescription),
            "Cancel": self._answering(JobName, self._cancel, Cancelled),
            "Fetch": self._answering(JobName, self._fetch, Fetched),
            "Prune": self._answering(Pruning, self._prune, Pruned),
        }
        handlers: dict[MethodDescriptor, grpc.RpcMethodHandler[Any, Any]] = {
            METHODS[name]: grpc.unary_unary_rpc_method_handler(one) for name, one in unary.items()
        }
        return {**handlers, METHODS["Follow"]: grpc.unary_stream_rpc_method_handler(self._follow)}

    def _answering(
        self,
        form: type[Request],
        answer: Callable[[Request, "Asker"], Awaitable[Message]],
        failed: Callable[..., Message],
    ) -> Callable[[bytes, Context], Awaitable[bytes]]:
        """Return a method that reads its question, and answers with a failure where there is one."""

        async def method(request: bytes, context: Context) -> bytes:
            try:
                return (await answer(_read(form, request), Asker.of(context))).SerializeToString()
            except FedoraError as error:
                log.warning("refused a question about jobs: %s", discreet(error))
                return failed(failure=to_failure(error, reporter="")).SerializeToString()
            except Exception as error:
                return failed(failure=unforeseen(error)).SerializeToString()

        return method

    async def _submit(self, message: JobMessage, asker: "Asker") -> Submitted:
        """Put a job into the queue."""
        try:
            check_protocol(message.protocol, peer="the command line")
            if len(message.token) not in TOKEN_BYTES:
                raise PartyError(
                    "the command line", f"sent a job without a token of at least {TOKEN_BYTES.start} bytes"
                )
            id, waiting = await self._queue.submit(
                token=message.token,
                submitted_by=asker.name,
                origin=in_one_line(message.origin),
                settings=message.settings,
            )
        except FedoraError:
            self._metrics.job_refused()
            raise
        return Submitted(id=id, waiting=waiting)

    async def _follow(self, request: bytes, context: Context) -> AsyncIterator[bytes]:
        """Stream what happens in a job, from the event that the caller has not seen to the last."""
        try:
            following = _read(Following, request)
            job = await self._named(following.job, Asker.of(context))
        except FedoraError as error:
            yield Event(failure=to_failure(error, reporter="")).SerializeToString()
            return
        bell, last = self._queue.bell, following.after
        before, passed = 0, bell.passing(job.id)
        while True:
            changed = bell.changed(job.id)
            now = await self._store.job(job.id)  # before its events: of one that has ended, all are there
            while told := await self._store.told(job.id, after=last):
                for one in told:
                    yield one.event.SerializeToString()
                last = told[-1].event.number
            if now is None:
                yield Event(failure=to_failure(_unknown(job.id), reporter="")).SerializeToString()
                return
            if now.has_ended:
                result = await self._store.result(job.id)
                await self._queue.let_go(job.id)  # whoever stops the cluster now finds nothing half erased
                yield (Event(result=result) if result else Event(failure=now.failure)).SerializeToString()
                return
            if bell.leaving:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the coordinator is being stopped")
            if (waiting := await self._queue.waiting(now)) != before:
                before = waiting
                if waiting:
                    yield Event(note=_waits(waiting)).SerializeToString()
            if (passing := bell.passing(job.id)) is not None and passing is not passed:
                passed = passing
                yield passing.SerializeToString()
            await changed.wait()

    async def _list(self, message: Listing, asker: "Asker") -> JobList:
        """List the jobs that the caller may see."""
        check_protocol(message.protocol, peer="the command line")
        jobs = await self._store.jobs(submitted_by=asker.sees)
        under_way = await self._store.in_state(State.QUEUED, State.RUNNING, State.SUSPENDED)
        seen = {job.id for job in jobs}
        others = sum(one.id not in seen for one in under_way)
        return JobList(jobs=[await self._summary(job) for job in jobs], others=others)

    async def _show(self, message: JobName, asker: "Asker") -> JobDescription:
        """Describe one job."""
        job = await self._named(message, asker)
        told: deque[Told] = deque(maxlen=MOST_HAPPENINGS)
        last = 0
        while portion := await self._store.told(job.id, after=last):
            told.extend(portion)
            last = portion[-1].event.number
        settings = await asyncio.to_thread(without_ids, await self._store.settings(job.id))
        return JobDescription(summary=await self._summary(job), settings=settings, happenings=happenings(told))

    async def _cancel(self, message: JobName, asker: "Asker") -> Cancelled:
        """Stop a job."""
        job = await self._named(message, asker)
        if job.has_ended:
            raise SettingsError(f"job {job.id} has ended already: it is {job.state}")
        await self._queue.cancel(job, asker.name)
        now = await self._store.job(job.id)
        if now and now.state in (State.FINISHED, State.FAILED):
            raise SettingsError(f"job {job.id} ended before it could be cancelled: it is {now.state}")
        return Cancelled(id=job.id)

    async def _fetch(self, message: JobName, asker: "Asker") -> Fetched:
        """Hand out what a job has left."""
        job = await self._named(message, asker)
        if result := await self._store.result(job.id):
            return Fetched(id=job.id, result=result)
        if job.failure:
            raise from_failure(job.failure)
        raise SettingsError(
            f"job {job.id} has no result yet: it is {job.state}; `fedora follow {job.id[:8]}` waits for it"
        )

    async def _prune(self, message: Pruning, asker: "Asker") -> Pruned:
        """Remove jobs that have ended."""
        check_protocol(message.protocol, peer="the command line")
        if message.ids:
            names = [JobName(protocol=message.protocol, id=id) for id in message.ids]
            jobs = [await self._named(name, asker) for name in names]
            for job in jobs:
                if not job.has_ended:
                    raise SettingsError(f"job {job.id} is {job.state}: cancel it first")
        else:
            jobs = [job for job in await self._store.jobs(submitted_by=asker.sees) if job.has_ended]
        past = time.time() - message.older
        ids = [job.id for job in jobs if job.ended is not None and job.ended <= past]
        await self._store.remove(ids)
        return Pruned(ids=ids)

    async def _named(self, name: JobName, asker: "Asker") -> StoredJob:
        """Return the job that a caller means, if it is one that the caller may see."""
        check_protocol(name.protocol, peer="the command line")
        id = name.id.strip().lower()
        if len(id) < LEAST_LETTERS:
            raise SettingsError(
                f"{in_one_line(name.id)!r} is too short for the id of a job: give {LEAST_LETTERS} letters at least"
            )
        found = await self._store.jobs(submitted_by=asker.sees, beginning=id)
        if len(found) > 1:
            raise SettingsError(f"{len(found)} jobs have ids that begin with {id}: give more letters of it")
        if not found:
            raise _unknown(name.id)
        return found[0]

    async def _summary(self, job: StoredJob) -> JobSummary:
        reason = str(from_failure(job.failure)) if job.failure else ""
        return JobSummary(
            id=job.id,
            state=job.state,
            submitted_by=job.submitted_by,
            origin=job.origin,
            submitted=job.submitted,
            started=job.started,
            ended=job.ended,
            waiting=await self._queue.waiting(job),
            missed=job.missed,
            reason=reason,
        )


@dataclass(frozen=True)
class Asker:
    """Whoever asks, as far as a certificate says."""

    name: str  # of the operator, or of the coordinator itself; empty without certificates
    sees: str | None  # whose jobs; none for everybody's

    @classmethod
    def of(cls, context: Context) -> "Asker":
        """Find out who asks."""
        shown = caller(context)
        if shown is None:
            return cls("", None)
        return cls(shown.name, None if shown.role == COORDINATOR else shown.name)


def happenings(told: Iterable[Told]) -> list[Happening]:
    """Return events as lines of a story: a phase that was begun several times is one line."""
    lines: list[Happening] = []
    begun: dict[tuple[str, int, int], Happening] = {}  # phases that are not over
    for one in told:
        event = one.event
        match event.WhichOneof("content"):
            case "note":
                lines.append(Happening(time=one.time, note=event.note))
            case "started":
                key = (event.started.name, event.started.round, event.started.phase)
                if key not in begun:
                    phase = PhaseFinished(
                        name=event.started.name, round=event.started.round, of_rounds=event.started.of_rounds
                    )
                    begun[key] = Happening(time=one.time, phase=PhaseHappening(finished=phase))
                    lines.append(begun[key])
                begun[key].phase.attempts += 1
            case "finished":
                name, round = event.finished.name, event.finished.round
                key = next((found for found in reversed(begun) if found[:2] == (name, round)), (name, round, 0))
                line = begun.pop(key, None) or Happening(time=one.time, phase=PhaseHappening(attempts=1))
                line.phase.finished.CopyFrom(event.finished)
                line.phase.over = True
    return lines


def _read(form: type[Request], data: bytes) -> Request:
    try:
        message: Request = form.FromString(data)  # type: ignore[attr-defined] # every message has it
        return message
    except DecodeError as error:
        raise PartyError("the command line", f"sent something that cannot be read: {error}") from None


def _unknown(id: str) -> SettingsError:
    return SettingsError(f"there is no job {in_one_line(id)!r} of yours here; `fedora jobs` lists those that are")


def _waits(before: int) -> str:
    return f"the job waits for its turn: {before} {'jobs run' if before > 1 else 'job runs'} before it"
