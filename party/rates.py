"""The two figures of an attack that scores rows: how well it orders them, and how many it finds at few false alarms."""

import numpy as np
import torch
from torch import Tensor

FALSE_POSITIVES = 0.01  # of the honest attack's second figure


def area_under_curve(members: Tensor, others: Tensor) -> float:
    """Return the chance that a random member's score exceeds a random other's, a tie counting half."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(np.repeat([1, 0], [len(members), len(others)]), torch.cat([members, others]).numpy()))


def true_positives(members: Tensor, others: Tensor, false_positives: float = FALSE_POSITIVES) -> float:
    """Return the share of members above the score that only this share of the others exceeds."""
    allowed = int(false_positives * len(others))
    threshold = others.sort(descending=True).values[allowed]
    return float((members > threshold).double().mean())
