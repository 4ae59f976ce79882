"""How many rows a share of a sample set is; the parties that draw them and the cost model must agree."""

import math

from protos.fedora.v1.phase_pb2 import Joint, Phase, Samples


def rows_drawn(share: float, rows: int) -> int:
    """Return the whole number of rows that a share comes to, rounded up; of something it is at least one."""
    if not share:
        return 0
    return min(rows, max(1, math.ceil(share * rows - 1e-9)))  # 0.07 × 100 is a little over 7 in floating point


def rows_of(over: Samples, set_rows: int) -> int:
    """Return how many rows a phase runs over, of a set of so many."""
    whole = rows_drawn(over.part.share, set_rows) if over.HasField("part") else set_rows
    return rows_drawn(over.share, whole)


def rows_of_round(joint: Joint) -> int:
    """Return the rows of one batch of a joint phase."""
    return joint.forget + joint.remaining + joint.held_out


def rows_and_steps(phase: Phase, set_rows: int) -> tuple[int, int]:
    """Return how many rows a phase takes in all and how many batches; `set_rows` is the size of the set it is over."""
    if phase.HasField("joint"):
        return phase.joint.rounds * rows_of_round(phase.joint), phase.joint.rounds
    rows = rows_of(phase.over, set_rows)
    return rows, -(-rows // phase.plan.batch_size)
