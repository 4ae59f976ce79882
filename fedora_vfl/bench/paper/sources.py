"""Where the data sets lie on this machine, and which of them cannot be used here."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedora_vfl.bench.paper.experiments import DataSet

# Settings that say where a data set lies and not what is in it.
PLACES = ("path", "root", "download")
CHUNK = 1 << 22


@dataclass(frozen=True)
class Source:
    """A data set that is at hand."""

    data: dict[str, Any]  # the job's section, as far as the data set decides it
    content: dict[str, Any]  # the same by what is in it, wherever it lies


@dataclass(frozen=True)
class Sources:
    """All data sets that were asked for: those at hand, and a sentence for each of the others."""

    found: dict[str, Source]
    missing: dict[str, str]


def find(names: Iterable[str], data_sets: dict[str, DataSet], folder: Path | None, *, download: bool) -> Sources:
    """Look for the files of data sets."""
    found, missing = {}, {}
    for name in names:
        source = _find(name, data_sets[name], folder, download=download)
        if isinstance(source, Source):
            found[name] = source
        else:
            missing[name] = source
    return Sources(found, missing)


def _find(name: str, data_set: DataSet, folder: Path | None, *, download: bool) -> Source | str:
    if not data_set.files:
        return Source(data_set.data, data_set.data)
    wanted = " or ".join(data_set.files)
    if folder is None and not download:
        return f"{name} is left out: name the folder that holds {wanted} with --data, or add --download"
    place = {"root": str(folder.absolute())} if folder else {}
    for file in data_set.files if folder else []:
        assert folder is not None
        path = folder / file
        if path.suffix == ".npz" and path.is_file():
            # A part of a data set goes by the same file name as the whole.
            return Source({"source": "npz", "path": str(path.absolute())}, {"source": "npz", "sha256": _digest(path)})
        if path.exists():
            return Source({**data_set.data, **place, "download": False}, data_set.data)
    if download:
        return Source({**data_set.data, **place, "download": True}, data_set.data)
    return f"{name} is left out: {folder} holds no {wanted}; put it there, or add --download"


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
