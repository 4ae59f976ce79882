"""Files that are either whole or absent: the one way this project writes what it must not lose."""

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: bytes | str, *, mode: int = 0o644) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new, never a part."""
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)  # noqa: PTH101 (mkstemp gives a string)
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
