"""Files that are either whole or absent: the one way this project writes what it must not lose."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fedora_vfl.fault_points import reached

UNFINISHED = ".unfinished"  # how the names of files end that are being written


def write_atomically(path: Path, content: bytes | str, *, mode: int = 0o644) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _written_beside(path, content) as temporary:
        temporary.chmod(mode)
        reached("file.before-rename")
        temporary.replace(path)
    reached("file.after-rename")
    synchronise(path.parent)
    reached("file.after-sync")


def create_privately(path: Path, content: bytes) -> bool:
    """Write a file that only its owner may read, whole or not at all; leave a file that is there already and say so."""
    make_private_folder(path.parent)
    with _written_beside(path, content) as temporary:
        try:
            path.hardlink_to(temporary)  # unlike a renaming, a link never takes another process's file away
        except FileExistsError:
            return False
    synchronise(path.parent)
    return True


def remove_unfinished(folder: Path) -> None:
    """Remove what processes that were killed while they wrote have left in a folder of the caller's own, or below."""
    for path in files_below(folder):
        if path.name.startswith(".") and path.name.endswith(UNFINISHED):
            path.unlink(missing_ok=True)


def files_below(folder: Path) -> list[Path]:
    """Return the files in a folder and in those below it; what others remove meanwhile is not waited for."""
    return [Path(place) / name for place, _, names in os.walk(folder) for name in names]


@contextlib.contextmanager
def held(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold a lock file, which is gone at the end; the system lets go of it when this process dies.

    Without waiting, a lock that another process holds raises BlockingIOError.
    """
    while True:
        with path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if not _is_at(path, file.fileno()):
                continue  # its last holder has removed it meanwhile: whoever comes next would lock another file
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def _is_at(path: Path, descriptor: int) -> bool:
    """Tell whether an open file is the one that a path leads to."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _written_beside(path: Path, content: bytes | str) -> Iterator[Path]:
    """Write content to a temporary file in the same folder, for the owner alone; it is gone at the end."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=UNFINISHED)  # of mode 0600
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            reached("file.before-write")
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            reached("file.before-sync")
            os.fsync(file.fileno())
        yield temporary
    except OSError as error:  # a full disk is told without a name
        raise type(error)(error.errno, error.strerror, error.filename or str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)


def make_private_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for the owner alone; leave those that exist as they are."""
    if not folder.is_dir():
        make_private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        synchronise(folder.parent)  # or a loss of power takes it away, with the files that last in it


def synchronise(folder: Path) -> None:
    """Make a folder's entries last through a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
