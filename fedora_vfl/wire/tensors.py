"""Encoded tensors to messages and back, in protobuf's own format, with one copy on sending and none on arrival.

protobuf's Python classes copy a bytes field three times on the way out and twice on the way in. A parcel that carries a
tensor is therefore written and read here by hand. What goes out is what `Parcel.SerializeToString` could have written;
what comes in may be written by any protobuf library. The tests hold both against the generated classes.
"""

from functools import lru_cache
from typing import NamedTuple

from fedora_vfl.wire.encodings import TensorEncoding, encoding_numbered
from fedora_vfl.wire.meter import Packed
from protos.fedora.v1.exchange_pb2 import Parcel
from protos.fedora.v1.meter_pb2 import Kind
from protos.fedora.v1.tensor_pb2 import Tensor

FIELDS: dict[Kind, int] = {
    Kind.EMBEDDING: Parcel.EMBEDDING_FIELD_NUMBER,
    Kind.GRADIENT: Parcel.GRADIENT_FIELD_NUMBER,
}
KINDS: dict[int, Kind] = {field: kind for kind, field in FIELDS.items()}
_OTHER_CONTENTS = {one.number for one in Parcel.DESCRIPTOR.oneofs_by_name["content"].fields} - set(KINDS)
_MASKED = {"table": "slots", "masked": "points", "common": "tags"}  # where the values are that the cost model predicts
_ALIGNING = {"offer", "order", "forget", "call", "plan", "working"}

# Fields that a parcel, or the tensor in it, is looked through for. Honest ones have up to five; a message of many tiny
# ones would keep the reader busy for long.
MOST_FIELDS = 32
# Entries of a list of ids. Each takes far more memory than the two bytes that it may take on the wire.
MOST_IDS = 5_000_000

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class MalformedError(ValueError):
    """The bytes are not a parcel."""


class TensorParcel(NamedTuple):
    """An embedding or a gradient, for one batch of one phase, in encoded form."""

    kind: Kind
    phase: int
    step: int
    encoding: type[TensorEncoding]
    rows: int
    width: int
    data: bytes | memoryview
    agreed: int = 0  # with the first batch of a phase: a digest of the phase


class Due(NamedTuple):
    """The parcel that comes next if all is well: how it begins, and what it is but for its values."""

    head: bytes
    size: int  # of the values
    parcel: TensorParcel

    @classmethod
    def of(cls, kind: Kind, phase: int, step: int, encoding: type[TensorEncoding], rows: int, width: int) -> "Due":
        """Return what is due for a batch."""
        size = encoding.nbytes(rows, width)
        return cls(
            _head(kind, phase, step, 0, encoding.number, rows, width, size),
            size,
            TensorParcel(kind, phase, step, encoding, rows, width, b""),
        )


def pack(parcel: Parcel | TensorParcel) -> Packed:
    """Serialize a parcel of either kind."""
    if isinstance(parcel, TensorParcel):
        return _pack_tensor(parcel)
    return _labelled(parcel, parcel.SerializeToString())


def unpack(
    data: bytes, due: Due | None = None, booked: tuple[str, int] | None = None
) -> tuple[Parcel | TensorParcel, Packed]:
    """Read a parcel; a tensor's data is a part of the received buffer itself.

    One that begins to the byte as the one that is `due` would is known without looking at every field. A tensor is
    `booked` under this phase and round, or else under those of now.
    """
    if due and len(data) == len(due.head) + due.size and data.startswith(due.head):
        parcel = due.parcel._replace(data=memoryview(data)[len(due.head) :])
        return parcel, Packed(data, parcel.kind, due.size, booked)
    try:
        found = _unpack_tensor(data)
        if found is not None:
            return found, Packed(data, found.kind, len(found.data), booked)
        # Every entry of a list of ids begins with this byte. Ids of ten letters have it as their length, too.
        if len(data) > MOST_IDS and data.count(b"\n") > 2 * MOST_IDS:
            raise MalformedError(f"holds more than {MOST_IDS} ids")
        message = Parcel.FromString(data)
    except MalformedError:
        raise
    except IndexError:
        raise MalformedError("is cut short") from None
    except Exception as error:  # protobuf's DecodeError is not in its type stubs
        raise MalformedError(f"is not a parcel: {error}") from None
    return message, _labelled(message, data)


def _labelled(parcel: Parcel, data: bytes) -> Packed:
    """Say what kind of message a parcel without embedding or gradient is."""
    content = parcel.WhichOneof("content")
    if content == "dual":
        return Packed(data, Kind.DUAL, sum(len(value.data) for value in parcel.dual.values))
    if content in _MASKED:
        return Packed(
            data, Kind.ALIGNMENT, len(getattr(getattr(parcel, content), _MASKED[content])), phase=("setup", 0)
        )
    return Packed(data, Kind.ALIGNMENT if content in _ALIGNING else Kind.CONTROL, phase=("setup", 0))


def _pack_tensor(parcel: TensorParcel) -> Packed:
    kind, phase, step, encoding, rows, width, data, agreed = parcel
    size = len(data)
    head = _head(kind, phase, step, agreed, encoding.number, rows, width, size)
    return Packed(b"".join((head, data)), kind, size)


def _head(kind: Kind, phase: int, step: int, agreed: int, encoding: int, rows: int, width: int, size: int) -> bytes:
    """Return what comes before a tensor's values."""
    start = (_PHASE + varint(phase) if phase else b"") + (_STEP + varint(step) if step else b"")
    if agreed:
        start += _AGREED + agreed.to_bytes(8, "little")
    return start + _tensor_head(kind, encoding, rows, width, size)


