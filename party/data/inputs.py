"""Encoded rows, ready to be fed to a bottom model batch by batch."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Inputs(Protocol):
    """Rows that can be drawn as batches of floats."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row."""

    def __len__(self) -> int: ...

    def batch(self, rows: Tensor) -> Tensor:
        """Return the given rows as float32, one per index."""


@dataclass(frozen=True, eq=False)
class TableInputs:
    """Standardised numbers, and for every categorical column the place of its one; opened up batch by batch."""

    numbers: Tensor  # float32, N × numeric columns and their indicators
    ones: Tensor  # int32, N × categorical columns: the position, in the whole row, that holds 1
    width: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return (self.width,)

    def __len__(self) -> int:
        return len(self.numbers)

    def batch(self, rows: Tensor) -> Tensor:
        """Return the given rows as float32, one per index."""
        numbers = self.numbers.index_select(0, rows)
        if not self.ones.shape[1]:
            return numbers
        batch = torch.zeros(len(rows), self.width)
        batch[:, : numbers.shape[1]] = numbers
        return batch.scatter_(1, self.ones.index_select(0, rows).long(), 1.0)


@dataclass(frozen=True, eq=False)
class ImageInputs:
    """Pixels of one byte, N×C×H×W, standardised batch by batch."""

    pixels: Tensor
    scale: Tensor  # C×1×1
    offset: Tensor  # C×1×1

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return tuple(self.pixels.shape[1:])

    def __len__(self) -> int:
        return len(self.pixels)

    def batch(self, rows: Tensor) -> Tensor:
        """Return the given rows as float32, one per index."""
        return self.pixels.index_select(0, rows).float().mul_(self.scale).add_(self.offset)
