"""Memory that batches pass through: a process keeps it, where the C library can be told so."""

import contextlib
import ctypes

# Of glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
# glibc takes no larger one. What is larger, as large files are, goes back to the system when it is freed.
LARGEST_KEPT_BLOCK = 32 * 1024 * 1024
LARGEST_KEPT = 256 * 1024 * 1024


def keep_freed_memory() -> None:
    """Have freed blocks of the size of batches used again, rather than handed back to the system with every step.

    A page that comes from the system anew is cleared first, and so costs as much as a copy of its content.
    """
    with contextlib.suppress(OSError, AttributeError):  # another system, or another C library
        malloc = ctypes.CDLL(None)
        malloc.mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT_BLOCK)
        malloc.mallopt(M_TRIM_THRESHOLD, LARGEST_KEPT)
