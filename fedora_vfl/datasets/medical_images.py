"""MedMNIST: sets of small medical images, one npz file each."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from fedora_vfl.datasets.downloads import fetch, folder_of, is_there
from fedora_vfl.datasets.images import load_npz
from fedora_vfl.datasets.partition import ArrayShare, Whole
from fedora_vfl.datasets.registry import SOURCES
from fedora_vfl.datasets.settings import PublicImages
from fedora_vfl.errors import DataError, SettingsError
from fedora_vfl.settings.optional_packages import extra


@SOURCES.register("medmnist")
class MedmnistData(PublicImages):
    """A set of MedMNIST: small medical images."""

    # It becomes a part of a file's name.
    name: str = Field(pattern="^[a-z0-9]+$", description="Which set, such as pathmnist.")
    # Every set is there in each size.
    size: Literal[28, 64, 128, 224] = Field(default=28, title="image size", description="Pixels of a side.")

    @model_validator(mode="after")
    def _is_flat(self) -> Self:
        # Their voxels N×28×28×28 would pass for flat images of 28 channels.
        if self.name.endswith("3d"):
            raise ValueError(f"`name` is {self.name}, whose images have three dimensions; allowed: sets of flat images")
        return self

    def load(self, seed: int) -> Whole:
        """Load a set from its file; what is there already is taken as it is, a part of a set too."""
        suffix = "" if self.size == 28 else f"_{self.size}"  # the package's own names
        path = folder_of(self.root) / f"{self.name}{suffix}.npz"
        if not is_there(path):
            _download(self, path, suffix)
        whole = load_npz(self, path)
        _check_size(whole, self, path)
        return whole


def _download(settings: MedmnistData, path: Path, suffix: str) -> None:
    """Fetch a set from where the package says it lies."""
    known: dict[str, dict[str, Any]] = extra("medmnist", needed_by="data.source: medmnist").INFO
    if settings.name not in known:
        raise SettingsError(f"data.name: {settings.name!r} is not a set of MedMNIST; allowed: {_allowed(known)}")
    if "multi-label" in known[settings.name]["task"]:
        raise SettingsError(
            f"data.name: {settings.name} gives an image several labels; allowed are sets of one class per image: "
            f"{_allowed(known)}"
        )
    utilities = extra("torchvision.datasets.utils", needed_by="data.source: medmnist")
    url, md5 = known[settings.name][f"url{suffix}"], known[settings.name][f"MD5{suffix}"]
    fetch(path, url, lambda folder: utilities.download_url(url, folder, path.name, md5), allowed=settings.download)


def _allowed(known: dict[str, dict[str, Any]]) -> str:
    """List the sets of flat images of one class each."""
    return ", ".join(
        name for name, set_ in known.items() if "multi-label" not in set_["task"] and not name.endswith("3d")
    )


def _check_size(whole: Whole, settings: MedmnistData, path: Path) -> None:
    share = whole.shares["passive-1"]
    assert isinstance(share, ArrayShare)
    height = share.arrays["images"].shape[1]
    if (height, share.width) != (settings.size, settings.size):
        raise DataError(f"{path}: holds images of {height}×{share.width} where `data.size` is {settings.size}")
