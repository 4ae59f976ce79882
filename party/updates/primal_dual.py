"""FedORA's update rules: dual ascent on the rows to forget, primal descent on the rest. The paper's letters are used.

min over Θ of L_r(Θ) + ρ/2·‖Θ − Θ_init‖², subject to L_u(Θ) ≥ γ; Ω is the dual variable of the constraint.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedora_vfl.errors import PartyError
from party.updates.dual_messages import DualMessages
from party.updates.rule import PhaseEnd, Rule, RuleMemory
from protos.fedora.v1 import phase_pb2

MOST_CLASSES = 1_000_000  # a bound for parties that do not know how many there are: more than anybody has labels for


@dataclass(frozen=True)
class Dual:
    """The dual variable of one party, and what follows from it for its parameters."""

    omega: list[Tensor] | float  # Ω_i of the shape of θ_i, or one Ω for all parties
    push: list[Tensor]  # what the constraint asks of each parameter: Ω·g_i, or g_i ∘ Ω_i
    lengths: list[float]  # ‖g‖, tensor by tensor

    @classmethod
    def last(cls, memory: RuleMemory) -> "Dual | None":
        """Return what the last unlearning phase has left; nothing before the first."""
        kept = memory.of("dual_ascent")
        return cls(**kept) if kept else None

    @property
    def scalar(self) -> float:
        """Ω of the scalar form."""
        assert isinstance(self.omega, float)
        return self.omega

    @property
    def values(self) -> list[Tensor]:
        """Ω_i of the parameterwise form."""
        assert isinstance(self.omega, list)
        return self.omega

    def summary(self) -> dict[str, float]:
        """Return norm, largest value and positive share of Ω."""
        if isinstance(self.omega, float):
            return {
                "dual_norm": self.omega,
                "dual_largest": self.omega,
                "dual_positive_share": float(self.omega > 0),
            }
        flat = _flat(self.omega)
        return {
            "dual_norm": float(flat.norm()),
            "dual_largest": float(flat.max()),
            "dual_positive_share": float((flat > 0).double().mean()),
        }


class DualAscent(Rule):
    """The unlearning phase: g_i = ∂L_u/∂θ_i is added up over all batches, then Ω and the push follow once."""

    parameters_frozen = True

    def step(self) -> None:
        """Let the gradients add up."""

    @property
    def scalar(self) -> bool:
        """Whether there is one Ω for all parties."""
        return self.update.dual_ascent.form == phase_pb2.DualAscent.SCALAR

    def ascend(self, loss: float) -> float:
        """Ω ← max(0, Ω + σ·(γ − L_u)): the scalar form's ascent, at the party that knows L_u."""
        settings, before = self.update.dual_ascent, Dual.last(self.memory)
        Ω = before.scalar if before else 0.0  # noqa: N806 (the paper's letter)
        return max(0.0, Ω + settings.sigma * (settings.gamma - loss))

    def _most(self, end: PhaseEnd) -> float:
        """Return the largest Ω that the ascent of a phase can lead to, which a party without labels can tell, too."""
        least = 0.0  # of L_u; a cross-entropy is not negative
        if end.phase.loss.WhichOneof("form") == "uncertainty":
            samples = end.report.rows if end.phase.loss.reduction == phase_pb2.Loss.SUM else 1
            least = -end.phase.loss.uncertainty.omega * samples * math.log(MOST_CLASSES)
        return self.ascend(least) * (1 + 1e-6) + 1e-6

    def settle(self, omega: float | None) -> Dual:
        """Update the dual variable and the push; the scalar form is told its Ω."""
        g = [_gradient(θ) for θ in self.parameters]
        dual = self._scalar(omega, g) if omega is not None else self._parameterwise(g)
        self.kept.update(vars(dual))
        self.clear_gradients()
        return dual

    def _scalar(self, omega: float, g: list[Tensor]) -> Dual:
        return Dual(omega, [omega * one for one in g], lengths(g))

    def _parameterwise(self, g: list[Tensor]) -> Dual:
        """Ω_i ← max(0, Ω_i + σ·(γ − g_i)), value by value: Algorithm 1's ascent."""
        settings, before = self.update.dual_ascent, Dual.last(self.memory)
        σ, γ = settings.sigma, settings.gamma
        Ω = before.values if before else [torch.zeros_like(one) for one in g]  # noqa: N806 (the paper's letter)
        Ω = [(old + σ * (γ - one)).clamp(0) for old, one in zip(Ω, g, strict=True)]  # noqa: N806
        return Dual(Ω, [one * weight for one, weight in zip(g, Ω, strict=True)], lengths(g))

    async def exchange(self, end: PhaseEnd) -> None:
        """Agree on the scalar form's Ω, which the active party knows; or tell it what there is to tell of Ω_i."""
        messages = DualMessages(end)
        if self.scalar:
            mine = self.ascend(unlearning_loss(end.phase, end.report)) if end.is_active else None
            self.settle(await messages.agree(mine, most=self._most(end)))
        else:
            dual = self.settle(None)
            audited = dual.values if self.update.dual_ascent.audit else None
            await messages.summarise(dual.summary(), audited)

    def stated_dual(self) -> dict[str, Any] | None:
        """Return what a signed statement says of Ω."""
        return stated(self._settled())

    def finish(self) -> dict[str, float]:
        """Report what is known of Ω, the gradient and the push: norms only."""
        dual = self._settled()
        return {
            **dual.summary(),
            "gradient_squared": sum(length**2 for length in dual.lengths),
            "parameters_squared": sum(length**2 for length in lengths(self.parameters)),
        }

    def _settled(self) -> Dual:
        dual = Dual.last(self.memory)
        assert dual is not None
        return dual


