"""Encodings that write every value on its own: as it is, or in half of the bytes."""

from typing import TYPE_CHECKING, ClassVar

from fedora_vfl.wire.encodings.base import TensorEncoding, register
from protos.fedora.v1.tensor_pb2 import BFLOAT16, FLOAT16, FLOAT32

if TYPE_CHECKING:  # the coordinator asks for sizes, and never imports torch
    from torch import Tensor


class _PlainValues(TensorEncoding):
    """Every value on its own, in row-major order, in the torch type of the encoding's name."""

    size: ClassVar[int]  # bytes of one value

    @classmethod
    def nbytes(cls, rows: int, width: int) -> int:
        """Return the bytes of all values."""
        return rows * width * cls.size

    def encode(self, values: "Tensor") -> bytes | memoryview:
        """Return the values' own memory, or a copy's where the type differs."""
        import torch

        # Flat: a memoryview with a dimension of 0 cannot be cast. numpy has no bfloat16: two bytes are two bytes.
        flat = values.to(getattr(torch, self.name)).flatten()
        return (flat.view(torch.int16) if self.size == 2 else flat).numpy().data.cast("B")

    def decode(self, data: memoryview, rows: int, width: int) -> "Tensor":
        """Copy the values to memory of their own."""
        import torch

        if not rows * width:
            return torch.empty(rows, width)
        # The copy has an aligned address: matrix products on an unaligned one may round differently, and the result
        # would not be exact to the bit.
        values = torch.frombuffer(data, dtype=getattr(torch, self.name)).view(rows, width)
        return values.to(torch.float32, copy=True)


@register
class Float32(_PlainValues):
    """The values as they are."""

    name, number, size = "float32", FLOAT32, 4

    def encode(self, values: "Tensor") -> bytes | memoryview:
        """Return the values' own memory."""
        # Flat: a memoryview with a dimension of 0 cannot be cast.
        return values.flatten().numpy().data.cast("B")

    def view(self, data: memoryview, rows: int, width: int) -> "Tensor":
        """Look at the values where they are."""
        import torch

        if not rows * width:
            return torch.empty(rows, width)
        return torch.frombuffer(data, dtype=torch.float32).view(rows, width)

    def decode(self, data: memoryview, rows: int, width: int) -> "Tensor":
        """Copy the values to memory of their own, for the reason that others have."""
        return self.view(data, rows, width).clone()


@register
class Float16(_PlainValues):
    """IEEE 754 half: 11 bits of precision, overflows above 65504."""

    name, number, size = "float16", FLOAT16, 2


@register
class BFloat16(_PlainValues):
    """The upper half of a float32: its range, with 8 bits of precision."""

    name, number, size = "bfloat16", BFLOAT16, 2
