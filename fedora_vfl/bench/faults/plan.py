"""Which faults befall whom, and when: all of it follows from a seed."""

import itertools
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from fedora_vfl.wire.protocol import COORDINATOR

MOST_FAULTS = 3  # in one trial
TWO_JOBS = 0.2  # the share of trials in which a second job waits behind the first
BETWEEN_JOBS = 0.25  # the share of trials before whose job something befalls members that have nothing to do
TWICE = 0.4  # the share of kills between jobs after which the same members are killed once more
LONGEST_GAP_SECONDS = 4.0  # between the two: a process may be joining, or still be starting
MOST_OF_A_POINT = 6  # of all times that a member comes by a point, where every point has its turn


class Kind(StrEnum):
    """What goes wrong."""

    KILL_AT_POINT = "kill -9 at a named point"
    KILL = "kill -9 at a random instant"
    KILL_SEVERAL = "kill -9 of several members at once"
    KILL_ALL = "kill -9 of all members at once"
    STOP = "SIGSTOP, later SIGCONT"
    FULL = "full disk"
    TORN = "torn write of the last commit"
    FLIPPED = "flipped byte in the last commit"
    USER = "kill -9 of the user's command"
    CUT = "cut line"
    SLOW = "slow line"
    MOVED = "another address behind the same name"

    @property
    def short(self) -> str:
        """What it is called on the command line."""
        return self.name.lower().replace("_", "-")


USER = "the user"
LINES = (Kind.CUT, Kind.SLOW, Kind.MOVED)  # they take hosts, in network namespaces
KILLS = (Kind.KILL, Kind.KILL_SEVERAL, Kind.KILL_ALL)
IDLE = (*KILLS, Kind.STOP, *LINES)  # what can befall members that have nothing to do
# A named point is the sharpest of them all, and there are many.
WEIGHTS = {Kind.KILL_AT_POINT: 4}


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong."""

    kind: Kind
    members: tuple[str, ...]
    after: float = 0.0  # of a random instant: the share of the undisturbed job that has passed
    point: str = ""  # of a named point
    nth: int = 1  # of the instants of that name
    lasts: float = 0.0  # seconds
    pause: float = 0.0  # seconds until a member that was killed is started again
    between: bool = False  # whether it comes before the job
    again: float | None = None  # seconds after which members that were killed and are back are killed once more

    @property
    def name(self) -> str:
        """What it is called in a table."""
        return f"{self.kind}, between jobs" if self.between else str(self.kind)

    def told(self) -> str:
        """Say it in a line."""
        where = f" at {self.point} ({self.nth})" if self.point else f" after {self.after:.0%}"
        if self.between:
            where = " between jobs" if self.again is None else f" between jobs, and {self.again:.1f} s later"
        lasting = f" for {self.lasts:.1f} s" if self.lasts else ""
        return f"{self.kind} of {', '.join(self.members)}{where}{lasting}"


@dataclass(frozen=True)
class Trial:
    """One job and what befalls it."""

    number: int
    scenario: str
    faults: tuple[Fault, ...]
    jobs: int = 1  # submitted at once: the second waits
    before: tuple[Fault, ...] = ()  # one after the other, before the job is submitted

    @property
    def all_faults(self) -> tuple[Fault, ...]:
        """All that befalls members, before the job and during it."""
        return (*self.before, *self.faults)


@dataclass(frozen=True)
class Ground:
    """What a scenario's undisturbed run has shown: how often every member passes every named point."""

    points: Mapping[str, Mapping[str, int]]  # by member, by point

    @property
    def members(self) -> list[str]:
        """All members, the coordinator first."""
        return list(self.points)

    @property
    def parties(self) -> list[str]:
        """All members that hold commits."""
        return [name for name in self.points if name != COORDINATOR]


def scenario_of(seed: int, number: int, scenarios: Sequence[str]) -> str:
    """Return which job a trial is about: each in its turn, so that few trials see many."""
    return scenarios[(seed + number) % len(scenarios)]


def possible(kinds: Collection[Kind], *, hosts: bool) -> list[Kind]:
    """Return which of some kinds can come to pass, in the order in which they are listed."""
    return [kind for kind in Kind if kind in kinds and (hosts or kind not in LINES)]