@lru_cache(maxsize=1024)
def _tensor_head(kind: Kind, encoding: int, rows: int, width: int, size: int) -> bytes:
    """Return the same of the tensor alone, which batch after batch has in common."""
    header = _tag(Tensor.ENCODING_FIELD_NUMBER, _VARINT) + varint(encoding)
    header += Tensor(shape=(rows, width)).SerializeToString()
    if size:
        header += _tag(Tensor.DATA_FIELD_NUMBER, _BYTES) + varint(size)
    return _tag(FIELDS[kind], _BYTES) + varint(len(header) + size) + header


def _unpack_tensor(data: bytes) -> TensorParcel | None:
    """Walk the top-level fields; None where the parcel holds no tensor."""
    phase = step = agreed = 0
    kind, tensor, others = None, None, 0
    at, end, fields = 0, len(data), 0
    while at < end:
        fields += 1
        if fields > MOST_FIELDS:
            raise MalformedError(f"has more than {MOST_FIELDS} fields")
        tag, at = read_varint(data, at)
        field, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, at = read_varint(data, at)
            if field == Parcel.PHASE_FIELD_NUMBER:
                phase = value
            elif field == Parcel.STEP_FIELD_NUMBER:
                step = value
        elif field == Parcel.AGREED_FIELD_NUMBER and wire_type == _FIXED64:
            agreed, at = int.from_bytes(data[at : at + 8], "little"), at + 8
        elif field in KINDS and wire_type == _BYTES:
            length, at = read_varint(data, at)
            if tensor is not None:
                raise MalformedError("holds two tensors")
            kind, tensor = KINDS[field], _read_tensor(data, at, at + length)
            at += length
        else:
            others += field in _OTHER_CONTENTS
            at = _skip(data, at, wire_type)
    if at != end:
        raise MalformedError("is cut short")
    if kind is None or tensor is None:
        return None
    if others:
        raise MalformedError("holds a tensor and something else besides")
    return TensorParcel(kind, phase, step, *tensor, agreed=agreed)


def agreed_in(head: bytes) -> int | None:
    """Return the digest of the phase that the beginning of a parcel holds; None if there is none to be seen."""
    try:
        at, fields = 0, 0
        while fields < MOST_FIELDS:
            tag, at = read_varint(head, at)
            fields += 1
            if tag == Parcel.AGREED_FIELD_NUMBER << 3 | _FIXED64:
                return int.from_bytes(head[at : at + 8], "little") if len(head) >= at + 8 else None
            if tag & 7 != _VARINT:
                return None
            _, at = read_varint(head, at)
    except (IndexError, MalformedError):
        pass
    return None


def _read_tensor(data: bytes, at: int, end: int) -> tuple[type[TensorEncoding], int, int, memoryview]:
    """Read the nested Tensor message between two offsets: encoding, rows, width, data."""
    number, shape, offset, size, fields = 0, list[int](), at, 0, 0
    while at < end:
        fields += 1
        if fields > MOST_FIELDS:
            raise MalformedError(f"holds a tensor of more than {MOST_FIELDS} fields")
        tag, at = read_varint(data, at)
        field, wire_type = tag >> 3, tag & 7
        if field == Tensor.ENCODING_FIELD_NUMBER and wire_type == _VARINT:
            number, at = read_varint(data, at)
        elif field == Tensor.SHAPE_FIELD_NUMBER and wire_type == _VARINT:
            length, at = read_varint(data, at)
            shape.append(length)
        elif field == Tensor.SHAPE_FIELD_NUMBER and wire_type == _BYTES:
            length, at = read_varint(data, at)
            packed_end = at + length
            while at < packed_end and len(shape) <= MOST_FIELDS:
                length, at = read_varint(data, at)
                shape.append(length)
            at = max(at, packed_end)  # a shape of more dimensions is refused below, however many it has
        elif field == Tensor.DATA_FIELD_NUMBER and wire_type == _BYTES:
            size, offset = read_varint(data, at)
            at = offset + size
        else:
            at = _skip(data, at, wire_type)
    if at != end or end > len(data):
        raise MalformedError("is cut short")
    encoding = encoding_numbered(number)
    if encoding is None:
        raise MalformedError(f"holds values in the encoding {number}, which is not known here")
    if len(shape) != 2 or max(shape) >= 2**32:
        raise MalformedError("holds a tensor that is no matrix, or has a dimension over 2³²")
    rows, width = shape
    if not encoding.could_be(size, rows, width):
        needed = f"its shape {shape} in {encoding.name} needs {encoding.nbytes(rows, width)}"
        raise MalformedError(f"holds {size} bytes of values, but {needed}")
    return encoding, rows, width, memoryview(data)[offset : offset + size]


def _skip(data: bytes, at: int, wire_type: int) -> int:
    """Step over a field that is not ours."""
    if wire_type == _VARINT:
        return read_varint(data, at)[1]
    if wire_type == _BYTES:
        length, at = read_varint(data, at)
        return at + length
    if wire_type in (_FIXED64, _FIXED32):
        return at + (8 if wire_type == _FIXED64 else 4)
    raise MalformedError(f"has a field of unknown wire type {wire_type}")


def _tag(field: int, wire_type: int) -> bytes:
    return varint(field << 3 | wire_type)


def varint(value: int) -> bytes:
    """Write a number."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at an offset, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise MalformedError("has a number of more than ten bytes")


_PHASE, _STEP = _tag(Parcel.PHASE_FIELD_NUMBER, _VARINT), _tag(Parcel.STEP_FIELD_NUMBER, _VARINT)
_AGREED = _tag(Parcel.AGREED_FIELD_NUMBER, _FIXED64)
