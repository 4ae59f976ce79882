"""The library that all arithmetic on the curve is done by: libsodium, as the package `rbcl` brings it along."""

import ctypes
import importlib.util
import os
import re
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from fedora_vfl.errors import SettingsError

_WITHIN = "rbcl._sodium"  # the module that holds the library's bytes, and would unpack them
_WRITTEN = re.compile(r"bytes\.fromhex\('([0-9a-f]+)'\)")


@cache
def library() -> Any:
    """Load the library when it is first needed.

    `rbcl` itself unpacks libsodium into a temporary file, which a machine that allows no programs there refuses, and
    leaves the file behind. Here the library is loaded out of memory where the system can do that.
    """
    loaded = _out_of_memory()
    if loaded:
        stand_in = ModuleType(_WITHIN)
        stand_in._sodium = loaded  # type: ignore[attr-defined]
        sys.modules.setdefault(_WITHIN, stand_in)
    try:
        import rbcl
    except OSError as error:
        folder = tempfile.gettempdir()
        remedy = "set TMPDIR to a folder that may be written to and may hold programs"
        raise SettingsError(
            f"{folder}: the curve library cannot be unpacked and loaded there: {error}; {remedy}"
        ) from None
    if not loaded:
        Path(rbcl._sodium._name).unlink(missing_ok=True)  # once it is loaded the file is not needed
    return rbcl


def _out_of_memory() -> ctypes.CDLL | None:
    """Return libsodium, loaded from a file that is in memory only; None where that cannot be done."""
    package = importlib.util.find_spec("rbcl")
    if package is None or not package.submodule_search_locations or not hasattr(os, "memfd_create"):
        return None
    try:
        text = (Path(package.submodule_search_locations[0]) / "_sodium.py").read_text()
        written = _WRITTEN.search(text)
        if written is None:
            return None
        # It stays open: the loader knows a library by its name, and would take another file of this number for it.
        number = os.memfd_create("libsodium")
        with open(number, "wb", closefd=False) as file:
            file.write(bytes.fromhex(written[1]))
        return ctypes.CDLL(f"/proc/self/fd/{number}")
    except OSError:
        return None