def stated(dual: Dual) -> dict[str, Any]:
    """Return what a signed statement says of a dual variable."""
    if isinstance(dual.omega, float):
        return {"form": "scalar", "omega": dual.omega}
    told = {name.removeprefix("dual_"): value for name, value in dual.summary().items()}
    return {"form": "parameterwise", **told, "parameters": sum(one.numel() for one in dual.omega)}


def unlearning_loss(phase: phase_pb2.Phase, report: phase_pb2.Report) -> float:
    """Return L_u over the rows of a phase, as its reduction says."""
    return report.loss_sum / (1 if phase.loss.reduction == phase_pb2.Loss.SUM else report.rows)


class PrimalDescent(Rule):
    """The remaining phase: θ_i ← θ_i − τ·(∂L_r/∂θ_i − push_i + ρ·(θ_i − θ_i,init)) after every batch."""

    _stepped = False

    def go_on(self) -> None:
        """Remember that steps were taken."""
        self._stepped = True

    def step(self) -> None:
        """Take one substep and clear the gradients for the next batch."""
        settings = self.update.primal_descent
        τ, ρ = settings.tau, settings.rho
        self._stepped = True
        pushes = [] if settings.push == phase_pb2.PrimalDescent.NONE else current_push(self.memory)
        for place, (θ, θ_init) in enumerate(zip(self.parameters, initial(self.memory), strict=True)):
            total = _gradient(θ) - pushes[place] if pushes else _gradient(θ)
            with torch.no_grad():
                θ.add_(total + ρ * (θ - θ_init) if ρ else total, alpha=-τ)
        self.clear_gradients()

    def finish(self) -> dict[str, float]:
        """Take the one substep of a phase without batches, where ∂L_r counts as 0."""
        if not self._stepped:
            self.step()
        return {}


class Residual(Rule):
    """The last pass: how far from a stationary point of the Lagrangian the model is."""

    parameters_frozen = True

    def step(self) -> None:
        """Let the gradients add up."""

    def finish(self) -> dict[str, float]:
        """Report ‖∂L_r/∂θ_i − push_i + ρ·(θ_i − θ_i,init)‖² and ‖θ_i − θ_i,init‖²."""
        ρ = self.update.residual.rho
        push = current_push(self.memory) or [torch.zeros_like(θ) for θ in self.parameters]
        moved = [θ.detach() - θ_init for θ, θ_init in zip(self.parameters, initial(self.memory), strict=True)]
        terms = zip(self.parameters, push, moved, strict=True)
        residual = [_gradient(θ) - one + ρ * away for θ, one, away in terms]
        self.clear_gradients()
        return {"residual_squared": _squared(residual), "moved_squared": _squared(moved)}


def initial(memory: RuleMemory) -> list[Tensor]:
    """Return θ_init."""
    if memory.initial is None:
        raise PartyError("coordinator", "asked for a step towards the trained model before rows were dropped")
    return memory.initial


def current_push(memory: RuleMemory) -> list[Tensor]:
    """Return the push of the last unlearning phase; none before the first."""
    dual = Dual.last(memory)
    return dual.push if dual else []


def _gradient(parameter: Tensor) -> Tensor:
    """Return a parameter's gradient; zero where the loss did not reach it."""
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _flat(values: Sequence[Tensor]) -> Tensor:
    return torch.cat([value.detach().double().flatten() for value in values])


def _squared(values: Sequence[Tensor]) -> float:
    """Return the squared norm, in double precision."""
    return float(sum(float(value.detach().double().square().sum()) for value in values))


def lengths(values: Sequence[Tensor]) -> list[float]:
    """Return the norm of each tensor."""
    return [float(value.detach().norm()) for value in values]
