"""Trials: a job that faults befall, compared with the same job left in peace."""

import asyncio
import contextlib
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fedora_vfl.bench.faults.comparing import Left, differences, look
from fedora_vfl.bench.faults.plan import Fault, Ground, Kind, Trial, draw, every_point, scenario_of, some_of
from fedora_vfl.bench.faults.scenarios import SCENARIOS
from fedora_vfl.bench.faults.stage import DEADLINES, Stage, opened, until
from fedora_vfl.bench.faults.striking import COUNT, FULL, KILL, Order
from fedora_vfl.bench.warm import WarmStart
from fedora_vfl.errors import FedoraError

PATIENCE = 300.0  # for a job, whatever befalls it
SLOW_RATE = 200_000  # bits a second


class UnsteadyError(FedoraError):
    """A job does not even leave the same twice in peace."""


@dataclass(frozen=True)
class Course:
    """How a job went."""

    events: tuple[tuple[float, str], ...]  # when, and what
    code: int
    error: str

    @property
    def seconds(self) -> float:
        """From its first event to its last."""
        return self.events[-1][0] - self.events[0][0] if self.events else 0.0


@dataclass(frozen=True)
class Verdict:
    """What came of one trial."""

    trial: Trial
    lost: tuple[str, ...]  # what differs from the undisturbed run, or was left over; nothing, it is hoped
    struck: tuple[tuple[Fault, float | None], ...]  # faults that came to pass, and seconds until the job went on
    seconds: float
    restarts: int


@dataclass
class Struck:
    """When a fault came to pass."""

    fault: Fault
    when: float | None = None


@dataclass(frozen=True)
class Peace:
    """A scenario's undisturbed run."""

    left: Left
    ground: Ground
    seconds: float


@dataclass
class Series:
    """All trials of a seed."""

    seed: int
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def lost(self) -> list[Verdict]:
        """The trials after which something was not as it should be."""
        return [one for one in self.verdicts if one.lost]


