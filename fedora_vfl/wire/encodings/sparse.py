"""Encodings that leave most of a row out: its largest values travel, with their places, and the rest is zero.

A row takes the places of the values it keeps, and then the values, in the order of places, as bfloat16. Places are a
list (a byte each up to a width of 256, else two) or a bit for every value of the row, lowest bits first: whichever is
shorter. All places come first, then all values.
"""

import functools
import math
from typing import TYPE_CHECKING, ClassVar

from fedora_vfl.errors import SettingsError
from fedora_vfl.wire.encodings.base import TensorEncoding, register
from protos.fedora.v1.tensor_pb2 import RANDTOPK, TOPK

if TYPE_CHECKING:  # the coordinator asks for sizes, and never imports torch
    from torch import Tensor

VALUE_BYTES = 2
# The chance of a draw among the values that are not the largest: Zheng et al., "Reducing communication for split
# learning by randomized top-k sparsification" (2023), whose best results lie around it.
ASIDE = 0.1


def _place_bytes(width: int) -> int:
    return 1 if width <= 256 else 2


@register
class TopK(TensorEncoding):
    """The largest tenth of every row by absolute value; `topk-5%` keeps five percent, and so on."""

    name, number = "topk", TOPK
    percent: ClassVar[float] = 10.0

    @classmethod
    @functools.cache
    def keeping(cls, percent: float) -> "type[TensorEncoding]":
        """Return the encoding that keeps so many percent of every row."""
        if not 0 < percent <= 100:
            raise SettingsError(f"wire.encoding: {cls.name} keeps more than 0 and up to 100 percent, not {percent:g}")
        return type(cls.__name__, (cls,), {"name": f"{cls.name}-{percent:g}%", "percent": percent})

    @classmethod
    def kept(cls, width: int) -> int:
        """Return how many values of a row travel, at least one."""
        # Rounded first: 10 % of 30 is 3, and not the 3.0000000000000004 that makes 4.
        return min(width, math.ceil(round(width * cls.percent / 100, 9)))

    @classmethod
    def nbytes(cls, rows: int, width: int) -> int:
        """Return the bytes of places and values."""
        return rows * _row_bytes(cls.kept(width), width)

    @classmethod
    def could_be(cls, size: int, rows: int, width: int) -> bool:
        """Tell whether some number of values of a row would take so much."""
        if not rows or size % rows:
            return size == 0
        row, mask = size // rows, -(-width // 8)
        numbers = (row // (_place_bytes(width) + VALUE_BYTES), (row - mask) // VALUE_BYTES)
        return any(0 <= number <= width and _row_bytes(number, width) == row for number in numbers)

    def encode(self, values: "Tensor") -> bytes | memoryview:
        """Return the places, then the values."""
        import torch

        rows, width = values.shape
        if not rows * width:
            return b""
        places = self.chosen(values).sort(dim=1).values
        kept = values.gather(1, places).to(torch.bfloat16)
        if _as_mask(places.shape[1], width):
            bits = torch.zeros(rows, -(-width // 8) * 8, dtype=torch.uint8).scatter_(1, places, 1)
            shifts = torch.arange(8, dtype=torch.uint8)
            told = (bits.view(rows, -1, 8) << shifts).sum(dim=2, dtype=torch.uint8)
        else:
            told = places.to(torch.uint8 if _place_bytes(width) == 1 else torch.uint16)
        return told.numpy().tobytes() + kept.view(torch.int16).numpy().tobytes()

    def chosen(self, values: "Tensor") -> "Tensor":
        """Return the places of the values that travel, row by row, in any order."""
        return values.abs().topk(self.kept(values.shape[1]), dim=1, sorted=False).indices

    def decode(self, data: memoryview, rows: int, width: int) -> "Tensor":
        """Put the values in their places; places that no sender of this encoding names are refused."""
        import torch

        out = torch.zeros(rows, width)
        if not rows * width:
            return out
        kept = self.kept(width)
        size = rows * _places_bytes(kept, width)
        told = torch.frombuffer(data[:size], dtype=torch.uint8).view(rows, -1)
        if _as_mask(kept, width):
            bits = ((told.unsqueeze(2) >> torch.arange(8, dtype=torch.uint8)) & 1).flatten(1)
            if bool((bits.sum(dim=1) != kept).any()) or bool(bits[:, width:].any()):
                raise ValueError(f"names other than {kept} places of a row")
            places = bits.nonzero()[:, 1].view(rows, kept)
        else:
            listed = told if _place_bytes(width) == 1 else told.clone().view(torch.uint16)
            places = listed.to(torch.int64)
            if bool((places >= width).any()) or bool((places[:, 1:] <= places[:, :-1]).any()):
                raise ValueError("names places of a row that are out of order, or outside of it")
        values = torch.frombuffer(data[size:], dtype=torch.bfloat16).view(rows, kept)
        return out.scatter_(1, places, values.to(torch.float32))


@register
class RandomTopK(TopK):
    """As many values of every row, drawn at random: nearly always the largest, sometimes one of the others.

    Values that are never among the largest are learned from too. Where nothing may be random, it is top-k.
    """

    name, number = "randtopk", RANDTOPK
    _seed: int | None = None

    def draw_from(self, seed: int | None) -> None:
        """Draw the next batch's places from a seed."""
        self._seed = seed

    def chosen(self, values: "Tensor") -> "Tensor":
        """Draw places one after the other without replacement, all at once: the largest sums of weight and noise."""
        import torch

        largest, width = super().chosen(values), values.shape[1]
        kept = largest.shape[1]
        if self._seed is None or kept == width:
            return largest
        weights = torch.full(values.shape, math.log(ASIDE / (width - kept)))
        weights.scatter_(1, largest, math.log((1 - ASIDE) / kept))
        uniform = torch.rand(values.shape, generator=torch.Generator().manual_seed(self._seed))
        gumbel = -torch.log(-torch.log(uniform.clamp_(1e-7, 1 - 1e-7)))
        return (weights + gumbel).topk(kept, dim=1, sorted=False).indices


def _as_mask(kept: int, width: int) -> bool:
    return -(-width // 8) <= kept * _place_bytes(width)


def _places_bytes(kept: int, width: int) -> int:
    return -(-width // 8) if _as_mask(kept, width) else kept * _place_bytes(width)


def _row_bytes(kept: int, width: int) -> int:
    return _places_bytes(kept, width) + VALUE_BYTES * kept if width else 0
