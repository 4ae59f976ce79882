"""How long a step takes over a line: the measured computing, and what bytes and distance add to it.

Parties compute in turn, so that without a schedule everything adds up:

    step = compute + (up + down)·8/rate + round trip

With n more batches under way a step takes no longer than the slowest of computing and the two directions, unless the
way there and back is so long that n + 1 steps are not enough to fill it:

    step = max(compute, up·8/rate, down·8/rate, (compute + (up + down)·8/rate + round trip) / (n + 1))

`up` and `down` are the bytes of all passive parties together: they share the active party's line.
"""

from dataclasses import dataclass

FRAMING = 1.05  # bytes on a line for each of protobuf's: docs/ledger.md


@dataclass(frozen=True)
class LineSpeed:
    """The line of the active party."""

    rate: float | None  # bits per second, each way; None: no limit
    round_trip: float  # seconds

    def describe(self) -> str:
        """Say which line it is."""
        return f"{self.rate / 1e6:g} Mbit/s, {1000 * self.round_trip:g} ms" if self.rate else "no limit"


@dataclass(frozen=True)
class StepCost:
    """What one step takes wherever the line is."""

    compute: float  # seconds
    up: float  # bytes of protobuf, of all passive parties
    down: float
    overlap: int = 0

    def seconds(self, line: LineSpeed) -> float:
        """Return the seconds of a step over a line."""
        up, down = (FRAMING * one * 8 / line.rate if line.rate else 0.0 for one in (self.up, self.down))
        whole = self.compute + up + down + line.round_trip
        return max(self.compute, up, down, whole / (1 + self.overlap))

    def epoch(self, line: LineSpeed, steps: float) -> float:
        """Return the seconds of an epoch: its steps, and the way that the last batches are under way."""
        return steps * self.seconds(line) + (line.round_trip if self.overlap else 0.0)