def draw(
    seed: int,
    number: int,
    scenario: str,
    ground: Ground,
    *,
    hosts: bool,
    silence: float,
    kinds: Collection[Kind] = tuple(Kind),
) -> Trial:
    """Return what befalls a job; the same seed and number give the same.

    Args:
        seed: Of the whole series.
        number: Of the trial.
        scenario: Which job it is.
        ground: What the job's undisturbed run has shown.
        hosts: Whether lines can be cut and slowed.
        silence: After how many seconds a silent member is taken for lost.
        kinds: What may go wrong.
    """
    dice = random.Random(f"{seed}/{number}/{scenario}")
    allowed = possible(kinds, hosts=hosts)
    weights = [WEIGHTS.get(kind, 1) for kind in allowed]
    count = dice.choices(range(1, MOST_FAULTS + 1), [4, 2, 1])[0]
    chosen = dice.choices(allowed, weights, k=count)
    jobs = 2 if dice.random() < TWO_JOBS else 1
    faults = tuple(_fault(dice, kind, ground, silence) for kind in chosen)
    befalls_idle = [kind for kind in IDLE if kind in allowed]
    if dice.random() >= BETWEEN_JOBS or not befalls_idle:
        return Trial(number, scenario, faults, jobs)
    idle = dice.choices(befalls_idle, k=dice.randint(1, 2))
    before = tuple(_between(dice, _fault(dice, kind, ground, silence)) for kind in idle)
    return Trial(number, scenario, dice.choice([(), faults]), jobs, before)


def _between(dice: random.Random, fault: Fault) -> Fault:
    """Return a fault as it comes to members that have nothing to do."""
    twice = fault.kind in KILLS and dice.random() < TWICE
    return replace(fault, between=True, again=dice.uniform(0.0, LONGEST_GAP_SECONDS) if twice else None)


def every_point(scenario: str, ground: Ground) -> list[Trial]:
    """Return trials in which every member is killed at every named point, the first time, the last and some between.

    In each trial every member is killed once, so that all of it is over sooner.
    """
    faults = {
        member: [
            Fault(Kind.KILL_AT_POINT, (member,), point=point, nth=nth)
            for point, count in sorted(points.items())
            for nth in spread(count, MOST_OF_A_POINT)
        ]
        for member, points in ground.points.items()
    }
    together = itertools.zip_longest(*faults.values())
    return [Trial(number, scenario, tuple(filter(None, one))) for number, one in enumerate(together)]


def some_of(trials: Sequence[Trial], count: int | None, seed: int) -> list[Trial]:
    """Return so many of some trials, which the seed chooses, in their order; all unless told."""
    if count is None or count >= len(trials):
        return list(trials)
    return sorted(random.Random(seed).sample(trials, count), key=lambda one: one.number)


def spread(count: int, most: int) -> list[int]:
    """Return some of the numbers from 1 to a count, the first and the last among them."""
    if count <= most:
        return list(range(1, count + 1))
    return [1 + place * (count - 1) // (most - 1) for place in range(most)]


def _fault(dice: random.Random, kind: Kind, ground: Ground, silence: float) -> Fault:
    after, pause = dice.random(), dice.choice([0.0, 0.0, dice.uniform(0.0, 2.0)])
    one = (dice.choice(ground.members),)
    match kind:
        case Kind.KILL_AT_POINT:
            point = dice.choice(sorted(ground.points[one[0]]))
            nth = dice.randint(1, ground.points[one[0]][point])
            return Fault(kind, one, point=point, nth=nth, pause=pause)
        case Kind.KILL_SEVERAL:
            several = dice.sample(ground.members, dice.randint(2, len(ground.members) - 1))
            return Fault(kind, tuple(several), after, pause=pause)
        case Kind.KILL_ALL:
            order = dice.sample(ground.members, len(ground.members))
            return Fault(kind, tuple(order), after, pause=pause)
        case Kind.FULL:
            return Fault(kind, one, after, lasts=dice.uniform(0.2, 3.0))
        case Kind.USER:
            return Fault(kind, (USER,), after)
        case Kind.TORN | Kind.FLIPPED:
            return Fault(kind, (dice.choice(ground.parties),), after, pause=pause)
        case Kind.STOP | Kind.CUT:
            return Fault(kind, one, after, lasts=dice.uniform(0.3, 2 * silence))
        case Kind.SLOW:
            return Fault(kind, one, after, lasts=dice.uniform(0.5, 2 * silence))
        case _:
            return Fault(kind, one, after, pause=pause)
