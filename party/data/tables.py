"""CSV and Parquet files as records: which column is what."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from fedora_vfl.errors import DataError
from fedora_vfl.settings.matching import SEPARATOR
from party.data.checking import (
    Locate,
    by_row,
    checked_ids,
    checked_labels,
    checked_names,
    checked_split,
    checked_truth,
    listing,
)
from party.data.columns import is_numeric, is_text, is_usable, numbers, stripped, texts, tidied
from party.data.records import Records, Table
from party.data.settings import DataSettings
from party.data.texts import NAMELESS, open_text


@dataclass(frozen=True)
class _Source:
    """A table as its file holds it."""

    path: Path
    columns: Mapping[str, "pa.ChunkedArray"]
    locate: Locate
    typed: bool  # a CSV file is not: whether a text is a number is seen from its values
    decimal_comma: bool = False


def read_table(settings: DataSettings, *, with_labels: bool) -> Records:
    """Read a CSV or Parquet file."""
    path = settings.path
    source = _open_parquet(path) if path.suffix.lower() == ".parquet" else _open_csv(path)
    special = _special_columns(settings, source, with_labels=with_labels)
    ids = checked_ids(_joined(source, settings.id_columns), path, source.locate)
    labels = split = truth = None
    if with_labels:
        name = special["label"]
        labels = checked_labels(texts(tidied(source.columns[name])), ids, path, name)
    if "split" in special:
        split = checked_split(texts(tidied(source.columns[settings.split])), ids, path, settings.split)
    if "truth" in special:
        truth = checked_truth(texts(tidied(source.columns[settings.truth])), ids, path, settings.truth)
    left_out = {*special.values(), *settings.ignore}
    names = [name for name in source.columns if name not in left_out]
    return Records(ids, _features(source, names, settings), labels, split, path, truth)


def _open_csv(path: Path) -> _Source:
    text = open_text(path)
    table = text.table()
    columns = {}
    for number, name in enumerate(text.names):
        column = table.column(number)
        if name.startswith(NAMELESS):
            # A delimiter at the end of every line makes such a column; it holds nothing.
            if tidied(column).null_count < len(column):
                raise DataError(f"{path}: column {number + 1} has no name in the header; every column needs one")
            continue
        columns[name] = column
    return _Source(path, columns, text.locate, typed=False, decimal_comma=text.delimiter == ";")


def _open_parquet(path: Path) -> _Source:
    try:
        # Not as a data set: a folder name such as year=2020 above the file would become a column.
        table = pyarrow.parquet.ParquetFile(path).read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise DataError(f"{path}: is not a Parquet file, or a broken one: {reason}") from None
    if not table.num_rows:
        raise DataError(f"{path}: has columns but no rows")
    checked_names(table.column_names, path)
    return _Source(path, dict(zip(table.column_names, table.columns, strict=True)), by_row, typed=True)


def _special_columns(settings: DataSettings, source: _Source, *, with_labels: bool) -> dict[str, str]:
    """Find the columns that are not features."""
    overruled = [*settings.numeric, *settings.categorical, *settings.ignore]
    special = {"id": settings.id, **{f"id ({name})": name for name in settings.id_also}}
    if with_labels:
        special["label"] = settings.label or "label"
    for role, name in special.items():
        if name not in source.columns:
            setting = role.split()[0]
            raise DataError(
                f"{source.path}: has no {setting} column `{name}`; its columns are {listing(source.columns)} "
                f"(the setting `{setting}` names another)"
            )
    for name in overruled:
        if name not in source.columns:
            raise DataError(
                f"{source.path}: has no column `{name}`, which `numeric`, `categorical` or `ignore` names; "
                f"its columns are {listing(source.columns)}"
            )
    if settings.split in source.columns and settings.split not in overruled:
        special["split"] = settings.split
    if with_labels and settings.truth != special["label"] and settings.holds_truth(source.columns):
        special["truth"] = settings.truth
    for role, name in special.items():
        kind = source.columns[name].type
        if not is_usable(kind):
            raise DataError(f"{source.path}: {role} column `{name}` holds {kind}; it should hold text or integers")
    return special


def _joined(source: _Source, names: list[str]) -> list[str | None]:
    """Return the ids, which may be made of several columns."""
    columns = [_ids(source, name) for name in names]
    return [SEPARATOR.join(filter(None, parts)) if all(parts) else None for parts in zip(*columns, strict=True)]


def _ids(source: _Source, name: str) -> list[str | None]:
    array = stripped(source.columns[name])
    ids = texts(array)
    # Whole-numbered floats are what becomes of integers in a table that once had gaps.
    whole = all(value is None or value.lstrip("-").isdecimal() for value in ids)
    dates = pa.types.is_date(array.type) or pa.types.is_timestamp(array.type)
    if is_text(array.type) or pa.types.is_integer(array.type) or (pa.types.is_floating(array.type) and whole) or dates:
        return ids
    raise DataError(f"{source.path}: id column `{name}` holds {array.type}; ids should be text or integers")


def _features(source: _Source, names: list[str], settings: DataSettings) -> Table | None:
    """Read the feature columns, each as numbers or as categories."""
    numeric: dict[str, NDArray[np.float64]] = {}
    categorical: dict[str, NDArray[np.object_]] = {}
    for name in names:
        column = source.columns[name]
        if not is_usable(column.type):
            raise DataError(
                f"{source.path}: column `{name}` holds {column.type}; features should be numbers, dates, text or "
                "true/false, and others can be named in `ignore`"
            )
        array = tidied(column)
        values = None
        if name in settings.numeric or (
            name not in settings.categorical and (is_numeric(column.type) or not source.typed)
        ):
            values = numbers(array, decimal_comma=source.decimal_comma)
        if values is not None:
            numeric[name] = values
        elif name in settings.numeric:
            raise DataError(f"{source.path}: column `{name}` is named in `numeric` but holds {_not_a_number(array)!r}")
        else:
            categorical[name] = np.array(texts(array), dtype=object)
    return Table(numeric, categorical, source.path) if names else None


def _not_a_number(array: "pa.Array") -> str:
    """Find the first value that is no number."""
    every = (array.slice(row, 1) for row in range(len(array)))
    return next((str(one[0].as_py()) for one in every if numbers(one) is None), str(array.type))
