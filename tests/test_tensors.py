"""What tensors on the wire promise: protobuf's own bytes, every bit kept, no copy on arrival, bad bytes refused."""

import math
from collections.abc import Sequence

import hypothesis
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedora_vfl.wire.meter import Packed
from fedora_vfl.wire.tensors import DTYPES, FIELDS, KINDS, MalformedError, TensorParcel, pack, unpack
from protos.fedora.v1.exchange_pb2 import Dual, Greeting, Offer, Order, Parcel
from protos.fedora.v1.failure_pb2 import Failure
from protos.fedora.v1.meter_pb2 import Kind
from protos.fedora.v1.tensor_pb2 import BFLOAT16, FLOAT16, FLOAT32, DType, Tensor

deterministic = hypothesis.settings(derandomize=True, deadline=None)

NUMBERS = {torch_type: number for number, torch_type in DTYPES.items()}
UINT32 = st.integers(0, 2**32 - 1)
# Fields of a later version of the contract, one of each wire type: number 1000 and up is not ours.
UNKNOWN = [
    b"\xc0\x3e\x07",
    b"\xc9\x3e" + bytes(8),
    b"\xd2\x3e\x03new",
    b"\xdd\x3e" + bytes(4),
]


@st.composite
def tensors(draw: st.DrawFn, *, shortest: int = 0) -> torch.Tensor:
    """Any shape and type, any bits: infinities, every NaN, negative zero."""
    dtype = draw(st.sampled_from(list(NUMBERS)))
    shape = draw(st.lists(st.integers(shortest, 5), max_size=4))
    size = math.prod(shape) * dtype.itemsize
    values = draw(st.binary(min_size=size, max_size=size))
    return torch.frombuffer(bytearray(values), dtype=dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)


@st.composite
def parcels(draw: st.DrawFn, *, shortest: int = 0) -> TensorParcel:
    kind = draw(st.sampled_from(list(FIELDS)))
    return TensorParcel(kind, draw(UINT32), draw(UINT32), draw(tensors(shortest=shortest)))


def bits(tensor: torch.Tensor) -> bytes:
    """Return the values as they lie in memory; unlike `==`, this tells one NaN from another."""
    flat = tensor.detach().contiguous().flatten()
    return bytes(flat.view(torch.uint8).tolist()) if tensor.numel() else b""


def generated(parcel: TensorParcel) -> Parcel:
    """Return the same parcel as an object of the generated class."""
    tensor = Tensor(dtype=NUMBERS[parcel.tensor.dtype], shape=parcel.tensor.shape, data=bits(parcel.tensor))
    if parcel.kind == Kind.EMBEDDING:
        return Parcel(phase=parcel.phase, step=parcel.step, embedding=tensor)
    return Parcel(phase=parcel.phase, step=parcel.step, gradient=tensor)


def assert_reads_as(data: bytes, expected: TensorParcel) -> None:
    found, packed = unpack(data)
    assert isinstance(found, TensorParcel)
    assert (found.kind, found.phase, found.step) == (expected.kind, expected.phase, expected.step)
    assert (found.tensor.dtype, found.tensor.shape) == (expected.tensor.dtype, expected.tensor.shape)
    assert bits(found.tensor) == bits(expected.tensor)
    assert packed == Packed(data, expected.kind, expected.tensor.nbytes)


def field(number: int, content: bytes) -> bytes:
    """Return a field of bytes, below 128 bytes long."""
    return bytes([number << 3 | 2, len(content)]) + content


# Out and back


@deterministic
@given(parcels(shortest=1))
def test_what_is_packed_is_unpacked_to_the_bit(parcel: TensorParcel) -> None:
    assert_reads_as(pack(parcel).data, parcel)


EMPTY = [
    (0,),
    *(
        pytest.param(
            shape,
        )
        for shape in [(0, 3), (3, 0), (2, 0, 2)]
    ),
]


