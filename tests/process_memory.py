"""What a process on this machine holds in memory: searched for what it should not know."""

import mmap
import re
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw\S* \S+ \S+ (\d+) *(.*)")
_THERE = np.uint64(1 << 63)  # of a page, in a process's map of pages
BLOCK_PAGES = 4096


def memory_of(pid: int) -> Iterator[bytes]:
    """Yield all that a process may write to and has: its heap and stacks, not the programs that it has loaded."""
    with Path(f"/proc/{pid}/mem").open("rb", 0) as memory, Path(f"/proc/{pid}/pagemap").open("rb", 0) as pages:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            found = _MAPPING.match(line)
            if found is None or found[4].startswith("[v"):
                continue
            start, end = (int(found[part], 16) // mmap.PAGESIZE for part in (1, 2))
            pages.seek(8 * start)
            there = np.frombuffer(pages.read(8 * (end - start)), dtype=np.uint64) & _THERE != 0
            edges = np.flatnonzero(np.diff(there, prepend=False, append=False)).tolist()
            for first, last in zip(edges[::2], edges[1::2], strict=True):
                for at in range(first, last, BLOCK_PAGES):
                    count = min(BLOCK_PAGES + 1, last - at)  # a page more: what lies across the edge is found too
                    try:
                        memory.seek((start + at) * mmap.PAGESIZE)
                        yield memory.read(count * mmap.PAGESIZE)
                    except OSError:  # it has been given back since
                        break


def found_in(pid: int, values: Collection[bytes]) -> set[bytes]:
    """Return which of some values a process holds."""
    found: set[bytes] = set()
    for block in memory_of(pid):
        found |= {one for one in values if one not in found and one in block}
    return found
