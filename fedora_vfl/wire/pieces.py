"""Parcels too large for one message are cut into pieces: a receiver knows the size of the whole before it reads on.

gRPC reads a message whole before anybody here sees it. So that nobody can fill another's memory, no message between
parties is larger than a piece; what is larger says so in its first piece, and is read on only if as much is due.
"""

from collections.abc import Iterator

from fedora_vfl.wire.tensors import MalformedError, read_varint, varint
from protos.fedora.v1.exchange_pb2 import Parcel, Piece

# Large enough that most batches are one message, small enough for a receiver to hold several for every caller.
PIECE_BYTES = 4 * 1024 * 1024
FRAME_BYTES = 1024  # around the data of a piece, and around what is not cut

_TAG = Parcel.PIECE_FIELD_NUMBER << 3 | 2
_OF, _DATA = Piece.OF_FIELD_NUMBER << 3, Piece.DATA_FIELD_NUMBER << 3 | 2


def cut(data: bytes) -> Iterator[bytes]:
    """Yield what is sent for a serialized parcel: itself, or its pieces."""
    if len(data) <= PIECE_BYTES:
        yield data
        return
    whole = memoryview(data)
    for at in range(0, len(data), PIECE_BYTES):
        part = whole[at : at + PIECE_BYTES]
        # As protobuf's classes would write it, with one copy in place of three.
        inner = bytes((_OF,)) + varint(len(data)) + bytes((_DATA,)) + varint(len(part))
        yield b"".join((bytes((_TAG,)), varint(len(inner) + len(part)), inner, part))


def is_piece(message: bytes) -> bool:
    """Tell whether a message is a piece of a larger one."""
    return bool(message) and message[0] == _TAG


def read_piece(message: bytes) -> tuple[int, memoryview]:
    """Return the size of the whole and the bytes of a piece."""
    try:
        length, at = read_varint(message, 1)
        if at + length != len(message) or message[at] != _OF:
            raise MalformedError("is no piece")
        whole, at = read_varint(message, at + 1)
        if message[at] != _DATA:
            raise MalformedError("is no piece")
        length, at = read_varint(message, at + 1)
    except IndexError:
        raise MalformedError("is a piece that is cut short") from None
    if at + length != len(message) or not 0 < length <= min(PIECE_BYTES, whole):
        raise MalformedError("is a piece of another size than it says")
    return whole, memoryview(message)[at:]
