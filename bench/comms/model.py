"""The time model: what a method takes at a rate and a distance, fitted to what was measured, with its error.

    seconds = compute + a · bytes · 8 / rate + b · waits · round trip

`compute` is the time at no limit and no distance. `bytes` are those on the active party's line, both ways: all exchange
passes there, embeddings one way and then gradients the other. `waits` counts how often a passive party needs an answer
before it goes on. A line that is used without a pause would give a = 1, an answer that is never hidden b = 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Sample:
    """One measured time, and what the model knows about it."""

    seconds: float
    compute: float
    bits: float
    waits: float
    rate: float | None = None  # bits per second
    delay: float = 0.0  # seconds one way

    @property
    def terms(self) -> tuple[float, float]:
        """What a and b are multiplied with."""
        return (self.bits / self.rate if self.rate else 0.0), self.waits * 2 * self.delay


@dataclass(frozen=True)
class Model:
    """The fitted coefficients, and how far off they are."""

    a: float
    b: float
    errors: tuple[float, ...]  # of each sample when the fit has not seen it, as a share of its seconds

    def seconds(self, sample: Sample) -> float:
        """Return the seconds that the model gives."""
        transfer, waiting = sample.terms
        return sample.compute + self.a * transfer + self.b * waiting

    @property
    def typical_error(self) -> float:
        """The median error."""
        return float(np.median(np.abs(self.errors)))

    @property
    def largest_error(self) -> float:
        """The largest error."""
        return float(np.max(np.abs(self.errors)))


def fit(samples: Sequence[Sample]) -> Model | None:
    """Fit the model to samples with a limit or a distance; None if there are too few to tell its error."""
    used = [sample for sample in samples if any(sample.terms)]
    if len(used) < 3:
        return None
    a, b = _solve(used)
    errors = []
    for index, left_out in enumerate(used):
        others = Model(*_solve([*used[:index], *used[index + 1 :]]), errors=())
        errors.append(others.seconds(left_out) / left_out.seconds - 1)
    return Model(a, b, tuple(errors))


def _solve(samples: Sequence[Sample]) -> tuple[float, float]:
    """Solve for a and b by least squares of relative errors, neither below 0; an unmeasured one is 1."""
    terms = np.array([sample.terms for sample in samples]) / np.array([[sample.seconds] for sample in samples])
    rest = np.array([(sample.seconds - sample.compute) / sample.seconds for sample in samples])
    found = [1.0, 1.0]
    seen = [column for column in (0, 1) if terms[:, column].any()]
    solution, *_ = np.linalg.lstsq(terms[:, seen], rest, rcond=None)
    for column, value in zip(seen, solution, strict=True):
        found[column] = max(0.0, float(value))
    return found[0], found[1]
