"""The paper's membership attack: fitted once to the original model's outputs, members against others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from party.predictions import Predictions


@dataclass(frozen=True)
class Attack:
    """A logistic regression on standardised features of predictions."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    weights: NDArray[np.float64]
    bias: float

    @classmethod
    def fit(cls, members: Predictions, others: Predictions) -> "Attack":
        """Learn to tell members from others."""
        # Loaded only now: it takes a second, and few jobs measure.
        from sklearn.linear_model import LogisticRegression
        from sklearn.preprocessing import StandardScaler

        features = np.concatenate([members.attack_features(), others.attack_features()])
        is_member = np.repeat([1, 0], [len(members.classes), len(others.classes)])
        scaler = StandardScaler().fit(features)
        regression = LogisticRegression(class_weight="balanced", max_iter=1000)
        regression.fit(scaler.transform(features), is_member)
        return cls(scaler.mean_, scaler.scale_, regression.coef_[0], float(regression.intercept_[0]))

    def success(self, members: Predictions, others: Predictions) -> float:
        """Return the balanced accuracy of telling members from others."""
        caught, spared = self._taken_for_members(members), self._taken_for_members(others)
        return float(caught.mean() + (1 - spared.mean())) / 2

    def _taken_for_members(self, predictions: Predictions) -> NDArray[np.bool_]:
        standardised = (predictions.attack_features() - self.mean) / self.scale
        found: NDArray[np.bool_] = standardised @ self.weights + self.bias > 0
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return what was learned."""
        arrays = {"mean": self.mean, "scale": self.scale, "weights": self.weights}
        return {**{name: torch.from_numpy(value) for name, value in arrays.items()}, "bias": self.bias}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> "Attack":
        """Return an attack that was fitted before."""
        mean, scale, weights = (state[name].numpy() for name in ("mean", "scale", "weights"))
        return cls(mean, scale, weights, state["bias"])
