"""Jobs: taken from a user, one at a time, run with all parties, followed by the user to the end."""

import asyncio
import logging
from collections.abc import AsyncIterator

import grpc

from coordinator.engine import Engine
from coordinator.job import Job
from coordinator.job_runner import JobRunner
from coordinator.metrics import FINISHED, GIVEN_UP, REFUSED, STOPPED, CoordinatorMetrics, failed
from coordinator.roster import Roster
from fedora_vfl.errors import FedoraError, PartyError, in_one_line, to_failure
from fedora_vfl.process import logs
from fedora_vfl.process.exhaustion import exhausted
from fedora_vfl.process.logs import discreet, unexpected
from fedora_vfl.settings.federation import Federation
from fedora_vfl.settings.files import parse
from fedora_vfl.signing import SigningKey
from fedora_vfl.wire.protocol import COORDINATOR, check_protocol
from fedora_vfl.wire.tls import caller
from protos.fedora.v1.control_pb2 import DESCRIPTOR, Event, Result
from protos.fedora.v1.control_pb2 import Job as JobMessage
from protos.fedora.v1.failure_pb2 import Failure

SUBMIT = DESCRIPTOR.services_by_name["Jobs"].methods_by_name["Submit"]

# How long the parties of a job may take to let go of it when the coordinator is stopped.
STOP_SECONDS = 2.0

log = logging.getLogger(__name__)


class Jobs:
    """The user's side of the coordinator."""

    def __init__(self, federation: Federation, roster: Roster, key: SigningKey, metrics: CoordinatorMetrics) -> None:
        self._federation, self._roster, self._key, self._metrics = federation, roster, key, metrics
        self._busy = False
        self._stopping = False
        self._works: dict[asyncio.Task[None], asyncio.Queue[Event]] = {}  # with what their users are told

    async def submit(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> AsyncIterator[bytes]:
        """Run a job and stream what happens; the job is cancelled when the user hangs up."""
        events: asyncio.Queue[Event] = asyncio.Queue()
        work = asyncio.create_task(self._work(request, events, shown.name if (shown := caller(context)) else ""))
        self._works[work] = events
        work.add_done_callback(self._works.pop)
        try:
            while True:
                event = await events.get()
                yield event.SerializeToString()
                if event.WhichOneof("content") in ("failure", "result"):
                    return
        finally:
            if not work.done() and not self._stopping:
                log.warning("the user hung up; the job is cancelled")
                work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def stop(self) -> None:
        """Give up the job that runs, with a sentence to its user, and let its parties go; take no other."""
        self._stopping = True
        works = dict(self._works)
        for work, events in works.items():
            # Told before the parties are let go, which may take longer than there is time.
            events.put_nowait(Event(failure=to_failure(_stopped(), reporter="")))
            work.cancel()
        if works:
            await asyncio.wait(works, timeout=STOP_SECONDS)

    async def _work(self, request: bytes, events: asyncio.Queue[Event], submitted_by: str) -> None:
        """Run a job; its last event says how it ended."""
        outcome = REFUSED
        try:
            if self._stopping:
                raise _stopped()
            message = _read(request)
            check_protocol(message.protocol, peer="the command line")
            if self._busy:
                raise PartyError(COORDINATOR, "is busy with another job: try again when it has ended")
            self._busy = True
            try:
                # In a thread: a job may name half a million people, and others must not wait meanwhile.
                job = await asyncio.to_thread(parse, message.settings, Job, origin=in_one_line(message.origin))
                outcome = GIVEN_UP
                self._metrics.job_began()
                last = Event(result=await self._run(job, events, submitted_by))
                outcome = FINISHED
            finally:
                self._busy = False
        except FedoraError as error:
            log.error("%s", discreet(error))
            last = Event(failure=to_failure(error, reporter=""))
            outcome = outcome if outcome == REFUSED else failed(error.kind)
        except Exception as error:
            log.error("%s", unexpected(error))
            missing = exhausted(error)
            kind = Failure.DATA if missing else Failure.INTERNAL
            outcome = failed(kind)
            reason = missing or f"failed with an unexpected {type(error).__name__}: {error}"
            last = Event(failure=Failure(kind=kind, culprit=COORDINATOR, reason=reason))
        finally:
            self._note(STOPPED if outcome == GIVEN_UP and self._stopping else outcome)
        await events.put(last)

    def _note(self, outcome: str) -> None:
        """Let those who look at the coordinator know how a job went."""
        if outcome == REFUSED:
            self._metrics.job_refused()
            return
        log.info("the job has ended: %s", outcome)
        self._metrics.job_ended(outcome)
        logs.in_job("")

    async def _run(self, job: Job, events: asyncio.Queue[Event], submitted_by: str) -> Result:
        """Wait for all parties, then do what the job asks for."""
        if missing := self._roster.missing():
            await events.put(Event(note=f"waiting for {', '.join(missing)}"))

        async def say(note: str) -> None:
            await events.put(Event(note=note))

        engine = Engine(self._federation, await self._roster.complete(), events.put, self._metrics)
        reason = "the job was stopped"
        try:
            runner = JobRunner(job, engine, self._federation, self._key, say, submitted_by=submitted_by)
            outcome = await runner.run()
            reason = ""
            return outcome
        except FedoraError as error:
            reason = discreet(error)  # the other parties need not know whose row or label was wrong
            raise
        except asyncio.CancelledError:
            reason = str(_stopped()) if self._stopping else reason
            raise
        finally:
            # Shielded: a user who hangs up, or a second Ctrl-C, must not leave a party in the middle of a job.
            await asyncio.shield(engine.dismiss(reason))


def _stopped() -> PartyError:
    return PartyError(COORDINATOR, "was stopped by a signal", Failure.INTERNAL)


def _read(request: bytes) -> JobMessage:
    try:
        return JobMessage.FromString(request)
    except Exception as error:  # protobuf's DecodeError is not in its type stubs
        raise PartyError("the command line", f"sent something that is not a job: {error}") from None
