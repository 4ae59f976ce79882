"""An npz file as records: images, or labels, by id."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedora_vfl.errors import DataError
from party.data.checking import by_row, checked_ids, checked_labels, checked_split, checked_truth, listing, text_of
from party.data.records import Images, Records
from party.data.settings import DataSettings

IMAGES = "images"


def read_archive(settings: DataSettings, *, with_labels: bool) -> Records:
    """Read an npz file that holds arrays of ids and images, labels or both."""
    path = settings.path
    arrays = _open(path)
    if settings.numeric or settings.categorical or settings.ignore:
        raise DataError(f"{path}: holds images; `numeric`, `categorical` and `ignore` are for columns of tables")
    ids = _checked_ids(arrays, settings)
    label = settings.label or "labels"
    if with_labels and label not in arrays:
        raise DataError(f"{path}: has no array `{label}` of labels; its arrays are {listing(arrays)}")
    labels = checked_labels(_texts(arrays, label, ids, path), ids, path, label) if with_labels else None
    truth = split = None
    if with_labels and label != settings.truth and settings.holds_truth(arrays):
        truth = checked_truth(_texts(arrays, settings.truth, ids, path), ids, path, settings.truth)
    if settings.split in arrays:
        split = checked_split(_texts(arrays, settings.split, ids, path), ids, path, settings.split)
    features = _images(arrays[IMAGES], ids, path) if IMAGES in arrays else None
    return Records(ids, features, labels, split, path, truth)


def _open(path: Path) -> dict[str, NDArray[Any]]:
    """Load the arrays; a pickle, which could run code, is never opened."""
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.lib.npyio.NpzFile):
            with archive:
                return {name: archive[name] for name in archive.files}
    except (ValueError, EOFError, OSError, KeyError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
        if "Object arrays" in str(error):
            raise DataError(f"{path}: holds Python objects; arrays should hold numbers or text") from None
        raise DataError(f"{path}: is not an npz file, or a broken one") from None
    raise DataError(f"{path}: is a single array; an npz file with named arrays is needed")


def _checked_ids(arrays: dict[str, NDArray[Any]], settings: DataSettings) -> list[str]:
    path = settings.path
    if settings.id_also:
        raise DataError(f"{path}: ids of an npz file are one array; only tables may have ids of several columns")
    name = settings.id if settings.id in arrays else "ids"
    if name not in arrays:
        raise DataError(f"{path}: has no array `ids`; its arrays are {listing(arrays)}")
    array = _flat(arrays[name], name, path)
    if array.dtype.kind not in "USiu":
        raise DataError(f"{path}: array `{name}` holds {array.dtype}; ids should be text or integers")
    if not len(array):
        raise DataError(f"{path}: has arrays but no rows")
    return checked_ids([text_of(value) for value in array.tolist()], path, by_row)


def _texts(arrays: dict[str, NDArray[Any]], name: str, ids: list[str], path: Path) -> list[str | None]:
    array = _flat(arrays[name], name, path)
    _check_length(array, name, ids, path)
    return [text_of(value) for value in array.tolist()]


def _flat(array: NDArray[Any], name: str, path: Path) -> NDArray[Any]:
    """Take N or N×1 values as N."""
    if array.ndim == 2 and array.shape[1] == 1:
        return array[:, 0]
    if array.ndim != 1:
        raise DataError(f"{path}: array `{name}` has the shape {_shape(array)}; one value per row is needed")
    return array


def _images(array: NDArray[Any], ids: list[str], path: Path) -> Images:
    """Take N×H×W or N×H×W×C pixels of 0 to 255."""
    pixels = array[..., np.newaxis] if array.ndim == 3 else array
    if pixels.ndim != 4 or 0 in pixels.shape[1:]:
        raise DataError(f"{path}: array `{IMAGES}` has the shape {_shape(array)}; allowed: N×H×W and N×H×W×C")
    _check_length(pixels, IMAGES, ids, path)
    if pixels.dtype.kind not in "bui":
        raise DataError(f"{path}: array `{IMAGES}` holds {pixels.dtype}; pixels should be integers from 0 to 255")
    if pixels.dtype.itemsize > 1 or pixels.dtype.kind == "i":
        least, most = int(pixels.min()), int(pixels.max())
        if least < 0 or most > 255:
            raise DataError(f"{path}: array `{IMAGES}` holds {least} to {most}; pixels should be 0 to 255")
    return Images(pixels.astype(np.uint8, copy=False), path)


def _check_length(array: NDArray[Any], name: str, ids: list[str], path: Path) -> None:
    if len(array) != len(ids):
        raise DataError(f"{path}: array `{name}` has {len(array)} rows where the ids have {len(ids)}")


def _shape(array: NDArray[Any]) -> str:
    return "×".join(str(size) for size in array.shape) or "of a single value"
