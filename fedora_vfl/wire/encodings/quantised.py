"""Encodings of few bits a value: whole multiples of a unit of the row's own.

The unit is the smallest with which the largest value of the row is in range. A row takes two bytes for it, a bfloat16
that is rounded up, and 8, 4, 3 or 2 bits for every value, the first in a byte's lowest bits. A row begins with a byte
of its own. All units come first, then all rows. A value is stored as its multiple plus 2^(bits − 1).
"""

import math
from typing import TYPE_CHECKING, ClassVar

from fedora_vfl.wire.encodings.base import TensorEncoding, register
from protos.fedora.v1.tensor_pb2 import INT2, INT3, INT4, INT8

if TYPE_CHECKING:  # the coordinator asks for sizes, and never imports torch
    from torch import Tensor

UNIT_BYTES = 2
# What counts as larger, in means of a row: the threshold of ternary weight networks (Li et al., 2016).
LARGER = 0.7
_NAN = 0x7FC0  # as a bfloat16


class _Multiples(TensorEncoding):
    """Rounds at random, up or down with the chances that make the mean right, or to the nearest without a seed."""

    bits: ClassVar[int]
    _seed: int | None = None

    @classmethod
    def nbytes(cls, rows: int, width: int) -> int:
        """Return the bytes of units and multiples."""
        return rows * (UNIT_BYTES + cls._row_bytes(width)) if width else 0

    @classmethod
    def _row_bytes(cls, width: int) -> int:
        return -(-width * cls.bits // 8)

    def draw_from(self, seed: int | None) -> None:
        """Round the next batch at random, or without a seed to the nearest."""
        self._seed = seed

    def encode(self, values: "Tensor") -> bytes | memoryview:
        """Return units, then multiples; a row with a value that is not finite gets a unit that is not either."""
        import torch

        rows, width = values.shape
        if not rows * width:
            return b""
        half, most = 1 << (self.bits - 1), (1 << (self.bits - 1)) - 1
        units = _rounded_up(self._unit(values.abs(), most))
        steps = units.view(torch.bfloat16).to(torch.float32).unsqueeze(1)
        multiples = values / torch.where(steps == 0, 1.0, steps)
        if self._seed is None:
            multiples = multiples.round_()
        else:
            generator = torch.Generator().manual_seed(self._seed)
            multiples = (multiples + torch.rand(rows, width, generator=generator)).floor_()
        # A quotient may lie a rounding error beyond `most`; of what is not finite the unit tells.
        codes = (multiples.nan_to_num_(0.0).clamp_(-most, most) + half).to(torch.uint8)
        return units.numpy().tobytes() + _packed(codes, self.bits, self._row_bytes(width)).numpy().tobytes()

    def _unit(self, sizes: "Tensor", most: int) -> "Tensor":
        """Return the unit of every row, from the absolute values."""
        return sizes.amax(dim=1) / most

    def decode(self, data: memoryview, rows: int, width: int) -> "Tensor":
        """Return the multiples times their units."""
        import torch

        if not rows * width:
            return torch.empty(rows, width)
        units = torch.frombuffer(data[: UNIT_BYTES * rows], dtype=torch.bfloat16).to(torch.float32)
        stored = torch.frombuffer(data[UNIT_BYTES * rows :], dtype=torch.uint8).view(rows, -1)
        codes = _unpacked(stored, self.bits)[:, :width]
        return (codes.to(torch.float32) - (1 << (self.bits - 1))) * units.unsqueeze(1)


def _rounded_up(positive: "Tensor") -> "Tensor":
    """Return the bits of the next bfloat16 that is not smaller, so that no multiple is out of range."""
    import torch

    upper = (positive.view(torch.int32) + 0xFFFF) >> 16
    return torch.where(positive.isnan(), _NAN, upper).to(torch.int16)


def _group(bits: int) -> tuple[int, int]:
    """Return how many codes fill how many bytes: two fill one byte with 4 bits, eight fill three with 3."""
    return 8 // math.gcd(bits, 8), bits // math.gcd(bits, 8)


def _packed(codes: "Tensor", bits: int, row_bytes: int) -> "Tensor":
    """Put several codes into a byte, or into several bytes; what is left of a row's last byte is zero."""
    import torch

    (count, size), (rows, width) = _group(bits), codes.shape
    if count == 1:
        return codes
    groups = -(-width // count)
    padded = torch.nn.functional.pad(codes, (0, groups * count - width)).view(rows, groups, count)
    if size > 1:
        padded = padded.to(torch.int32)
    packed = padded[:, :, 0].clone()
    for place in range(1, count):
        packed |= padded[:, :, place] << (bits * place)
    # Lowest byte first; with fewer than four to a group, the rest of each number is nothing.
    return packed.unsqueeze(2).view(torch.uint8)[:, :, :size].flatten(1)[:, :row_bytes]


def _unpacked(stored: "Tensor", bits: int) -> "Tensor":
    """Take the codes of all bytes apart."""
    import torch

    (count, size), (rows, row_bytes) = _group(bits), stored.shape
    if count == 1:
        return stored
    groups = -(-row_bytes // size)
    if size > 1:
        padded = torch.nn.functional.pad(stored, (0, groups * size - row_bytes)).view(rows, groups, size)
        stored = torch.nn.functional.pad(padded, (0, 4 - size)).view(torch.int32).view(rows, groups)
    places = [(stored >> (bits * place)) & ((1 << bits) - 1) for place in range(count)]
    return torch.stack(places, dim=2).flatten(1)


@register
class Int8(_Multiples):
    """A byte a value: −127 to 127 times the row's unit."""

    name, number, bits = "int8", INT8, 8


@register
class Int4(_Multiples):
    """Half a byte a value: −7 to 7 times the row's unit."""

    name, number, bits = "int4", INT4, 4


@register
class Int3(_Multiples):
    """Three bits a value: −3 to 3 times the row's unit."""

    name, number, bits = "int3", INT3, 3


@register
class Int2(_Multiples):
    """A quarter of a byte a value: minus, nothing or plus the row's unit."""

    name, number, bits = "int2", INT2, 2

    def _unit(self, sizes: "Tensor", most: int) -> "Tensor":
        """Return the largest value for rounding at random, else the mean of the larger ones, which errs far less.

        With values of a normal distribution, and rounded at half of the unit, the squared error is a fifth of the
        values' own; with the largest as unit it would be more than a half.
        """
        if self._seed is not None:
            return super()._unit(sizes, most)
        larger = sizes > LARGER * sizes.mean(dim=1, keepdim=True)
        # The count is 0 only in rows of zeros, and in rows with a value that is no number, whose sum tells so.
        return (sizes * larger).sum(dim=1) / larger.sum(dim=1).clamp(min=1)
