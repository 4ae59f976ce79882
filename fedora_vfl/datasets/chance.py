"""Random rows, from the seed alone: the same on every machine and with every version of numpy."""

import numpy as np
from numpy.typing import NDArray

from fedora_vfl.sampling.seeds import derive


def permutation(count: int, seed: int, *purpose: str) -> NDArray[np.int64]:
    """Shuffle the numbers below `count`.

    Numpy promises the stream of a bit generator for good, but not what its other functions make of it.
    """
    draws = np.random.PCG64(derive(seed, "datasets", *purpose)).random_raw(count)
    return np.argsort(draws, kind="stable")


class Gaussian:
    """Draws from the standard normal distribution, by Box and Muller's method."""

    def __init__(self, seed: int, *purpose: str) -> None:
        self._bits = np.random.PCG64(derive(seed, "datasets", *purpose))

    def draw(self, count: int) -> NDArray[np.float64]:
        """Return the next values."""
        pairs = (count + 1) // 2
        # Above 0, as the logarithm needs it, up to 1.
        radius = np.sqrt(-2 * np.log(1 - self._uniform(pairs)))
        angle = 2 * np.pi * self._uniform(pairs)
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]

    def _uniform(self, count: int) -> NDArray[np.float64]:
        """Return values from 0 to below 1."""
        # Of 64 bits the upper 53, as many as a float holds.
        return np.ldexp((self._bits.random_raw(count) >> np.uint64(11)).astype(np.float64), -53)


def limited(training: NDArray[np.bool_], limit: int | None, seed: int) -> NDArray[np.int64]:
    """Keep `limit` of the training rows, and all others."""
    rows = np.arange(len(training))
    if limit is None or limit >= training.sum():
        return rows
    candidates = rows[training]
    kept = candidates[permutation(len(candidates), seed, "limit")[:limit]]
    return np.sort(np.concatenate([kept, rows[~training]]))


def held(rows: NDArray[np.int64], party: str, seed: int, *, drop: float, shuffle: bool) -> NDArray[np.int64]:
    """Choose the rows one party holds, and their order."""
    keep = len(rows) - int(drop * len(rows))
    kept = rows[np.sort(permutation(len(rows), seed, "drop", party)[:keep])]
    return kept[permutation(keep, seed, "shuffle", party)] if shuffle else kept
