"""What a job may say of FedORA."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from coordinator.methods.registry import Unlearn
from coordinator.train import Train
from fedora_vfl.settings.bounds import BatchSize, Rounds
from fedora_vfl.settings.files import Settings


class Scales(Settings):
    """The parts of the self-scaling rule. One default serves every data set; they can be set for ablations.

    Null takes what suits the goal. docs/unlearning.md says what each is for.
    """

    rounds: Rounds = 64  # at most
    # Seconds there and back, which rounds are counted for; null: as measured at the set-up, see result.json.
    round_trip: NonNegativeFloat | None = None
    push_share: Annotated[float, Field(gt=0, le=1)] | None = None  # of the rounds; 20 rounds, 0.6, or 1 for `uncertain`
    passes: PositiveFloat | None = None  # over few rows or a sample, at most; 2
    dual_step: PositiveFloat = 1.0  # σ, in units of the ceiling
    omega_max: PositiveFloat | None = None  # 1, or 4 for `uncertain`
    ceiling: Annotated[float, Field(gt=0, le=1)] | None = None  # of L_u, as a share of guessing; 1, or 0.97
    step: PositiveFloat = 0.04  # η, of a tensor's size: of the largest budget, and 48 rows a round
    allowance: PositiveFloat | None = None  # of λ/ω: how far L_r may rise before Ω is 0; 0.4, or 0.8 for `uncertain`
    # By how many standard errors D_u's labels must lean on one party more than usual for rows to be mixed; 1e6: never.
    carried: PositiveFloat = 4.5
    decay: bool = True  # whether the step falls to 0 at the end
    guard: bool = True  # whether a model that lost accuracy is taken back part of the way
    soften: bool = True  # `uncertain`: whether all predictions are made less sure where γ is not reached otherwise

    def filled(self, defaults: Mapping[str, Any]) -> "Scales":
        """Return the scales with what is null taken from elsewhere."""
        missing = {name: value for name, value in defaults.items() if getattr(self, name) is None}
        return self.model_copy(update=missing)


PAPER_ROUNDS = 20
AUTO_ONLY = {"budget", "scales", "goal"}
# A sum over D_u is a mean with another ω, and the self-scaling rule measures everything in units of ω.
PAPER_ONLY = {
    "reduction",
    "sigma",
    "tau",
    "alpha",
    "beta",
    "shrink",
    "grow",
    "tau_max",
    "sigma_max",
    "patience",
    "tolerance",
}


class Fedora(Unlearn):
    """FedORA's settings. The method itself sets what is null; docs/unlearning.md has the rules."""

    method: Literal["fedora"] = "fedora"
    goal: Literal["as-retrained", "uncertain"] = "as-retrained"
    steps: Literal["auto", "paper"] = "auto"
    dual: Literal["scalar", "parameterwise"] = "scalar"
    # auto: bytes exchanged, at most, as a share of retraining's; 0.01 for 50 rows to 0.05 or 0.08 for a tenth of all
    budget: Annotated[float, Field(gt=0, le=1)] | None = None
    scales: Scales = Scales()  # auto
    rounds: Rounds | None = None  # K; paper: 20
    delta: Annotated[float, Field(ge=0, le=1)] | None = None  # δ, share of D_r per round; paper: 0.05
    omega: PositiveFloat = 2.0  # ω
    reduction: Literal["mean", "sum"] = "mean"  # of L_u over D_u
    gamma: float | None = None  # γ, the level that L_u must reach; 0.9 of its largest value, or measured
    sigma: PositiveFloat | None = None  # σ, the dual step
    tau: PositiveFloat | None = None  # τ, the primal step
    rho: NonNegativeFloat = 0.0  # ρ, the pull towards the trained model
    alpha: PositiveFloat = 1.5  # ξ: above this ratio of changes the steps shrink ...
    beta: PositiveFloat = 0.8  # ... and below this one they grow
    shrink: Annotated[float, Field(gt=0, lt=1)] = 0.7  # κ_d
    grow: Annotated[float, Field(gt=1)] = 1.2  # κ_i
    tau_max: PositiveFloat = 0.1
    sigma_max: PositiveFloat = 10.0
    batch_size: BatchSize | None = None  # B of the remaining phase; as in training
    micro_batch: BatchSize = 1024  # rows of D_u in one message: memory, not results, depends on it
    patience: PositiveInt = 3  # stop once the constraint has held, and Δ stayed small, for so many rounds
    tolerance: NonNegativeFloat = 1e-4  # Δ is small below this share of ‖Θ‖
    without: list[Literal["unlearning-loss", "asymmetric-batches", "adaptive-steps"]] = Field(default_factory=list)
    audit: bool = False  # parameterwise: send the whole dual variable to the active party

    def most_rounds(self, train: Train) -> int:
        """Return K, at most."""
        return self.rounds or (PAPER_ROUNDS if self.steps == "paper" else self.scales.rounds)

    @model_validator(mode="after")
    def _steps_fit(self) -> Self:
        others = AUTO_ONLY if self.steps == "paper" else PAPER_ONLY
        # As result.json repeats the whole job, a setting at its default is as good as none.
        idle = [name for name in others if getattr(self, name) != type(self).model_fields[name].default]
        if idle:
            other = "auto" if self.steps == "paper" else "paper"
            raise ValueError(f"`{min(idle)}` has no effect with `steps: {self.steps}`; it belongs to `steps: {other}`")
        if self.steps == "auto" and self.goal == "as-retrained" and self.dual == "scalar" and self.gamma is not None:
            raise ValueError("`gamma` has no effect with `goal: as-retrained`, which measures it on rows never seen")
        if self.beta >= self.alpha:
            raise ValueError(f"`beta` is {self.beta:g}; it should be below `alpha`, which is {self.alpha:g}")
        if self.delta == 0 and self.steps == "auto":
            raise ValueError("`delta: 0` leaves nothing to measure the push against; it needs `steps: paper`")
        if len(set(self.without)) < len(self.without):
            raise ValueError("`without` names a part twice")
        return self
