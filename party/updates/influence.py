"""Rules that work with the gradient of the rows to forget: climb it, keep it, move along it, never go back."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedora_vfl.errors import PartyError
from party.updates.descent import chosen_step
from party.updates.rule import Rule, RuleMemory


class Ascent(Rule):
    """Gradient ascent: θ_i ← θ_i + lr·clip(g_i) after every batch."""

    def step(self) -> None:
        """Take one step up and clear the gradients for the next batch."""
        settings = self.update.ascent
        _, parameters, gradients = self.with_gradients()
        by = settings.lr * min(1.0, settings.clip / (length(gradients) or 1.0))
        with torch.no_grad():
            for θ, g in zip(parameters, gradients, strict=True):
                θ.add_(g, alpha=by)
        self.clear_gradients()


class Influence(Rule):
    """What the rows have done to the parameters, to first order: g_i, added up over all batches and kept."""

    parameters_frozen = True

    def step(self) -> None:
        """Let the gradients add up."""

    def finish(self) -> dict[str, float]:
        """Keep g_i; report ‖g_i‖² and ‖θ_i‖²."""
        g = [torch.zeros_like(θ) if θ.grad is None else θ.grad for θ in self.parameters]
        self.kept["gradient"] = g
        self.clear_gradients()
        return {"gradient_squared": length(g) ** 2, "parameters_squared": length(self.parameters) ** 2}


class Shift(Rule):
    """θ_i ← θ_i + by·g_i, once."""

    needs_gradients = False

    def step(self) -> None:
        """Do nothing: what moves is known beforehand."""

    def finish(self) -> dict[str, float]:
        """Move."""
        with torch.no_grad():
            for θ, g in zip(self.parameters, influence(self.memory), strict=True):
                θ.add_(g, alpha=self.update.shift.by)
        return {}


class Correction(Rule):
    """Descent on other rows that does not bring back what was subtracted."""

    def step(self) -> None:
        """Remove the gradient's component that would step back along g_i, and take one step."""
        settings, g = self.update.correction, influence(self.memory)
        gradients = [torch.zeros_like(θ) if θ.grad is None else θ.grad for θ in self.parameters]
        back = max(0.0, inner(gradients, g))
        squared = length(g) ** 2
        for θ, gradient, one in zip(self.parameters, gradients, g, strict=True):
            θ.grad = gradient - (back / squared) * one if back else gradient
        chosen_step(self, settings)
        self.clear_gradients()


def influence(memory: RuleMemory) -> list[Tensor]:
    """Return the gradient that an Influence phase has kept."""
    kept: list[Tensor] | None = memory.of("influence").get("gradient")
    if kept is None:
        raise PartyError("coordinator", "asked to use the rows' influence before it was measured")
    return kept


def inner(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    """Return ⟨·, ·⟩ over all tensors of a party, in double precision."""
    return sum(float((a.detach().double() * b.detach().double()).sum()) for a, b in zip(one, other, strict=True))


def length(tensors: Sequence[Tensor]) -> float:
    """Return ‖·‖ over all tensors of a party, in double precision."""
    return math.sqrt(inner(tensors, tensors))
