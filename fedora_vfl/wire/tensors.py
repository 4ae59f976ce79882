"""Tensors to bytes and back, in protobuf's own format, with one copy on sending and none on arrival.

protobuf's Python classes copy a bytes field three times on the way out and twice on the way in. A parcel that carries a
tensor is therefore written and read here by hand. What goes out is what `Parcel.SerializeToString` could have written;
what comes in may be written by any protobuf library. The tests hold both against the generated classes.
"""

import math
import warnings
from dataclasses import dataclass

import torch

from fedora_vfl.wire.meter import Packed
from protos.fedora.v1.exchange_pb2 import Parcel
from protos.fedora.v1.meter_pb2 import Kind
from protos.fedora.v1.tensor_pb2 import BFLOAT16, FLOAT16, FLOAT32, DType, Tensor

# Received bytes are never written to, which is what torch warns about.
warnings.filterwarnings("ignore", message="The given buffer is not writable", category=UserWarning)

DTYPES: dict[DType, torch.dtype] = {FLOAT32: torch.float32, FLOAT16: torch.float16, BFLOAT16: torch.bfloat16}
WIRE_TYPES: dict[torch.dtype, DType] = {found: number for number, found in DTYPES.items()}
MOST_DIMENSIONS = 8
FIELDS: dict[Kind, int] = {
    Kind.EMBEDDING: Parcel.EMBEDDING_FIELD_NUMBER,
    Kind.GRADIENT: Parcel.GRADIENT_FIELD_NUMBER,
}
KINDS: dict[int, Kind] = {field: kind for kind, field in FIELDS.items()}
_OTHER_CONTENTS = {one.number for one in Parcel.DESCRIPTOR.oneofs_by_name["content"].fields} - set(KINDS)

if {DType.Value(name) for name in DType.keys()} - {0} != set(DTYPES):  # noqa: SIM118 (an enum wrapper, not a dict)
    raise ImportError("a DType of the wire contract has no torch type")

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class MalformedError(ValueError):
    """The bytes are not a parcel."""


@dataclass(frozen=True, slots=True)
class TensorParcel:
    """An embedding or a gradient, for one batch of one phase."""

    kind: Kind
    phase: int
    step: int
    tensor: torch.Tensor


def pack(parcel: Parcel | TensorParcel) -> Packed:
    """Serialize a parcel of either kind."""
    if isinstance(parcel, TensorParcel):
        return _pack_tensor(parcel)
    return _labelled(parcel, parcel.SerializeToString())


def unpack(data: bytes) -> tuple[Parcel | TensorParcel, Packed]:
    """Read a parcel; a tensor's memory is the received buffer itself."""
    try:
        found = _unpack_tensor(data)
        if found is not None:
            return found, Packed(data, found.kind, found.tensor.nbytes)
        parcel = Parcel.FromString(data)
    except MalformedError:
        raise
    except IndexError:
        raise MalformedError("is cut short") from None
    except Exception as error:  # protobuf's DecodeError is not in its type stubs
        raise MalformedError(f"is no parcel: {error}") from None
    return parcel, _labelled(parcel, data)


def _labelled(parcel: Parcel, data: bytes) -> Packed:
    """Say what kind of message a parcel without embedding or gradient is."""
    content = parcel.WhichOneof("content")
    if content == "dual":
        return Packed(data, Kind.DUAL, sum(len(value.data) for value in parcel.dual.values))
    return Packed(data, Kind.ALIGNMENT if content in ("offer", "order", "forget") else Kind.CONTROL, phase=("setup", 0))


def _pack_tensor(parcel: TensorParcel) -> Packed:
    values = parcel.tensor.detach().contiguous()
    # numpy has no bfloat16: two bytes are two bytes. Flat, because a memoryview with a dimension of 0 cannot be cast.
    raw = (values.view(torch.int16) if values.itemsize == 2 else values).flatten().numpy().data.cast("B")
    header = Tensor(dtype=WIRE_TYPES[values.dtype], shape=values.shape).SerializeToString()
    if raw.nbytes:
        header += _tag(Tensor.DATA_FIELD_NUMBER, _BYTES) + _varint(raw.nbytes)
    start = Parcel(phase=parcel.phase, step=parcel.step).SerializeToString()
    start += _tag(FIELDS[parcel.kind], _BYTES) + _varint(len(header) + raw.nbytes)
    return Packed(b"".join((start, header, raw)), parcel.kind, raw.nbytes)


def _unpack_tensor(data: bytes) -> TensorParcel | None:
    """Walk the top-level fields; None where the parcel holds no tensor."""
    phase = step = 0
    kind, tensor, others = None, None, 0
    at, end = 0, len(data)
    while at < end:
        tag, at = _read_varint(data, at)
        field, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, at = _read_varint(data, at)
            if field == Parcel.PHASE_FIELD_NUMBER:
                phase = value
            elif field == Parcel.STEP_FIELD_NUMBER:
                step = value
        elif field in KINDS and wire_type == _BYTES:
            length, at = _read_varint(data, at)
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
    return TensorParcel(kind, phase, step, tensor)


def _read_tensor(data: bytes, at: int, end: int) -> torch.Tensor:
    """Read the nested Tensor message between two offsets."""
    dtype, shape, offset, size = 0, list[int](), at, 0
    while at < end:
        tag, at = _read_varint(data, at)
        field, wire_type = tag >> 3, tag & 7
        if field == Tensor.DTYPE_FIELD_NUMBER and wire_type == _VARINT:
            dtype, at = _read_varint(data, at)
        elif field == Tensor.SHAPE_FIELD_NUMBER and wire_type == _VARINT:
            length, at = _read_varint(data, at)
            shape.append(length)
        elif field == Tensor.SHAPE_FIELD_NUMBER and wire_type == _BYTES:
            length, at = _read_varint(data, at)
            packed_end = at + length
            while at < packed_end:
                length, at = _read_varint(data, at)
                shape.append(length)
        elif field == Tensor.DATA_FIELD_NUMBER and wire_type == _BYTES:
            size, offset = _read_varint(data, at)
            at = offset + size
        else:
            at = _skip(data, at, wire_type)
    if at != end or end > len(data):
        raise MalformedError("is cut short")
    found = DTYPES.get(dtype)  # type: ignore[call-overload]
    if found is None:
        raise MalformedError(f"holds values of unknown type {dtype}")
    if len(shape) > MOST_DIMENSIONS or any(length >= 2**32 for length in shape):
        raise MalformedError(f"holds a tensor with more than {MOST_DIMENSIONS} dimensions, or a dimension over 2³²")
    count = math.prod(shape)
    if count * found.itemsize != size:
        raise MalformedError(f"holds {size} bytes of values, but its shape {shape} needs {count * found.itemsize}")
    if count == 0:
        return torch.empty(shape, dtype=found)
    return torch.frombuffer(data, dtype=found, count=count, offset=offset).view(shape)


def _skip(data: bytes, at: int, wire_type: int) -> int:
    """Step over a field that is not ours."""
    if wire_type == _VARINT:
        return _read_varint(data, at)[1]
    if wire_type == _BYTES:
        length, at = _read_varint(data, at)
        return at + length
    if wire_type in (_FIXED64, _FIXED32):
        return at + (8 if wire_type == _FIXED64 else 4)
    raise MalformedError(f"has a field of unknown wire type {wire_type}")


def _tag(field: int, wire_type: int) -> bytes:
    return _varint(field << 3 | wire_type)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
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
