"""How often a job commits: so often that a loss costs little, so seldom that commits cost next to nothing."""

import math
import time
from collections.abc import Callable, Collection

from protos.fedora.v1.journal_pb2 import JournalEntry

# Commits take at most one in so many seconds of the work between them.
SHARE = 100
# Of a phase that is new so many steps are tried first, to see how long they take. One of few steps is run whole where
# other phases' steps were so short that even steps that take some times as long would be over in time.
PROBE_STEPS, FEW_STEPS, MARGIN = 8, 32, 10


class Pace:
    """Measures what commits cost and says when the next one is due."""

    def __init__(self, most: float, *, clock: Callable[[], float] = time.perf_counter) -> None:
        """`most` seconds of work, at most, go without a commit, whatever it costs."""
        self._most, self._clock = most, clock
        self._last, self._cost = clock(), 0.0
        self._step_seconds: dict[str, float] = {}  # by name of phase
        self._longest = 0.0  # seconds of a request so far
        self._lasts: dict[str, float] = {}  # how long a request of each name took the last time
        self.lagging: set[str] = set()  # parties that have not committed the last request that went to them

    def due(self, asked: str, *, after: str | None = None, commits: bool = False) -> bool:
        """Tell whether a commit would be due by the end of a request.

        Args:
            asked: What the request is.
            after: The request before it, if that is still under way.
            commits: Whether that one ends with a commit.
        """
        since = 0.0 if commits else self._clock() - self._last + (self._expected(after) if after else 0.0)
        return since + self._expected(asked) >= min(SHARE * self._cost, self._most)

    def _expected(self, asked: str) -> float:
        """Return the seconds that a request will take; one that is new may be as long as any."""
        return self._lasts.get(_name(asked), self._longest)

    def steps(self, phase: str, left: int) -> int:
        """Return how many of a phase's steps come before its next commit; how long they take is found out first."""
        if phase not in self._step_seconds:
            longest = max(self._step_seconds.values(), default=math.inf)
            whole = left <= FEW_STEPS and MARGIN * longest * left <= self._most
            return left if whole else min(left, PROBE_STEPS)
        fitting = max(1, int(self._most / max(self._step_seconds[phase], 1e-9)))
        return left if left <= fitting else -(-left // -(-left // fitting))  # parts of about the same length

    def ran(self, phase: str, steps: int, seconds: float) -> None:
        """Note how long some steps of a phase took."""
        if steps:
            self._step_seconds[phase] = seconds / steps

    def asked(self, asked: str, parties: Collection[str], *, seconds: float) -> None:
        """Note how long a request took, and whom it went to."""
        self._lasts[_name(asked)] = seconds
        self._longest = max(seconds, self._longest)
        self.lagging.update(parties)

    def committed(self, cost: float) -> None:
        """Note that all have committed, and the seconds that it took."""
        self._last, self._cost = self._clock(), cost
        self.lagging.clear()

    def replayed(self, entry: JournalEntry) -> None:
        """Note a request of an earlier attempt."""
        self.asked(entry.asked, list(entry.answers), seconds=entry.seconds)
        if entry.commit:
            self.committed(max((one.commit_seconds for one in entry.answers.values()), default=0.0))


def _name(asked: str) -> str:
    """Return what a request is without its round."""
    return asked.rsplit(" ", 1)[0]
