"""Masking ids: every id is hashed to a point of ristretto255, and the point is multiplied by a secret.

All arithmetic on the curve is libsodium's (party/curve_library.py); it runs in threads, off the event loop, as the
library works without Python's lock.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fedora_vfl.wire.masking import POINT_BYTES
from party.curve_library import library

_DOMAIN = b"fedora private alignment, id to point\0"

Item = TypeVar("Item")
Made = TypeVar("Made")


class BadPointError(ValueError):
    """The bytes are no point, not written as points are, or the point that is nothing."""


def fresh_secret() -> bytes:
    """Return a number to mask by, from the operating system's randomness; it is never written anywhere."""
    return bytes(library().crypto_core_ristretto255_scalar_random())


def inverse(secret: bytes) -> bytes:
    """Return the number that takes a mask off."""
    return bytes(library().crypto_core_ristretto255_scalar_invert(secret))


def public_point(secret: bytes) -> bytes:
    """Return the public key of a secret."""
    return bytes(library().crypto_scalarmult_ristretto255_base(secret))


def random_points(count: int) -> list[bytes]:
    """Return points that are nobody's id, to hide how many ids there are."""
    return [library().crypto_core_ristretto255_random() for _ in range(count)]


def as_bytes(one: str) -> bytes:
    """Write an id as bytes, whatever it is made of."""
    return one.encode("utf-8", "surrogatepass")


def hashed(ids: Iterable[str]) -> list[bytes]:
    """Return the point of every id, which says nothing about the points of others."""
    to_point, digest = library().crypto_core_ristretto255_from_hash, hashlib.sha512
    return [to_point(digest(_DOMAIN + as_bytes(one)).digest()) for one in ids]


def times(secret: bytes, points: Iterable[bytes]) -> list[bytes]:
    """Multiply points by a secret.

    The library itself refuses a point that is not in canonical form, and one whose product is the identity.
    """
    multiply = library().crypto_scalarmult_ristretto255
    try:
        return [multiply(secret, point) for point in points]
    except (RuntimeError, ValueError):
        raise BadPointError("is no point of ristretto255 in its one form, or is the identity") from None


def cut(points: bytes) -> list[bytes]:
    """Return the points that some bytes are made of."""
    return [points[at : at + POINT_BYTES] for at in range(0, len(points), POINT_BYTES)]


class Workers:
    """Threads for the arithmetic of one alignment."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="alignment")

    async def share(self, work: Callable[[Sequence[Item]], Made], items: Sequence[Item]) -> list[Made]:
        """Have all threads work on a part of some items each, and return what each made, in order."""
        size = max(1, -(-len(items) // self._threads))
        parts = [items[at : at + size] for at in range(0, len(items), size)]
        loop = asyncio.get_running_loop()
        return await asyncio.gather(*(loop.run_in_executor(self._pool, work, part) for part in parts))

    async def do(self, work: Callable[[], Made]) -> Made:
        """Have one thread do one thing."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Let the threads go; what has not begun is not done."""
        self._pool.shutdown(wait=False, cancel_futures=True)
