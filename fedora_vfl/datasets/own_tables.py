"""A user's whole table, cut by columns."""

from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedora_vfl.datasets import tables
from fedora_vfl.datasets.partition import Share, TableShare, Whole
from fedora_vfl.datasets.registry import SOURCES
from fedora_vfl.datasets.settings import ACTIVE, Format, TableSource, check_kinds, check_parties, party_names
from fedora_vfl.datasets.stripes import stripes
from fedora_vfl.errors import DataError


class OwnTable(TableSource):
    """A user's table, cut by columns. A subclass says how a file is read."""

    typed: ClassVar[bool]  # whether what is read has types, and is not all text

    path: Path = Field(description="The table.")
    test_path: Path | None = Field(
        default=None, description="A table of test rows; without one, a column or the ids split the rows."
    )
    id: str | None = Field(default=None, description="Column of sample ids; without one, rows are numbered.")
    label: str = Field(default="label", description="Column of labels.")
    split: str = Field(default="split", description="Column of train, validation or test, read if there is one.")
    columns: dict[str, list[str]] | None = None  # by party; without it, evenly and in order
    test_fraction: float = Field(default=0.2, gt=0, lt=1, description="Share of test rows where the ids split them.")
    numeric: list[str] = Field(default_factory=list, description="Column to take as numbers; repeatable.")
    categorical: list[str] = Field(default_factory=list, description="Column to take as categories; repeatable.")
    ignore: list[str] = Field(default_factory=list, description="Column to leave out; repeatable.")

    def read(self, path: Path) -> "pa.Table":
        """Read one file; raise DataError, in one sentence that names it, where that cannot be."""
        return tables.read(path)

    def load(self, seed: int) -> Whole:
        """Load the table, with its test rows if they have a file of their own, and give every party its columns."""
        return _cut_by_columns(self, _whole(self))

    @model_validator(mode="before")
    @classmethod
    def _count_parties(cls, content: Any) -> Any:
        """Let `columns` say how many parties there are."""
        if isinstance(content, dict) and isinstance(content.get("columns"), dict) and "parties" not in content:
            return {**content, "parties": len([name for name in content["columns"] if name != ACTIVE])}
        return content

    @model_validator(mode="after")
    def _columns_fit(self) -> Self:
        check_kinds(self.numeric, self.categorical, self.ignore, special=(self.id, self.label))
        if self.columns is None:
            return self
        check_parties([name for name in self.columns if name != ACTIVE], "columns", self.parties)
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


@SOURCES.register("csv")
class CsvData(OwnTable):
    """Your own table, in a CSV file."""

    typed: ClassVar[bool] = False


@SOURCES.register("parquet")
class ParquetData(OwnTable):
    """Your own table, in a Parquet file."""

    typed: ClassVar[bool] = True


def _cut_by_columns(settings: OwnTable, table: "pa.Table") -> Whole:
    """Give every party its columns."""
    owners = _owners(settings, table.column_names)
    identity = settings.id or "id"
    shares: dict[str, Share] = {}
    for party in party_names(settings):
        features = owners.get(party, [])
        reading: dict[str, object] = {"id": identity, **_kinds(settings, table, features)}
        special = []
        if party == ACTIVE:
            special = [settings.label, *([settings.split] if settings.split in table.column_names else [])]
            reading |= {"label": settings.label, "split": settings.split, "test_fraction": settings.test_fraction}
        part = table.select([identity, *features, *special])
        if settings.format is Format.PARQUET and not settings.typed:
            part = _with_types(part, [name for name in features if name not in settings.categorical])
        shares[party] = TableShare(part, settings.format, reading, str(settings.path))
    return Whole(shares, _training(settings, table))


