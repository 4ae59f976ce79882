"""Parts of a sample set that stay the same from phase to phase and from job to job: drawn by id, not by place."""

import hashlib
from collections.abc import Sequence


def rank(seed: int, one: str) -> int:
    """Return where an id stands in a part's order of all ids, the same on every machine, whoever else is there."""
    return int.from_bytes(hashlib.sha256(f"{seed}/part/{one}".encode()).digest()[:7], "big")


def lowest(ranks: Sequence[int], count: int) -> int:
    """Return the highest of the so many lowest ranks: whoever stands no higher belongs to the part."""
    return sorted(ranks)[count - 1]
