"""What every encoding has in common, and how one is found: by its name in a job file, by its number on the wire."""

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, TypeVar

from fedora_vfl.errors import SettingsError
from fedora_vfl.plugins import Registry
from protos.fedora.v1.tensor_pb2 import Encoding

if TYPE_CHECKING:  # the coordinator asks for sizes, and never imports torch
    from torch import Tensor

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

    @classmethod
    def could_be(cls, size: int, rows: int, width: int) -> bool:
        """Tell whether a batch may have this size, as far as the number on the wire tells: the first of two checks."""
        return size == cls.nbytes(rows, width)

    @classmethod
    def keeping(cls, percent: float) -> "type[TensorEncoding]":
        """Return the encoding that keeps so much of every row, where an encoding leaves something out."""
        raise SettingsError(f"the encoding {cls.name!r} keeps all of a row: leave the percentage out")

    def draw_from(self, seed: int | None) -> None:  # noqa: B027 (most encodings draw nothing)
        """Take what is random in the next batch from this seed; None: nothing may be random in it."""

    @abstractmethod
    def encode(self, values: "Tensor") -> bytes | memoryview:
        """Return the bytes of a float32 matrix; they may lie in the matrix's own memory."""

    @abstractmethod
    def decode(self, data: memoryview, rows: int, width: int) -> "Tensor":
        """Return a float32 matrix in memory of its own from `nbytes(rows, width)` bytes, whatever they hold."""

    def view(self, data: memoryview, rows: int, width: int) -> "Tensor":
        """Return what `decode` does, for a reader that copies it to memory of its own before it computes with it."""
        return self.decode(data, rows, width)


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


# `topk-5%`: an encoding, and how much of a row it keeps.
_PERCENT = re.compile(r"(?P<name>.+)-(?P<percent>[0-9]{1,3}(\.[0-9]{1,3})?)%")


def encoding_named(name: str) -> type[TensorEncoding]:
    """Return an encoding by the name it has in the job file."""
    found = _PERCENT.fullmatch(name)
    try:
        if found is None:
            return ENCODINGS.get(name)
        return ENCODINGS.get(found["name"]).keeping(float(found["percent"]))
    except ValueError as error:
        raise SettingsError(f"wire.encoding: {error}") from None


def encoding_numbered(number: int) -> type[TensorEncoding] | None:
    """Return an encoding by its number on the wire; None if it is not known."""
    return next((one for one in ENCODINGS.entries if one.number == number), None)
