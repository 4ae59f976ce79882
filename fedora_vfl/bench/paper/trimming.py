"""Fewer test rows: a small preset would otherwise spend most of its time on measuring."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedora_vfl.datasets.backdoors import TRIGGERED
from fedora_vfl.datasets.chance import permutation
from fedora_vfl.datasets.settings import ACTIVE
from fedora_vfl.errors import SettingsError
from fedora_vfl.storage import write_atomically


def trim(folder: Path, rows: int, *, seed: int) -> None:
    """Keep so many test rows, drawn at random, and their triggered copies, in every party's file of images."""
    files = sorted(folder.iterdir())
    if any(path.suffix != ".npz" for path in files):
        raise SettingsError("datasets.yaml: test_rows: is for images; tables keep all their test rows")
    arrays = {path: _read(path) for path in files}
    active = arrays[folder / f"{ACTIVE}.npz"]
    tests = np.unique(active["ids"][active["split"] == "test"])
    left_out = set(tests[permutation(len(tests), seed, "test rows")[rows:]].tolist())
    for path, content in arrays.items():
        kept = np.array([one.removesuffix(TRIGGERED) not in left_out for one in content["ids"].tolist()])
        buffer = io.BytesIO()
        chosen: dict[str, Any] = {name: array[kept] for name, array in content.items()}
        np.savez(buffer, **chosen)
        write_atomically(path, buffer.getvalue())


def _read(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path, allow_pickle=False) as file:
        return dict(file)
