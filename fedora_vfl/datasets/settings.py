"""The job file's `data:` section: which data set, and how it is cut among the parties."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from fedora_vfl.settings.files import Settings

ACTIVE = "active"
MOST_PASSIVE = 32
SOURCES = (
    "income", "digits", "npz", "csv", "parquet", "files", "medmnist", "cifar10", "cifar100", "tiny-imagenet",
)  # fmt: skip


def passive_names(count: int) -> list[str]:
    """Name the passive parties."""
    return [f"passive-{number}" for number in range(1, count + 1)]


class Noise(Settings):
    """Gaussian noise on one party's features."""

    party: str
    # In units of the full range of a pixel, or of a column's deviation over the training rows.
    sigma: float = Field(ge=0)


class _Cut(Settings):
    """What every data set that is cut here has in common."""

    parties: int = Field(default=2, ge=1, le=MOST_PASSIVE)  # passive ones
    active_features: bool | None = None  # whether the active party holds features too
    drop: float = Field(default=0.0, ge=0, lt=1)  # the share of rows each party lacks, each its own
    shuffle: bool = False  # whether each party has its rows in an order of its own
    limit: int | None = Field(default=None, ge=1)  # so many training rows, drawn at random; test rows all stay
    noise: Noise | None = None

    @model_validator(mode="after")
    def _noise_has_a_place(self) -> Self:
        names = [*passive_names(self.parties), ACTIVE]
        if self.noise is not None and self.noise.party not in names:
            raise ValueError(f"`noise` names the party {self.noise.party!r}; allowed: {', '.join(names)}")
        return self


class Format(StrEnum):
    """The kinds of file a table can be written as."""

    CSV = "csv"
    PARQUET = "parquet"


class _TableCut(_Cut):
    """What tables have in common."""

    format: Format = Format.CSV  # of the parties' files


class IncomeData(_TableCut):
    """The UCI Adult data set, which comes with this project; the active party holds features by default."""

    source: Literal["income"]


class DigitsData(_Cut):
    """Scikit-learn's 8×8 digits, cut by image columns."""

    source: Literal["digits"]


class NpzData(_Cut):
    """Images in MedMNIST's layout, cut by image columns."""

    source: Literal["npz"]
    path: Path


class _PublicImages(_Cut):
    """What the public image sets have in common."""

    root: Path | None = None  # their folder; without one, that of the environment variable FEDORA_DATA, or a cache
    download: bool = True  # whether a missing set may be fetched


class MedmnistData(_PublicImages):
    """A set of MedMNIST, cut by image columns."""

    source: Literal["medmnist"]
    name: str = Field(pattern="^[a-z0-9]+$")  # such as pathmnist; it becomes a part of a file's name
    size: Literal[28, 64, 128, 224] = 28  # pixels; every set is there in each size

    @model_validator(mode="after")
    def _is_flat(self) -> Self:
        # Their voxels N×28×28×28 would pass for flat images of 28 channels.
        if self.name.endswith("3d"):
            raise ValueError(f"`name` is {self.name}, whose images have three dimensions; allowed: sets of flat images")
        return self


class CifarData(_PublicImages):
    """CIFAR-10 or CIFAR-100, cut by image columns."""

    source: Literal["cifar10", "cifar100"]


class TinyImagenetData(_PublicImages):
    """Tiny ImageNet, cut by image columns."""

    source: Literal["tiny-imagenet"]


class _OwnTable(_TableCut):
    """A user's table, cut by columns."""

    path: Path
    test_path: Path | None = None  # a table of test rows; without one, a `split` column or the ids decide
    id: str | None = None  # without one, rows are numbered
    label: str = "label"
    split: str = "split"  # the column of train, validation or test, read if there is one, written with `test_path`
    columns: dict[str, list[str]] | None = None  # by party; without it, evenly and in order
    test_fraction: float = Field(default=0.2, gt=0, lt=1)
    numeric: list[str] = Field(default_factory=list)
    categorical: list[str] = Field(default_factory=list)
    ignore: list[str] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _count_parties(cls, content: Any) -> Any:
        """Let `columns` say how many parties there are."""
        if isinstance(content, dict) and isinstance(content.get("columns"), dict) and "parties" not in content:
            return {**content, "parties": len([name for name in content["columns"] if name != ACTIVE])}
        return content

    @model_validator(mode="after")
    def _columns_fit(self) -> Self:
        _check_lists(self.numeric, self.categorical, self.ignore, self.id, self.label)
        if self.columns is None:
            return self
        _check_names([name for name in self.columns if name != ACTIVE], "columns", self.parties)
        if self.active_features is not None and self.active_features != bool(self.columns.get(ACTIVE)):
            raise ValueError("`active_features` contradicts `columns`, which alone says what the active party holds")
        given = [column for columns in self.columns.values() for column in columns]
        for column in given:
            if given.count(column) > 1:
                raise ValueError(f"`columns` names `{column}` twice; a column goes to one party")
            if column in (self.id, self.label, self.split, *self.ignore):
                raise ValueError(f"`columns` names `{column}`, which `id`, `label`, `split` or `ignore` names too")
        empty = [name for name, columns in self.columns.items() if not columns and name != ACTIVE]
        if empty:
            raise ValueError(f"`columns` gives {empty[0]} no column; every passive party needs at least one")
        return self


