"""A coordinator that commits in every other block of rounds: python -m fedora_vfl.bench.alternating --config F

Else it commits only where it must: when a job begins, names rows, drops them or is signed for. What commits cost is the
difference between neighbours, in the same processes: two runs of one job differ from each other by more.
"""

import sys

from coordinator.__main__ import main
from coordinator.pace import Pace

# Of one job, by name of phase.
ROUNDS = {"train": 45, "unlearning": 360, "remaining": 360}
BLOCKS = 9  # of rounds; the first one warms up


def block_of(name: str, round: int) -> int:
    """Return the block that a round is in, from 0 on."""
    return (round - 1) * BLOCKS // ROUNDS[name]


def is_committing(block: int) -> bool:
    """Tell whether commits are made in a block; of two that are compared it is the first as often as the second."""
    pair, place = divmod(block - 1, 2)
    return block > 0 and pair % 2 == place


class AlternatingPace(Pace):
    """A pace that stands still in some blocks."""

    _committing = False

    def due(self, asked: str, *, after: str | None = None, commits: bool = False) -> bool:
        """Tell whether a commit would be due, in a block that has some."""
        name, _, round = asked.rpartition(" ")
        before, self._committing = self._committing, name in ROUNDS and is_committing(block_of(name, int(round)))
        if self._committing and not before:
            self._last = self._clock()  # a block begins as if there had just been a commit
        return self._committing and super().due(asked, after=after, commits=commits)


if __name__ == "__main__":
    import coordinator.engine

    coordinator.engine.Pace = AlternatingPace  # type: ignore[attr-defined]
    sys.exit(main())
