"""What encodings promise: the size they say, torch's own values to the bit, memory of their own, one class a name."""

import math
import struct
import subprocess
import sys
from fractions import Fraction

import pytest
import torch

from fedora_vfl.errors import SettingsError
from fedora_vfl.wire.encodings import (
    ENCODINGS,
    BFloat16,
    Float16,
    Float32,
    Int2,
    Int3,
    Int4,
    Int8,
    RandomTopK,
    TensorEncoding,
    TopK,
    encoding_named,
    encoding_numbered,
    register,
)
from protos.fedora.v1.tensor_pb2 import Encoding

# Infinities, a NaN, negative zero, the largest half, one above it, a number without an exact bfloat16, a denormal one.
AWKWARD = [[float("inf"), -float("inf"), float("nan"), -0.0], [65504.0, 70000.0, 0.1, 1e-42]]
SHAPES = [(1, 1), (3, 5), (256, 64), (0, 3), (3, 0), (2, 300), (7, 257)]
PLAIN = [Float32, Float16, BFloat16]
QUANTISED = [Int8, Int4, Int3, Int2]
SPARSE = [encoding_named(name) for name in ("topk", "randtopk", "topk-1%", "topk-37.5%", "randtopk-100%")]


def bits(values: torch.Tensor) -> bytes:
    """Return the values as they lie in memory; unlike `==`, this tells one NaN from another."""
    return bytes(values.flatten().view(torch.uint8).tolist()) if values.numel() else b""


@pytest.mark.parametrize("encoding", [*PLAIN, *QUANTISED, *SPARSE])
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_a_batch_takes_the_bytes_that_its_encoding_says_and_keeps_its_shape(
    encoding: type[TensorEncoding], rows: int, width: int
) -> None:
    data = encoding().encode(torch.randn(rows, width))
    assert len(data) == encoding.nbytes(rows, width)
    assert encoding.could_be(len(data), rows, width)
    assert not encoding.could_be(len(data) + 1, rows, width)
    decoded = encoding().decode(memoryview(data), rows, width)
    assert (decoded.shape, decoded.dtype) == ((rows, width), torch.float32)


@pytest.mark.parametrize("encoding", PLAIN)
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
    data = bytearray(b"\x00" + bytes(encoding().encode(torch.zeros(2, 3))))
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
    with pytest.raises(SettingsError, match="there is no encoding 'int5'; allowed: bfloat16, float16, float32, int2"):
        encoding_named("int5")
    assert encoding_numbered(999) is None


# Few bits


def by_hand(values: list[float], bits: int) -> tuple[bytes, bytes]:
    """Encode one row to the nearest multiples, with fractions and Python's own integers."""
    most = 2 ** (bits - 1) - 1
    exact = torch.tensor(max(abs(one) for one in values)) / most
    if bits == 2:
        sizes = torch.tensor(values).abs()
        larger = sizes[sizes > 0.7 * sizes.mean()]
        exact = larger.sum() / max(1, len(larger))
    (pattern,) = struct.unpack("<I", struct.pack("<f", float(exact)))
    unit = pattern // 65536 + (pattern % 65536 > 0)  # the upper half, rounded up
    (step,) = struct.unpack("<f", struct.pack("<I", unit * 65536))
    multiples = [round(Fraction(one) / Fraction(step)) if step else 0 for one in values]
    codes = [min(most, max(-most, one)) + 2 ** (bits - 1) for one in multiples]
    whole = sum(code << (bits * place) for place, code in enumerate(codes))
    return struct.pack("<H", unit), whole.to_bytes(math.ceil(bits * len(values) / 8), "little")


@pytest.mark.parametrize("encoding", QUANTISED)
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 8, 63])
def test_multiples_are_those_of_a_calculation_by_hand(encoding: type[Int8], width: int) -> None:
    generator = torch.Generator().manual_seed(width)
    values = torch.randn(6, width, generator=generator) * torch.logspace(-30, 30, 6).unsqueeze(1)
    values[2] = 0.0
    rows = [by_hand(row, encoding.bits) for row in values.tolist()]
    assert encoding().encode(values) == b"".join(unit for unit, _ in rows) + b"".join(codes for _, codes in rows)


@pytest.mark.parametrize("encoding", QUANTISED)
def test_a_row_is_off_by_half_a_unit_at_most_and_at_random_or_with_two_bits_by_one(encoding: type[Int8]) -> None:
    values = torch.randn(50, 40) * torch.logspace(-35, 35, 50).unsqueeze(1)
    values[7] = 0.0
    unit = values.abs().amax(dim=1, keepdim=True) / (2 ** (encoding.bits - 1) - 1) * (1 + 2**-7)
    for seed, most in ((3, 1.001), (None, 0.501 if encoding.bits > 2 else 1.001)):
        one = encoding()
        one.draw_from(seed)
        wrong = (one.decode(memoryview(one.encode(values)), 50, 40) - values).abs()
        assert bool((wrong <= most * unit).all())
    assert wrong[7].sum() == 0


