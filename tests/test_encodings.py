"""What encodings promise: the size they say, torch's own values to the bit, memory of their own, one class a name."""

import struct
import subprocess
import sys

import pytest
import torch

from fedora_vfl.errors import SettingsError
from fedora_vfl.wire.encodings import ENCODINGS, Float32, TensorEncoding, encoding_named, encoding_numbered, register
from protos.fedora.v1.tensor_pb2 import Encoding

# Infinities, a NaN, negative zero, the largest half, one above it, a number without an exact bfloat16, a denormal one.
AWKWARD = [[float("inf"), -float("inf"), float("nan"), -0.0], [65504.0, 70000.0, 0.1, 1e-42]]
SHAPES = [(1, 1), (3, 5), (256, 64), (0, 3), (3, 0)]


def bits(values: torch.Tensor) -> bytes:
    """Return the values as they lie in memory; unlike `==`, this tells one NaN from another."""
    return bytes(values.flatten().view(torch.uint8).tolist()) if values.numel() else b""


@pytest.mark.parametrize("encoding", ENCODINGS.entries)
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_a_batch_takes_the_bytes_that_its_encoding_says_and_keeps_its_shape(
    encoding: type[TensorEncoding], rows: int, width: int
) -> None:
    data = encoding().encode(torch.randn(rows, width))
    assert len(data) == encoding.nbytes(rows, width)
    decoded = encoding().decode(memoryview(data), rows, width)
    assert (decoded.shape, decoded.dtype) == ((rows, width), torch.float32)


@pytest.mark.parametrize("encoding", ENCODINGS.entries)
def test_values_are_those_of_torchs_type_of_the_same_name_to_the_bit(encoding: type[TensorEncoding]) -> None:
    values = torch.tensor(AWKWARD)
    expected = values.to(getattr(torch, encoding.name))
    data = encoding().encode(values)
    assert bytes(data) == bits(expected)
    assert bits(encoding().decode(memoryview(data), 2, 4)) == bits(expected.to(torch.float32))


def test_float32_arrives_as_it_was_to_the_bit() -> None:
    values = torch.randint(-(2**31), 2**31, (64, 64), dtype=torch.int64).to(torch.int32).view(torch.float32)
    assert bits(Float32().decode(memoryview(Float32().encode(values)), 64, 64)) == bits(values)


@pytest.mark.parametrize("encoding", ENCODINGS.entries)
def test_a_view_is_encoded_as_the_values_it_shows(encoding: type[TensorEncoding]) -> None:
    view = torch.arange(24.0).reshape(4, 6)[1:, ::2].T
    assert bytes(encoding().encode(view)) == bytes(encoding().encode(view.contiguous()))


def test_the_memory_of_encoded_float32_is_the_tensors_own() -> None:
    values = torch.zeros(2, 3)
    data = Float32().encode(values)
    values += 1.0
    assert bytes(data) == struct.pack("<6f", *[1.0] * 6)


@pytest.mark.parametrize("encoding", ENCODINGS.entries)
def test_what_is_decoded_has_memory_of_its_own_at_an_aligned_address(encoding: type[TensorEncoding]) -> None:
    data = bytearray(1 + encoding.nbytes(2, 3))
    decoded = encoding().decode(memoryview(data)[1:], 2, 3)
    assert decoded.data_ptr() % 16 == 0
    data[1:] = b"\x3f" * (len(data) - 1)
    assert decoded.abs().sum() == 0


def test_every_encoding_of_the_contract_has_a_class() -> None:
    assert {one.number for one in ENCODINGS.entries} >= set(Encoding.values()) - {0}
    for encoding in ENCODINGS.entries:
        assert encoding_named(encoding.name) is encoding_numbered(encoding.number) is encoding


@pytest.mark.parametrize(
    ("name", "number", "said"),
    [
        ("float32", 1000, "the encoding 'float32' is known already"),
        ("mine", 2, "has the number of 'float16'"),
        ("mine", 999, "has number 999; one's own begin at 1000"),
        ("mine", 0, "has number 0; one's own begin at 1000"),
        ("mine", 2**31, "one's own begin at 1000"),
    ],
)
def test_an_encoding_of_ones_own_takes_no_name_and_no_number_of_another(name: str, number: int, said: str) -> None:
    before = ENCODINGS.entries
    with pytest.raises(SettingsError, match=said):
        register(type("Mine", (Float32,), {"name": name, "number": number}))
    assert before == ENCODINGS.entries


def test_an_encoding_that_is_not_known_here_is_named_with_those_that_are() -> None:
    with pytest.raises(SettingsError, match="there is no encoding 'int3'; allowed: bfloat16, float16, float32"):
        encoding_named("int3")
    assert encoding_numbered(999) is None


def test_sizes_can_be_asked_for_without_torch() -> None:
    program = "import sys; from fedora_vfl.wire.encodings import ENCODINGS; ENCODINGS.get('float16').nbytes(2, 3); "
    program += "import fedora_vfl.wire.tensors; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
