"""Retrain as a distribution: one model trained anew is one draw, and gaps are measured in what draws differ by."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

RETRAIN = "retrain"
_NAMED = re.compile(r"retrain(-[0-9]+)?")
# Two-sided 5 % points of Student's t, by degrees of freedom from 1.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)

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

    def beyond(self, value: float) -> bool | None:
        """Tell whether one more Retrain would lie as far from the mean in less than one of twenty cases.

        None where nobody can tell: there is one Retrain only. The mean is an estimate itself, which the root is for.
        """
        if self.deviation is None:
            return None
        point = STUDENT[min(self.count - 1, len(STUDENT)) - 1]
        return abs(value - self.mean) > point * self.deviation * math.sqrt(1 + 1 / self.count)


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
