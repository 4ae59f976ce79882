"""Figures of one run, by name: each attack's success, and beside it what guessing reaches."""

import torch
from torch import Tensor

GUESS = "|guess"

Figures = dict[str, float | None]


def beside(key: str, value: float, guessing: float) -> Figures:
    """Return a figure with that of guessing."""
    return {key: value, f"{key}{GUESS}": guessing}


def largest_share(classes: Tensor) -> float:
    """Return what always naming the most frequent class gets right."""
    return float(torch.bincount(classes).max() / len(classes))


def mean(values: list[float]) -> float:
    """Return the mean."""
    return sum(values) / len(values)
