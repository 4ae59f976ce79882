"""What tensors on the wire promise: protobuf's own bytes, every bit kept, no copy on arrival, bad bytes refused."""

from collections.abc import Sequence

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedora_vfl.wire.encodings import ENCODINGS, Float32, TensorEncoding
from fedora_vfl.wire.meter import Packed
from fedora_vfl.wire.tensors import FIELDS, KINDS, Due, MalformedError, TensorParcel, agreed_in, pack, unpack
from protos.fedora.v1.exchange_pb2 import Dual, Greeting, Offer, Order, Parcel
from protos.fedora.v1.failure_pb2 import Failure
from protos.fedora.v1.meter_pb2 import Kind
from protos.fedora.v1.tensor_pb2 import FLOAT32, Encoding, Tensor

deterministic = hypothesis.settings(derandomize=True, deadline=None)

UINT32 = st.integers(0, 2**32 - 1)
# Fields of a later version of the contract, one of each wire type: number 1000 and up is not ours.
UNKNOWN = [
    b"\xc0\x3e\x07",
    b"\xc9\x3e" + bytes(8),
    b"\xd2\x3e\x03new",
    b"\xdd\x3e" + bytes(4),
]


@st.composite
def parcels(draw: st.DrawFn, *, shortest: int = 0) -> TensorParcel:
    """Any shape and encoding, any bits: infinities, every NaN, negative zero."""
    encoding = draw(st.sampled_from(ENCODINGS.entries))
    rows, width = draw(st.integers(shortest, 8)), draw(st.integers(shortest, 8))
    size = encoding.nbytes(rows, width)
    data = draw(st.binary(min_size=size, max_size=size))
    kind, phase, step = draw(st.sampled_from(list(FIELDS))), draw(UINT32), draw(UINT32)
    return TensorParcel(kind, phase, step, encoding, rows, width, data, agreed=draw(st.integers(0, 2**64 - 1)))


def batch(kind: Kind, phase: int, step: int, rows: int, width: int) -> TensorParcel:
    """Return a parcel of ones in float32."""
    return TensorParcel(kind, phase, step, Float32, rows, width, np.ones((rows, width), np.float32).tobytes())


def empty(encoding: type[TensorEncoding], rows: int, width: int) -> TensorParcel:
    return TensorParcel(Kind.EMBEDDING, 1, 2, encoding, rows, width, b"")


def tensor_of(parcel: TensorParcel) -> Tensor:
    number = Encoding.Name(parcel.encoding.number)
    return Tensor(encoding=number, shape=[parcel.rows, parcel.width], data=bytes(parcel.data))


def generated(parcel: TensorParcel) -> Parcel:
    """Return the same parcel as an object of the generated class."""
    tensor = tensor_of(parcel)
    if parcel.kind == Kind.EMBEDDING:
        return Parcel(phase=parcel.phase, step=parcel.step, agreed=parcel.agreed, embedding=tensor)
    return Parcel(phase=parcel.phase, step=parcel.step, agreed=parcel.agreed, gradient=tensor)


def assert_reads_as(data: bytes, expected: TensorParcel) -> None:
    found, packed = unpack(data)
    assert isinstance(found, TensorParcel)
    assert (found.kind, found.phase, found.step) == (expected.kind, expected.phase, expected.step)
    assert found.agreed == expected.agreed
    assert (found.encoding, found.rows, found.width) == (expected.encoding, expected.rows, expected.width)
    assert bytes(found.data) == bytes(expected.data)
    assert packed == Packed(data, expected.kind, len(expected.data))


def field(number: int, content: bytes) -> bytes:
    """Return a field of bytes, below 128 bytes long."""
    return bytes([number << 3 | 2, len(content)]) + content


# Out and back


@deterministic
@given(parcels(shortest=1))
def test_what_is_packed_is_unpacked_to_the_bit(parcel: TensorParcel) -> None:
    assert_reads_as(pack(parcel).data, parcel)
    assert agreed_in(pack(parcel).data[:64]) == (parcel.agreed or None)


