"""Retrain as a distribution: one model trained anew is one draw, and gaps are measured in what draws differ by."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

RETRAIN = "retrain"
_NAMED = re.compile(r"retrain(-[0-9]+)?")
LEVEL = 0.05  # how often one more Retrain may be called far away

Metrics = Mapping[str, Mapping[str, float | None]]  # by model, figures by name


@dataclass(frozen=True)
class Spread:
    """What several Retrains make of one figure."""

    mean: float
    deviation: float | None  # the sample's; None of a single one
    least: float
    most: float
    count: int

    def deviations(self, value: float) -> float | None:
        """Return how many deviations a value is from the mean; None where Retrains do not differ, or there is one."""
        return (value - self.mean) / self.deviation if self.deviation else None

    def beyond(self, value: float, level: float = LEVEL) -> bool | None:
        """Tell whether one more Retrain would lie as far from the mean, on either side, less often than `level`.

        None where nobody can tell: there is one Retrain only. The mean is an estimate itself, which the root is for.
        """
        if self.deviation is None:
            return None
        return abs(value - self.mean) > student(self.count - 1, level) * self.deviation * math.sqrt(1 + 1 / self.count)


@cache
def student(degrees: int, level: float) -> float:
    """Return the point of Student's t that a draw exceeds, on either side, with this probability."""
    low, high = 0.0, math.pi / 2
    while (angle := (low + high) / 2) not in (low, high):
        low, high = (angle, high) if _within(angle, degrees) < 1 - level else (low, angle)
    return math.sqrt(degrees) * math.tan(angle)


def _within(angle: float, degrees: int) -> float:
    """Return the probability that |t| is at most √degrees·tan(angle): Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    odd, square = degrees % 2, math.cos(angle) ** 2
    term = total = 1.0
    for power in range(2 + odd, degrees - 1, 2):
        term *= square * (power - 1) / power
        total += term
    if not odd:
        return math.sin(angle) * total
    beyond_one = math.sin(angle) * math.cos(angle) * total if degrees > 1 else 0.0
    return 2 / math.pi * (angle + beyond_one)


def names(metrics: Metrics) -> list[str]:
    """Return the models that were trained anew, the first one first."""
    return sorted((name for name in metrics if _NAMED.fullmatch(name)), key=lambda name: (len(name), name))


def spreads(metrics: Metrics) -> dict[str, Spread]:
    """Return every figure that all Retrains have."""
    drawn = [metrics[name] for name in names(metrics)]
    found: dict[str, Spread] = {}
    for figure in drawn[0] if drawn else ():
        values = [value for one in drawn if (value := one.get(figure)) is not None]
        if len(values) == len(drawn):
            found[figure] = _spread(values)
    return found


def _spread(values: Sequence[float]) -> Spread:
    # A certificate may come from anybody, with any numbers: multiplied, unlike raised to a power, they end as infinite.
    count = len(values)
    mean = sum(value / count for value in values)
    squares = sum((value - mean) * (value - mean) for value in values)
    deviation = math.sqrt(squares / (count - 1)) if count > 1 else None
    return Spread(mean, deviation, min(values), max(values), count)


def gaps(metrics: Metrics, of: str = "unlearned") -> dict[str, float] | None:
    """Return every figure's distance from Retrain's, of several their mean; None where nothing was retrained."""
    if not names(metrics) or of not in metrics:
        return None
    known = spreads(metrics)
    return {
        name: value - known[name].mean for name, value in metrics[of].items() if value is not None and name in known
    }


def gap_deviations(metrics: Metrics, of: str = "unlearned") -> dict[str, float] | None:
    """Return the same distances in standard deviations between Retrains; None unless there are several."""
    if len(names(metrics)) < 2 or of not in metrics:
        return None
    known = spreads(metrics)
    pairs = {
        name: known[name].deviations(value)
        for name, value in metrics[of].items()
        if value is not None and name in known
    }
    return {name: value for name, value in pairs.items() if value is not None}
