"""Making all predictions less sure, by as much as the rows to forget need to be unsure enough."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from party.updates.rule import Rule

HALVINGS = 40  # of the range of scales, from 0 to 1: finer than a float


class Soften(Rule):
    """At the active party, once: (W, b) ← s·(W, b) of the layer that gives the logits, s ≤ 1 as large as may be.

    Which class is the likeliest stays as it is; the mean of 2·H(P) − log C over the phase's rows rises to the level
    that was asked for.
    """

    needs_gradients = False

    def step(self) -> None:
        """Do nothing: what moves is known at the end."""

    def see(self, logits: Tensor) -> None:
        """Keep what there is to go by."""
        self.kept.setdefault("logits", []).append(logits.detach().cpu())

    def finish(self) -> dict[str, float]:
        """Scale the last layer, whose weights and biases are the last of the active party's parameters."""
        seen = self.kept.pop("logits", [])
        if seen:
            s = scale(torch.cat(seen).double(), self.update.soften.level)
            with torch.no_grad():
                for θ in self.parameters[-2:]:
                    θ.mul_(s)
        return {}


def scale(logits: Tensor, level: float) -> float:
    """Return the largest s ≤ 1 at which the mean of 2·H(softmax(s·z)) − log C is at least a level; H falls with s."""

    def reaches(s: float) -> bool:
        log_p = functional.log_softmax(s * logits, dim=1)
        entropy = -(log_p.exp() * log_p).sum(dim=1)
        return float((2 * entropy).mean()) - math.log(logits.shape[1]) >= level

    if reaches(1.0):
        return 1.0
    least, most = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (least + most) / 2
        least, most = (middle, most) if reaches(middle) else (least, middle)
    return least
