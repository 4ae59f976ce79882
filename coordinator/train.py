"""How the original model comes about; other methods go by it too."""

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from fedora_vfl.settings.bounds import BatchSize, RoundsOrNone
from fedora_vfl.settings.files import Settings
from fedora_vfl.settings.model import ModelName
from fedora_vfl.wire.protocol import MOST_LOCAL_STEPS, MOST_OVERLAP


class Augment(Settings):
    """Random changes of training images, alike at all parties."""

    flip: bool = False
    shift: Annotated[int, Field(ge=0, le=16)] = 0


class Train(Settings):
    """How the original model comes about: trained, or taken `from` an earlier run, or both."""

    epochs: RoundsOrNone | None = None  # 10, or 0 with `from`
    batch_size: BatchSize = 256
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
    warmup: RoundsOrNone = 0  # epochs of linear growth to the full rate
    augment: Augment = Augment()
    overlap: Annotated[int, Field(ge=0, le=MOST_OVERLAP)] = 0  # batches under way beside the one that is due
    local_steps: Annotated[int, Field(ge=1, le=MOST_LOCAL_STEPS)] = 1  # steps for one exchange
    load: Annotated[str | None, Field(alias="from")] = None
    allow_remembering: bool = False  # also `from` a model that predates a request which was honoured since
    save: ModelName = "original"
    overwrite: bool = False  # whether `save` may replace another model of that name

    @model_validator(mode="after")
    def _momentum_for_nesterov(self) -> Self:
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs a momentum above 0")
        return self

    @model_validator(mode="after")
    def _something_to_remember(self) -> Self:
        if self.allow_remembering and not self.load:
            raise ValueError("`allow_remembering` is about the model named with `from`, which is not given")
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