@pytest.mark.parametrize("dtype", DTYPES.values())
@pytest.mark.parametrize("shape", EMPTY)
def test_a_tensor_without_values_travels_too(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    parcel = TensorParcel(Kind.EMBEDDING, 1, 2, torch.empty(shape, dtype=dtype))
    packed = pack(parcel)
    assert packed.tensor_bytes == 0
    assert_reads_as(packed.data, parcel)


def test_a_tensor_without_values_is_written_as_protobuf_writes_it() -> None:
    parcel = TensorParcel(Kind.EMBEDDING, 1, 2, torch.empty(0))
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
    assert packed.tensor_bytes == parcel.tensor.numel() * parcel.tensor.itemsize


@pytest.mark.parametrize("kind", KINDS.values())
def test_the_envelope_of_a_usual_batch_is_at_most_one_percent(kind: Kind) -> None:
    packed = pack(TensorParcel(kind, 2**32 - 1, 2**32 - 1, torch.randn(256, 64)))
    assert packed.tensor_bytes == 256 * 64 * 4
    assert packed.tensor_bytes < len(packed.data) <= 1.01 * packed.tensor_bytes


def test_the_memory_of_a_received_tensor_is_the_received_buffer() -> None:
    data = pack(TensorParcel(Kind.EMBEDDING, 1, 2, torch.randn(256, 64))).data
    found, _ = unpack(data)
    assert isinstance(found, TensorParcel)
    buffer = torch.frombuffer(data, dtype=torch.uint8)
    assert found.tensor.data_ptr() == buffer.data_ptr() + len(data) - found.tensor.nbytes


@pytest.mark.parametrize("dtype", DTYPES.values())
def test_a_view_is_packed_as_the_values_it_shows(dtype: torch.dtype) -> None:
    whole = torch.arange(24.0).reshape(4, 6).to(dtype).requires_grad_()
    view = whole[1:, ::2].T
    packed = pack(TensorParcel(Kind.GRADIENT, 1, 0, view))
    assert packed == pack(TensorParcel(Kind.GRADIENT, 1, 0, view.detach().clone(memory_format=torch.contiguous_format)))
    assert packed.tensor_bytes == 9 * dtype.itemsize


def test_every_type_and_tensor_of_the_contract_can_be_packed() -> None:
    assert set(DTYPES) == {FLOAT32, FLOAT16, BFLOAT16} == set(DType.values()) - {0}
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
    dtype, shape = NUMBERS[parcel.tensor.dtype], list(parcel.tensor.shape)
    cut = draw(st.integers(0, len(shape)))
    # Protobuf appends what stands in several fields, so a shape may come in two parts of different packing.
    shapes = [Tensor(shape=shape[:cut]).SerializeToString(), unpacked(shape[cut:])]
    others = [
        Tensor(dtype=dtype).SerializeToString(),
        Tensor(data=bits(parcel.tensor)).SerializeToString(),
        *draw(st.lists(st.sampled_from(UNKNOWN), max_size=3)),
    ]
    order = draw(st.permutations([*range(len(others)), "shape", "shape"]))
    remaining = iter(shapes)
    inside = b"".join(next(remaining) if isinstance(one, str) else others[one] for one in order)
    start = [
        Parcel(phase=parcel.phase).SerializeToString(),
        Parcel(step=parcel.step).SerializeToString(),
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
    parcel = TensorParcel(Kind.EMBEDDING, 7, 9, torch.ones(2, 3))
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
            Parcel(phase=3, dual=Dual(values=[Tensor(dtype=FLOAT32, shape=[n], data=bytes(4 * n)) for n in (1, 2)])),
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
    start = len(Parcel(phase=parcel.phase, step=parcel.step).SerializeToString())
    for length in range(start + 1, len(data)):
        with pytest.raises(MalformedError):
            unpack(data[:length])
    # Cut before the tensor begins, it is a parcel that holds nothing; who expects a tensor refuses it.
    found, packed = unpack(data[:start])
    assert found == Parcel(phase=parcel.phase, step=parcel.step)
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
        assert found.tensor.nbytes == packed.tensor_bytes


FLOAT = b"\x08\x01"  # the field dtype: FLOAT32


@pytest.mark.parametrize(
    ("tensor", "sentence"),
    [
        (b"\x12\x01\x01\x1a\x04abcd", "unknown type 0"),
        (b"\x08\x09\x12\x01\x01\x1a\x04abcd", "unknown type 9"),
        (FLOAT + b"\x12\x01\x02\x1a\x04abcd", "holds 4 bytes of values, but its shape [2] needs 8"),
        (FLOAT + b"\x12\x02\x02\x00\x1a\x04abcd", "holds 4 bytes of values, but its shape [2, 0] needs 0"),
        (FLOAT + b"\x12\x01\x01", "holds 0 bytes of values, but its shape [1] needs 4"),
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
            Tensor(dtype=FLOAT32, shape=[2**32 - 1] * 1000, data=bytes(4)),
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
