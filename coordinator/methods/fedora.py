"""FedORA with the paper's own steps: dual ascent on the rows to forget, primal descent on a part of the rest.

Ω ← max(0, Ω + σ·(γ − L_u))                          unlearning phase, over D_u
Θ ← Θ − τ·(∇L_r − push + ρ·(Θ − Θ_init))             remaining phase, over ⌈δ·|D_r|/B⌉ batches of D_r
"""

import math
from dataclasses import dataclass

from coordinator.methods import Method, MethodResult, UnlearningTask
from coordinator.methods.fedora_settings import Fedora
from coordinator.methods.step_sizes import StepSizes
from coordinator.phases import FORGET, REMAINING, look, share
from fedora_vfl.errors import SettingsError
from fedora_vfl.sampling.seeds import derive
from protos.fedora.v1.phase_pb2 import (
    Adam,
    DualAscent,
    Loss,
    Phase,
    Plan,
    PrimalDescent,
    Samples,
    Sgd,
    Uncertainty,
    Update,
)

UNLEARNING, REMAINING_PHASE, RECOVERY = "unlearning", "remaining", "recovery"
FORMS = {"scalar": DualAscent.SCALAR, "parameterwise": DualAscent.PARAMETERWISE}
REDUCTIONS = {"mean": Loss.SET_MEAN, "sum": Loss.SUM}

# γ, as a share of the largest value that L_u can take, unless the job says otherwise.
LEVEL = 0.9


@dataclass(frozen=True)
class Problem:
    """min L_r + ρ/2·‖Θ − Θ_init‖² subject to L_u ≥ γ: what one request comes to, and the phases that work on it."""

    settings: Fedora
    task: UnlearningTask

    def __post_init__(self) -> None:
        """Refuse a constraint that no model can meet."""
        if self.settings.dual == "scalar" and self.gamma > self.largest:
            reason = f"unlearn.gamma: {self.gamma:g} cannot be reached; the largest value that L_u takes here is"
            raise SettingsError(f"{reason} {self.largest:.6g}")

    @property
    def largest(self) -> float:
        """ω·log C, where every prediction is uniform; times |D_u| when L_u is a sum."""
        one = self.settings.omega * math.log(self.task.classes)
        return one * self.task.forget if self.settings.reduction == "sum" else one

    @property
    def gamma(self) -> float:
        """γ as the dual ascent uses it. In the parameterwise form it is a growth rate, not a level of L_u."""
        if self.settings.gamma is not None:
            return self.settings.gamma
        return LEVEL * self.largest if self.settings.dual == "scalar" else 1.0

    @property
    def level(self) -> float:
        """The level of L_u at which the constraint holds."""
        return self.gamma if self.settings.dual == "scalar" else LEVEL * self.largest

    @property
    def batch_size(self) -> int:
        """B."""
        return self.settings.batch_size or self.task.train.batch_size

    def loss(self, mean: float) -> float:
        """L_u, from its mean over D_u."""
        return mean * self.task.forget if self.settings.reduction == "sum" else mean

    def unlearning(
        self,
        round: int,
        sigma: float,
        *,
        part: float = 1.0,
        gamma: float | None = None,
        omega_max: float = 0.0,
        taking_away: bool = False,
        fresh: bool = False,
        checkpoint: bool = False,
    ) -> Phase:
        """Return the dual ascent, the networks in eval mode: exact however D_u is cut into micro-batches."""
        settings = self.settings
        rule = DualAscent(
            form=FORMS[settings.dual],
            sigma=sigma,
            gamma=self.gamma if gamma is None else gamma,
            omega_max=omega_max,
            taking_away=taking_away,
            normalised=settings.steps == "auto",
            audit=settings.audit,
        )
        loss = Loss(uncertainty=Uncertainty(omega=settings.omega), reduction=REDUCTIONS[settings.reduction])
        phase = look(
            UNLEARNING,
            round,
            over=share(FORGET, part),
            batch_size=settings.micro_batch,
            seed=derive(self.task.seed, UNLEARNING, round),
            loss=loss,
            update=Update(dual_ascent=rule, fresh=fresh),
        )
        phase.checkpoint = checkpoint
        return phase

    def descent(
        self,
        round: int,
        step: Sgd | Adam,
        push: PrimalDescent.Push,
        *,
        part: float,
        batch_size: int | None = None,
        name: str = REMAINING_PHASE,
        fade: float = 0.0,
        fresh: bool = False,
    ) -> Phase:
        """Return the primal descent over a fresh draw of D_r, the networks in train mode."""
        rule = PrimalDescent(rho=self.settings.rho, push=push, fade=fade)
        (rule.sgd if isinstance(step, Sgd) else rule.adam).CopyFrom(step)  # type: ignore[arg-type]
        return Phase(
            name=name,
            round=round,
            over=Samples(set=REMAINING.set, share=part),
            plan=Plan(seed=derive(self.task.seed, name, round), batch_size=batch_size or self.batch_size, shuffle=True),
            update=Update(primal_descent=rule, fresh=fresh),
            loss=Loss(cross_entropy={}),
            train_mode=True,
        )


def paper(problem: Problem) -> Method[MethodResult]:
    """Run the paper's rounds, with its step-size rule ξ and nothing else."""
    settings = problem.settings
    steps, rounds = _first_steps(problem), settings.most_rounds(problem.task.train)
    δ = 1.0 if "asymmetric-batches" in settings.without else _given(settings.delta, 0.05)
    forgetting = "unlearning-loss" not in settings.without
    push = PrimalDescent.AS_IT_IS if forgetting else PrimalDescent.NONE
    loss, calm = -math.inf, 0
    for k in range(1, rounds + 1):
        size = math.inf
        if forgetting:
            ascent = yield problem.unlearning(k, steps.sigma, fresh=k == 1)
            loss, size = problem.loss(ascent.loss), math.sqrt(ascent.total("parameters_squared"))
        descent = yield problem.descent(k, Sgd(lr=steps.tau), push, part=δ, fresh=k == 1)
        if "adaptive-steps" not in settings.without:
            steps = steps.adapt(descent.change)
        calm = calm + 1 if loss >= problem.level and descent.change <= settings.tolerance * size else 0
        if calm == settings.patience:
            return MethodResult(k, f"the constraint has held and the model has stood still for {calm} rounds", True)
    return MethodResult(rounds, f"all {rounds} rounds were run", loss >= problem.level)


def _first_steps(problem: Problem) -> StepSizes:
    """Return τ⁰ and σ⁰ with their rule; what the job leaves open is ours, as the paper names no values."""
    settings = problem.settings
    # One round of a wholly certain model then raises Ω by about one.
    σ = _given(settings.sigma, 1 / (2 * problem.largest) if settings.dual == "scalar" else 1.0)
    return StepSizes(
        tau=_given(settings.tau, 0.01),
        sigma=σ,
        tau_max=settings.tau_max,
        sigma_max=settings.sigma_max,
        alpha=settings.alpha,
        beta=settings.beta,
        shrink=settings.shrink,
        grow=settings.grow,
    )


def _given(value: float | None, default: float) -> float:
    return default if value is None else value
