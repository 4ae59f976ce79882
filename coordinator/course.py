"""A job's way through losses: an attempt after the other, each from the last commit that all members have."""

import asyncio
import logging
import random
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from coordinator.blame import all_done, heard_from, is_passing
from coordinator.engine import MOST_ANSWER_BYTES, Engine, Tell
from coordinator.job import Job
from coordinator.job_runner import JobRunner, setup_message
from coordinator.journal import Journal, JournalFile
from coordinator.metrics import CoordinatorMetrics
from coordinator.resuming import resume_point
from coordinator.roster import Connection, Roster
from fedora_vfl.errors import FedoraError, PartyError
from fedora_vfl.process.logs import discreet
from fedora_vfl.settings.federation import Federation
from fedora_vfl.signing import SigningKey
from protos.fedora.v1.control_pb2 import Dismiss, Event, FromCoordinator, FromParty, Halt, Result, Resume
from protos.fedora.v1.failure_pb2 import Failure
from protos.fedora.v1.journal_pb2 import JournalEntry

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 10.0
GRACE_SECONDS = 2.0

log = logging.getLogger(__name__)


class JobFile(JournalFile, Protocol):
    """What is kept of one job that runs."""

    async def next_attempt(self) -> int:
        """Count the attempts at the job; the first is 1."""

    async def set_missed(self, missed: Mapping[str, float], *, suspended: bool) -> None:
        """Note who is missed and since when, in seconds since 1970, and whether the job waits without an end."""


