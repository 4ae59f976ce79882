"""Jobs: taken from a user, one at a time, run with all parties, followed by the user to the end."""

import asyncio
import json
import logging
import re
import time
import traceback
import uuid
from collections.abc import AsyncIterator

from coordinator.engine import Engine
from coordinator.job import Job
from coordinator.methods.evaluation import evaluation
from coordinator.methods.training import training
from coordinator.result import result
from coordinator.roster import Roster
from protos.control_pb2 import DESCRIPTOR, Event, Result, Setup
from protos.control_pb2 import Job as JobMessage
from protos.failure_pb2 import Failure
from settings.federation import Federation
from settings.files import parse
from settings.model import MODEL_NAME
from wire.errors import FedoraError, PartyError, SettingsError, to_failure
from wire.protocol import COORDINATOR, check_protocol

SUBMIT = DESCRIPTOR.services_by_name["Jobs"].methods_by_name["Submit"]

log = logging.getLogger(__name__)


class Jobs:
    """The user's side of the coordinator."""

    def __init__(self, federation: Federation, roster: Roster) -> None:
        self._federation, self._roster = federation, roster
        self._busy = False

    async def submit(self, request: bytes, _: object) -> AsyncIterator[bytes]:
        """Run a job and stream what happens; the job is given up when the user hangs up."""
        events: asyncio.Queue[Event] = asyncio.Queue()
        work = asyncio.create_task(self._work(request, events))
        try:
            while True:
                event = await events.get()
                yield event.SerializeToString()
                if event.WhichOneof("content") in ("failure", "result"):
                    return
        finally:
            if not work.done():
                log.warning("the user hung up; the job is given up")
                work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _work(self, request: bytes, events: asyncio.Queue[Event]) -> None:
        """Run a job; its last event says how it ended."""
        try:
            message = _read(request)
            check_protocol(message.protocol, peer="the command line")
            job = parse(message.settings, Job, origin=message.origin)
            if self._busy:
                raise PartyError(COORDINATOR, "is busy with another job: try again when it has ended")
            self._busy = True
            try:
                last = Event(result=await self._run(job, events))
            finally:
                self._busy = False
        except FedoraError as error:
            log.error("%s", error)
            last = Event(failure=to_failure(error, reporter=""))
        except Exception as error:
            log.error("%s", traceback.format_exc())
            reason = f"failed with an unexpected {type(error).__name__}: {error}"
            last = Event(failure=Failure(kind=Failure.INTERNAL, culprit=COORDINATOR, reason=reason))
        await events.put(last)

    async def _run(self, job: Job, events: asyncio.Queue[Event]) -> Result:
        """Wait for all parties, then train, evaluate, save and close the books."""
        if missing := self._roster.missing():
            await events.put(Event(note=f"waiting for {', '.join(missing)}"))
        engine = Engine(self._federation, await self._roster.complete(), events.put)
        reason = "the job was stopped"
        try:
            outcome = await self._perform(job, engine, events)
            reason = ""
            return outcome
        except FedoraError as error:
            reason = str(error)
            raise
        finally:
            # Shielded: a user who hangs up, or a second Ctrl-C, must not leave a party in the middle of a job.
            await asyncio.shield(engine.dismiss(reason))

    async def _perform(self, job: Job, engine: Engine, events: asyncio.Queue[Event]) -> Result:
        began = time.perf_counter()
        if job.train.load and not re.fullmatch(MODEL_NAME, job.train.load):
            said = "on a cluster that is up, this is the name under which an earlier job saved its model"
            raise SettingsError(f"train.from: {job.train.load!r} is not a name; {said}")
        setup = Setup(
            job=uuid.uuid4().hex,
            seed=job.seed,
            passive=self._federation.passive,
            model=job.model.model_dump_json() if job.model else "",
            wire_dtype=job.wire.dtype.upper(),
            load=job.train.load or "",
        )
        ready = await engine.setup(setup)
        active = self._federation.active.name
        common = ready[active]
        note = f"{common.train} training and {common.test} test rows in common, {common.classes} classes"
        await events.put(Event(note=note))
        await engine.perform(training(job.train, seed=job.seed), rounds=job.train.rounds)
        test = await engine.perform(evaluation(batch_size=job.evaluate.batch_size))
        digests = await engine.save(job.train.save)
        ledger = await engine.collect()
        figures = result(
            job,
            ready=ready,
            active=active,
            engine=engine,
            ledger=ledger,
            test=test,
            digests=digests,
            seconds=time.perf_counter() - began,
        )
        return Result(result_json=json.dumps(figures, indent=2), ledger_csv=ledger.to_csv())


def _read(request: bytes) -> JobMessage:
    try:
        return JobMessage.FromString(request)
    except Exception as error:  # protobuf's DecodeError is not in its type stubs
        raise PartyError("the command line", f"sent something that is no job: {error}") from None