def _whole(settings: OwnTable) -> "pa.Table":
    """Read the table, put the test rows under the others, and number the rows if they have no ids."""
    path = settings.path
    table = settings.read(path)
    for name in (settings.label, *settings.numeric, *settings.categorical, *settings.ignore):
        _check_column(settings, table.column_names, name)
    if settings.id is not None:
        _check_column(settings, table.column_names, settings.id)
    table = table.drop_columns(settings.ignore)
    if settings.id is None and "id" in table.column_names:
        raise DataError(f"{path}: has a column `id`; say `id: id` if it holds the ids, or name it in `ignore`")
    if settings.test_path is not None:
        table = _with_test_rows(settings, table, settings.read(settings.test_path))
    if settings.id is None:
        ids = [f"row-{number:06d}" for number in range(1, table.num_rows + 1)]
        table = table.add_column(0, "id", pa.array(ids))
    return table


def _with_test_rows(settings: OwnTable, table: "pa.Table", test: "pa.Table") -> "pa.Table":
    """Put the test rows under the others, and say in a new column which is which."""
    if settings.split in table.column_names:
        raise DataError(
            f"{settings.path}: has a column `{settings.split}`, and `test_path` splits the rows too; take one away, or "
            "name the column in `ignore`"
        )
    for name in table.column_names:
        if name not in test.column_names:
            raise DataError(f"{settings.test_path}: has no column `{name}`, which {settings.path} has")
    try:
        both = pa.concat_tables([table, test.select(table.column_names).cast(table.schema)])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(f"{settings.test_path}: does not fit {settings.path}: {error}") from None
    return both.append_column(settings.split, pa.array(["train"] * table.num_rows + ["test"] * test.num_rows))


def _owners(settings: OwnTable, names: list[str]) -> dict[str, list[str]]:
    """Say which feature columns each party gets."""
    if settings.columns is not None:
        for name in (column for columns in settings.columns.values() for column in columns):
            _check_column(settings, names, name)
        return settings.columns
    features = [name for name in names if name not in (settings.id or "id", settings.label, settings.split)]
    active = bool(settings.active_features)
    cuts = stripes(len(features), settings.parties, active=active, origin=str(settings.path))
    return {party: features[stripe.start : stripe.stop] for party, stripe in cuts.items()}


def _kinds(settings: OwnTable, table: "pa.Table", features: list[str]) -> dict[str, list[str]]:
    """Say which columns are numbers and which categories, where the party's file alone would not tell."""
    kinds: dict[str, list[str]] = {"numeric": [], "categorical": []}
    for name in features:
        kind = table.schema.field(name).type
        if not tables.is_plain(kind):
            raise DataError(
                f"{settings.path}: column `{name}` holds {kind}; features should be numbers, dates, text or "
                "true/false, and others can be named in `ignore`"
            )
        # A CSV file has no types: text such as 007 must not turn into a number on its way out of a typed table.
        types_lost = settings.typed and settings.format is Format.CSV
        if name in settings.numeric:
            kinds["numeric"].append(name)
        elif name in settings.categorical or (types_lost and tables.is_text(kind)):
            kinds["categorical"].append(name)
    return {kind: names for kind, names in kinds.items() if names}


def _with_types(part: "pa.Table", names: list[str]) -> "pa.Table":
    """Give text from a CSV file the types that a Parquet file needs."""
    for name in names:
        part = part.set_column(part.column_names.index(name), name, tables.typed(part.column(name)))
    return part


def _training(settings: OwnTable, table: "pa.Table") -> NDArray[np.bool_]:
    """Tell which rows `limit` counts: without a split, all of them, as the party will split them by id."""
    if settings.split not in table.column_names:
        return np.ones(table.num_rows, dtype=np.bool_)
    values = table.column(settings.split).to_pylist()
    return np.array([str(value).strip().lower() == "train" for value in values], dtype=np.bool_)


def _check_column(settings: OwnTable, names: list[str], name: str) -> None:
    if name not in names:
        raise DataError(f"{settings.path}: has no column `{name}`; its columns are {', '.join(names)}")
