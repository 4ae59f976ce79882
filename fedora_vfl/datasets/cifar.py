"""CIFAR-10 and CIFAR-100, from the files that their authors give out or from one npz file."""

from pathlib import Path
from typing import Any

import numpy as np

from fedora_vfl.datasets.downloads import fetch, folder_of, is_there
from fedora_vfl.datasets.images import cut_images, load_npz, numbered
from fedora_vfl.datasets.partition import Whole
from fedora_vfl.datasets.settings import CifarData
from fedora_vfl.errors import DataError
from fedora_vfl.settings.optional_packages import extra

FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}


def load_cifar(settings: CifarData) -> Whole:
    """Load the set from its folder, or from an npz file in MedMNIST's layout, or download it."""
    root = folder_of(settings.root)
    folder, archive = root / FOLDERS[settings.source], root / f"{settings.source}.npz"
    if not is_there(folder) and is_there(archive):
        return load_npz(settings, archive)
    kind = _kind(settings.source)
    if not is_there(folder):
        _download(kind, folder, archive, allowed=settings.download)
    parts = {split: _read(kind, folder, train=split == "train") for split in ("train", "test")}
    counts = [len(part.targets) for part in parts.values()]
    ids = np.concatenate([numbered(split, count) for split, count in zip(parts, counts, strict=True)])
    pixels = np.concatenate([part.data for part in parts.values()])
    labels = np.concatenate([np.array(part.targets, np.int64) for part in parts.values()])
    return cut_images(settings, ids, pixels, labels, np.repeat(list(parts), counts), str(folder))


def _kind(source: str) -> Any:
    """Return torchvision's reader."""
    datasets = extra("torchvision.datasets", needed_by=f"data.source: {source}")
    return {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[source]


def _download(kind: Any, folder: Path, archive: Path, *, allowed: bool) -> None:
    from torchvision.datasets.utils import download_and_extract_archive

    def bring(scratch: str) -> None:
        download_and_extract_archive(kind.url, scratch, filename=kind.filename, md5=kind.tgz_md5)

    fetch(folder, kind.url, bring, allowed=allowed, instead=archive.name)


def _read(kind: Any, folder: Path, *, train: bool) -> Any:
    """Read the training or the test images."""
    try:
        # The files are pickles, which could run code; torchvision opens only those whose md5 it knows.
        return kind(folder.parent, train=train, download=False)
    except RuntimeError:
        raise DataError(f"{_first_wrong(kind, folder)}; remove the folder to have it downloaded again") from None
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror}") from None


def _first_wrong(kind: Any, folder: Path) -> str:
    """Say which file is not what it should be."""
    from torchvision.datasets.utils import check_integrity

    listed = [*kind.train_list, *kind.test_list, (kind.meta["filename"], kind.meta["md5"])]
    for name, md5 in listed:
        if not (folder / name).is_file():
            return f"{folder}: lacks the file {name}"
        if not check_integrity(folder / name, md5):
            return f"{folder / name}: is not the original file (its md5 differs)"
    return f"{folder}: was being changed while it was read"
