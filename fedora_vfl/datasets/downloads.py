"""Public data sets: the folder they lie in, and how a missing one gets there."""

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError

from fedora_vfl.errors import DataError, SettingsError

FOLDER = "FEDORA_DATA"  # the environment variable
SILENCE_SECONDS = 30.0  # how long a server may say nothing


def folder_of(root: Path | None) -> Path:
    """Return the folder of public data sets: the one given, or the machine's, or a cache of the user's."""
    folder = Path(root or os.environ.get(FOLDER) or "~/.cache/fedora").expanduser()
    if folder.is_file():
        raise SettingsError(f"data.root: {folder} is a file; the folder that holds the data set is needed")
    return folder


def is_there(path: Path) -> bool:
    """Tell whether a path can be seen; one behind a closed door cannot."""
    try:
        return path.exists()
    except OSError:
        return False


def fetch(place: Path, url: str, bring: Callable[[str], object], *, allowed: bool, instead: str = "") -> None:
    """Put a missing file or folder into its place, whole or not at all.

    `bring` is given an empty folder and leaves there what is wanted, under its own name; `instead` names a file that
    would have done as well.
    """
    missing = f"{place}: is not there" + (f", nor is {instead} beside it" if instead else "")
    remedy = f"put it there by hand, from {url}, or set `data.root` to the folder that holds it"
    if not allowed:
        raise DataError(f"{missing}, and `download` is off: {remedy}, or allow the download")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=place.parent) as scratch, _impatience():
            bring(scratch)
            # Another run may have been quicker.
            if not is_there(place):
                shutil.move(Path(scratch) / place.name, place)
    except (OSError, RuntimeError, HTTPException) as error:
        raise DataError(f"{missing}, and the download failed ({_cause(error)}): {remedy}") from None


@contextmanager
def _impatience() -> Iterator[None]:
    """Give connections that are opened meanwhile a deadline; the libraries that open them set none."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(SILENCE_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _cause(error: BaseException) -> str:
    """Say in a few words what went wrong."""
    if isinstance(error, HTTPError):
        return f"the server answers {error.code} {error.reason}"
    if isinstance(error, URLError) and isinstance(error.reason, BaseException):
        return _cause(error.reason)
    if isinstance(error, TimeoutError):
        return f"the server said nothing for {SILENCE_SECONDS:.0f} seconds"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
