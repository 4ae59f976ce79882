"""A party's life: join the coordinator, do what it asks, report, until told or made to stop."""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import asdict

import grpc

from fedora_vfl.errors import FedoraError, PartyError, StorageError, from_failure, to_failure
from fedora_vfl.fault_points import reached
from fedora_vfl.process import logs
from fedora_vfl.process.exhaustion import exhausted
from fedora_vfl.process.logs import discreet, unexpected
from fedora_vfl.process.metrics import CertificateMetrics, Source, TrafficMetrics
from fedora_vfl.settings.federation import Federation
from fedora_vfl.signing import SigningKey
from fedora_vfl.storage import remove_unfinished
from fedora_vfl.wire.channels import Secured, check_right_service, dial, path, reach
from fedora_vfl.wire.link import Link, begun, pack_control, unpack_control
from fedora_vfl.wire.meter import Meter, Packed, Totals
from fedora_vfl.wire.protocol import COORDINATOR, PROTOCOL, VERSION
from fedora_vfl.wire.tls import COORDINATOR_MEMBER, Credentials, Member, check_secured
from party.active import Active
from party.commits import Commits, Snapshot
from party.context import PartyContext
from party.data.matching import matched
from party.data.reading import digest_of, read
from party.drawn_parts import DrawnParts, Told
from party.dropped import read_list, remove_lock
from party.exchange_server import ExchangeServer
from party.metrics import PartyMetrics
from party.passive import Passive
from party.randomness import load_or_make_secret
from party.rejoining import Rejoining
from party.role import Role
from party.settings import PartySettings
from party.state import own_bottom
from protos.fedora.v1.control_pb2 import (
    DESCRIPTOR,
    Committed,
    FromCoordinator,
    FromParty,
    Halted,
    Hello,
    Idle,
    Privacy,
    Readings,
    Resumed,
    RolledBack,
    Setup,
)
from protos.fedora.v1.failure_pb2 import Failure
from protos.fedora.v1.phase_pb2 import Progress

GOODBYE_SECONDS = 1.0
MOST_AHEAD = 2  # phases that wait for their turn: one, and one more while the answer before it goes out
MOST_HELD_JOBS = 100  # that a greeting tells of
MOST_ENDED_JOBS = 10_000  # that are known to have ended, and do not begin again: weeks of jobs, a megabyte or two
MOST_REQUEST_BYTES = 64 * 1024 * 1024  # half a million ids; gRPC reads no more either

JOIN = DESCRIPTOR.services_by_name["Control"].methods_by_name["Join"]

log = logging.getLogger(__name__)

ControlLink = Link[FromParty, FromCoordinator]
Work = Callable[[ControlLink, FromCoordinator], Awaitable[FromParty]]


