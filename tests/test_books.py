"""Books after any history: both ends agree on what counted, whatever was lost, came late or was done twice.

Real parties, engines and journals, without sockets, files and networks: messages pass by hand, and are lost by hand.
"""

import asyncio
import copy
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coordinator.course import Course, dismiss
from coordinator.engine import Engine
from coordinator.journal import InMemory, Journal
from coordinator.ledger import Ledger
from coordinator.roster import Connection
from fedora_vfl.errors import PartyError
from fedora_vfl.settings.federation import Active, Coordinator, Federation
from fedora_vfl.wire.link import pack_control
from fedora_vfl.wire.meter import Meter, Packed
from fedora_vfl.wire.protocol import COORDINATOR
from party.commits import Snapshot
from party.metrics import PartyMetrics
from party.process import PartyProcess
from party.tensor_files import restore
from protos.fedora.v1.control_pb2 import Event, FromCoordinator, FromParty, Hello, Ready, Resume, Setup, Welcome
from protos.fedora.v1.exchange_pb2 import Order
from protos.fedora.v1.failure_pb2 import Failure
from protos.fedora.v1.meter_pb2 import Kind
from protos.fedora.v1.phase_pb2 import Phase, Report
from tests.virtual_time import VirtualLoop

PASSIVE, ACTIVE = ("passive-1", "passive-2"), "active"
PARTIES = (*PASSIVE, ACTIVE)
FEDERATION = Federation(
    coordinator=Coordinator(address="127.0.0.1:7000"), active=Active(address="127.0.0.1:7001"), passive=list(PASSIVE)
)
EMBEDDING = Packed(b"8 bytes.", Kind.EMBEDDING, 4)
# Where a request ends before its time: a party is gone when it is asked, in the middle of it, or before it can answer.
FATES = ("asked", "sending", "answering")


def gone(name: str) -> PartyError:
    return PartyError(name, "is gone", Failure.LOST)


