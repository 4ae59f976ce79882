"""Which rows train, which validate and which test."""

import hashlib
from pathlib import Path

from fedora_vfl.errors import DataError


def assign(
    ids: list[str], split: list[str] | None, test_fraction: float, *, origin: Path | str = "the data"
) -> list[str]:
    """Return the given split, or one made from the ids.

    A row's place depends on its own id alone, so that deleting rows never moves the others.
    """
    assigned = (
        list(split) if split is not None else ["test" if _draw(name) < test_fraction else "train" for name in ids]
    )
    for needed in ("train", "test"):
        if needed not in assigned:
            cure = f"`test_fraction` is {test_fraction}" if split is None else "the split column decides"
            raise DataError(
                f"{origin}: none of the {len(ids)} rows is a {needed} row; {cure}, and both kinds are needed"
            )
    return assigned


def _draw(name: str) -> float:
    """Map an id to a number in [0, 1) that looks random and never changes."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big") / 2**48
