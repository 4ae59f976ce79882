"""A user's way to the jobs of a coordinator that is up: submit, follow, list, cancel, fetch, remove."""

import asyncio
import contextlib
import random
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from types import TracebackType
from typing import Protocol, Self, TypeVar

import grpc
from google.protobuf.descriptor import MethodDescriptor

from fedora_vfl.errors import FedoraError, PartyError, from_failure
from fedora_vfl.settings.federation import Deadlines
from fedora_vfl.wire.channels import Secured, check_right_service, dial, path, reach
from fedora_vfl.wire.protocol import COORDINATOR, PROTOCOL
from fedora_vfl.wire.tls import COORDINATOR_MEMBER, Credentials
from protos.fedora.v1.control_pb2 import (
    DESCRIPTOR,
    Cancelled,
    Event,
    Fetched,
    Following,
    Job,
    JobDescription,
    JobList,
    JobName,
    Listing,
    Pruned,
    Pruning,
    Result,
    Submitted,
)
from protos.fedora.v1.failure_pb2 import Failure

METHODS: dict[str, MethodDescriptor] = dict(DESCRIPTOR.services_by_name["Jobs"].methods_by_name)

TOKEN_BYTES = 16
# The coordinator reads a job that names half a million people before it answers.
ANSWER_SECONDS = 120.0
# Whoever is cancelled takes the job along, if that is quickly done.
CANCEL_SECONDS = 3.0
# Between attempts to reach a coordinator that was there before; each takes up to half as long again.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0

Follow = Callable[[Event], None]
GONE = "is gone: the connection to it broke (the process ended or was stopped, or the network is cut)"


class Message(Protocol):
    """What is common to all messages."""

    def SerializeToString(self) -> bytes:  # noqa: N802
        """Return the bytes."""


Answer = TypeVar("Answer", Submitted, JobList, JobDescription, Cancelled, Fetched, Pruned)


class _BrokenError(Exception):
    """The connection broke before all was said."""