@pytest.mark.parametrize("encoding", QUANTISED)
def test_rounding_at_random_is_right_on_average_and_the_same_for_the_same_seed(encoding: type[Int8]) -> None:
    values, one, draws = torch.linspace(-1, 1, 33).view(1, 33), encoding(), 4000
    total, seen = torch.zeros(1, 33), set()
    for seed in range(draws):
        one.draw_from(seed)
        data = bytes(one.encode(values))
        seen.add(data)
        total += one.decode(memoryview(data), 1, 33)
    unit = 1 / (2 ** (encoding.bits - 1) - 1)
    assert (total / draws - values).abs().max() < 4 * unit / 2 / math.sqrt(draws) + 0.01 * unit
    one.draw_from(5)
    again = bytes(one.encode(values))
    one.draw_from(5)
    assert again == bytes(one.encode(values))
    assert len(seen) > 1


@pytest.mark.parametrize("encoding", [*QUANTISED, *SPARSE])
@pytest.mark.parametrize("awkward", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("seed", [None, 1])
def test_a_row_with_a_value_that_is_not_finite_arrives_as_one(
    encoding: type[TensorEncoding], awkward: float, seed: int | None
) -> None:
    values, one = torch.randn(4, 9), encoding()
    values[2, 5] = awkward
    one.draw_from(seed)
    arrived = one.decode(memoryview(one.encode(values)), 4, 9)
    assert isinstance(one, RandomTopK) or not arrived[2].sum().isfinite()
    assert arrived[[0, 1, 3]].sum().isfinite()


@pytest.mark.parametrize("encoding", QUANTISED)
def test_the_largest_and_the_smallest_floats_are_no_trouble(encoding: type[TensorEncoding]) -> None:
    values = torch.tensor([[1.7e38, -1e38, 0.0], [1e-42, -1e-44, 0.0]])
    arrived = encoding().decode(memoryview(encoding().encode(values)), 2, 3)
    assert arrived.sum().isfinite()
    assert arrived[0, 0] == pytest.approx(1.7e38, rel=0.01 if encoding is not Int2 else 0.3)


@pytest.mark.parametrize("encoding", [*QUANTISED, *SPARSE])
def test_whatever_bytes_arrive_are_a_matrix_or_refused_in_a_sentence(encoding: type[TensorEncoding]) -> None:
    generator = torch.Generator().manual_seed(0)
    for width in (1, 9, 64, 300):
        for _ in range(50):
            size = encoding.nbytes(3, width)
            data = bytes(torch.randint(0, 256, (size,), generator=generator, dtype=torch.uint8).tolist())
            try:
                assert encoding().decode(memoryview(data), 3, width).shape == (3, width)
            except ValueError as error:
                assert str(error).startswith("names ")


# A part of every row


@pytest.mark.parametrize("percent", ["1", "10", "25", "60", "100"])
@pytest.mark.parametrize("width", [1, 7, 30, 64, 300])
def test_top_k_keeps_the_largest_of_every_row_and_nothing_else(percent: str, width: int) -> None:
    encoding = encoding_named(f"topk-{percent}%")
    assert issubclass(encoding, TopK)
    kept = max(1, -(-width * int(percent) // 100))
    assert encoding.kept(width) == kept
    values = torch.randn(5, width, generator=torch.Generator().manual_seed(width))
    arrived = encoding().decode(memoryview(encoding().encode(values)), 5, width)
    for row, told in zip(values.tolist(), arrived.tolist(), strict=True):
        largest = sorted(range(width), key=lambda place: -abs(row[place]))[:kept]
        rounded = torch.tensor(row).bfloat16().float().tolist()
        assert told == [rounded[place] if place in largest else 0.0 for place in range(width)]


@pytest.mark.parametrize(
    ("name", "width", "size"),
    [
        ("topk-10%", 64, 7 + 2 * 7),  # a list of seven places is shorter than 64 bits
        ("topk-25%", 64, 8 + 2 * 16),
        ("randtopk-10%", 10, 1 + 2),
        ("topk-1%", 1000, 2 * 10 + 2 * 10),
        ("topk-10%", 1000, 125 + 2 * 100),
    ],
)
def test_places_travel_as_a_list_or_as_bits_whichever_is_shorter(name: str, width: int, size: int) -> None:
    assert encoding_named(name).nbytes(3, width) == 3 * size


def test_random_top_k_draws_the_largest_nearly_always_and_the_others_sometimes() -> None:
    encoding = RandomTopK()
    values = torch.arange(1.0, 21.0).repeat(2000, 1)
    encoding.draw_from(11)
    arrived = encoding.decode(memoryview(encoding.encode(values)), 2000, 20)
    counts = (arrived != 0).sum(dim=0)
    assert int(counts.sum()) == 2 * 2000
    others = int(counts[:18].sum()) / 4000
    # The second of two draws is among 19: the chance of the others is 0.1 + 0.1 · 0.9 / (0.45 + 0.1) or so, halved.
    assert 0.1 < others < 0.2
    assert int(counts[:18].min()) > 0
    encoding.draw_from(None)
    assert bytes(encoding.encode(values)) == bytes(TopK().encode(values))


@pytest.mark.parametrize("name", ["topk-0%", "topk-101%", "int4-10%", "topk-x%", "topk-10"])
def test_a_percentage_that_makes_no_sense_is_refused(name: str) -> None:
    with pytest.raises(SettingsError):
        encoding_named(name)


def test_sizes_can_be_asked_for_without_torch() -> None:
    program = "import sys; from fedora_vfl.wire.encodings import ENCODINGS; ENCODINGS.get('float16').nbytes(2, 3); "
    program += "import fedora_vfl.wire.tensors; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
