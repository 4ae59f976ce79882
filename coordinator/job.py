"""The job file: what to train, forget and measure. The same for all; where data lie is not the job's business."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, PositiveInt, field_validator, model_validator

from coordinator.methods.catalogue import Fedora, MethodSettings
from coordinator.methods.registry import METHODS, Unlearn
from coordinator.train import Train
from coordinator.wire import Wire
from fedora_vfl.certificates.joint import Kind
from fedora_vfl.settings.bounds import BatchSize, RoundsOrNone
from fedora_vfl.settings.files import Settings
from fedora_vfl.settings.model import Model, ModelName
from fedora_vfl.wire.protocol import MOST_REQUESTED_IDS

MOST_CLASSES = 10_000  # more than any table here has
KINDS: tuple[Kind, ...] = get_args(Kind)
MOST_REFERENCES = 64
MOST_COMPARED = 16  # each runs as long as a job of its own


class Evaluate(Settings):
    """How a model is measured."""

    batch_size: BatchSize = 1024
    every: RoundsOrNone = 0  # also after so many epochs of training; 0: at its end only


class Forget(Settings):
    """Who asks to be forgotten: rows by id, of some classes, some at random, those of pending or handed-in requests."""

    # A list, or a file with one id per line.
    ids: Annotated[list[str], Field(max_length=MOST_REQUESTED_IDS)] | str | None = None
    classes: Annotated[list[str], Field(min_length=1, max_length=MOST_CLASSES)] | None = None
    percent: Annotated[float, Field(gt=0, le=100)] | None = None  # of each class; 100 unless told
    samples: PositiveInt | None = None
    pending: Literal[True] | None = None  # the rows of earlier requests that the model `from` has not honoured
    request: ModelName | None = None  # the name of a request that was handed in at a party: `fedora request`

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

    @property
    def kind(self) -> Kind:
        """Which of the ways to name rows is used."""
        return next(name for name in KINDS if getattr(self, name) is not None)

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [name for name in KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                "wants one of `ids`, `classes`, `samples`, `pending` and `request`, "
                f"and has {' and '.join(given) or 'none'}"
            )
        if self.percent is not None and self.classes is None:
            raise ValueError("`percent` is a share of `classes`, which are not given")
        return self


@dataclass(frozen=True)
class Comparison:
    """One model to compare with."""

    model: str  # what results call it: the method, with a number from the second of its kind
    save: str
    settings: Unlearn
    repeat: int  # which of the job's models by this method, from 1: a seed of its own follows from it


class Audit(Settings):
    """An audit of the forgetting, with reference models; docs/audit.md."""

    # How many to train on parts of the remaining rows, or the names of some that an earlier job has kept.
    references: (
        Annotated[int, Field(ge=0, le=MOST_REFERENCES)]
        | Annotated[list[ModelName], Field(min_length=1, max_length=MOST_REFERENCES)]
    ) = 4
    save: ModelName = "reference"  # and a number
    overwrite: bool = False

    def new_names(self) -> list[str]:
        """Return the names that references are saved under."""
        count = self.references if isinstance(self.references, int) else 0
        return [f"{self.save}-{number}" for number in range(1, count + 1)]


class Job(Settings):
    """One job. `data` is for the one who cuts the data (`fedora run`); parties that are up have theirs already."""

    data: dict[str, Any] | None = None
    model: Model | None = None
    train: Train = Train()
    evaluate: Evaluate = Evaluate()
    wire: Wire = Wire()
    forget: Forget | None = None
    unlearn: MethodSettings = Fedora()
    # Other methods, from the same original model.
    compare: list[MethodSettings] = Field(default_factory=list, max_length=MOST_COMPARED)
    audit: Audit | None = None  # whether the forgetting is audited
    certificate: bool = True  # whether the unlearning is proven and signed for
    backdoor: dict[str, Any] | None = None  # for the one who cuts the data
    privacy: dict[str, Any] | None = None  # for the one who writes the party files
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0

    @field_validator("compare", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str | dict) else value

    @model_validator(mode="after")
    def _something_to_forget(self) -> Self:
        if self.forget is None and (self.compare or self.audit or "unlearn" in self.model_fields_set):
            raise ValueError("`unlearn`, `compare` and `audit` need a `forget` section, which says whom to forget")
        if self.unlearn.repeats > 1:
            raise ValueError("`unlearn` makes one model: `seeds` is for `compare`")
        compared = [one.method for one in self.compare]
        if self.unlearn.method in compared and not self._draws_anew(self.unlearn.method):
            raise ValueError("`compare` names the method that `unlearn` uses already")
        if len(set(compared)) < len(compared):
            raise ValueError("`compare` names a method twice")
        return self

    @model_validator(mode="after")
    def _model_that_lacks_requests(self) -> Self:
        if self.forget and self.forget.pending and (not self.train.load or self.train.rounds):
            raise ValueError(
                "`forget: {pending: true}` needs `train: {from: …}`, the model to honour them, and no epochs"
            )
        return self

    @model_validator(mode="after")
    def _models_to_compare(self) -> Self:
        if self.forget is None:
            return self
        names = [self.train.save, self.unlearn.save, *self.compared().values()]
        names += self.audit.new_names() if self.audit else []
        if len(set(names)) < len(names):
            raise ValueError(f"each model of a job is saved under a name of its own, and these are {', '.join(names)}")
        return self

    def new_names(self) -> list[str]:
        """Return the names that models are saved under and that must be free: all that `overwrite` does not allow."""
        copied = self.train.load is not None and not self.train.rounds  # the same model under one more name
        names = [] if copied or self.train.overwrite else [self.train.save]
        if self.forget is not None:
            names += [] if self.unlearn.overwrite else [self.unlearn.save]
            names += [one.save for one in self.comparisons() if not one.settings.overwrite]
            names += self.audit.new_names() if self.audit and not self.audit.overwrite else []
        return names

    def compared(self) -> dict[str, str]:
        """Return the models to compare with, and the name that each is saved under."""
        return {one.model: one.save for one in self.comparisons()}

    def comparisons(self) -> list[Comparison]:
        """Return the models to compare with, in the order in which they are made."""
        found = []
        for one in self.compare:
            name = one.save if "save" in one.model_fields_set else one.method
            before = int(one.method == self.unlearn.method)  # models of this method and a seed of their own
            for repeat in range(1, one.repeats + 1):
                mark = repeat_mark(repeat)
                found.append(Comparison(one.method + mark, name + mark, one, before + repeat))
        return found

    @staticmethod
    def _draws_anew(name: str) -> bool:
        """Tell whether a method makes another model each time: so a Retrain is held against other Retrains."""
        return name in METHODS and METHODS.get(name).fresh


def repeat_mark(repeat: int) -> str:
    """Return what follows the name of a model that is one of several of a kind, counted from 1."""
    return f"-{repeat}" if repeat > 1 else ""
