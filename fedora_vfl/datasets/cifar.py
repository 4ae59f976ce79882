"""CIFAR-10 and CIFAR-100, from the files that their authors give out or from one npz file."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedora_vfl.datasets.downloads import fetch, folder_of, is_there
from fedora_vfl.datasets.images import cut_images, load_npz, numbered
from fedora_vfl.datasets.partition import Whole
from fedora_vfl.datasets.registry import SOURCES
from fedora_vfl.datasets.settings import PublicImages
from fedora_vfl.errors import DataError
from fedora_vfl.settings.optional_packages import extra


class _Cifar(PublicImages):
    """What both sets have in common."""

    folder: ClassVar[str]  # of the files that their authors give out
    reader: ClassVar[str]  # torchvision's

    def load(self, seed: int) -> Whole:
        """Load the set from its folder, or from an npz file in MedMNIST's layout, or download it."""
        root = folder_of(self.root)
        folder, archive = root / self.folder, root / f"{self.source}.npz"
        if not is_there(folder) and is_there(archive):
            return load_npz(self, archive)
        kind = getattr(extra("torchvision.datasets", needed_by=f"data.source: {self.source}"), self.reader)
        if not is_there(folder):
            _download(kind, folder, archive, allowed=self.download)
        return _load(self, kind, folder)


@SOURCES.register("cifar10")
class Cifar10Data(_Cifar):
    """CIFAR-10: photographs of ten kinds of things, 32×32 pixels."""

    folder: ClassVar[str] = "cifar-10-batches-py"
    reader: ClassVar[str] = "CIFAR10"


@SOURCES.register("cifar100")
class Cifar100Data(_Cifar):
    """CIFAR-100: photographs of a hundred kinds of things, 32×32 pixels."""

    folder: ClassVar[str] = "cifar-100-python"
    reader: ClassVar[str] = "CIFAR100"


def _load(settings: _Cifar, kind: Any, folder: Path) -> Whole:
    """Read training and test images."""
    parts = {split: _read(kind, folder, train=split == "train") for split in ("train", "test")}
    counts = [len(part.targets) for part in parts.values()]
    ids = np.concatenate([numbered(split, count) for split, count in zip(parts, counts, strict=True)])
    pixels = np.concatenate([part.data for part in parts.values()])
    labels = np.concatenate([np.array(part.targets, np.int64) for part in parts.values()])
    return cut_images(settings, ids, pixels, labels, np.repeat(list(parts), counts), str(folder))


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