async def run_series(
    series: Series,
    count: int | None,
    *,
    hosts: bool,
    points: bool = False,
    scenarios: Sequence[str] = tuple(SCENARIOS),
    kinds: Collection[Kind] = tuple(Kind),
    at_once: int = 1,
    warm: bool = True,
    told: Callable[[str], None] = lambda line: None,
) -> None:
    """Run so many trials, scenario by scenario, and compare each with its undisturbed run.

    Args:
        series: What all faults follow from, and where verdicts go.
        count: How many trials; with `points` of each scenario, chosen by the seed, and all there are unless told.
        hosts: Whether every member has a host of its own, whose line can be cut.
        points: Whether nothing is drawn, and every member is killed at every named point.
        scenarios: The jobs, by name.
        kinds: What may go wrong.
        at_once: How many scenarios run at the same time, each on a cluster of its own: members mostly wait.
        warm: Whether members are forked from a process that has imported what they need.
        told: Is told a line about each trial.
    """
    room = asyncio.Semaphore(at_once)

    async def run(name: str) -> None:
        numbers = [n for n in range(count or 0) if scenario_of(series.seed, n, scenarios) == name]
        if not numbers and not points:
            return
        async with room, _on_stage(name, hosts=hosts, warm=warm) as stage:
            peace = await undisturbed(stage)
            told(f"{name}: undisturbed, {peace.seconds:.1f} s")
            if points:
                trials = some_of(every_point(name, peace.ground), count, series.seed)
            else:
                drawing = partial(draw, hosts=hosts, silence=DEADLINES.silence, kinds=kinds)
                trials = [drawing(series.seed, number, name, peace.ground) for number in numbers]
            for trial in trials:
                verdict = await attempt(stage, trial, peace)
                series.verdicts.append(verdict)
                told(told_of(verdict))

    running = [asyncio.create_task(run(name)) for name in scenarios]
    try:
        await asyncio.gather(*running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@contextlib.asynccontextmanager
async def _on_stage(name: str, *, hosts: bool, warm: bool) -> AsyncIterator[Stage]:
    """Start the cluster of a scenario; nothing is left of it in the end."""
    folder = Path(tempfile.mkdtemp(prefix="fedora-faults-"))
    starting = WarmStart() if warm else None
    try:
        async with opened(folder / name, SCENARIOS[name], hosts=hosts, starting=starting) as stage:
            yield stage
    finally:
        if starting:
            starting.close()
        shutil.rmtree(folder, ignore_errors=True)


def told_of(verdict: Verdict) -> str:
    """Say in a line what came of a trial."""
    faults = "; ".join(fault.told() for fault in verdict.trial.all_faults)
    outcome = f"LOST: {', '.join(verdict.lost[:5])}" if verdict.lost else "equal to the bit"
    return f"{verdict.trial.number:>4} {verdict.trial.scenario}: {faults}: {outcome}, {verdict.seconds:.1f} s"


async def undisturbed(stage: Stage) -> Peace:
    """Run a scenario's job in peace, twice: what differs then is not what faults have done. Count named points."""
    first = await Run(stage, stage.folder / "peace").to_its_end()
    left = _found(stage, first, stage.folder / "peace")
    counts = {name: orders.give(Order(COUNT)) for name, orders in stage.orders.items()}
    again = await Run(stage, stage.folder / "again").to_its_end()
    repeated = _found(stage, again, stage.folder / "again")
    if found := list(differences(left, repeated)):
        raise UnsteadyError(f"two undisturbed runs differ: {', '.join(found)}")
    points = {name: dict(Counter(orders.log(counts[name]))) for name, orders in stage.orders.items()}
    for orders in stage.orders.values():
        orders.take_back()
    # The first has waited until all members were up.
    return Peace(left, Ground(points), min(first.seconds, again.seconds))


def _found(stage: Stage, course: Course, results: Path) -> Left:
    if course.code:
        raise UnsteadyError(f"an undisturbed job failed: {course.error} {'; '.join(stage.last_words)}")
    return look(stage.run, results)


async def attempt(stage: Stage, trial: Trial, peace: Peace) -> Verdict:
    """Run the job once more, with faults, and look at what it leaves."""
    stage.restarts.clear()
    stage.last_words.clear()
    runs = [Run(stage, stage.folder / f"trial-{trial.number}-{place}") for place in range(trial.jobs)]
    before, struck = ([Struck(fault) for fault in some] for some in (trial.before, trial.faults))
    for one in before:
        await _strike(stage, one, ())
    faults = [asyncio.create_task(_befall(stage, one, peace.seconds * trial.jobs, runs)) for one in struck]
    try:
        courses = await asyncio.gather(*(run.to_its_end() for run in runs))
    finally:
        for task in faults:
            task.cancel()
        ends = await asyncio.gather(*faults, return_exceptions=True)
        _mend(stage)
    for end in ends:
        if isinstance(end, Exception):
            raise end  # the harness itself has failed
    lost = []
    for run, course in zip(runs, courses, strict=True):
        if course.code:
            lost.append(f"exit code {course.code}: {course.error}")
        else:
            lost += differences(peace.left, look(stage.run, run.results))
    if not lost:
        lost += [f"left over: {path}" for path in await _left_over(stage)]
    for run in runs:
        shutil.rmtree(run.results, ignore_errors=True)
    return Verdict(
        trial,
        lost=tuple(lost),
        struck=tuple(
            # Before the job nothing was under way that could go on.
            (one.fault, None if one.fault.between else _until_on(courses, one.when))
            for one in (*before, *struck)
            if one.when is not None
        ),
        seconds=max(course.seconds for course in courses),
        restarts=sum(stage.restarts.values()),
    )


async def _left_over(stage: Stage) -> list[str]:
    """Return what is still there of a job that has ended; a party that is just coming back may take a moment."""
    for _ in range(600):
        if not (left := stage.left_over()):
            return []
        await asyncio.sleep(0.1)
    return left


def _until_on(courses: Sequence[Course], when: float) -> float | None:
    """Return how long it took from a fault to the next sign of progress."""
    events = sorted(one for course in courses for one in course.events)
    later = [moment for moment, what in events if moment > when and what.startswith(("finished", "ended"))]
    return later[0] - when if later else None


class Run:
    """One job, from the user's side."""

    def __init__(self, stage: Stage, results: Path) -> None:
        self._stage, self.results = stage, results
        self.begun = asyncio.Event()  # whether the user has been told something
        self._id = ""
        self._user: asyncio.subprocess.Process | None = None
        self._left = False  # whether the user's process was killed, and another follows the job
        self._events: list[tuple[float, str]] = []

    async def to_its_end(self) -> Course:
        """Run the job and return how it went."""
        hopeless = asyncio.create_task(self._stage.hopeless.wait())
        working = asyncio.create_task(self._work())
        try:
            # When a member cannot be started the job would never end.
            await asyncio.wait([working, hopeless], timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            reason = "a member cannot be started" if hopeless.done() else f"not over after {PATIENCE:g} s"
            return Course(tuple(self._events), 1, f"{reason}; {'; '.join(self._stage.last_words[-3:])}")
        finally:
            for task in (working, hopeless):
                task.cancel()
            await asyncio.gather(working, hopeless, return_exceptions=True)
            if self._user and self._user.returncode is None:
                self._user.kill()
                await self._user.wait()

    def leave(self) -> None:
        """Kill the user's process; the next one follows the job."""
        if self._user and self._user.returncode is None:
            self._left = True
            self._user.kill()

    async def _work(self) -> Course:
        while True:
            self._left = False
            self._user, said = await self._stage.user(self.results, PATIENCE, id=self._id)
            errors = []
            async for line in said:
                moment, _, what = line.decode().strip().partition(" ")
                if not moment[:1].isdigit():
                    errors.append(line.decode().strip())
                    continue
                if what.startswith("submitted"):
                    self._id = what.split()[1]
                self._events.append((float(moment), what))
                self.begun.set()
            code = await self._user.wait()
            if not self._left:
                self._events.append((time.time(), "ended"))
                return Course(tuple(self._events), code, " ".join(errors))


async def _befall(stage: Stage, struck: Struck, seconds: float, runs: Sequence[Run]) -> None:
    """Have one fault come to pass."""
    fault = struck.fault
    for name in fault.members:
        stage.pauses[name] = fault.pause
    if fault.kind == Kind.KILL_AT_POINT:
        (name,) = fault.members
        number = stage.orders[name].give(Order(KILL, fault.point, fault.nth))
        await until(lambda: bool(stage.orders[name].log(number)))
        struck.when = float(stage.orders[name].log(number)[0])
        return
    for run in runs:
        await run.begun.wait()
    await asyncio.sleep(fault.after * seconds)
    await _strike(stage, struck, runs)


async def _strike(stage: Stage, struck: Struck, runs: Sequence[Run]) -> None:
    """Have a fault come to pass now."""
    fault, struck.when = struck.fault, time.time()
    match fault.kind:
        case Kind.KILL | Kind.KILL_SEVERAL | Kind.KILL_ALL:
            await _kill(stage, fault)
            if fault.again is not None:
                await stage.back(fault.members)
                await asyncio.sleep(fault.again)
                await _kill(stage, fault)
        case Kind.TORN | Kind.FLIPPED:
            await _damage(stage, fault)
        case Kind.STOP:
            async with _for(fault, lambda: stage.signal(fault.members, signal.SIGCONT)):
                stage.signal(fault.members, signal.SIGSTOP)
        case Kind.USER:
            runs[0].leave()
        case Kind.FULL:
            (name,) = fault.members
            stage.orders[name].give(Order(FULL, until=time.time() + fault.lasts))
        case Kind.CUT | Kind.SLOW | Kind.MOVED:
            await _disturb_line(stage, fault)


@contextlib.asynccontextmanager
async def _for(fault: Fault, undo: Callable[[], None]) -> AsyncIterator[None]:
    """Undo a fault when its time is over, or the trial is."""
    try:
        yield
        await asyncio.sleep(fault.lasts)
    finally:
        undo()


async def _kill(stage: Stage, fault: Fault) -> None:
    """Kill members at once, and have them started again in the order of the fault."""
    stage.held_down |= set(fault.members)
    try:
        await stage.kill(fault.members)
    finally:
        for name in fault.members:
            stage.held_down.discard(name)
            await asyncio.sleep(0.05)


async def _damage(stage: Stage, fault: Fault) -> None:
    """Kill a party, and damage the newest of its commits while it is down."""
    (name,) = fault.members
    stage.held_down.add(name)
    try:
        await stage.kill([name])
        if commits := stage.commits(name):
            damage(commits[-1], torn=fault.kind == Kind.TORN)
    finally:
        stage.held_down.discard(name)


def damage(path: Path, *, torn: bool) -> None:
    """Tear a file, or flip one of its bytes."""
    content = bytearray(path.read_bytes())
    place = random.Random(len(content)).randrange(len(content))
    if torn:
        os.truncate(path, place)
    else:
        content[place] ^= 0x40
        path.write_bytes(content)


async def _disturb_line(stage: Stage, fault: Fault) -> None:
    (name,) = fault.members
    network = stage.network
    if network is None:
        return
    if fault.kind == Kind.MOVED:
        network.move(name)
    elif fault.kind == Kind.CUT:
        async with _for(fault, lambda: network.mend(name)):
            network.cut(name)
    else:
        async with _for(fault, lambda: network.limit(name, None)):
            network.limit(name, SLOW_RATE)


def _mend(stage: Stage) -> None:
    """Have all be well for the next trial."""
    stage.held_down.clear()
    stage.pauses.clear()
    for orders in stage.orders.values():
        orders.take_back()
    stage.signal(stage.members, signal.SIGCONT)
