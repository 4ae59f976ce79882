"""Random rows, from the seed alone: the same on every machine and with every version of numpy."""

import numpy as np
from numpy.typing import NDArray

from wire.seeds import derive


def permutation(count: int, seed: int, *purpose: str) -> NDArray[np.int64]:
    """Shuffle the numbers below `count`.

    Numpy promises the stream of a bit generator for good, but not what its other functions make of it.
    """
    draws = np.random.PCG64(derive(seed, "datasets", *purpose)).random_raw(count)
    return np.argsort(draws, kind="stable")


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
