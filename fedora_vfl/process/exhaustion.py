"""What a machine runs out of, told in one sentence: which file could not be written, or how much memory was missing."""

import re
import sqlite3

from fedora_vfl.errors import in_one_line

# torch raises a plain RuntimeError, and says so in its message alone.
_TORCH = re.compile(r"can't allocate memory: you tried to allocate (\d+) bytes|out of memory")
_REMEDY = "smaller batches, a smaller model or a machine with more memory would help"


def exhausted(error: BaseException) -> str | None:
    """Return what is missing, if an error says that disk or memory is; None for any other."""
    if isinstance(error, OSError) and not isinstance(error, ConnectionError | TimeoutError):
        return in_one_line(f"{error.filename or 'a file'}: {error.strerror or error}")
    if isinstance(error, sqlite3.Error):
        return in_one_line(f"a file of what is kept over jobs cannot be written: {error}")
    found = _TORCH.search(str(error)) if isinstance(error, RuntimeError) else None
    if isinstance(error, MemoryError) or found:
        size = f" for {int(found[1]) / 2**20:.0f} MiB" if found and found[1] else ""
        return f"there is not enough memory{size}: {_REMEDY}"
    return None
