"""Defences: settings of the product, and experiments that are no settings but stand here alone."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from party.settings import PrivacySettings


@dataclass(frozen=True)
class Defence:
    """What is done against curious parties in one run."""

    name: str
    embedding: int = 64  # values per row
    wire: str = "float32"
    clip_embeddings: float | None = None  # `privacy` of passive parties
    noise_embeddings: float = 0.0
    clip_gradients: float | None = None  # `privacy` of the active party, in units of 1/batch
    noise_gradients: float = 0.0
    label_shield: float = 0.0  # experiment: noise between the classes' mean gradients, in units of their spread
    distance_correlation: float = 0.0  # experiment: weight of the penalty at passive parties
    withheld: bool = False  # experiment: passive parties get zeros, and their bottoms stay as they were made
    batch: int = 128

    @property
    def is_setting(self) -> bool:
        """Whether the product has it."""
        return not (self.label_shield or self.distance_correlation or self.withheld)

    @property
    def content(self) -> dict[str, Any]:
        """All that decides what it does."""
        return {name: value for name, value in asdict(self).items() if name != "name"}

    def privacy(self, active: bool, *, seed: int) -> PrivacySettings | None:
        """Return the `privacy` section of a party's file."""
        unit = 1 / self.batch if active else 1.0
        clip = self.clip_gradients if active else self.clip_embeddings
        noise = self.noise_gradients if active else self.noise_embeddings
        if clip is None:
            return None
        return PrivacySettings(clip=clip * unit, noise=noise * unit, seed=seed)

    def shielded(self, gradient: Tensor, labels: Tensor, seed: int) -> Tensor:
        """Add noise along the directions in which the classes' mean gradients differ, and in no other.

        After Marvell (Li et al., ICLR 2022), which finds the noise of least power for a wanted bound; here its
        covariance is the spread between the classes' means times a factor, for any number of classes.
        """
        classes, counts = torch.unique(labels, return_counts=True)
        means = torch.stack([gradient[labels == one].mean(dim=0) for one in classes])
        weights = (counts / counts.sum()).sqrt()[:, None]
        directions = weights * (means - gradient.mean(dim=0))
        drawn = torch.randn(len(gradient), len(classes), generator=torch.Generator().manual_seed(seed))
        noise: Tensor = self.label_shield * drawn @ directions
        return gradient + noise

    def penalty(self, inputs: Tensor, embedding: Tensor) -> Tensor:
        """Return what a passive party adds to its loss: how far distances of embeddings follow those of its rows."""
        return self.distance_correlation * distance_correlation(inputs.flatten(1), embedding)


def distance_correlation(one: Tensor, other: Tensor) -> Tensor:
    """Return the distance correlation of two samples' rows (Székely et al., 2007): 0 if independent, 1 if alike."""
    first, second = _centred(one), _centred(other)
    covariance = (first * second).mean().clamp(min=0)
    spread = ((first * first).mean() * (second * second).mean()).clamp(min=1e-12).sqrt()
    return ((covariance + 1e-9) / spread).sqrt()


def _centred(rows: Tensor) -> Tensor:
    """Return all distances between rows, less the means of row and column, plus that of all."""
    distances = torch.cdist(rows, rows)
    return distances - distances.mean(0, keepdim=True) - distances.mean(1, keepdim=True) + distances.mean()


NONE = Defence("none")
DEFENCES = (
    NONE,
    Defence("clip embeddings 1", clip_embeddings=1.0),
    Defence("noise embeddings 0.05", clip_embeddings=1.0, noise_embeddings=0.05),
    Defence("noise embeddings 0.2", clip_embeddings=1.0, noise_embeddings=0.2),
    Defence("noise embeddings 1", clip_embeddings=1.0, noise_embeddings=1.0),
    Defence("clip gradients 0.1/B", clip_gradients=0.1),
    Defence("noise gradients 0.5/B", clip_gradients=1.0, noise_gradients=0.5),
    Defence("noise gradients 2/B", clip_gradients=1.0, noise_gradients=2.0),
    Defence("gradients withheld", withheld=True),
    Defence("embedding 16", embedding=16),
    Defence("embedding 4", embedding=4),
    Defence("float16", wire="float16"),
    Defence("bfloat16", wire="bfloat16"),
    Defence("label shield 4", label_shield=4.0),
    Defence("label shield 16", label_shield=16.0),
    Defence("distance corr. 0.3", distance_correlation=0.3),
    Defence("distance corr. 3", distance_correlation=3.0),
)