@deterministic
@given(parcels(), parcels(), st.booleans())
def test_what_is_known_to_be_due_is_read_as_anything_else_would_be(
    parcel: TensorParcel, other: TensorParcel, right: bool
) -> None:
    expected = parcel if right else other
    due = Due.of(*expected[:6])
    data = pack(parcel).data
    assert unpack(data, due) == unpack(data)


@pytest.mark.parametrize("encoding", ENCODINGS.entries)
@pytest.mark.parametrize(("rows", "width"), [(0, 0), (0, 3), (3, 0)])
def test_a_tensor_without_values_travels_too(rows: int, width: int, encoding: type[TensorEncoding]) -> None:
    parcel = empty(encoding, rows, width)
    packed = pack(parcel)
    assert packed.tensor_bytes == 0
    assert_reads_as(packed.data, parcel)


def test_a_tensor_without_values_is_written_as_protobuf_writes_it() -> None:
    parcel = empty(Float32, 0, 3)
    assert pack(parcel).data == generated(parcel).SerializeToString()


@deterministic
@given(parcels(shortest=1))
def test_what_is_packed_is_what_the_generated_class_writes(parcel: TensorParcel) -> None:
    packed = pack(parcel)
    theirs = Parcel.FromString(packed.data)
    assert theirs == generated(parcel)
    assert theirs.SerializeToString() == packed.data


@deterministic
@given(parcels(shortest=1))
def test_a_packed_parcel_says_its_kind_and_tensor_bytes(parcel: TensorParcel) -> None:
    packed = pack(parcel)
    assert (packed.kind, packed.phase) == (parcel.kind, None)
    assert packed.tensor_bytes == parcel.encoding.nbytes(parcel.rows, parcel.width)


@pytest.mark.parametrize("kind", KINDS.values())
def test_the_envelope_of_a_usual_batch_is_at_most_one_percent(kind: Kind) -> None:
    packed = pack(batch(kind, 2**32 - 1, 2**32 - 1, 256, 64))
    assert packed.tensor_bytes == 256 * 64 * 4
    assert packed.tensor_bytes < len(packed.data) <= 1.01 * packed.tensor_bytes


def test_the_memory_of_a_received_tensor_is_the_received_buffer() -> None:
    data = pack(batch(Kind.EMBEDDING, 1, 2, 256, 64)).data
    found, _ = unpack(data)
    assert isinstance(found, TensorParcel)
    start, values = (np.frombuffer(one, np.uint8).ctypes.data for one in (data, found.data))
    assert values == start + len(data) - len(found.data)


def test_every_tensor_of_the_contract_can_be_packed() -> None:
    carrying = [one for one in Parcel.DESCRIPTOR.fields if one.message_type is Tensor.DESCRIPTOR]
    assert set(KINDS) == {one.number for one in carrying}
    assert {Kind.Name(KINDS[one.number]).lower() for one in carrying} == {one.name for one in carrying}


# In, as any protobuf library may write it


@deterministic
@given(parcels())
def test_what_the_generated_class_writes_is_read(parcel: TensorParcel) -> None:
    assert_reads_as(generated(parcel).SerializeToString(), parcel)


def unpacked(shape: Sequence[int]) -> bytes:
    """Write a shape as older libraries do, one field for each dimension."""
    return b"".join(Tensor(shape=[length]).SerializeToString().replace(b"\x12\x01", b"\x10") for length in shape)


