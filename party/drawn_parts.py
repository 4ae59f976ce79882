"""Parts of the rows, drawn anew in every round, of which norms are told: no two of them may differ by a few rows."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from party.budget import Numbers, difference, packed_rows

# Parts so many bits apart from all that resemble them are not found by trying seeds, however many are tried.
SAFE_BITS = 128.0
# Of a question: its numbers, the fourth of which tells kinds of questions apart, and its rows.
Level = tuple[float, float, float, float, bytes]
MOST_BYTES = 64 * 1024 * 1024  # of parts that are remembered: 2000 phases over a quarter of a million rows


@dataclass
class Told:
    """What a job was told that it must not be told too often; going back to a commit takes nothing of it back."""

    parts: "DrawnParts"
    levels: set[Level] = field(default_factory=set)  # that were asked about
    phases: int = 0  # that were begun, those done again included
    job: tuple[Any, ...] = ()  # what the job is, which no attempt changes
    ended: bool = False  # whether it was dismissed
    saved: set[str] = field(default_factory=set)  # names of models


class DrawnParts:
    """The parts that were told of in one job, as far as seeds could be chosen so that two resemble each other."""

    def __init__(self, smallest: int) -> None:
        self._smallest = smallest
        self._told: list[NDArray[np.uint8]] = []
        self._bytes = 0

    def may_tell(self, rows: Numbers, *, of: int) -> bool:
        """Tell whether norms about a part of so many rows may be told, and remember it if so."""
        if self.resembles(rows):
            return False
        if not far_apart(of, len(rows), self._smallest):
            packed = packed_rows(rows)
            if self._bytes + packed.nbytes > MOST_BYTES:
                return False
            self._told.append(packed)
            self._bytes += packed.nbytes
        return True

    def kept(self) -> list[NDArray[np.uint8]]:
        """Return all that is remembered."""
        return list(self._told)

    def remember(self, parts: Iterable[NDArray[np.uint8]]) -> None:
        """Take over what an earlier process has told of."""
        for packed in parts:
            if not any(np.array_equal(packed, other) for other in self._told):
                self._told.append(packed)
                self._bytes += packed.nbytes

    def resembles(self, rows: Numbers) -> bool:
        """Tell whether a part that was told of differs from these rows by a few."""
        packed = packed_rows(rows)
        return any(0 < difference(packed, other) < self._smallest for other in self._told)


def far_apart(of: int, rows: int, smallest: int) -> bool:
    """Tell whether parts of a size are so many that no two that resemble each other are ever found."""
    return _bits_apart(of, rows, smallest) >= SAFE_BITS


def _bits_apart(of: int, rows: int, smallest: int) -> float:
    """Return the bits by which all parts of a size outnumber those that resemble one of them."""
    alike = max(_bits(rows, moved) + _bits(of - rows, moved) for moved in range((smallest + 1) // 2))
    return _bits(of, rows) - alike


def _bits(of: int, rows: int) -> float:
    """Return log2 of the number of ways to choose so many rows; none where there are not as many."""
    if not 0 <= rows <= of:
        return 0.0
    return (math.lgamma(of + 1) - math.lgamma(rows + 1) - math.lgamma(of - rows + 1)) / math.log(2)