class Course:
    """One job from its beginning, or from where an earlier process was, to its end."""

    def __init__(
        self,
        federation: Federation,
        roster: Roster,
        key: SigningKey,
        metrics: CoordinatorMetrics,
        file: JobFile,
        tell: Tell,
        *,
        id: str,
        submitted_by: str = "",
        outlived: bool = False,
    ) -> None:
        """`outlived` says that the job came to an earlier process, whose parties may take longer to come back."""
        self._federation, self._roster, self._key, self._metrics = federation, roster, key, metrics
        self._file, self._tell, self._id, self._submitted_by = file, tell, id, submitted_by
        self._outlived = outlived
        self._said = ""
        self._confirmed = 0
        self._fruitless = 0.0  # seconds of attempts, one after the other, that have come no further
        self._pause = FIRST_PAUSE_SECONDS

    async def run(self, job: Job) -> Result:
        """Do all that a job asks for, whoever is lost and comes back meanwhile."""
        while True:
            attempt, entries = await self._file.next_attempt(), await self._file.entries()
            connections = await self._gather(begun=attempt > 1 or self._outlived)
            began, confirmed = time.monotonic(), self._confirmed
            try:
                return await self._attempt(job, connections, attempt, entries)
            except FedoraError as error:
                if not is_passing(error):
                    raise
                if self._confirmed > confirmed:
                    self._fruitless, self._pause = 0.0, FIRST_PAUSE_SECONDS
                else:
                    self._fruitless += time.monotonic() - began
                await self._after(error)

    async def _attempt(
        self, job: Job, connections: list[Connection], attempt: int, entries: Sequence[JournalEntry]
    ) -> Result:
        """Bring all parties to the last moment that they have in common, and go on from there."""
        setup = setup_message(job, self._federation, number=self._id, submitted_by=self._submitted_by)
        journal = Journal(self._file, (), attempt)
        if attempt > 1:
            resume = Resume(setup=setup)
            journal = await self._resume(connections, attempt, entries, resume)

        async def say(note: str) -> None:
            if not journal.replaying:
                await self._tell(Event(note=note))

        engine = Engine(self._federation, connections, self._tell, self._metrics, journal)
        runner = JobRunner(job, engine, self._federation, self._key, say, setup=setup)
        try:
            return await runner.run()
        finally:
            self._confirmed = max(self._confirmed, journal.confirmed)

    async def _resume(
        self, connections: list[Connection], attempt: int, entries: Sequence[JournalEntry], resume: Resume
    ) -> Journal:
        """Have all parties go back to one moment; return the journal up to it."""
        halt = FromCoordinator(halt=Halt(job=self._id), attempt=attempt)
        answers = await self._ask_all(connections, {one.name: halt for one in connections}, "halted")
        held = {name: set(answer.halted.commits) for name, answer in answers.items()}
        point = resume_point([list(one.answers) for one in entries], held)
        await self._file.truncate_after(point.number)
        messages = {}
        for name, commit in point.commits.items():
            messages[name] = FromCoordinator(resume=resume, attempt=attempt)
            messages[name].resume.commit = commit
        await self._ask_all(connections, messages, "resumed")
        journal = Journal(self._file, entries[: point.number], attempt)
        for one in entries[point.number :]:
            journal.set_aside([*one.readings, *one.uncounted])
        for connection in connections:
            journal.set_aside(connection.meter.close())
        if point.number:
            asked = entries[point.number - 1].asked
            await self._say(f"attempt {attempt}: the job goes on after request {point.number} ({asked})")
        return journal

    async def _gather(self, *, begun: bool) -> list[Connection]:
        """Wait until all parties are here, for those who were here before without an end; say who is missed."""
        if missing := self._roster.missing():
            await self._say(f"waiting for {', '.join(missing)}")
        if not begun and not self._roster.expected_back():
            return await self._roster.complete()
        patience = time.monotonic() + self._federation.deadlines.absence
        since: dict[str, float] = {}
        while True:
            missing, now = self._roster.missing(), time.time()
            since = {name: since.get(name, now) for name in missing}
            left = patience - time.monotonic()
            await self._file.set_missed(since, suspended=bool(missing) and left <= 0)
            if self._roster.missing() != missing:
                continue  # somebody came or went while that was written down
            if not missing:
                return self._roster.in_order()
            if left <= 0:
                await self._say(f"the job is suspended until {' and '.join(missing)} come back")
            await self._roster.change(missing, timeout=left if left > 0 else None)

    async def _after(self, error: FedoraError) -> None:
        """Take a loss: wait a little before the next attempt, or give up where waiting does not help."""
        log.warning("%s", discreet(error))
        if self._fruitless > self._federation.deadlines.absence:
            if error.kind != Failure.STORAGE:
                raise error
            await self._file.set_missed({}, suspended=True)
        when = "that is mended" if error.kind == Failure.STORAGE else "all members are there"
        await self._say(f"{error}; the job goes on from its last commit when {when}")
        await asyncio.sleep(self._pause * random.uniform(0.5, 1.0))
        self._fruitless += self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)

    async def _say(self, note: str) -> None:
        if note != self._said:
            self._said = note
            await self._tell(Event(note=note))

    async def _ask_all(
        self, connections: list[Connection], messages: Mapping[str, FromCoordinator], answer: str
    ) -> dict[str, FromParty]:
        """Send every party its message and return the answers; the error that explains most is raised."""
        tasks = {asyncio.create_task(self._ask_one(one, messages[one.name], answer)): one.name for one in connections}
        try:
            await all_done(tasks, None, {})
            return {name: task.result() for task, name in tasks.items()}
        finally:
            # Whoever waits for one that is lost need not be waited for: the next attempt interrupts it.
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask_one(self, connection: Connection, message: FromCoordinator, answer: str) -> FromParty:
        deadlines = self._federation.deadlines
        await connection.link.send(message, timeout=deadlines.step)
        while True:
            one = await connection.link.receive(timeout=deadlines.setup + GRACE_SECONDS, most=MOST_ANSWER_BYTES)
            if one.attempt != message.attempt and not (one.HasField("failure") and not one.attempt):
                continue  # it was on its way when an earlier attempt ended
            if one.HasField("failure"):
                raise heard_from(connection.name, one.failure, active=self._federation.active.name)
            if one.WhichOneof("content") != answer:
                raise PartyError(connection.name, f"answered with {one.WhichOneof('content')} where {answer} was due")
            return one


async def dismiss(connections: Sequence[Connection], job: str, reason: str, *, timeout: float) -> None:
    """End a job at parties that are here.

    Args:
        connections: The parties.
        job: Its id.
        reason: Why it was given up; empty when all went well.
        timeout: Seconds that a party may take to let go.
    """

    async def one(connection: Connection) -> None:
        try:
            async with asyncio.timeout(timeout):
                await connection.link.send(FromCoordinator(dismiss=Dismiss(reason=reason, job=job)))
                while (await connection.link.receive(most=MOST_ANSWER_BYTES)).WhichOneof("content") != "idle":
                    pass
        except (FedoraError, TimeoutError):
            # It is gone, or too busy to listen. What it still sends must not be taken for an answer to the next job:
            # it has to join again.
            connection.link.close()
        connection.meter.close()

    await asyncio.gather(*(one(connection) for connection in connections))
