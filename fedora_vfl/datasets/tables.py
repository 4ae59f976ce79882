"""A user's CSV or Parquet file: read whole, values as they are."""

from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet

from fedora_vfl.errors import DataError
from party.data.checking import NULLS
from party.data.texts import NAMELESS, open_text

TEXT_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
_DECIMAL = r"^[+-]?\d+(,\d+)?([eE][+-]?\d+)?$"


def read(path: Path) -> "pa.Table":
    """Read a table by the kind its name ends in; what is text in the file stays text."""
    kind = path.name.lower()
    if not kind.endswith((*TEXT_SUFFIXES, ".parquet")):
        allowed = ", ".join((*TEXT_SUFFIXES, ".parquet"))
        raise DataError(f"{path}: is not a known kind of table; its name should end in {allowed}")
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    table = _parquet(path) if kind.endswith(".parquet") else _text(path)
    if not table.num_rows:
        raise DataError(f"{path}: has no rows")
    for name, count in Counter(table.column_names).items():
        nameless = not name or name.startswith(NAMELESS)
        if nameless or count > 1:
            fault = "a column has no name" if nameless else f"two columns are called `{name}`"
            raise DataError(f"{path}: {fault}; every column needs a name of its own")
    return table


def _parquet(path: Path) -> "pa.Table":
    try:
        return pyarrow.parquet.ParquetFile(path).read()
    except (pa.ArrowException, OSError):
        raise DataError(f"{path}: is not a Parquet file, or a broken one") from None


def _text(path: Path) -> "pa.Table":
    text = open_text(path)
    return _with_decimal_points(text.table()) if text.delimiter == ";" else text.table()


def _with_decimal_points(table: "pa.Table") -> "pa.Table":
    """Write 1,5 as 1.5: where semicolons part the values, commas part the decimals, and ours is a comma's file."""
    for place, name in enumerate(table.column_names):
        column = _present(table.column(name))
        has_comma = compute.any(compute.match_substring(column, ","))
        if has_comma.as_py() and compute.all(compute.match_substring_regex(column, _DECIMAL)).as_py():
            points = compute.replace_substring(table.column(name), pattern=",", replacement=".")
            table = table.set_column(place, name, points)
    return table


def _present(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """Strip text; the spellings of "missing" become nulls."""
    text = compute.utf8_trim_whitespace(column)
    missing = compute.is_in(text, value_set=pa.array(NULLS, text.type))
    return compute.if_else(missing, pa.scalar(None, text.type), text)


def typed(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """Give a column of text the type its values have, as a Parquet file needs one."""
    values = _present(column)
    for kind in (pa.int64(), pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        with suppress(pa.ArrowInvalid):
            values.slice(0, 16).cast(kind)  # a long cast that fails is slow; a short one mostly tells
            return values.cast(kind)
    return values


def is_text(kind: "pa.DataType") -> bool:
    """Tell whether a column holds names rather than quantities."""
    types = pa.types
    value = kind.value_type if types.is_dictionary(kind) else kind
    return bool(
        types.is_dictionary(kind)
        or types.is_string(value)
        or types.is_large_string(value)
        or types.is_string_view(value)
    )


def is_plain(kind: "pa.DataType") -> bool:
    """Tell whether every value is a single one that any format can hold."""
    types = pa.types
    value = kind.value_type if types.is_dictionary(kind) else kind
    return not (types.is_nested(value) or types.is_binary(value) or types.is_large_binary(value))
