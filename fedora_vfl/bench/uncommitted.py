"""A coordinator that commits only where it must, to be compared with: python -m fedora_vfl.bench.uncommitted --config F

That is when a job begins, names rows, drops them or is signed for.
"""

import sys

from coordinator.__main__ import main
from coordinator.pace import Pace


def _never(self: Pace, asked: str, *, after: str | None = None, commits: bool = False) -> bool:
    return False


if __name__ == "__main__":
    Pace.due = _never  # type: ignore[method-assign]
    sys.exit(main())
