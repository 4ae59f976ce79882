"""FedORA's problem, and the two phases that work on it: dual ascent on D_u, primal descent on a part of D_r.

Ω ← max(0, Ω + σ·(γ − L_u))                          unlearning phase, over D_u
Θ ← Θ − τ·(∇L_r − push + ρ·(Θ − Θ_init))             remaining phase, over ⌈δ·|D_r|/B⌉ batches of D_r
"""

import math
from dataclasses import dataclass

from coordinator.methods import PhaseOutcome, UnlearningTask
from coordinator.methods.fedora_settings import Fedora
from coordinator.phases import FORGET, REMAINING, look
from fedora_vfl.errors import SettingsError
from fedora_vfl.sampling.seeds import derive
from protos.fedora.v1.phase_pb2 import DualAscent, Loss, Phase, Plan, PrimalDescent, Samples, Uncertainty, Update

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

    def holds(self, ascent: PhaseOutcome, level: float) -> bool:
        """Tell whether L_u is at least a level; the active party says so itself where it does not tell L_u."""
        return bool(ascent.within_bounds) if "loss" in ascent.left_out else self.loss(ascent.loss) >= level

    def unlearning(self, round: int, sigma: float, *, fresh: bool = False) -> Phase:
        """Return the dual ascent, the networks in eval mode: exact however D_u is cut into micro-batches."""
        settings = self.settings
        rule = DualAscent(
            form=FORMS[settings.dual], sigma=sigma, gamma=self.gamma, audit=settings.audit, level=self.level
        )
        return look(
            UNLEARNING,
            round,
            over=FORGET,
            batch_size=settings.micro_batch,
            seed=derive(self.task.seed, UNLEARNING, round),
            loss=Loss(uncertainty=Uncertainty(omega=settings.omega), reduction=REDUCTIONS[settings.reduction]),
            update=Update(dual_ascent=rule, fresh=fresh),
        )

    def descent(self, round: int, tau: float, *, part: float, push: bool, fresh: bool = False) -> Phase:
        """Return the primal descent over a fresh draw of D_r, the networks in train mode."""
        rule = PrimalDescent(
            tau=tau, rho=self.settings.rho, push=PrimalDescent.AS_IT_IS if push else PrimalDescent.NONE
        )
        return Phase(
            name=REMAINING_PHASE,
            round=round,
            over=Samples(set=REMAINING.set, share=part),
            plan=Plan(seed=derive(self.task.seed, REMAINING_PHASE, round), batch_size=self.batch_size, shuffle=True),
            update=Update(primal_descent=rule, fresh=fresh),
            loss=Loss(cross_entropy={}),
            train_mode=True,
        )
