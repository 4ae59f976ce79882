"""How the values of embeddings and gradients are written: one class for each encoding, found by name or by number."""

import warnings
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, TypeVar

from fedora_vfl.errors import SettingsError
from fedora_vfl.plugins import Registry
from protos.fedora.v1.tensor_pb2 import BFLOAT16, FLOAT16, FLOAT32, Encoding

if TYPE_CHECKING:  # the coordinator asks for sizes, and never imports torch
    from torch import Tensor

# Received bytes are never written to, which is what torch warns about.
warnings.filterwarnings("ignore", message="The given buffer is not writable", category=UserWarning)

FIRST_OWN_NUMBER = 1000  # the contract leaves the numbers from here to encodings of users' own


class TensorEncoding(ABC):
    """One way to write a batch of float32 values as bytes.

    The class says how many bytes a batch takes. An object of it encodes and decodes what one end of one link sends and
    receives in one job; what an encoding remembers from message to message, such as rounding errors, is its object's.
    """

    name: ClassVar[str]  # in the job file
    number: ClassVar[int]  # on the wire

    @classmethod
    @abstractmethod
    def nbytes(cls, rows: int, width: int) -> int:
        """Return the size of an encoded batch, which its values do not change: the cost model is exact."""

    @abstractmethod
    def encode(self, values: "Tensor") -> bytes | memoryview:
        """Return the bytes of a float32 matrix; they may lie in the matrix's own memory."""

    @abstractmethod
    def decode(self, data: memoryview, rows: int, width: int) -> "Tensor":
        """Return a float32 matrix in memory of its own from `nbytes(rows, width)` bytes, whatever they hold."""


ENCODINGS: Registry[type[TensorEncoding]] = Registry("encoding")

E = TypeVar("E", bound=type[TensorEncoding])


def register(encoding: E) -> E:
    """Make an encoding known by its name and number; both must be new."""
    if encoding.number not in Encoding.values()[1:] and not FIRST_OWN_NUMBER <= encoding.number < 2**31:
        raise SettingsError(f"encoding {encoding.name!r} has number {encoding.number}; one's own begin at 1000")
    if known := encoding_numbered(encoding.number):
        raise SettingsError(f"encoding {encoding.name!r} has the number of {known.name!r}")
    ENCODINGS.register(encoding.name)(encoding)
    return encoding


def encoding_named(name: str) -> type[TensorEncoding]:
    """Return an encoding by the name it has in the job file."""
    try:
        return ENCODINGS.get(name)
    except ValueError as error:
        raise SettingsError(f"wire.encoding: {error}") from None


def encoding_numbered(number: int) -> type[TensorEncoding] | None:
    """Return an encoding by its number on the wire; None if it is not known."""
    return next((one for one in ENCODINGS.entries if one.number == number), None)


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


@register
class Float16(_PlainValues):
    """IEEE 754 half: 11 bits of precision, overflows above 65504."""

    name, number, size = "float16", FLOAT16, 2


@register
class BFloat16(_PlainValues):
    """The upper half of a float32: its range, with 8 bits of precision."""

    name, number, size = "bfloat16", BFLOAT16, 2


if {one.name.upper(): one.number for one in ENCODINGS.entries} != dict(Encoding.items()[1:]):
    raise ImportError("an encoding of the wire contract is not implemented, or is called otherwise")
