"""The job file's `data:` section: what every source of data can be told, and what sources of one kind share."""

from abc import abstractmethod
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from pydantic import BeforeValidator, Field, model_validator

from fedora_vfl.settings.files import Settings

if TYPE_CHECKING:
    from fedora_vfl.datasets.datafile import DataFile
    from fedora_vfl.datasets.partition import Whole

ACTIVE = "active"
MOST_PASSIVE = 32


def passive_names(count: int) -> list[str]:
    """Name the passive parties."""
    return [f"passive-{number}" for number in range(1, count + 1)]


class Noise(Settings):
    """Gaussian noise on one party's features."""

    party: str = Field(description="The party whose features get noise.")
    # In units of the full range of a pixel, or of a column's deviation over the training rows.
    sigma: float = Field(ge=0, title="sigma", description="Size of the noise, as a share of the features' own.")


class CutSource(Settings):
    """A data set that is cut into one file per party: its settings, and its loader.

    Fields of a subclass are the settings of its own, and their descriptions the help of `fedora data`.
    """

    # The settings of a backdoor that say where in such data its trigger stands.
    trigger_settings: ClassVar[tuple[str, ...]] = ("size", "column", "value")

    source: str
    parties: int = Field(default=2, ge=1, le=MOST_PASSIVE, description="Number of passive parties, 1 to 32.")
    active_features: bool | None = Field(
        default=None, description="Whether the active party gets features too; unless told, it does not."
    )
    drop: float = Field(default=0.0, ge=0, lt=1, description="Share of rows that each party lacks, each its own.")
    shuffle: bool = Field(default=False, description="Give each party its rows in an order of its own.")
    limit: int | None = Field(
        default=None, ge=1, description="Keep so many training rows, drawn at random; test rows all stay."
    )
    noise: Noise | None = None

    @abstractmethod
    def load(self, seed: int) -> "Whole":
        """Return all rows, each party's columns apart; `limit`, `drop`, `shuffle` and `noise` are seen to later."""

    @model_validator(mode="after")
    def _noise_has_a_place(self) -> Self:
        names = party_names(self)
        if self.noise is not None and self.noise.party not in names:
            raise ValueError(f"`noise` names the party {self.noise.party!r}; allowed: {', '.join(names)}")
        return self


class ReadySource(Settings):
    """A data set that is cut already, into files that are used where they are."""

    source: str

    @property
    @abstractmethod
    def parties(self) -> int:
        """The number of passive parties."""

    @abstractmethod
    def describe(self) -> "dict[str, DataFile]":
        """Look into every party's file."""


Source = CutSource | ReadySource


class Format(StrEnum):
    """The kinds of file a table can be written as."""

    CSV = "csv"
    PARQUET = "parquet"


class TableSource(CutSource):
    """What tables have in common."""

    trigger_settings: ClassVar[tuple[str, ...]] = ("column", "value")

    format: Format = Field(default=Format.CSV, description="Kind of the parties' files.")


class ImageSource(CutSource):
    """What sets of images have in common."""

    trigger_settings: ClassVar[tuple[str, ...]] = ("size",)


class PublicImages(ImageSource):
    """What the public image sets have in common."""

    root: Path | None = Field(
        default=None, description="Folder of public image sets; unless told, $FEDORA_DATA or ~/.cache/fedora."
    )
    download: bool = Field(default=True, description="Whether a missing set may be fetched.")


def _class_name(value: object) -> object:
    """Take the number that YAML makes of a class such as 3 as its name."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


ClassName = Annotated[str, BeforeValidator(_class_name)]


class Backdoor(Settings):
    """A trigger, and the training rows that carry it under a false label: `percent` of each class, or `samples` rows.

    Which rows may be left open here and filled in later; `cut` checks that it was.
    """

    target: ClassName = Field(description="The class that the trigger is to stand for.")
    classes: list[ClassName] | None = Field(
        default=None, title="class", description="A class whose rows are poisoned; repeatable."
    )
    percent: float = Field(default=100, gt=0, le=100, description="Share of each such class.")
    samples: int | None = Field(
        default=None, ge=1, description="Poison so many rows instead, of any class but the target."
    )
    size: int | None = Field(
        default=None, ge=1, description="Side of the white square in images; unless told, a tenth of their height."
    )
    column: str | None = Field(default=None, description="Column of the trigger in tables.")
    value: float | str | None = Field(default=None, description="What stands there.")


def party_names(source: Source) -> list[str]:
    """Name all parties, in the order in which the top model sees them."""
    return [*passive_names(source.parties), ACTIVE]


def check_parties(names: list[str], field: str, count: int) -> None:
    """Refuse a setting by party that does not name each passive party once."""
    if not names or sorted(names) != sorted(passive_names(count)):
        allowed = ", ".join(passive_names(max(count, 1)))
        raise ValueError(f"`{field}` names the parties {', '.join(names) or 'none'} where it should name {allowed}")
    if len(names) > MOST_PASSIVE:
        raise ValueError(f"`{field}` names {len(names)} passive parties; allowed: 1 to {MOST_PASSIVE}")


def check_kinds(*kinds: list[str], special: tuple[str | None, str | None]) -> None:
    """Refuse a column that is named in two of the lists `numeric`, `categorical` and `ignore`, or is an id or label."""
    named = [name for names in kinds for name in names]
    for name in named:
        if named.count(name) > 1:
            raise ValueError(
                f"column `{name}` is named twice in `numeric`, `categorical` and `ignore`; once is allowed"
            )
        if name in special:
            raise ValueError(f"column `{name}`, of ids or labels, is named in `numeric`, `categorical` or `ignore` too")
