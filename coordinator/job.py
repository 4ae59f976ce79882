"""The job file: what to train and measure. The same for all parties; where their data lie is not the job's business."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

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
    def rate(self) -> float:
        """The full learning rate."""
        return self.lr if self.lr is not None else (0.05 if self.optimizer == "sgd" else 0.001)


class Wire(Settings):
    """How values travel."""

    dtype: Literal["float32", "float16", "bfloat16"] = "float32"


class Evaluate(Settings):
    """How a model is measured."""

    batch_size: PositiveInt = 1024


class Job(Settings):
    """One job. `data` is for the one who cuts the data (`fedora run`); parties that are up have theirs already."""

    data: dict[str, Any] | None = None
    model: Model | None = None
    train: Train = Train()
    evaluate: Evaluate = Evaluate()
    wire: Wire = Wire()
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
