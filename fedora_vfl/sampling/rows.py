"""How many rows a share of a sample set is; the parties that draw them and the cost model must agree."""

import math

from protos.fedora.v1.phase_pb2 import Samples


def rows_drawn(share: float, rows: int) -> int:
    """Return the whole number of rows that a share comes to, rounded up; of something it is at least one."""
    if not share:
        return 0
    return min(rows, max(1, math.ceil(share * rows - 1e-9)))  # 0.07 × 100 is a little over 7 in floating point


def rows_of(over: Samples, set_rows: int) -> int:
    """Return how many rows a phase runs over, of a set of so many."""
    whole = rows_drawn(over.part.share, set_rows) if over.HasField("part") else set_rows
    return rows_drawn(over.share, whole)
