"""The time model: what a method takes at a rate and a distance, fitted to what was measured, with its error.

    seconds = compute + a · bytes · 8 / rate + b · waits · round trip

`compute` is the least time that was measured of a kind of job, at any rate and distance: a limit only adds, and so does
whatever else the machine is doing. `bytes` are those on the active party's line, both ways: all exchange passes there,
embeddings one way and then gradients the other. `waits` counts how often a passive party needs an answer before it goes
on. A line that is used without a pause would give a = 1, an answer that is never hidden b = 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Sample:
    """One time, and what the model knows about it."""

    kind: str  # jobs of one kind differ in rate and distance only
    seconds: float  # measured; 0 for one that is asked for
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

    compute: dict[str, float]  # by kind
    a: float
    b: float
    errors: tuple[float, ...] = ()  # of each sample, by a fit that has not seen it, as a share of its seconds

    def seconds(self, sample: Sample) -> float:
        """Return the seconds that the model gives."""
        transfer, waiting = sample.terms
        return self.compute[sample.kind] + self.a * transfer + self.b * waiting

    @property
    def typical_error(self) -> float:
        """The median error."""
        return float(np.median(np.abs(self.errors)))

    @property
    def largest_error(self) -> float:
        """The largest error."""
        return float(np.max(np.abs(self.errors)))


def fit(samples: Sequence[Sample]) -> Model | None:
    """Fit the model; None if too few samples have a limit or a distance to tell its error."""
    if sum(any(sample.terms) for sample in samples) < 3:
        return None
    errors = []
    for index, left_out in enumerate(samples):
        others = [*samples[:index], *samples[index + 1 :]]
        if any(left_out.terms) and any(other.kind == left_out.kind for other in others):
            errors.append(_solve(others).seconds(left_out) / left_out.seconds - 1)
    whole = _solve(samples)
    return Model(whole.compute, whole.a, whole.b, tuple(errors)) if errors else None


def _solve(samples: Sequence[Sample]) -> Model:
    """Solve for a and b by least squares of relative errors, neither below 0; an unmeasured one is 1."""
    compute: dict[str, float] = {}
    for sample in samples:
        compute[sample.kind] = min(sample.seconds, compute.get(sample.kind, sample.seconds))
    terms = np.array([[term / sample.seconds for term in sample.terms] for sample in samples])
    rest = np.array([1 - compute[sample.kind] / sample.seconds for sample in samples])
    found = [1.0, 1.0]
    seen = [column for column in (0, 1) if terms[:, column].any()]
    solution, *_ = np.linalg.lstsq(terms[:, seen], rest, rcond=None)
    for column, value in zip(seen, solution, strict=True):
        found[column] = max(0.0, float(value))
    return Model(compute, found[0], found[1])
