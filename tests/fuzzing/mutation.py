"""Messages made wrong: bytes changed, fields repeated, lengths that lie. The same seed makes the same messages."""

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

CORPUS = Path(__file__).parent / "corpus"
LARGEST = 2 * 1024 * 1024  # of a message that grows
TIMES, TIMES_WEIGHTS = (100, 10_000, 200_000), (90, 9, 1)  # of something small: few huge messages leave time for many
MOST_BITS = 1000  # that are turned in one message

# What readers stumble over: ends of number ranges, numbers that do not end, tags of all wire types, control characters.
PIECES = (
    b"\x00",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 11,
    b"\x80" * 10 + b"\x01",
    b"\x08\x01",
    b"\x0a\x00",
    b"\x12\xff\xff\xff\xff\x0f",
    b"\x0b\x0c",
    b"\x0f",
    b"\x1b[2J\r\n",
    b"\xc3\x28",
    (0x7FF8000000000000).to_bytes(8, "little"),
    (0x7FF0000000000000).to_bytes(8, "little"),
)

NUMBER = re.compile(rb"-?[0-9][0-9.e+-]*")


def corpus(service: str) -> list[bytes]:
    """Return the messages of a service that others are made from."""
    return [file.read_bytes() for file in sorted((CORPUS / service).glob("*.bin"))]


def mutated(service: str, seed: int, *, pieces: tuple[bytes, ...] = ()) -> Iterator[bytes]:
    """Yield messages without end: those of the corpus as they are, then changed ones.

    `pieces` are put in besides those that every reader of messages may stumble over.
    """
    draw, whole, pieces = Random(seed), corpus(service), PIECES + pieces
    yield from whole
    while True:
        data = draw.choice(whole)
        for _ in range(draw.randint(1, 4)):
            data = _changed(data, draw, whole, pieces)[:LARGEST]
        yield data


def changed(data: bytes, draw: Random) -> bytes:
    """Change a message that a member was about to send in one to four places."""
    for _ in range(draw.randint(1, 4)):
        data = _changed(data, draw, [data], PIECES)[:LARGEST]
    return data


def _changed(data: bytes, draw: Random, whole: list[bytes], pieces: tuple[bytes, ...]) -> bytes:
    """Make one change."""
    at, to = sorted(draw.randint(0, len(data)) for _ in range(2))
    match draw.randrange(8):
        case 0:  # a byte
            return data[:at] + draw.randbytes(1) + data[at + 1 :]
        case 1:  # a piece that readers stumble over
            return data[:at] + draw.choice(pieces) + data[at:]
        case 2:  # cut
            return data[:at] + data[to:]
        case 3:  # repeated
            return data[:to] + data[at:to] * draw.randint(1, 8) + data[to:]
        case 4:  # another message behind it: protobuf merges the two
            return data + draw.choice(whole)
        case 5:  # very many of something small
            piece, times = draw.choice(pieces), draw.choices(TIMES, TIMES_WEIGHTS)[0]
            return data[:at] + piece * min(times, LARGEST // len(piece)) + data[at:]
        case 6:  # a number, if there is one, in the place of which something else stands
            numbers = list(NUMBER.finditer(data))
            place = draw.choice(numbers).span() if numbers else (at, to)
            return data[: place[0]] + draw.choice(pieces) + data[place[1] :]
        case _:  # bits
            turned = bytearray(data)
            for byte in draw.choices(range(len(data)), k=min(1 + len(data) // 50, MOST_BITS)) if data else ():
                turned[byte] ^= 1 << draw.randrange(8)
            return bytes(turned)
