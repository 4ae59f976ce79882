"""Making all predictions less sure, by as much as the rows to forget need to be unsure enough."""

import asyncio
import math

import torch
from torch import Tensor
from torch.nn import functional

from party.updates.rule import PhaseEnd, Rule

HALVINGS = 40  # of the range of scales, from 0 to 1: finer than a float
LEAST = 1e-6  # of a scale: with 0 no class would be likelier than another, and nothing could be learned any more


class Soften(Rule):
    """At the active party, once: (W, b) ← s·(W, b) of the layer that gives the logits, s ≤ 1 as large as may be.

    Which class is the likeliest stays as it is; the mean of 2·H(P) − log C over the phase's rows rises to the level
    that was asked for.
    """

    needs_gradients = False
    _found: float | None = None

    def step(self) -> None:
        """Do nothing: what moves is known at the end."""

    def see(self, logits: Tensor) -> None:
        """Keep what there is to go by."""
        self.kept.setdefault("logits", []).append(logits.detach().cpu())

    async def exchange(self, end: PhaseEnd) -> None:
        """Find the scale beside all else: of millions of rows it takes seconds."""
        self._found = await asyncio.to_thread(self._scale)

    def finish(self) -> dict[str, float]:
        """Scale the last layer, whose weights and biases are the last of the active party's parameters."""
        s = self._scale() if self._found is None else self._found
        self.kept.pop("logits", None)
        if s < 1:
            with torch.no_grad():
                for θ in self.parameters[-2:]:
                    θ.mul_(s)
        return {}

    def _scale(self) -> float:
        """Return s; 1 at a party that sees no predictions."""
        seen = [one.cpu() for one in self.kept.get("logits", [])]
        return scale(torch.cat(seen).double(), self.update.soften.level) if seen else 1.0


def scale(logits: Tensor, level: float) -> float:
    """Return the largest s ≤ 1 at which the mean of 2·H(softmax(s·z)) − log C is at least a level; H falls with s.

    Where no s is small enough, it is `LEAST`; where logits are no numbers, 1.
    """

    def reaches(s: float) -> bool:
        log_p = functional.log_softmax(s * logits, dim=1)
        entropy = -(log_p.exp() * log_p).sum(dim=1)
        return float((2 * entropy).mean()) - math.log(logits.shape[1]) >= level

    if not bool(torch.isfinite(logits).all()) or reaches(1.0):
        return 1.0
    least, most = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (least + most) / 2
        least, most = (middle, most) if reaches(middle) else (least, middle)
    return max(LEAST, least)
