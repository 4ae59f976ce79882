"""The job file: what to train, forget and measure. The same for all; where data lie is not the job's business."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from settings.files import Settings
from settings.model import MODEL_NAME, Model

ModelName = Annotated[str, Field(pattern=f"^{MODEL_NAME}$")]


class Augment(Settings):
    """Random changes of training images, alike at all parties."""

    flip: bool = False
    shift: Annotated[int, Field(ge=0, le=16)] = 0


class Train(Settings):
    """How the original model comes about: trained, or taken `from` an earlier run, or both."""

    epochs: NonNegativeInt | None = None  # 10, or 0 with `from`
    batch_size: PositiveInt = 256
    optimizer: Literal["sgd", "adam"] = "adam"
    lr: PositiveFloat | None = None  # 0.05 for sgd, 0.001 for adam
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9  # sgd
    nesterov: bool = False  # sgd
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)  # adam
    epsilon: PositiveFloat = 1e-8  # adam
    weight_decay: NonNegativeFloat = 0.0
    schedule: Literal["constant", "step", "cosine"] = "constant"
    decay_every: PositiveInt = 10  # step: epochs between decays
    decay: Annotated[float, Field(gt=0, le=1)] = 0.1  # step: factor of each decay
    warmup: NonNegativeInt = 0  # epochs of linear growth to the full rate
    augment: Augment = Augment()
    load: Annotated[str | None, Field(alias="from")] = None
    save: ModelName = "original"

    @model_validator(mode="after")
    def _momentum_for_nesterov(self) -> Self:
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs a momentum above 0")
        return self

    @property
    def rounds(self) -> int:
        """The number of epochs to train."""
        return self.epochs if self.epochs is not None else (0 if self.load else 10)

    @property
    def epochs_from_scratch(self) -> int:
        """The number of epochs that training anew takes; of a model that was loaded, 10 are assumed."""
        return self.rounds or 10

    @property
    def rate(self) -> float:
        """The full learning rate."""
        return self.lr if self.lr is not None else (0.05 if self.optimizer == "sgd" else 0.001)


class Wire(Settings):
    """How values travel."""

    dtype: Literal["float32", "float16", "bfloat16"] = "float32"


class Evaluate(Settings):
    """How a model is measured."""

    batch_size: PositiveInt = 1024


class Forget(Settings):
    """Who asks to be forgotten: training rows by id, a share of some classes, or so many rows drawn at random."""

    ids: list[str] | str | None = None  # a list, or a file with one id per line
    classes: Annotated[list[str], Field(min_length=1)] | None = None
    percent: Annotated[float, Field(gt=0, le=100)] | None = None  # of each class; 100 unless told
    samples: PositiveInt | None = None

    @field_validator("classes", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """Take the numbers that YAML makes of classes for the names they are."""
        if isinstance(value, list):
            return [str(one) if isinstance(one, int) and not isinstance(one, bool) else one for one in value]
        return value

    @field_validator("ids", mode="before")
    @classmethod
    def _ids_as_written(cls, value: Any) -> Any:
        """Refuse what YAML has made a number of: it reads 010 as 8, which may be somebody else."""
        if isinstance(value, list) and not all(isinstance(one, str) for one in value):
            raise ValueError(
                "wants ids in quotes, as YAML changes some that look like numbers or dates: ['010', '011']"
            )
        if value == []:
            raise ValueError("is an empty list; nobody is to be forgotten then")
        return value

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [name for name in ("ids", "classes", "samples") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"wants one of `ids`, `classes` and `samples`, and has {' and '.join(given) or 'none'}")
        if self.percent is not None and self.classes is None:
            raise ValueError("`percent` is a share of `classes`, which are not given")
        return self


class Scales(Settings):
    """The parts of the self-scaling rule. One default serves every data set; they can be set for ablations.

    Null takes what suits the goal. docs/unlearning.md says what each is for.
    """

    push_rounds: PositiveInt = 40  # at most
    push_share: Annotated[float, Field(gt=0, le=1)] | None = None  # of the budget; 0.6, or 1 for `uncertain`
    passes: PositiveFloat | None = None  # over D_u, at most, in rounds that push; 8, or any number for `uncertain`
    dual_step: PositiveFloat = 0.5  # σ, in units of L_u's largest value
    omega_max: PositiveFloat | None = None  # 1.2, or 4 for `uncertain`
    margin: Annotated[float, Field(ge=0, lt=1)] | None = None  # above γ; 0, or 0.07 for `uncertain`
    rate: PositiveFloat = 4.0  # τ, in units of the training's own rate
    warm_up: NonNegativeInt = 5  # rounds over which τ grows to its full size
    decay: bool = True  # whether τ falls to 0 in the end
    balanced: bool = True  # whether the push is measured against the gradient of L_r
    taking_away: bool | None = None  # whether the push may only take parameters towards 0; yes, or no for `uncertain`
    rounds_after: NonNegativeInt = 14  # so long the constraint is watched once it holds
    rest: bool = True  # whether Ω is 0 while the constraint holds
    guard: bool = True  # whether rounds that break the model are taken back
    recovery_rounds: NonNegativeInt = 12
    recovery_steps: PositiveInt = 64  # at least
    fade: Annotated[float, Field(ge=0, lt=1)] = 0.1  # share by which a value without any support fades in a step

    def filled(self, defaults: Mapping[str, Any]) -> "Scales":
        """Return the scales with what is null taken from elsewhere."""
        missing = {name: value for name, value in defaults.items() if getattr(self, name) is None}
        return self.model_copy(update=missing)


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


class Unlearn(Settings):
    """How the request is honoured. The method itself sets what is null; docs/unlearning.md has the rules."""

    method: Literal["fedora", "retrain"] = "fedora"
    goal: Literal["as-retrained", "uncertain"] = "as-retrained"
    steps: Literal["auto", "paper"] = "auto"
    dual: Literal["scalar", "parameterwise"] = "scalar"
    budget: Annotated[float, Field(gt=0, le=1)] = 0.16  # auto: rows exchanged, as a share of what retraining takes
    scales: Scales = Scales()  # auto
    rounds: PositiveInt | None = None  # K; paper: 20
    delta: Annotated[float, Field(ge=0, le=1)] | None = None  # δ, share of D_r per round; paper: 0.05
    omega: PositiveFloat = 2.0  # ω
    reduction: Literal["mean", "sum"] = "mean"  # of L_u over D_u
    gamma: float | None = None  # γ, the level that L_u must reach; 0.9 of its largest value
    sigma: PositiveFloat | None = None  # σ, the dual step
    tau: PositiveFloat | None = None  # τ, the primal step
    rho: NonNegativeFloat = 0.0  # ρ, the pull towards the trained model
    alpha: PositiveFloat = 1.5  # ξ: above this ratio of changes the steps shrink ...
    beta: PositiveFloat = 0.8  # ... and below this one they grow
    shrink: Annotated[float, Field(gt=0, lt=1)] = 0.7  # κ_d
    grow: Annotated[float, Field(gt=1)] = 1.2  # κ_i
    tau_max: PositiveFloat = 0.1
    sigma_max: PositiveFloat = 10.0
    batch_size: PositiveInt | None = None  # B of the remaining phase; as in training
    micro_batch: PositiveInt = 1024  # rows of D_u in one message: memory, not results, depends on it
    patience: PositiveInt = 3  # stop once the constraint has held, and Δ stayed small, for so many rounds
    tolerance: NonNegativeFloat = 1e-4  # Δ is small below this share of ‖Θ‖
    without: list[Literal["unlearning-loss", "asymmetric-batches", "adaptive-steps"]] = Field(default_factory=list)
    audit: bool = False  # parameterwise: send the whole dual variable to the active party
    save: ModelName = "unlearned"

    @model_validator(mode="after")
    def _steps_fit(self) -> Self:
        others = AUTO_ONLY if self.steps == "paper" else PAPER_ONLY
        # As result.json repeats the whole job, a setting at its default is as good as none.
        idle = [name for name in others if getattr(self, name) != type(self).model_fields[name].default]
        if idle:
            other = "auto" if self.steps == "paper" else "paper"
            raise ValueError(f"`{min(idle)}` has no effect with `steps: {self.steps}`; it belongs to `steps: {other}`")
        if self.beta >= self.alpha:
            raise ValueError(f"`beta` is {self.beta:g}; it should be below `alpha`, which is {self.alpha:g}")
        if self.delta == 0 and self.steps == "auto":
            raise ValueError("`delta: 0` leaves nothing to measure the push against; it needs `steps: paper`")
        if len(set(self.without)) < len(self.without):
            raise ValueError("`without` names a part twice")
        return self


class Job(Settings):
    """One job. `data` is for the one who cuts the data (`fedora run`); parties that are up have theirs already."""

    data: dict[str, Any] | None = None
    model: Model | None = None
    train: Train = Train()
    evaluate: Evaluate = Evaluate()
    wire: Wire = Wire()
    forget: Forget | None = None
    unlearn: Unlearn = Unlearn()
    compare: list[Literal["retrain"]] = Field(default_factory=list)  # models made beside the unlearned one
    backdoor: dict[str, Any] | None = None  # for the one who cuts the data
    privacy: dict[str, Any] | None = None  # for the one who writes the party files
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0

    @field_validator("compare", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _something_to_forget(self) -> Self:
        if self.forget is None and (self.compare or "unlearn" in self.model_fields_set):
            raise ValueError("`unlearn` and `compare` need a `forget` section, which says whom to forget")
        if self.compare and self.unlearn.method == "retrain":
            raise ValueError("`compare` names the method that `unlearn` uses already")
        return self

    @model_validator(mode="after")
    def _models_to_compare(self) -> Self:
        if self.forget is None:
            return self
        names = [self.train.save, self.unlearn.save, *self.compare]
        if len(set(names)) < len(names):
            raise ValueError(f"each model of a job is saved under a name of its own, and these are {', '.join(names)}")
        return self