class RemoteJobs:
    """The jobs of one coordinator, as far as its user may see them."""

    def __init__(
        self,
        address: str,
        *,
        deadlines: Deadlines,
        credentials: Credentials | None = None,
        waiting: Callable[[str], None] | None = None,
    ) -> None:
        """`waiting` is told when the coordinator takes long to answer for the first time."""
        self._address, self._deadlines, self._waiting = address, deadlines, waiting
        self._secured: Secured = {"credentials": credentials, "peer": COORDINATOR_MEMBER}

    async def __aenter__(self) -> Self:
        """Connect."""
        self._channel = dial(self._address, self._deadlines.silence, **self._secured)
        try:
            await reach(self._channel, self._address, self._deadlines.join, waiting=self._waiting, **self._secured)
        except BaseException:
            await self._channel.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up."""
        await self._channel.close()

    async def submit(self, settings: str, *, origin: str, token: bytes | None = None) -> Submitted:
        """Put a job into the queue, once, however often the connection breaks on the way.

        With a `token` that an earlier job came with, it is that job.
        """
        token = token or secrets.token_bytes(TOKEN_BYTES)
        job = Job(protocol=PROTOCOL, settings=settings, origin=origin, token=token)
        return await self._ask_again("Submit", job, Submitted)

    async def follow(self, id: str, follow: Follow, *, patience: float = 0.0) -> Result:
        """Hand every event of a job to `follow`, from the first one on, and return what the job leaves.

        Args:
            id: The job, or the beginning of its id.
            follow: Is told each event once, also over several connections.
            patience: For how many seconds a coordinator that has gone is looked for again.
        """
        seen, pause, lost = 0, FIRST_PAUSE, None
        while True:
            try:
                async with contextlib.aclosing(self._events(id, after=seen)) as events:
                    async for event in events:
                        if lost is not None:
                            follow(Event(note=f"{COORDINATOR} is back"))
                            lost, pause = None, FIRST_PAUSE
                        seen = event.number or seen
                        match event.WhichOneof("content"):
                            case "failure":
                                raise from_failure(event.failure)
                            case "result":
                                return event.result
                            case _:
                                follow(event)
            except _BrokenError:
                pass
            now = time.monotonic()
            if lost is None:
                lost = now
                if patience:
                    follow(Event(note=f"{COORDINATOR} is gone; it is looked for again, {patience:g} s at most"))
            left = lost + patience - now
            if left <= 0:
                later = (
                    f" and has not come back within {patience:g} s; the job may go on all the same" if patience else ""
                )
                raise PartyError(COORDINATOR, GONE + later, Failure.LOST)
            await asyncio.sleep(min(left, pause * random.uniform(1.0, 1.5)))
            pause = min(2 * pause, LONGEST_PAUSE)

    async def list(self, *, patiently: bool = False) -> JobList:
        """Return all jobs; if asked patiently, also from a coordinator that is just started again."""
        ask = self._ask_again if patiently else self._ask
        return await ask("List", Listing(protocol=PROTOCOL), JobList)

    async def show(self, id: str) -> JobDescription:
        """Return one job, and what has happened in it."""
        return await self._ask("Show", _name(id), JobDescription)

    async def cancel(self, id: str) -> Cancelled:
        """Stop a job that waits or runs."""
        return await self._ask("Cancel", _name(id), Cancelled)

    async def fetch(self, id: str) -> Fetched:
        """Return what a job has left."""
        return await self._ask("Fetch", _name(id), Fetched)

    async def prune(self, ids: Sequence[str] = (), *, older: float = 0.0) -> Pruned:
        """Remove jobs that ended so many seconds ago: some, or all."""
        return await self._ask("Prune", Pruning(protocol=PROTOCOL, ids=ids, older=older), Pruned)

    async def _events(self, id: str, *, after: int) -> AsyncGenerator[Event, None]:
        ask: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = self._channel.unary_stream(path(METHODS["Follow"]))
        call = ask(Following(job=_name(id), after=after).SerializeToString())
        try:
            async for data in call:
                yield Event.FromString(data)
        except grpc.RpcError:
            await check_right_service(call, self._address, **self._secured)
            raise _BrokenError from None
        finally:
            call.cancel()
        raise _BrokenError

    async def _ask_again(self, method: str, question: Message, form: type[Answer]) -> Answer:
        """Ask until there is an answer, or `join` has passed."""
        gives_up = time.monotonic() + self._deadlines.join
        while True:
            try:
                return await self._ask(method, question, form)
            except PartyError as error:
                if error.kind != Failure.LOST or time.monotonic() > gives_up:
                    raise
            left = max(1.0, gives_up - time.monotonic())
            await reach(self._channel, self._address, left, waiting=self._waiting, **self._secured)
            await asyncio.sleep(FIRST_PAUSE)

    async def _ask(self, method: str, question: Message, form: type[Answer]) -> Answer:
        ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(path(METHODS[method]))
        call = ask(question.SerializeToString(), timeout=ANSWER_SECONDS)
        try:
            answer = form.FromString(await call)
        except grpc.RpcError:
            await check_right_service(call, self._address, **self._secured)
            if await call.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                reason = f"did not answer within {ANSWER_SECONDS:g} s"
                raise PartyError(COORDINATOR, reason, Failure.SILENT) from None
            if await call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise PartyError("the command line", await call.details(), Failure.PROTOCOL) from None
            raise PartyError(COORDINATOR, GONE, Failure.LOST) from None
        if answer.HasField("failure"):
            raise from_failure(answer.failure)
        return answer


async def submit(
    address: str,
    settings: str,
    *,
    origin: str,
    follow: Follow,
    deadlines: Deadlines,
    credentials: Credentials | None = None,
    patience: float = 0.0,
) -> Result:
    """Run a job on a cluster and return its result; every event on the way is handed to `follow`.

    A caller that is cancelled, or fails, takes the job along. `fedora submit` leaves its jobs to themselves.
    """

    def say(note: str) -> None:
        follow(Event(note=note))

    async with RemoteJobs(address, deadlines=deadlines, credentials=credentials, waiting=say) as jobs:
        submitted = await jobs.submit(settings, origin=origin)
        try:
            return await jobs.follow(submitted.id, follow, patience=patience)
        except FedoraError:
            raise
        except BaseException:
            with contextlib.suppress(FedoraError, TimeoutError):
                async with asyncio.timeout(CANCEL_SECONDS):
                    await jobs.cancel(submitted.id)
            raise


def _name(id: str) -> JobName:
    return JobName(protocol=PROTOCOL, id=id)
