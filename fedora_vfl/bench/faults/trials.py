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
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedora_vfl.bench.faults.comparing import Left, differences, look
from fedora_vfl.bench.faults.plan import Fault, Ground, Kind, Trial, draw, scenario_of
from fedora_vfl.bench.faults.scenarios import SCENARIOS
from fedora_vfl.bench.faults.stage import DEADLINES, Stage, opened, until
from fedora_vfl.bench.faults.striking import COUNT, FULL, KILL, Order

PATIENCE = 300.0  # for a job, whatever befalls it
SLOW_RATE = 200_000  # bits a second


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
    seed: int,
    count: int,
    *,
    hosts: bool,
    scenarios: Sequence[str] = tuple(SCENARIOS),
    told: Callable[[str], None] = lambda line: None,
) -> Series:
    """Run so many trials, scenario by scenario, and compare each with its undisturbed run.

    Args:
        seed: What all faults follow from.
        count: How many trials.
        hosts: Whether every member has a host of its own, whose line can be cut.
        scenarios: The jobs, by name.
        told: Is told a line about each trial.
    """
    series = Series(seed)
    numbers = {name: [n for n in range(count) if scenario_of(seed, n, scenarios) == name] for name in scenarios}
    for name, chosen in numbers.items():
        if not chosen:
            continue
        folder = Path(tempfile.mkdtemp(prefix="fedora-faults-"))
        try:
            async with opened(folder / name, SCENARIOS[name], hosts=hosts) as stage:
                peace = await undisturbed(stage)
                told(f"{name}: undisturbed, {peace.seconds:.1f} s")
                for number in chosen:
                    trial = draw(seed, number, name, peace.ground, hosts=hosts, silence=DEADLINES.silence)
                    verdict = await attempt(stage, trial, peace)
                    series.verdicts.append(verdict)
                    told(told_of(verdict))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return series


def told_of(verdict: Verdict) -> str:
    """Say in a line what came of a trial."""
    faults = "; ".join(fault.told() for fault in verdict.trial.faults)
    outcome = f"LOST: {', '.join(verdict.lost[:5])}" if verdict.lost else "equal to the bit"
    return f"{verdict.trial.number:>4} {verdict.trial.scenario}: {faults}: {outcome}, {verdict.seconds:.1f} s"


async def undisturbed(stage: Stage) -> Peace:
    """Run a scenario's job in peace, twice: what differs then is not what faults have done. Count named points."""
    results = stage.folder / "peace"
    first = await _follow(stage, results, asyncio.Event())
    left = _found(stage, first, results)
    for orders in stage.orders.values():
        orders.give(Order(COUNT))
    again = await _follow(stage, stage.folder / "again", asyncio.Event())
    repeated = _found(stage, again, stage.folder / "again")
    if found := list(differences(left, repeated)):
        raise AssertionError(f"two undisturbed runs differ: {', '.join(found)}")
    points = {name: dict(Counter(orders.log())) for name, orders in stage.orders.items()}
    for orders in stage.orders.values():
        orders.take_back()
    return Peace(left, Ground(points), first.seconds)


def _found(stage: Stage, course: Course, results: Path) -> Left:
    if course.code:
        raise AssertionError(f"an undisturbed job failed: {course.error} {'; '.join(stage.last_words)}")
    return look(stage.run, results)


async def attempt(stage: Stage, trial: Trial, peace: Peace) -> Verdict:
    """Run the job once more, with faults, and look at what it leaves."""
    results = stage.folder / f"trial-{trial.number}"
    stage.restarts.clear()
    stage.last_words.clear()
    begun, struck = asyncio.Event(), [Struck(fault) for fault in trial.faults]
    faults = [asyncio.create_task(_befall(stage, one, peace.seconds, begun)) for one in struck]
    try:
        course = await _follow(stage, results, begun)
    finally:
        for task in faults:
            task.cancel()
        await asyncio.gather(*faults, return_exceptions=True)
        _mend(stage)
    lost = [f"exit code {course.code}: {course.error}"] if course.code else []
    if not course.code:
        lost += differences(peace.left, look(stage.run, results))
        lost += [f"left over: {path}" for path in await _left_over(stage)]
    shutil.rmtree(results, ignore_errors=True)
    return Verdict(
        trial,
        lost=tuple(lost),
        struck=tuple((one.fault, _until_on(course, one.when)) for one in struck if one.when is not None),
        seconds=course.seconds,
        restarts=sum(stage.restarts.values()),
    )