class InMemoryCommits:
    """The commits of one party: what a disk would keep."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[int, dict[str, Any]]] = {}

    def jobs(self) -> list[str]:
        return sorted(self._kept)

    def of(self, job: str) -> "InMemoryCommits":
        self._job = job
        return self

    def erase(self, job: str) -> None:
        self._kept.pop(job, None)

    def erase_all_but(self, jobs: list[str]) -> None:
        self._kept = {job: kept for job, kept in self._kept.items() if job in jobs}

    def save(self, number: int, snapshot: Snapshot, *, confirmed: int) -> None:
        content = restore(copy.deepcopy(snapshot.flat), snapshot.tensors)
        self._kept.setdefault(self._job, {})[number] = content

    def whole(self) -> list[int]:
        return sorted(self._kept.get(self._job, {}))

    def read(self, number: int) -> dict[str, Any]:
        return copy.deepcopy(self._kept[self._job][number])

    def erase_after(self, number: int) -> None:
        kept = self._kept.get(self._job, {})
        for one in [one for one in kept if one > number]:
            del kept[one]


class Role:
    """A party's part in a job: passive parties send embeddings, as many as the phase has rounds."""

    def __init__(self, machine: "Books", name: str, setup: Setup, attempt: int) -> None:
        self._machine, self._name, self.job = machine, name, setup
        self._streams = {one: machine.streams[setup.job, attempt, one] for one in PASSIVE}
        self.consent, self.noise = SimpleNamespace(close=lambda: None), SimpleNamespace(loss=lambda: None)
        self.tell: Any = None

    async def prepare(self) -> Ready:
        await self.open_streams()
        return Ready()

    async def open_streams(self) -> None:
        """Greet: a greeting is counted where it leaves, and where it is taken."""
        await self._pass(Packed(b"greeting", Kind.CONTROL, phase=("join", 0)), 1)

    async def _pass(self, packed: Packed, count: int) -> None:
        meter = self._machine.meter(self._name)
        for _ in range(count):
            for one in PASSIVE if self._name == ACTIVE else ():
                meter.count(one, ACTIVE, await self._streams[one].get())
            if self._name != ACTIVE:
                meter.count(self._name, ACTIVE, packed)
                self._machine.sent[self._name] += packed.kind == Kind.EMBEDDING
                if self._machine.strikes("sending", self._name):
                    raise gone(self._name)
                self._streams[self._name].put_nowait(packed)

    def take_streams(self) -> None:
        pass

    async def settle(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {"state": {"order": Order()}}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        pass

    async def run(self, phase: Phase, _: object) -> Report:
        await self._pass(EMBEDDING._replace(phase=(phase.name, phase.round)), phase.joint.rounds)
        return Report(phase=phase.number)


class Line:
    """A control stream: each end counts what it sends and what it takes; after a loss neither gets anything."""

    def __init__(self, machine: "Books", name: str) -> None:
        self.machine, self.name, self.cut = machine, name, False
        self.meter = Meter()  # the coordinator's
        self.answers: asyncio.Queue[FromParty] = asyncio.Queue()

    def break_off(self) -> None:
        self.cut = True
        self.answers.put_nowait(FromParty())  # whoever waits is told

    async def send(self, message: FromCoordinator, *, timeout: float | None = None) -> None:
        """Have the party take a message of the coordinator's."""
        if self.cut:
            raise gone(self.name)
        self.meter.count(COORDINATOR, self.name, pack_control(message))
        if self.machine.strikes("asked", self.name):
            raise gone(self.name)
        self.machine.meter(self.name).count(COORDINATOR, self.name, pack_control(message))
        await self.machine.parties[self.name]._obey(cast(Any, PartyEnd(self)), message)

    async def receive(self, *, timeout: float | None = None, most: int | None = None) -> FromParty:
        answer = await self.answers.get()
        if self.cut:
            raise gone(self.name)
        self.meter.count(self.name, COORDINATOR, pack_control(answer))
        return answer

    def close(self) -> None:
        self.break_off()


class PartyEnd:
    """The party's end of it."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def send(
        self, message: FromParty, *, timeout: float | None = None, phase: tuple[str, int] | None = None
    ) -> None:
        line, packed = self._line, pack_control(message)
        if phase and not packed.phase:
            packed = packed._replace(phase=phase)
        line.machine.meter(line.name).count(line.name, COORDINATOR, packed)
        if line.cut or line.machine.strikes("answering", line.name):
            raise gone(line.name)
        line.answers.put_nowait(message)


class Books(RuleBasedStateMachine):
    """A cluster, one job after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.commits = {name: InMemoryCommits() for name in PARTIES}
        self.parties: dict[str, PartyProcess] = {}
        self.lines: dict[str, Line] = {}
        self.streams: defaultdict[tuple[str, int, str], asyncio.Queue[Packed]] = defaultdict(asyncio.Queue)
        self.fate: tuple[str, str] | None = None  # what will befall whom
        self.jobs = self.attempt = self.requests = 0
        self.due = False  # whether the next requests end with a commit
        self.job, self.file, self.engine = "", InMemory(), cast(Engine, None)
        self.repeated: Counter[str] = Counter()  # embeddings that a process has sent in vain in this job, at least
        self.sent: Counter[str] = Counter()  # in this job, by a process
        self.asked: deque[int] = deque()  # how many embeddings each request was for that counts

    @initialize()
    def start(self) -> None:
        """Start all members."""
        for name in PARTIES:
            self.parties[name] = self.new_process(name)
        self.run(self.join_all())

    def teardown(self) -> None:
        """End all that is under way."""

        async def work() -> None:
            for process in self.parties.values():
                await process._leave()

        self.run(work())
        self.loop.close()

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    # Members

    def new_process(self, name: str) -> PartyProcess:
        """Start a party: of an earlier process nothing is left but its commits."""
        process = PartyProcess.__new__(PartyProcess)
        masked = SimpleNamespace(forget=lambda: None)
        settings = SimpleNamespace(name=name)
        process._context = cast(Any, SimpleNamespace(settings=settings, meter=Meter(), told={}, masked=masked))
        process._metrics, process._exchange_server = PartyMetrics(own_rows=1), None
        process._commits = cast(Any, self.commits[name])
        process._role = process._work = process._committing = process._writing = None
        process._greeting, process._welcome, process._due, process._ahead = [], False, 0, deque()
        process._works = {
            "setup": process._setup,
            "resume": process._resume,
            "phase": process._phase,
            "collect": process._collect,
        }
        self.sent[name] = self.repeated[name] = 0
        return process

    def meter(self, name: str) -> Meter:
        return self.parties[name]._context.meter

    async def join_all(self) -> None:
        """Have every party join again whose connection was lost."""
        for name in PARTIES:
            if name not in self.lines or self.lines[name].cut:
                await self.join(name)

    async def join(self, name: str) -> None:
        process, line = self.parties[name], Line(self, name)
        await process._leave()
        process._welcome = False
        process._hello = FromParty(hello=Hello(party=name, jobs=process._commits.jobs()))
        hello = pack_control(process._hello)
        process._context.meter.count(name, COORDINATOR, hello)
        line.meter.count(name, COORDINATOR, hello)
        going_on = [self.job] if self.job else []
        self.lines[name] = line
        await line.send(FromCoordinator(welcome=Welcome(jobs=going_on)))

    def strikes(self, where: str, name: str) -> bool:
        """Tell whether a party's connection is lost here and now."""
        if self.fate != (where, name):
            return False
        self.fate = None
        self.lines[name].break_off()
        return True

    # What happens

    async def ask(self, number: int, answer: str) -> None:
        """Ask for something; what comes after it, if that is known, is sent ahead."""
        message, last = self.message(number), number == len(self.asked) - 1
        if message.HasField("phase"):
            for line in self.lines.values():
                line.meter.enter(message.phase.name, message.phase.round)
        following = None if last else self.message(number + 1)
        await self.engine._ask(message, answer, timeout=5.0, commit=number == 0, following=following)

    async def attempt_again(self) -> None:
        """Go on from the last commit, as often as it takes, with all who are there by then."""
        while True:
            await self.join_all()
            self.attempt += 1
            try:
                await self.resume()
            except PartyError:
                continue
            return

    async def resume(self) -> None:
        entries = await self.file.entries()
        course = Course.__new__(Course)
        course._federation, course._file, course._id, course._said = FEDERATION, cast(Any, self.file), self.job, ""
        course._tell = self.tell
        journal = await course._resume(self.connections(), self.attempt, entries, Resume(setup=self.setup()))
        self.begin(journal)
        for name in PARTIES:  # what comes to nothing from now on is known to this process
            done = sum(list(self.asked)[: len(journal._earlier)]) if name != ACTIVE else 0
            self.repeated[name] = max(self.repeated[name], self.sent[name] - done)
        behind = len(journal._earlier)
        self.asked = deque(list(self.asked)[:behind])
        for number in range(behind):  # the course of the job is gone through again
            self.engine.journal.replay({name: self.message(number) for name in PARTIES})

    def message(self, number: int) -> FromCoordinator:
        if number == 0:
            return FromCoordinator(setup=self.setup())
        phase = Phase(name="train", round=number, number=number)
        phase.joint.rounds = self.asked[number]
        return FromCoordinator(phase=phase)

    def setup(self) -> Setup:
        return Setup(job=self.job, passive=PASSIVE)

    def connections(self) -> list[Connection]:
        return [Connection(name, cast(Any, self.lines[name]), self.lines[name].meter) for name in PARTIES]

    async def tell(self, event: Event) -> None:
        pass

    def begin(self, journal: Journal) -> None:
        self.engine = Engine(FEDERATION, self.connections(), self.tell, journal=journal)
        # Commits come when the history says so, not when the clock does.
        self.engine._pace.due = lambda *_, **__: self.due  # type: ignore[method-assign]

    async def carry_on(self) -> None:
        """Ask for what comes next; after a loss the job goes on from its last commit, and it is not asked again."""
        fated = self.fate is not None
        try:
            for number in range(self.engine.journal.number - 1, len(self.asked)):
                await self.ask(number, "report" if number else "ready")
        except PartyError:
            assert fated, "nothing went wrong"
            await self.attempt_again()

    @contextmanager
    def own_roles(self) -> Iterator[None]:
        """Have parties make roles of this file's."""

        def begin(process: PartyProcess, setup: Setup, attempt: int) -> Any:
            assert process._role is None, "the last job has not been let go of"
            process._role = cast(Any, Role(self, process._context.settings.name, setup, attempt))
            return process._role

        with patch.object(PartyProcess, "_begin", begin):
            yield

    @precondition(lambda self: not self.job)
    @rule(fate=st.none() | st.tuples(st.sampled_from(FATES), st.sampled_from(PARTIES)))
    def begin_job(self, fate: tuple[str, str] | None) -> None:
        """Submit the next job."""
        self.jobs, self.attempt = self.jobs + 1, 1
        self.job, self.file = f"{self.jobs:08x}", InMemory()
        self.sent.clear()
        self.repeated.clear()
        self.asked = deque([0])

        async def work() -> None:
            await self.join_all()
            self.fate = fate
            self.begin(Journal(self.file, (), 1))
            await self.carry_on()
            while not self.asked:  # it has to begin again
                self.asked = deque([0])
                await self.carry_on()

        with self.own_roles():
            self.run(work())
        self.fate = None

    @precondition(lambda self: self.job)
    @rule(
        embeddings=st.lists(st.integers(0, 3), min_size=1, max_size=3),
        commit=st.booleans(),
        fate=st.none() | st.tuples(st.sampled_from(FATES), st.sampled_from(PARTIES)),
    )
    def run_phases(self, embeddings: list[int], commit: bool, fate: tuple[str, str] | None) -> None:
        """Run some phases, each sent before the last one has ended, in which a connection may be lost."""
        self.fate, self.due = fate, commit
        self.asked.extend(embeddings)
        with self.own_roles():
            self.run(self.carry_on())
            self.begin_again_if_needed()
        self.fate = None

    @precondition(lambda self: self.job)
    @rule(name=st.sampled_from(PARTIES))
    def kill(self, name: str) -> None:
        """Kill a party in a job; another process of it comes back."""

        async def work() -> None:
            self.lines[name].break_off()
            await self.parties[name]._leave()
            self.parties[name] = self.new_process(name)
            await self.attempt_again()

        with self.own_roles():
            self.run(work())
            self.begin_again_if_needed()

    @precondition(lambda self: self.job)
    @rule()
    def kill_coordinator(self) -> None:
        """Kill the coordinator in a job: its own counts since the last commit are gone."""
        self.hang_up()
        with self.own_roles():
            self.run(self.attempt_again())
            self.begin_again_if_needed()

    @rule(names=st.sets(st.sampled_from(PARTIES), min_size=1))
    def lose_connections(self, names: set[str]) -> None:
        """Cut some parties off, in a job or between two: they join again."""
        for name in names:
            self.lines[name].break_off()
        with self.own_roles():
            self.run(self.attempt_again() if self.job else self.join_all())
            if self.job:
                self.begin_again_if_needed()

    @precondition(lambda self: self.job)
    @rule(unheard=st.sets(st.sampled_from(PARTIES)))
    def abandon(self, unheard: set[str]) -> None:
        """Give a job up; some parties, which are away, or a coordinator that is killed at once, do not hear of it."""
        for name in unheard:
            self.lines[name].break_off()
        self.run(dismiss([one for one in self.connections() if one.name not in unheard], self.job, "", timeout=5.0))
        self.job = ""

    @precondition(lambda self: self.job)
    @rule(unheard=st.sets(st.sampled_from(PARTIES)))
    def end(self, unheard: set[str]) -> None:
        """Collect all books, and let go of the job."""
        expected = {"train": sum(self.asked) * len(PASSIVE) * EMBEDDING.tensor_bytes}
        self.engine.predicted.update(expected)
        ledger: Ledger = self.run(self.engine.collect())
        told = {one.sender: one.messages for one in ledger.repeated if one.kind == "embedding"}
        assert all(told.get(name, 0) >= self.repeated[name] for name in PASSIVE), "what was sent in vain is told"
        self.abandon(unheard)

    @invariant()
    def what_a_process_has_sent_in_vain_is_in_its_books(self) -> None:
        """No greeting, welcome or return to a commit takes it out again."""
        for name in PASSIVE if self.job else ():
            to_active = [one for one in self.meter(name).uncounted() if one.receiver == ACTIVE]
            seen = {one.kind: one.counts[0].messages for one in to_active}
            assert seen.get(Kind.EMBEDDING, 0) >= self.repeated[name]

    def hang_up(self) -> None:
        for line in self.lines.values():
            line.break_off()

    def begin_again_if_needed(self) -> None:
        """Go on from the set-up where not even that was committed."""

        async def work() -> None:
            while not self.asked:
                self.asked = deque([0])
                await self.carry_on()

        self.run(work())


def test_a_phase_that_comes_while_a_commit_is_written_begins() -> None:
    """Else all would wait for its report until a deadline is over."""
    books = Books()
    books.start()
    books.begin_job(fate=None)
    process, writing, written = books.parties["passive-1"], asyncio.Event(), asyncio.Event()

    async def save(*_: object, **__: object) -> None:
        writing.set()
        await written.wait()

    async def work() -> None:
        first, second = (FromCoordinator(phase=Phase(name="train", round=n, number=n), commit=True) for n in (1, 2))
        second.ahead = True
        end = cast(Any, PartyEnd(books.lines["passive-1"]))
        with patch("party.process.asyncio.to_thread", save):
            await process._obey(end, first)
            await writing.wait()
            for _ in range(10):  # nothing is left to do but to wait for the disk
                await asyncio.sleep(0)
            await process._obey(end, second)
            written.set()
            assert process._work
            await process._work
        answers = [books.lines["passive-1"].answers.get_nowait() for _ in range(2)]
        assert [one.report.phase for one in answers] == [1, 2]

    with books.own_roles():
        books.run(work())
    books.teardown()


TestBooks = Books.TestCase
TestBooks.settings = hypothesis.settings(max_examples=100, stateful_step_count=20, deadline=None)
