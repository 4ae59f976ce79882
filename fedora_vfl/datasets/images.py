"""Image sets, cut by image columns: every passive party has a stripe of every image."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedora_vfl.datasets.chance import permutation
from fedora_vfl.datasets.partition import ArrayShare, Share, Whole
from fedora_vfl.datasets.registry import SOURCES
from fedora_vfl.datasets.settings import ACTIVE, ImageSource, party_names
from fedora_vfl.datasets.stripes import stripes
from fedora_vfl.errors import DataError

_PARTS = {"train": "train", "val": "validation", "test": "test"}


@SOURCES.register("digits")
class DigitsData(ImageSource):
    """Scikit-learn's digits of 8×8 pixels."""

    def load(self, seed: int) -> Whole:
        """Load the digits; a fifth of them, drawn by the seed, are test rows."""
        from sklearn import datasets  # slow to import, and only needed here

        digits = datasets.load_digits()
        count = len(digits.images)
        pixels = np.rint(digits.images * (255 / 16)).astype(np.uint8)
        split = np.full(count, "train", dtype="U10")
        split[permutation(count, seed, "digits")[: count // 5]] = "test"
        ids = numbered("digit", count)
        return cut_images(self, ids, pixels, digits.target.astype(np.int64), split, "digits")


@SOURCES.register("npz")
class NpzData(ImageSource):
    """Your own images, in an npz file of MedMNIST's layout."""

    path: Path = Field(description="The file: train_images, train_labels, test_images, test_labels.")

    def load(self, seed: int) -> Whole:
        """Load the file."""
        return load_npz(self, self.path)


def load_npz(settings: ImageSource, path: Path) -> Whole:
    """Load a file in MedMNIST's layout."""
    arrays = open_archive(path)
    present = [part for part in _PARTS if part != "val" or "val_images" in arrays]
    images: list[NDArray[np.uint8]] = []
    labels: list[NDArray[Any]] = []
    for part in present:
        pixels, classes = _checked(arrays, part, path)
        if images and pixels.shape[1:] != images[0].shape[1:]:
            raise DataError(f"{path}: `{part}_images` and `train_images` differ in size or channels")
        images.append(pixels)
        labels.append(classes)
    ids = np.concatenate([numbered(part, len(found)) for part, found in zip(present, labels, strict=True)])
    split = np.repeat([_PARTS[part] for part in present], [len(found) for found in labels])
    return cut_images(settings, ids, np.concatenate(images), np.concatenate(labels), split, str(path))


def open_archive(path: Path) -> dict[str, NDArray[Any]]:
    """Load the arrays; a pickle, which could run code, is never opened."""
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.lib.npyio.NpzFile):
            with archive:
                return {name: archive[name] for name in archive.files}
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, EOFError, OSError, KeyError, RuntimeError, zlib.error, zipfile.BadZipFile):
        pass  # said below, as for a file with a single array
    raise DataError(f"{path}: is not an npz file of plain arrays, or a broken one")


def _checked(arrays: dict[str, NDArray[Any]], part: str, path: Path) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """Take one part's images and labels, or say what is wrong with them."""
    for name in (f"{part}_images", f"{part}_labels"):
        if name not in arrays:
            raise DataError(f"{path}: has no array `{name}`; its arrays are {', '.join(arrays) or 'none'}")
    pixels, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
    if labels.ndim == 2 and labels.shape[1] > 1:
        raise DataError(
            f"{path}: `{part}_labels` gives every image {labels.shape[1]} labels; data sets of one class per image "
            "are needed"
        )
    if pixels.ndim not in (3, 4) or pixels.dtype != np.uint8:
        shape = "×".join(map(str, pixels.shape))
        raise DataError(f"{path}: `{part}_images` holds {pixels.dtype} of {shape}; allowed: uint8 of N×H×W or N×H×W×C")
    if labels.ndim not in (1, 2) or len(labels) != len(pixels):
        raise DataError(f"{path}: `{part}_labels` does not hold one label for each of the {len(pixels)} images")
    return pixels, labels.reshape(-1)


def cut_images(
    settings: ImageSource,
    ids: NDArray[np.str_],
    pixels: NDArray[np.uint8],
    labels: NDArray[Any],
    split: NDArray[np.str_],
    origin: str,
) -> Whole:
    """Give every party its stripe, and the active one the labels.

    Args:
        settings: How many parties there are, and whether the active one gets a stripe too.
        ids: An id for every image.
        pixels: N×H×W or N×H×W×C.
        labels: A class for every image.
        split: `train`, `validation` or `test` for every image.
        origin: What errors name: a file, or the source.
    """
    width = pixels.shape[2]
    cuts = stripes(width, settings.parties, active=bool(settings.active_features), origin=origin)
    shares: dict[str, Share] = {}
    for party in party_names(settings):
        arrays: dict[str, NDArray[Any]] = {"ids": ids}
        columns: list[str] = []
        reading: dict[str, object] = {"id": "ids"}
        stripe = cuts.get(party)
        if stripe is not None:
            arrays["images"] = pixels[:, :, stripe.start : stripe.stop]
            columns.append(f"image columns {stripe.start + 1} to {stripe.stop} of {width}")
        if party == ACTIVE:
            arrays |= {"labels": labels, "split": split}
            columns += ["labels", "split"]
            reading |= {"label": "labels", "split": "split"}
        shares[party] = ArrayShare(arrays, ("ids", *columns), reading, origin, stripe, width)
    return Whole(shares, split == "train")


def numbered(prefix: str, count: int) -> NDArray[np.str_]:
    """Make ids for rows that have none."""
    return np.array([f"{prefix}-{number:06d}" for number in range(1, count + 1)])