async def _left_over(stage: Stage) -> list[str]:
    """Return what is still there of a job that has ended; a party that is just coming back may take a moment."""
    for _ in range(100):
        if not (left := stage.left_over()):
            return []
        await asyncio.sleep(0.1)
    return left


def _until_on(course: Course, when: float | None) -> float | None:
    """Return how long it took from a fault to the next sign of progress."""
    if when is None:
        return None
    later = [moment for moment, what in course.events if moment > when and what.startswith(("finished", "ended"))]
    return later[0] - when if later else None


async def _follow(stage: Stage, results: Path, begun: asyncio.Event) -> Course:
    """Run the job and return how it went."""
    user = await stage.user(results, PATIENCE)
    assert user.stdout and user.stderr
    events: list[tuple[float, str]] = []
    ending = asyncio.create_task(_end_if_hopeless(stage, user))
    try:
        async with asyncio.timeout(PATIENCE):
            async for line in user.stdout:
                moment, _, what = line.decode().strip().partition(" ")
                events.append((float(moment), what))
                begun.set()
            error = (await user.stderr.read()).decode().strip()
            code = await user.wait()
        events.append((time.time(), "ended"))
        return Course(tuple(events), code, error)
    except TimeoutError:
        user.kill()
        await user.wait()
        return Course(tuple(events), 1, f"not over after {PATIENCE:g} s; {'; '.join(stage.last_words[-3:])}")
    finally:
        ending.cancel()


async def _end_if_hopeless(stage: Stage, user: asyncio.subprocess.Process) -> None:
    """End the user's process when a member cannot be started: its job would never end."""
    await stage.hopeless.wait()
    user.kill()


async def _befall(stage: Stage, struck: Struck, seconds: float, begun: asyncio.Event) -> None:
    """Have one fault come to pass."""
    fault = struck.fault
    for name in fault.members:
        stage.pauses[name] = fault.pause
    if fault.kind == Kind.KILL_AT_POINT:
        (name,) = fault.members
        stage.orders[name].give(Order(KILL, fault.point, fault.nth))
        await until(lambda: bool(stage.orders[name].log()))
        struck.when = float(stage.orders[name].log()[0])
        return
    await begun.wait()
    await asyncio.sleep(fault.after * seconds)
    struck.when = time.time()
    match fault.kind:
        case Kind.KILL | Kind.KILL_SEVERAL | Kind.KILL_ALL:
            await _kill(stage, fault)
        case Kind.TORN | Kind.FLIPPED:
            await _damage(stage, fault)
        case Kind.STOP:
            async with _for(fault, lambda: stage.signal(fault.members, signal.SIGCONT)):
                stage.signal(fault.members, signal.SIGSTOP)
        case Kind.FULL:
            (name,) = fault.members
            stage.orders[name].give(Order(FULL, until=time.time() + fault.lasts))
        case Kind.CUT | Kind.SLOW:
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
        stage.signal(fault.members, signal.SIGKILL)
        for name in fault.members:
            await stage.ended(name)
    finally:
        for name in fault.members:
            stage.held_down.discard(name)
            await asyncio.sleep(0.05)


async def _damage(stage: Stage, fault: Fault) -> None:
    """Kill a party, and damage the newest of its commits while it is down."""
    (name,) = fault.members
    stage.held_down.add(name)
    try:
        stage.signal([name], signal.SIGKILL)
        await stage.ended(name)
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
    if fault.kind == Kind.CUT:
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