class PartyProcess:
    """One party process: it keeps its rows and its place in the federation from job to job."""

    def __init__(self, settings: PartySettings, federation: Federation) -> None:
        active = settings.name == federation.active.name
        if settings.model is not None:
            own_bottom(settings.model, default="mlp")
        records = matched(read(settings.data, with_labels=active), federation.matching, settings.data)
        log.info("%s: %d rows, %s", settings.data.path, len(records.ids), records.described())
        log.info("signs its statements with the key %s", SigningKey.load_or_make(settings.keys).public)
        if settings.drops == "for-good":
            dropped = read_list(settings.keys)
            log.info("has dropped rows for good in %d jobs", len(dropped.requests))
        else:
            log.warning("drops rows for one job only, and keeps no list of them: `drops` in the party file says so")
        self._totals, self._metrics = Totals(), PartyMetrics(own_rows=len(records.ids))
        credentials = _credentials(settings, federation)
        self._context = PartyContext(
            settings,
            federation,
            records,
            Meter(self._totals),
            self._metrics,
            secret=load_or_make_secret(settings.keys),
            credentials=credentials,
            data_digest=digest_of(settings.data.path),
        )
        self._exchange_server = ExchangeServer(self._context) if active else None
        self._commits = Commits(settings.keys)
        for folder in (settings.models, settings.keys):
            remove_unfinished(folder)
        remove_lock(settings.keys)
        self._role: Role | None = None
        self._work: asyncio.Task[None] | None = None
        self._hello = FromParty()  # as it was sent last
        # Of this connection, what the coordinator's books on it begin with; nothing once a job has ended on it.
        self._greeting: list[tuple[str, str, Packed]] = []
        self._welcome = False  # whether the coordinator has let this party in
        self._due = 0  # requests whose answers have not begun to go out
        # The last commit, while it is written and until the answer that waits for it has gone out; and the disk's part.
        self._committing: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._ahead: deque[FromCoordinator] = deque()  # phases that begin when the last request is answered
        # What the coordinator may ask for, one thing at a time.
        self._works: dict[str, Work] = {
            "setup": self._setup,
            "resume": self._resume,
            "commit_only": self._commit_only,
            "request": self._request,
            "drop": self._drop,
            "restart": self._restart,
            "phase": self._phase,
            "rollback": self._rollback,
            "assess": self._assess,
            "save": self._save,
            "attest": self._attest,
            "collect": self._collect,
        }

    @property
    def sources(self) -> list[Source]:
        """What there is to see of this party while it works."""
        traffic = TrafficMetrics(self._context.settings.name, self._totals)
        return [self._metrics, traffic, CertificateMetrics(self._context.credentials)]

    @property
    def joined(self) -> bool:
        """Whether the coordinator has let this party in, and is still there."""
        return self._metrics.joined

    async def live(self) -> None:
        """Serve the coordinator; when the connection is lost, try to join again for as long as the deadline allows."""
        if self._exchange_server:
            await self._exchange_server.start()
        rejoining = Rejoining(self._context.federation.deadlines, in_job=bool(self._commits.jobs()))
        try:
            while True:
                try:
                    await self._serve()
                except PartyError as error:
                    if self._welcome:
                        rejoining.was_in()
                    pause = rejoining.pause(error)
                    log.warning("%s; joining again", discreet(error))
                finally:
                    self._tell_joined(False)
                    await self._leave()
                await asyncio.sleep(pause)
        finally:
            if self._exchange_server:
                await self._exchange_server.stop()

    async def _serve(self) -> None:
        """Join the coordinator and answer it until the connection ends."""
        federation, name = self._context.federation, self._context.settings.name
        address, deadlines = federation.coordinator.address, federation.deadlines
        self._welcome = False
        secured: Secured = {"credentials": self._context.credentials, "peer": COORDINATOR_MEMBER}
        async with dial(address, deadlines.silence, **secured) as channel:
            await reach(channel, address, deadlines.join, **secured)
            call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(path(JOIN))()
            link: ControlLink = Link(
                call,
                me=name,
                peer=COORDINATOR,
                meter=self._context.meter,
                pack=pack_control,
                unpack=unpack_control(FromCoordinator),
            )
            try:
                jobs = self._commits.jobs()
                hello = Hello(protocol=PROTOCOL, party=name, version=VERSION, jobs=jobs[-MOST_HELD_JOBS:])
                self._hello = FromParty(hello=hello)
                await link.send(self._hello)
                while True:
                    timeout = None if self._welcome else deadlines.join
                    await self._obey(link, await link.receive(timeout=timeout, most=MOST_REQUEST_BYTES))
            except asyncio.CancelledError:
                if self._exchange_server:
                    self._exchange_server.health.leave()  # first of all: nobody should come who would be sent away
                await self._say_goodbye(link)
                raise
            except PartyError:
                await check_right_service(call, address, **secured)
                raise
            finally:
                link.close()

    async def _say_goodbye(self, link: ControlLink) -> None:
        """Tell the coordinator that this party was stopped on purpose, if it still listens."""
        name = self._context.settings.name
        goodbye = Failure(kind=Failure.LEFT, culprit=name, reason="was stopped by a signal")
        with contextlib.suppress(PartyError):
            await link.send(FromParty(failure=goodbye), timeout=GOODBYE_SECONDS)

    async def _obey(self, link: ControlLink, message: FromCoordinator) -> None:
        """Start what a message asks for; only a dismissal interrupts what is under way."""
        match message.WhichOneof("content"):
            case "welcome":
                self._welcome = True
                self._tell_joined(True)
                self._commits.erase_all_but(message.welcome.jobs)
                name = self._context.settings.name
                hello, welcome = pack_control(self._hello), pack_control(message)
                self._greeting = [(name, COORDINATOR, hello), (COORDINATOR, name, welcome)]
                log.info("joined the coordinator, release %s", message.welcome.version)
            case "failure":
                error = from_failure(message.failure)
                # It may say why it lets nobody in; once it has, what it says is one more message that can be wrong.
                raise PartyError(COORDINATOR, f"says that {error}") if self._welcome else error
            case "dismiss":
                if message.dismiss.reason:
                    log.warning("job given up: %s", discreet(message.dismiss.reason))
                await self._leave()
                if message.dismiss.job:
                    self._commits.erase(message.dismiss.job)
                    self._end(message.dismiss.job)
                    self._context.masked.forget()
                self._context.meter.close()
                self._greeting = []
                await link.send(FromParty(idle=Idle()))
            case "halt":
                await self._leave()
                commits = await asyncio.to_thread(self._commits.of(message.halt.job).whole)
                await link.send(FromParty(halted=Halted(commits=commits), attempt=message.attempt))
            case asked if asked in self._works:
                if self._due:
                    self._put_off(asked, message)
                    return
                if self._work:
                    await asyncio.wait([self._work])  # its answer has gone out, so it is about to end
                self._due = 1
                self._work = asyncio.create_task(self._work_off(link, message))
            case other:
                raise PartyError(COORDINATOR, f"sent {other}, which this party does not know")

    def _put_off(self, asked: str, message: FromCoordinator) -> None:
        """Keep a phase that was sent ahead until its turn comes."""
        if asked != "phase" or not message.ahead or len(self._ahead) == MOST_AHEAD:
            raise PartyError(COORDINATOR, f"sent {asked} before the last request was answered")
        self._ahead.append(message)
        self._due += 1

    async def _work_off(self, link: ControlLink, message: FromCoordinator) -> None:
        """Answer a request, and then those that were sent ahead meanwhile."""
        await self._answer(link, message)
        while True:
            while self._ahead:
                await self._answer(link, self._ahead.popleft())
            await self._committed()
            if not self._ahead:  # else it came while the last commit was being written
                return

    def _open_books(self, setup: FromCoordinator) -> None:
        """Begin a job with books that have nothing but its first request, and the greeting if no job came before it.

        That is what the coordinator begins with. Earlier greetings may be in them, and an earlier job, in part or
        whole, whose end this party has not been told.
        """
        meter = self._context.meter
        first = (COORDINATOR, self._context.settings.name, pack_control(setup))
        meter.close()
        meter.load_state_dict(Meter().state_dict(*self._greeting, first))

    async def _answer(self, link: ControlLink, message: FromCoordinator) -> None:
        """Do one thing that was asked for and say how it went.

        Where it ends with a commit, the answer waits until that lasts, and the phase after it, if it is here, does not.
        """
        try:
            if message.ahead:
                self._context.meter.count(COORDINATOR, self._context.settings.name, begun(message))
            answer = await self._works[message.WhichOneof("content") or ""](link, message)
            # Where batches overlap they stay under way from one phase to the next, if that is here already.
            if self._role and (message.commit or not self._ahead):
                await self._role.settle()
            await self._committed()  # answers go out one after the other
            if message.commit:
                self._commit(link, message, answer)
                return
        except Exception as error:
            answer = self._failure(error)
            await self._committed()
        await self._say(link, message, answer)

    async def _say(
        self,
        link: ControlLink,
        message: FromCoordinator,
        answer: FromParty,
        *,
        phase: tuple[str, int] | None = None,
    ) -> None:
        """Send the answer to a request, booked under a phase that may be over; after a failure no other is due."""
        self._due -= 1
        if answer.HasField("failure"):
            self._ahead.clear()
            self._due = 0
        answer.attempt = message.attempt
        await link.send(answer, phase=phase)

    def _failure(self, error: Exception) -> FromParty:
        """Return the answer to a request that went wrong."""
        name = self._context.settings.name
        if isinstance(error, FedoraError):
            log.error("%s", discreet(error))
            return FromParty(failure=to_failure(error, reporter=name))
        log.error("%s", unexpected(error))
        if isinstance(error, OSError):  # such as a full disk
            kind = Failure.STORAGE if error.errno in StorageError.MENDABLE else Failure.DATA
            said = f"{error.filename or 'a file'}: {error.strerror or error}"
            said = f"cannot write {said}" if kind == Failure.STORAGE else said
            return FromParty(failure=Failure(kind=kind, culprit=name, reason=said))
        missing = exhausted(error)  # a full disk, or no more memory
        kind = Failure.DATA if missing else Failure.INTERNAL
        reason = missing or f"failed with an unexpected {type(error).__name__}: {error}"
        return FromParty(failure=Failure(kind=kind, culprit=name, reason=reason))

    def _commit(self, link: ControlLink, message: FromCoordinator, answer: FromParty) -> None:
        """Begin to make the state after a request last, with the books as they will be when the answer has left."""
        role, meter, began = self._in_job(), self._context.meter, time.perf_counter()
        answer.attempt, answer.commit_seconds = message.attempt, 1.0  # whatever the value, its size is the same
        leaving = (self._context.settings.name, COORDINATOR, pack_control(answer))
        snapshot = Snapshot.of({**role.state_dict(), "meter": meter.state_dict(leaving)})
        commits = self._commits.of(role.job.job)
        taken, phase = time.perf_counter() - began, meter.phase  # the next one may be entered meanwhile

        async def write() -> None:
            await asyncio.to_thread(commits.save, message.number, snapshot, confirmed=message.confirmed)

        async def finish() -> None:
            said, writing = answer, time.perf_counter()
            try:
                await asyncio.shield(disk)
                said.commit_seconds = taken + time.perf_counter() - writing
            except Exception as error:
                said = self._failure(error)
                if self._work:
                    self._work.cancel()  # the phase after this one: nobody will ask for it
            await self._say(link, message, said, phase=phase)

        self._writing = disk = asyncio.create_task(write())
        self._committing = asyncio.create_task(finish())

    async def _committed(self) -> None:
        """Wait until the last commit lasts and its answer has gone out."""
        if self._committing:
            # If the connection is gone, whoever reads from it says so.
            await asyncio.gather(asyncio.shield(self._committing), return_exceptions=True)

    async def _setup(self, link: ControlLink, message: FromCoordinator) -> FromParty:
        role = self._begin(message.setup, message.attempt)
        if message.attempt == 1:  # later ones have gone back to the books of a commit, or to empty ones
            self._open_books(message)
        log.info("a job begins")

        async def tell(progress: Progress) -> None:
            await link.send(FromParty(progress=progress, attempt=message.attempt))

        role.tell = tell
        return FromParty(ready=await role.prepare())

    async def _resume(self, _: ControlLink, message: FromCoordinator) -> FromParty:
        resume, meter = message.resume, self._context.meter
        commits = self._commits.of(resume.setup.job)
        reached("resume.before")
        commits.erase_after(resume.commit)
        if not resume.commit:
            log.info("the job begins again")
            meter.start_again()
            return FromParty(resumed=Resumed())
        content = await asyncio.to_thread(commits.read, resume.commit)
        role = self._begin(resume.setup, message.attempt)
        role.load_state_dict(content)
        await role.open_streams()
        role.take_streams()
        meter.load_state_dict(content["meter"])
        reached("resume.after")
        log.info("the job goes on from request %d", resume.commit)
        return FromParty(resumed=Resumed())

    async def _commit_only(self, _: ControlLink, message: FromCoordinator) -> FromParty:
        return FromParty(committed=Committed())

    def _begin(self, setup: Setup, attempt: int) -> Role:
        """Take part in a job, from its beginning or from a commit."""
        if self._role:
            raise PartyError(COORDINATOR, "sent a new job before the last one was dismissed")
        logs.in_job(setup.job)
        self._metrics.in_job = True
        self._role = (
            Active(self._context, setup, attempt, self._exchange_server)
            if self._exchange_server
            else Passive(self._context, setup, attempt)
        )
        return self._role

    async def _phase(self, link: ControlLink, message: FromCoordinator) -> FromParty:
        async def tell(progress: Progress) -> None:
            await self._committed()  # whoever hears of this phase has heard of the one before it
            await link.send(FromParty(progress=progress, attempt=message.attempt))

        self._context.meter.enter(message.phase.name, message.phase.round)
        logs.in_phase(message.phase.name, message.phase.round)
        return FromParty(report=await self._in_job().run(message.phase, tell))

    async def _request(self, _: ControlLink, message: FromCoordinator) -> FromParty:
        accepted = await self._in_job().request(message.request)
        log.info("%d rows are to be forgotten, %d stay", accepted.rows, accepted.remaining)
        return FromParty(accepted=accepted)

    async def _drop(self, _: ControlLink, message: FromCoordinator) -> FromParty:
        return FromParty(dropped=self._in_job().drop())

    async def _restart(self, _: ControlLink, message: FromCoordinator) -> FromParty:
        return FromParty(restarted=self._in_job().restart(message.restart))

    async def _rollback(self, _: ControlLink, message: FromCoordinator) -> FromParty:
        self._in_job().rollback(message.rollback.checkpoints)
        return FromParty(rolled_back=RolledBack())

    async def _assess(self, _: ControlLink, message: FromCoordinator) -> FromParty:
        role = self._in_job()
        if not isinstance(role, Active):
            raise PartyError(COORDINATOR, "asked a party without labels for figures")
        return FromParty(assessment=role.assess(message.assess))

    async def _save(self, _: ControlLink, message: FromCoordinator) -> FromParty:
        return FromParty(saved=self._in_job().save_model(message.save))

    async def _attest(self, _: ControlLink, message: FromCoordinator) -> FromParty:
        return FromParty(statement=self._in_job().attest(message.attest))

    async def _collect(self, _: ControlLink, message: FromCoordinator) -> FromParty:
        loss = self._in_job().noise.loss()
        privacy = Privacy(**asdict(loss)) if loss else None
        meter = self._context.meter
        return FromParty(readings=Readings(readings=meter.readings(), uncounted=meter.uncounted(), privacy=privacy))

    def _in_job(self) -> Role:
        if self._role is None:
            raise PartyError(COORDINATOR, "asked for work before the job was set up")
        return self._role

    def _tell_joined(self, joined: bool) -> None:
        """Let those who look at this party know whether it is joined to the coordinator."""
        self._metrics.joined = joined
        if self._exchange_server:
            self._exchange_server.health.set_ready(joined)

    def _end(self, job: str) -> None:
        """Remember of a job only that it has ended: what it was told stays told."""
        told = self._context.told
        if job in told:
            told[job] = Told(DrawnParts(0), ended=True)
        for old in list(told)[:-MOST_ENDED_JOBS]:
            del told[old]

    async def _leave(self) -> None:
        """Let go of the job, if there is one, with all that memory holds of it; its commits stay."""
        under_way = [one for one in (self._work, self._committing) if one]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        if self._writing:  # it cannot be stopped, and what comes next looks at the same files
            await asyncio.gather(self._writing, return_exceptions=True)
        self._work = self._committing = self._writing = None
        self._due = 0
        self._ahead.clear()
        if self._role:
            role, self._role = self._role, None
            await role.close()
            role.consent.close()
            log.info("the job has ended here, or is interrupted")
        logs.in_job("")
        self._metrics.in_job = False


def _credentials(settings: PartySettings, federation: Federation) -> Credentials | None:
    """Return the party's certificate, or none where it can do without; what is wrong with it is said at once."""
    credentials = Credentials.load(settings.certificates) if settings.certificates else None
    if credentials:
        credentials.check(Member(settings.name, federation.role(settings.name)))
        credentials.warn()
    listens = settings.listen if settings.name == federation.active.name else None
    addresses = {federation.coordinator.address, listens or federation.active.address}
    for address in sorted(addresses):
        check_secured(
            address,
            credentials,
            plaintext=federation.plaintext,
            hint="name their folder as `certificates` in the party file",
        )
    return credentials
