"""Work on millions of ids, in pieces: a thread that sorts them all at once keeps every other thread waiting."""

import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

PIECE = 20_000  # ids, some hundredths of a second's work


def pieces(ids: Iterable[str]) -> Iterator[list[str]]:
    """Yield ids, some at a time."""
    each = iter(ids)
    while some := list(islice(each, PIECE)):
        yield some


def in_order(ids: Iterable[str]) -> list[str]:
    """Sort ids."""
    return list(heapq.merge(*map(sorted, pieces(ids))))


def set_of(ids: Iterable[str]) -> set[str]:
    """Return each id once, in no order."""
    every: set[str] = set()
    for some in pieces(ids):
        every.update(some)
    return every


def without(ids: Iterable[str], others: set[str]) -> list[str]:
    """Return each id once that is not one of some others, in the order in which they come."""
    return [one for one in dict.fromkeys(one for one in ids) if one not in others]


def as_json(ids: Sequence[str]) -> str:
    """Write ids as a list in JSON."""
    return f"[{', '.join(json.dumps(some, ensure_ascii=True)[1:-1] for some in pieces(ids))}]"
