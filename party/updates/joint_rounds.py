"""FedORA's rounds that set their own scales: dual ascent and primal descent at the same parameters, in one exchange.

min over Θ of L_r(Θ) + ρ/2·‖Θ − Θ_init‖², subject to L_u(Θ) ≥ γ; Ω is the dual variable. Every scale is measured on the
model at hand: the push against the gradient of L_r, the step against the size of each tensor.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from party.updates.dual_messages import DualMessages
from party.updates.primal_dual import Dual, initial, lengths, stated
from party.updates.rule import PhaseEnd, Rule, RuleMemory
from protos.fedora.v1 import phase_pb2
from protos.fedora.v1.phase_pb2 import Update

BETA = 0.8  # what Adam's means keep from one round to the next: short memories, as a run has some tens of rounds
WARM_UP = 5  # rounds: Adam's first steps are as long in values whose gradient is noise as in all others
CARRIED_ALLOWANCE = 1.0  # of λ: how far L_r may rise where the labels of D_u hang on one party's columns alone
LEAST = 1e-12  # in the place of Adam's ε, so that the scale of the loss has no part in a step


class JointRounds(Rule):
    """One round a batch: Ω moves, then θ_i ← θ_i − η·‖θ_i,init‖_rms·Adam(∂L_r/∂θ_i − push_i + ρ·(θ_i − θ_i,init))."""

    def __init__(self, update: Update, parameters: Iterable[Parameter], memory: RuleMemory) -> None:
        super().__init__(update, parameters, memory)
        self._round, self._rounds = 0, 1  # of this phase
        self._labelled = False

    def begin(self, rounds: int, *, labelled: bool, done: int = 0) -> None:
        """Note what a phase is like.

        Args:
            rounds: How many it has.
            labelled: Whether its L_u is one of labels. What a comparison has found of labels has no part in any other.
            done: How many of its rounds were done before.
        """
        self._round, self._rounds, self._labelled = done, rounds, labelled

    def step(self) -> None:
        """Do nothing: a round needs both gradients, and is `descend`."""

    @property
    def settings(self) -> phase_pb2.JointRounds:
        """What the phase says."""
        return self.update.joint_rounds

    @property
    def scalar(self) -> bool:
        """Whether there is one Ω for all parties."""
        return self.settings.form == phase_pb2.DualAscent.SCALAR

    @property
    def ceiling(self) -> float:
        """λ: the phase's, or the mean loss of rows never seen where the first comparison found that to be more."""
        found: float = self._compared.get("mean_loss", 0.0)
        return max(self.settings.ceiling, found)

    @property
    def carrier(self) -> int | None:
        """The place of the party whose columns alone the labels of D_u hang on, if there is one."""
        found: int | None = self._compared.get("carrier")
        return found

    @property
    def _compared(self) -> dict[str, Any]:
        """What the first comparison has found of labels."""
        return self.memory.of("compare") if self._labelled else {}

    @property
    def most(self) -> float:
        """The largest Ω that the active party may send."""
        return self.settings.omega_max if self.scalar else 1.0

    def ascend(self, loss: float) -> float:
        """Ω ← max(0, Ω + σ·(λ − L_u)/λ), and 0 where L_u has reached λ: at the party that knows L_u.

        In the parameterwise form it is 1 or 0, whether there is a push.
        """
        λ = self.ceiling
        if loss >= λ:
            return 0.0
        if not self.scalar:
            return 1.0
        Ω: float = self.kept.get("omega", 0.0)  # noqa: N806 (the paper's letter)
        return min(self.settings.omega_max, max(0.0, Ω + self.settings.sigma / λ * (λ - loss)))

    def yielding(self, omega: float, rest: float) -> float:
        """Ω·(1 − (L_r − L_r⁰)/allowance): the push yields as L_r rises above that of the first round."""
        first: float = self.kept.setdefault("rest", rest)
        # What one party's columns alone have taught comes apart from all else: D_r gets back what it loses on the way.
        share = max(self.settings.allowance, CARRIED_ALLOWANCE) if self.carrier is not None else self.settings.allowance
        return omega * min(1.0, max(0.0, 1 - (rest - first) / (share * self.ceiling)))

    def descend(self, g: Sequence[Tensor], gradients: Sequence[Tensor], omega: float) -> None:
        """Take one step down ∂L_r/∂θ less the push of g = ∂L_u/∂θ.

        Args:
            g: Of L_u; empty in a phase without rows of D_u.
            gradients: Of L_r.
            omega: What the active party has found: Ω, or how much of a push there is.
        """
        settings, self._round = self.settings, self._round + 1
        total = list(gradients)
        if g and omega:
            pushes = self._pushes(g, gradients, omega)
            total = [gradient - push for gradient, push in zip(gradients, pushes, strict=True)]
        elif g:
            self._remember(omega, [torch.zeros_like(one) for one in g], g)
        if ρ := settings.rho:
            pairs = zip(total, self.parameters, initial(self.memory), strict=True)
            total = [one + ρ * (θ.detach() - θ_init) for one, θ, θ_init in pairs]
        self._step(total)

    def _pushes(self, g: Sequence[Tensor], gradients: Sequence[Tensor], omega: float) -> list[Tensor]:
        """Ω·g, tensor by tensor as if g were as long as ∂L_r/∂θ."""
        weights: list[Any] = [omega] * len(g) if self.scalar else self._ascend_values(g)
        of_g = [one * weight for one, weight in zip(g, weights, strict=True)]
        self._remember(omega if self.scalar else weights, of_g, g)
        if not self.scalar:
            of_g = [one * omega for one in of_g]
        pushes = []
        for one, gradient, push in zip(g, gradients, of_g, strict=True):
            long, other = float(one.norm()), float(gradient.norm())
            pushes.append(push * (other / long) if long else torch.zeros_like(one))
        return pushes

    def _ascend_values(self, g: Sequence[Tensor]) -> list[Tensor]:
        """Ω_i ← max(0, Ω_i + σ·(γ − g_i)), g_i in its own units: Algorithm 1's ascent."""
        settings = self.settings
        Ω = self.kept.get("omegas") or [torch.zeros_like(one) for one in g]  # noqa: N806 (the paper's letter)
        Ω = [  # noqa: N806
            (old + settings.sigma * (settings.gamma - in_own_units(one))).clamp(0, settings.omega_max)
            for old, one in zip(Ω, g, strict=True)
        ]
        self.kept["omegas"] = Ω
        return Ω

    def _remember(self, omega: Any, push: list[Tensor], g: Sequence[Tensor]) -> None:
        """Keep Ω and the Lagrangian's own push where the certificate's last pass finds them."""
        if self.scalar:
            self.kept["omega"] = omega
        elif not isinstance(omega, list):
            omega = self.kept.get("omegas") or [torch.zeros_like(one) for one in g]
        self.memory.of("dual_ascent").update(vars(Dual(omega, push, lengths(g))))

    def _step(self, total: Sequence[Tensor]) -> None:
        """θ ← θ − η·rms(θ_init)·Adam: as long in every tensor, measured by its own size, whatever trained the model."""
        settings, kept = self.settings, self.kept
        if "means" not in kept:
            kept["means"] = [torch.zeros_like(one) for one in total]
            kept["squares"] = [torch.zeros_like(one) for one in total]
            kept["steps"] = 0
        kept["steps"] += 1
        rising = 1 - BETA ** kept["steps"]
        length = settings.step * min(1.0, kept["steps"] / WARM_UP)
        if settings.falling:
            length *= 1 - (self._round - 1) / self._rounds
        tensors = zip(self.parameters, initial(self.memory), total, kept["means"], kept["squares"], strict=True)
        with torch.no_grad():
            for θ, θ_init, one, mean, square in tensors:
                mean.mul_(BETA).add_(one, alpha=1 - BETA)
                square.mul_(BETA).addcmul_(one, one, value=1 - BETA)
                size = float(θ_init.square().mean().sqrt())
                direction = (mean / rising) / ((square / rising).sqrt() + LEAST)
                θ.sub_(direction, alpha=length * size)

    async def exchange(self, end: PhaseEnd) -> None:
        """Tell the active party, after the last round, what there is to tell of Ω_i."""
        dual = Dual.last(self.memory)
        if self.scalar or dual is None or not end.phase.joint.forget:
            return
        await DualMessages(end).summarise(dual.summary(), dual.values if self.settings.audit else None)

    def finish(self) -> dict[str, float]:
        """Report what is known of Ω and of the last gradient: norms only."""
        dual = Dual.last(self.memory)
        if dual is None:
            return {}
        squares = sum(length**2 for length in dual.lengths), sum(length**2 for length in lengths(self.parameters))
        return {**dual.summary(), "gradient_squared": squares[0], "parameters_squared": squares[1]}

    def stated_dual(self) -> dict[str, Any] | None:
        """Return what a signed statement says of Ω."""
        dual = Dual.last(self.memory)
        return stated(dual) if dual else None


def in_own_units(value: Tensor) -> Tensor:
    """Divide a tensor by its root mean square."""
    unit = float(value.square().mean().sqrt())
    return value / unit if unit else value


class Retreat(Rule):
    """θ_i ← θ_i + share·(θ_i,init − θ_i), once."""

    needs_gradients = False

    def step(self) -> None:
        """Do nothing: what moves is known beforehand."""

    def finish(self) -> dict[str, float]:
        """Move."""
        with torch.no_grad():
            for θ, θ_init in zip(self.parameters, initial(self.memory), strict=True):
                θ.add_(θ_init - θ, alpha=self.update.retreat.share)
        return {}


class Compare(Rule):
    """Look only; what is found is the active party's to say."""

    needs_gradients = False
    parameters_frozen = True

    def step(self) -> None:
        """Do nothing."""