@st.composite
def scattered(draw: st.DrawFn, parcel: TensorParcel) -> tuple[bytes, bytes]:
    """Write a parcel's start and its tensor with all fields in any order, in any packing, unknown ones among them."""
    whole = tensor_of(parcel)
    shape = list(whole.shape)
    cut = draw(st.integers(0, len(shape)))
    # Protobuf appends what stands in several fields, so a shape may come in two parts of different packing.
    shapes = [Tensor(shape=shape[:cut]).SerializeToString(), unpacked(shape[cut:])]
    others = [
        Tensor(encoding=whole.encoding).SerializeToString(),
        Tensor(data=whole.data).SerializeToString(),
        *draw(st.lists(st.sampled_from(UNKNOWN), max_size=3)),
    ]
    order = draw(st.permutations([*range(len(others)), "shape", "shape"]))
    remaining = iter(shapes)
    inside = b"".join(next(remaining) if isinstance(one, str) else others[one] for one in order)
    start = [
        Parcel(phase=parcel.phase).SerializeToString(),
        Parcel(step=parcel.step).SerializeToString(),
        Parcel(agreed=parcel.agreed).SerializeToString(),
        *draw(st.lists(st.sampled_from(UNKNOWN), max_size=3)),
    ]
    empty = Parcel(embedding=Tensor()) if parcel.kind == Kind.EMBEDDING else Parcel(gradient=Tensor())
    tag = empty.SerializeToString()[:-1]
    length = bytes([len(inside)]) if len(inside) < 128 else bytes([len(inside) & 127 | 128, len(inside) >> 7])
    return b"".join(draw(st.permutations(start))), tag + length + inside


@deterministic
@given(st.data())
def test_fields_of_a_tensor_may_come_in_any_order_with_unknown_ones_among_them(data: st.DataObject) -> None:
    parcel = data.draw(parcels())
    start, tensor = data.draw(scattered(parcel))
    assert Parcel.FromString(start + tensor).WhichOneof("content") == Kind.Name(parcel.kind).lower()
    assert_reads_as(start + tensor, parcel)


@pytest.mark.parametrize("behind", [Parcel(phase=7, step=9).SerializeToString(), *UNKNOWN])
def test_a_tensor_need_not_be_the_last_field_of_its_parcel(behind: bytes) -> None:
    start = b"" if Parcel.FromString(behind).phase else Parcel(phase=7, step=9).SerializeToString()
    parcel = batch(Kind.EMBEDDING, 7, 9, 2, 3)
    tensor = Parcel(embedding=generated(parcel).embedding).SerializeToString()
    assert_reads_as(start + tensor + behind, parcel)


@pytest.mark.parametrize(
    ("parcel", "kind", "tensor_bytes", "phase"),
    [
        (Parcel(greeting=Greeting(protocol=1, party="p", job="j")), Kind.CONTROL, 0, ("setup", 0)),
        (Parcel(offer=Offer(ids=["a", "b"])), Kind.ALIGNMENT, 0, ("setup", 0)),
        (Parcel(order=Order(train=["a"], test=["b"])), Kind.ALIGNMENT, 0, ("setup", 0)),
        (Parcel(failure=Failure(culprit="p", reason="stumbled")), Kind.CONTROL, 0, ("setup", 0)),
        (Parcel(dual=Dual(norm=2)), Kind.DUAL, 0, None),
        (
            Parcel(phase=3, dual=Dual(values=[Tensor(encoding=FLOAT32, shape=[n], data=bytes(4 * n)) for n in (1, 2)])),
            Kind.DUAL,
            12,
            None,
        ),
    ],
)
def test_other_parcels_are_labelled_alike_at_both_ends(
    parcel: Parcel, kind: Kind, tensor_bytes: int, phase: tuple[str, int] | None
) -> None:
    packed = pack(parcel)
    assert packed == Packed(parcel.SerializeToString(), kind, tensor_bytes, phase)
    assert unpack(packed.data) == (parcel, packed)


# Bad bytes


@deterministic
@given(parcels(shortest=1))
def test_a_parcel_cut_short_is_never_taken_for_a_tensor(parcel: TensorParcel) -> None:
    data = pack(parcel).data
    head = Parcel(phase=parcel.phase, step=parcel.step, agreed=parcel.agreed)
    start = len(head.SerializeToString())
    for length in range(start + 1, len(data)):
        with pytest.raises(MalformedError):
            unpack(data[:length])
    # Cut before the tensor begins, it is a parcel that holds nothing; who expects a tensor refuses it.
    found, packed = unpack(data[:start])
    assert found == head
    assert packed.tensor_bytes == 0


