"""Pixels to numbers: standardised per channel by the mean and deviation of the training images."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedora_vfl.errors import DataError
from party.data.inputs import ImageInputs
from party.data.records import Features, Images, Rows

_CHUNK = 1024  # images counted at a time, as counting needs eight bytes per pixel


@dataclass(frozen=True)
class ImageEncoding:
    """How images become model input."""

    shape: tuple[int, ...]  # C×H×W
    mean: tuple[float, ...]  # of pixel/255, per channel
    std: tuple[float, ...]

    @classmethod
    def learn(cls, images: Images, rows: Rows) -> "ImageEncoding":
        """Learn from the training rows alone; sums are exact, so their order does not matter."""
        _, height, width, channels = images.pixels.shape
        counts = np.zeros((channels, 256), dtype=np.int64)
        for start in range(0, len(rows), _CHUNK):
            chunk = images.pixels[rows[start : start + _CHUNK]]
            for channel in range(channels):
                counts[channel] += np.bincount(chunk[..., channel].ravel(), minlength=256)
        moments = [_mean_and_std(counts[channel].tolist()) for channel in range(channels)]
        means, deviations = zip(*moments, strict=True)
        return cls((channels, height, width), means, deviations)

    def apply(self, features: Features) -> ImageInputs:
        """Encode any images of the size of the training."""
        expected = "×".join(str(size) for size in self.shape)
        if not isinstance(features, Images):
            raise DataError(
                f"{features.origin}: holds columns of a table where the model was trained on images, {expected}"
            )
        pixels = np.ascontiguousarray(features.pixels.transpose(0, 3, 1, 2))
        if pixels.shape[1:] != self.shape:
            found = "×".join(str(size) for size in pixels.shape[1:])
            raise DataError(
                f"{features.origin}: holds images of {found} where the model was trained on {expected} "
                "(channels × height × width)"
            )
        mean, std = (torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (self.mean, self.std))
        return ImageInputs(torch.from_numpy(pixels), (1 / (255 * std)).float(), (-mean / std).float())

    def to_json(self) -> dict[str, Any]:
        """Describe the encoding; floats survive JSON to the last bit."""
        return {"kind": "images", "shape": list(self.shape), "mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "ImageEncoding":
        """Rebuild what `to_json` described."""
        return cls(tuple(content["shape"]), tuple(content["mean"]), tuple(content["std"]))


def _mean_and_std(counts: list[int]) -> tuple[float, float]:
    """Take mean and deviation of pixel/255 from how often each of the 256 values occurs, in whole numbers."""
    pixels = sum(counts)
    total = sum(value * count for value, count in enumerate(counts))
    squares = sum(value * value * count for value, count in enumerate(counts))
    variance = pixels * squares - total * total  # times (255·pixels)²
    return total / (255 * pixels), math.sqrt(variance / (255 * pixels) ** 2) or 1.0
