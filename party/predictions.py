"""A model's outputs for some rows, and what they tell of each row."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Predictions:
    """A model's outputs for some rows, with the class each should have."""

    logits: Tensor
    classes: Tensor

    def of(self, chosen: Tensor) -> "Predictions":
        """Return those of the chosen rows."""
        return Predictions(self.logits[chosen], self.classes[chosen])

    def accuracy(self) -> float | None:
        """Return the share of right predictions; None of no rows."""
        right = (self.logits.argmax(dim=1) == self.classes).double()
        return float(right.mean()) if len(right) else None

    def losses(self) -> Tensor:
        """Return the cross-entropy of each row."""
        return functional.cross_entropy(self.logits, self.classes, reduction="none")

    def attack_features(self) -> NDArray[np.float64]:
        """Return what an attack sees of each row: its loss, the entropy, and the three largest log-probabilities."""
        log_p = functional.log_softmax(self.logits.double(), dim=1)
        entropy = -(log_p.exp() * log_p).sum(dim=1)
        largest = log_p.topk(min(3, log_p.shape[1]), dim=1).values
        features: NDArray[np.float64] = torch.cat(
            [self.losses().double().unsqueeze(1), entropy.unsqueeze(1), largest], dim=1
        ).numpy()
        return features
