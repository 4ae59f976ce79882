"""The alive file: how a party that listens nowhere shows that it is well."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from fedora_vfl.errors import SettingsError

EVERY_SECONDS = 3.0

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def kept_alive(path: Path | None, well: Callable[[], bool]) -> AsyncIterator[None]:
    """Touch a file every few seconds while inside, whenever all is well; remove it at the end."""
    if path is None:
        yield
        return
    _remove(path)  # one that an earlier process left behind says nothing of this one
    task = asyncio.create_task(_touch(path, well))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with contextlib.suppress(SettingsError):
            _remove(path)


async def _touch(path: Path, well: Callable[[], bool]) -> None:
    """Run in the event loop on purpose: a loop that hangs no longer touches the file."""
    while True:
        if well():
            _note(path)
        await asyncio.sleep(EVERY_SECONDS)


def _note(path: Path) -> None:
    try:
        path.touch()
    except OSError as error:
        log.warning("the alive file %s cannot be written: %s", path, error.strerror)


def _remove(path: Path) -> None:
    """Remove the file; where that is allowed, or there is none, it can be written too."""
    try:
        if path.exists() and path.stat().st_size:
            raise SettingsError(f"--alive-file: {path} has something in it, and would be removed; choose another name")
        path.touch()
        path.unlink()
    except OSError as error:
        raise SettingsError(f"--alive-file: {path} cannot be written: {error.strerror}") from None
