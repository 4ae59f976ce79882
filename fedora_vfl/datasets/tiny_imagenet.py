"""Tiny ImageNet: 200 classes of JPEG files of 64×64 pixels, in a folder of their own."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedora_vfl.datasets.chance import limited
from fedora_vfl.datasets.downloads import fetch, folder_of, is_there
from fedora_vfl.datasets.images import cut_images, load_npz
from fedora_vfl.datasets.partition import Whole
from fedora_vfl.datasets.registry import SOURCES
from fedora_vfl.datasets.settings import PublicImages
from fedora_vfl.errors import DataError
from fedora_vfl.settings.optional_packages import extra

FOLDER = "tiny-imagenet-200"
URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
MD5 = "90528d7ca1a48142e341f4ef8d21d0de"
PIXELS = 64


@dataclass(frozen=True)
class _Picture:
    path: Path
    label: int
    split: str


@SOURCES.register("tiny-imagenet")
class TinyImagenetData(PublicImages):
    """Tiny ImageNet: photographs of 200 kinds of things, 64×64 pixels."""

    def load(self, seed: int) -> Whole:
        """Load the set from its folder, or from an npz file in MedMNIST's layout, or download it.

        Its test images have no labels, so its validation images are the test rows. Of the training images only those
        that `limit` keeps are decoded.
        """
        root = folder_of(self.root)
        folder, archive = root / FOLDER, root / "tiny-imagenet.npz"
        if not is_there(folder):
            if is_there(archive):
                return load_npz(self, archive)
            _download(folder, archive, allowed=self.download)
        pictures = _pictures(folder)
        training = np.array([picture.split == "train" for picture in pictures])
        kept = [pictures[row] for row in limited(training, self.limit, seed)]
        ids = np.array([picture.path.stem for picture in kept])
        labels = np.array([picture.label for picture in kept], np.int64)
        split = np.array([picture.split for picture in kept])
        return cut_images(self, ids, _decoded(kept), labels, split, str(folder))


def _download(folder: Path, archive: Path, *, allowed: bool) -> None:
    utilities = extra("torchvision.datasets.utils", needed_by="data.source: tiny-imagenet")

    def bring(scratch: str) -> None:
        utilities.download_and_extract_archive(URL, scratch, md5=MD5)

    fetch(folder, URL, bring, allowed=allowed, instead=archive.name)


def _pictures(folder: Path) -> list[_Picture]:
    """List all labelled images: the training ones by class, then the validation ones as they are listed there."""
    classes = {name: label for label, name in enumerate(_lines(folder / "wnids.txt"))}
    pictures = []
    for name, label in classes.items():
        place = folder / "train" / name / "images"
        found = sorted(place.glob("*.JPEG"), key=lambda path: (len(path.name), path.name))  # …_2 before …_10
        if not found:
            raise DataError(f"{place}: holds no JPEG files of the class {name}, which {folder / 'wnids.txt'} lists")
        pictures += [_Picture(path, label, "train") for path in found]
    return pictures + _validation(folder / "val", classes)


def _validation(folder: Path, classes: dict[str, int]) -> list[_Picture]:
    """List the validation images, whose classes are in a file of their own."""
    annotations = folder / "val_annotations.txt"
    present = {path.name for path in (folder / "images").glob("*.JPEG")}
    pictures = []
    for number, line in enumerate(_lines(annotations), start=1):
        name, _, rest = line.partition("\t")
        label = classes.get(rest.partition("\t")[0])
        if label is None:
            raise DataError(f"{annotations}: line {number} should name an image and one of the classes in wnids.txt")
        if name not in present:
            raise DataError(f"{folder / 'images' / name}: is missing, though line {number} of {annotations} names it")
        pictures.append(_Picture(folder / "images" / name, label, "test"))
    return pictures


def _lines(path: Path) -> list[str]:
    """Read the lines of a text that are not empty."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}; is {FOLDER} unpacked as a whole?") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: is not UTF-8 text") from None
    if not lines:
        raise DataError(f"{path}: is empty")
    return lines


def _decoded(pictures: list[_Picture]) -> NDArray[np.uint8]:
    """Decode images into one array that is made beforehand, so that memory holds each of them once."""
    reader = extra("PIL.Image", needed_by="data.source: tiny-imagenet")  # Pillow, which comes with torchvision
    pixels = np.empty((len(pictures), PIXELS, PIXELS, 3), np.uint8)
    for row, picture in enumerate(pictures):
        try:
            # Only as JPEG: a file that is something else is not handed to a decoder that nobody meant.
            with reader.open(picture.path, formats=["JPEG"]) as image:
                if image.size != (PIXELS, PIXELS):
                    width, height = image.size
                    raise DataError(f"{picture.path}: has {height}×{width} pixels where all should have 64×64")
                pixels[row] = np.asarray(image.convert("RGB"))  # some are grey
        except (OSError, SyntaxError, ValueError):
            raise DataError(f"{picture.path}: is not a JPEG file that can be decoded") from None
    return pixels
