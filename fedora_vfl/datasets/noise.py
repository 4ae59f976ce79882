"""Gaussian noise on one party's features: parties whose data are not alike."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedora_vfl.datasets.chance import Gaussian
from fedora_vfl.datasets.partition import ArrayShare, Share, TableShare, Whole
from fedora_vfl.datasets.settings import Noise
from fedora_vfl.errors import SettingsError

_AT_ONCE = 1 << 22  # values; the noise of a large image set would fill the memory


def with_noise(whole: Whole, noise: Noise, seed: int) -> Whole:
    """Add noise to all rows of one party, training and test alike."""
    share = whole.shares[noise.party]
    if not share.features:
        able = ", ".join(party for party, other in whole.shares.items() if other.features)
        raise SettingsError(f"data.noise.party: {noise.party} has no features to put noise on; allowed: {able}")
    noisy: Share
    if isinstance(share, ArrayShare):
        noisy = share.with_images(_noisy_images(share.arrays["images"], noise, seed))
    else:
        noisy = _noisy_table(share, np.array(whole.split()) == "train", noise, seed)
    return replace(whole, shares={**whole.shares, noise.party: noisy})


def _noisy_images(images: NDArray[np.uint8], noise: Noise, seed: int) -> NDArray[np.uint8]:
    """Add noise to every pixel, then round it to what a pixel can be."""
    gaussian = Gaussian(seed, "noise", noise.party)
    noisy = np.empty_like(images)
    step = max(1, _AT_ONCE // max(1, images[:1].size))
    for start in range(0, len(images), step):
        part = images[start : start + step]
        values = part + 255 * noise.sigma * gaussian.draw(part.size).reshape(part.shape)
        noisy[start : start + step] = np.clip(np.rint(values), 0, 255).astype(np.uint8)
    return noisy


def _noisy_table(share: TableShare, training: NDArray[np.bool_], noise: Noise, seed: int) -> TableShare:
    """Add noise to the columns of numbers, in units of each one's deviation; other columns stay."""
    from fedora_vfl.datasets.numbers import numbers_of, with_numbers

    columns = {}
    for name in share.features:
        values = numbers_of(share, name)
        if values is None or np.isnan(values[training]).all():
            continue
        deviation = float(np.nanstd(values[training]))
        columns[name] = values + noise.sigma * deviation * Gaussian(seed, "noise", noise.party, name).draw(len(values))
    return with_numbers(share, columns)