@deterministic
@given(st.data())
def test_corrupted_bytes_are_refused_or_read_but_never_fail_otherwise(data: st.DataObject) -> None:
    damaged = bytearray(pack(data.draw(parcels(shortest=1))).data)
    for place in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=4)):
        damaged[place] = data.draw(st.integers(0, 255))
    check_refused_or_consistent(bytes(damaged))


@deterministic
@given(st.binary(max_size=64) | st.binary(max_size=40).map(lambda inside: field(14, inside)))
def test_any_bytes_are_refused_or_read_but_never_fail_otherwise(data: bytes) -> None:
    check_refused_or_consistent(data)


def check_refused_or_consistent(data: bytes) -> None:
    """Let only MalformedError pass; what is read must lie within the bytes that came."""
    try:
        found, packed = unpack(data)
    except MalformedError:
        return
    assert packed.data == data
    assert packed.tensor_bytes <= len(data)
    if isinstance(found, TensorParcel):
        assert len(found.data) == packed.tensor_bytes
        assert found.encoding.could_be(len(found.data), found.rows, found.width)


FLOAT = b"\x08\x01"  # the field encoding: FLOAT32


@pytest.mark.parametrize(
    ("tensor", "sentence"),
    [
        (b"\x12\x02\x01\x01\x1a\x04abcd", "in the encoding 0, which is not known here"),
        (b"\x08\x63\x12\x02\x01\x01\x1a\x04abcd", "in the encoding 99, which is not known here"),
        (FLOAT + b"\x12\x01\x01\x1a\x04abcd", "holds a tensor that is no matrix"),
        (FLOAT + b"\x12\x03\x01\x01\x01\x1a\x04abcd", "holds a tensor that is no matrix"),
        (FLOAT + b"\x1a\x04abcd", "holds a tensor that is no matrix"),
        (FLOAT + b"\x12\x02\x02\x01\x1a\x04abcd", "holds 4 bytes of values, but its shape [2, 1] in float32 needs 8"),
        (FLOAT + b"\x12\x02\x02\x00\x1a\x04abcd", "holds 4 bytes of values, but its shape [2, 0] in float32 needs 0"),
        (FLOAT + b"\x12\x02\x01\x01", "holds 0 bytes of values, but its shape [1, 1] in float32 needs 4"),
        (FLOAT + b"\x12\x01\x01\x1a\x05abcd", "is cut short"),
        (FLOAT + b"\x12\x01\x01\x1a\xff\xff\xff\xff\xff\xff\xff\xff\x7fabcd", "is cut short"),
        pytest.param(
            FLOAT + b"\x12\x7f\x01",
            "is cut short",
        ),
        (FLOAT + b"\x10" + b"\xff" * 10 + b"\x01", "a number of more than ten bytes"),
        (FLOAT + b"\x0b", "unknown wire type 3"),
        (FLOAT + b"\x0f", "unknown wire type 7"),
    ],
)
def test_a_tensor_that_contradicts_itself_is_refused_with_the_reason(tensor: bytes, sentence: str) -> None:
    with pytest.raises(MalformedError) as caught:
        unpack(field(14, tensor))
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "data", [b"\xff", b"\x08", b"\x72\x05\x00", b"\x1a\x02\x08", b"\x22\x03\x0a\x01\xff", b"\x08" + b"\xff" * 11]
)
def test_a_parcel_that_protobuf_refuses_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedError):
        unpack(data)


HUGE = b"\x10" + b"\xff" * 9 + b"\x01"  # a dimension of 2**64 - 1


@pytest.mark.parametrize(
    "tensor",
    [
        pytest.param(
            Tensor(encoding=FLOAT32, shape=[2**32 - 1] * 1000, data=bytes(4)),
            id="very many dimensions",
        ),
        pytest.param(
            FLOAT + b"\x10\x00" + HUGE,
            id="a very large dimension",
        ),
    ],
)
def test_an_absurd_shape_is_refused_in_one_short_sentence(tensor: Tensor | bytes) -> None:
    data = field(14, tensor) if isinstance(tensor, bytes) else Parcel(embedding=tensor).SerializeToString()
    with pytest.raises(MalformedError) as caught:
        unpack(data)
    assert "dimension" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
