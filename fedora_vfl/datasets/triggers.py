"""What marks a backdoored row: a white square in an image, a rare value in a table."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedora_vfl.datasets.partition import ArrayShare, Rows, Share, Whole
from fedora_vfl.datasets.settings import Backdoor
from fedora_vfl.errors import SettingsError

WHITE = 255


class Trigger(Protocol):
    """A mark in the features."""

    def put_on(self, share: Share, rows: Rows) -> Share:
        """Mark some rows of a party's share, as far as the mark lies in it."""


@dataclass(frozen=True)
class Square:
    """A white square in the bottom right corner of the whole image."""

    size: int

    def put_on(self, share: Share, rows: Rows) -> Share:
        """Paint the part of the square that lies in a party's stripe."""
        assert isinstance(share, ArrayShare)
        if share.stripe is None:
            return share
        left = max(0, share.width - self.size - share.stripe.start)
        images = share.arrays["images"].copy()
        images[rows, -self.size :, left:] = WHITE
        return share.with_images(images)


def choose(backdoor: Backdoor, whole: Whole, training: NDArray[np.bool_]) -> Trigger:
    """Choose the mark for a data set, by the settings or else by what its training rows hold."""
    shares = [share for share in whole.shares.values() if share.features]
    images = [share for share in shares if isinstance(share, ArrayShare)]
    if images:
        return _square(backdoor, images[0])
    if backdoor.size is not None:
        raise SettingsError("backdoor.size: is for images; the trigger of a table is set by `column` and `value`")
    from fedora_vfl.datasets.table_triggers import rare_value

    return rare_value(backdoor, whole, training)


def _square(backdoor: Backdoor, share: ArrayShare) -> Square:
    if backdoor.column is not None or backdoor.value is not None:
        raise SettingsError("backdoor: `column` and `value` are for tables; the trigger of images is set by `size`")
    height = share.arrays["images"].shape[1]
    size = max(2, round(height / 10)) if backdoor.size is None else backdoor.size
    if size > min(height, share.width):
        raise SettingsError(
            f"backdoor.size: is {size}, but images are {height}×{share.width}; at most {min(height, share.width)} fits"
        )
    return Square(size)