class CsvData(_OwnTable):
    """A user's CSV file."""

    source: Literal["csv"]


class ParquetData(_OwnTable):
    """A user's Parquet file."""

    source: Literal["parquet"]


class FilesData(Settings):
    """A user's own files, one per party, used where they are."""

    source: Literal["files"]
    files: dict[str, Path]
    id: str = "id"
    label: str | None = None
    split: str = "split"
    test_fraction: float = Field(default=0.2, gt=0, lt=1)
    numeric: list[str] = Field(default_factory=list)
    categorical: list[str] = Field(default_factory=list)
    ignore: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        _check_lists(self.numeric, self.categorical, self.ignore, self.id, self.label)
        if ACTIVE not in self.files:
            raise ValueError(f"`files` names no file for `{ACTIVE}`, the party with the labels")
        _check_names([name for name in self.files if name != ACTIVE], "files", self.parties)
        return self

    @property
    def parties(self) -> int:
        """The number of passive parties."""
        return len(self.files) - 1


def _source(content: Any) -> str | None:
    """Find out which of the classes is meant."""
    source = content.get("source") if isinstance(content, dict) else getattr(content, "source", None)
    return source if isinstance(source, str) else None


DataSource = Annotated[
    Annotated[IncomeData, Tag("income")]
    | Annotated[DigitsData, Tag("digits")]
    | Annotated[NpzData, Tag("npz")]
    | Annotated[CsvData, Tag("csv")]
    | Annotated[ParquetData, Tag("parquet")]
    | Annotated[FilesData, Tag("files")]
    | Annotated[MedmnistData, Tag("medmnist")]
    | Annotated[CifarData, Tag("cifar10")]
    | Annotated[CifarData, Tag("cifar100")]
    | Annotated[TinyImagenetData, Tag("tiny-imagenet")],
    # Given as a function, as only then the sentence can be ours.
    Discriminator(
        _source,
        custom_error_type="source",
        custom_error_message=f"`source` should be one of {', '.join(SOURCES)}",
    ),
]


def _class_name(value: object) -> object:
    """Take the number that YAML makes of a class such as 3 as its name."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


ClassName = Annotated[str, BeforeValidator(_class_name)]


class Backdoor(Settings):
    """A trigger, and the training rows that carry it under a false label: `percent` of each class, or `samples` rows.

    Which rows may be left open here and filled in later; `cut` checks that it was.
    """

    target: ClassName  # the class that the trigger is to stand for
    classes: list[ClassName] | None = None
    percent: float = Field(default=100, gt=0, le=100)
    samples: int | None = Field(default=None, ge=1)  # of any class but the target
    size: int | None = Field(default=None, ge=1)  # images: side of the white square; a tenth of the height by default
    column: str | None = None  # tables: where the trigger stands
    value: float | str | None = None  # tables: what stands there


def party_names(source: DataSource) -> list[str]:
    """Name all parties, in the order in which the top model sees them."""
    return [*passive_names(source.parties), ACTIVE]


def _check_names(names: list[str], field: str, count: int) -> None:
    if not names or sorted(names) != sorted(passive_names(count)):
        allowed = ", ".join(passive_names(max(count, 1)))
        raise ValueError(f"`{field}` names the parties {', '.join(names) or 'none'} where it should name {allowed}")
    if len(names) > MOST_PASSIVE:
        raise ValueError(f"`{field}` names {len(names)} passive parties; allowed: 1 to {MOST_PASSIVE}")


def _check_lists(
    numeric: list[str], categorical: list[str], ignore: list[str], identity: str | None, label: str | None
) -> None:
    named = [*numeric, *categorical, *ignore]
    for name in named:
        if named.count(name) > 1:
            raise ValueError(
                f"column `{name}` is named twice in `numeric`, `categorical` and `ignore`; once is allowed"
            )
        if name in (identity, label):
            raise ValueError(f"column `{name}`, of ids or labels, is named in `numeric`, `categorical` or `ignore` too")
