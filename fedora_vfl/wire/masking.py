"""The sizes of what a private alignment sends: what parties write and the cost model predicts."""

from collections.abc import Iterable

POINT_BYTES = 32  # a masked id: a point of ristretto255
SLOT_BYTES = 16  # a slot of a table of shares
TAG_BYTES = 16  # what stands for a common id between two parties

# A table has this many slots for an id. Below 1.23 some tables cannot be filled; small ones need more room.
_SLOTS_PER_ID = 1.3
_MORE_SLOTS = 96


def slots_in_third(ids: int) -> int:
    """Return the slots of each third of a table of shares for so many ids; every id has a place in each."""
    return int((_SLOTS_PER_ID * ids + _MORE_SLOTS) // 3) + 1


def table_bytes(ids: int) -> int:
    """Return the bytes of a table of shares."""
    return 3 * slots_in_third(ids) * SLOT_BYTES


def alignment_bytes(active: int, passive: Iterable[int], *, told: int, masking: bool) -> int:
    """Return the bytes of masked ids, tables and tags that a private alignment takes on all links together.

    Args:
        active: Ids that the active party masks.
        passive: Ids in the table of each passive party.
        told: Common rows that the active party tells each passive party in order.
        masking: Whether ids are masked at all; a kept alignment that still holds needs no masking.
    """
    there_and_back = 2 * POINT_BYTES * active
    return sum((there_and_back + table_bytes(one) if masking else 0) + TAG_BYTES * told for one in passive)
