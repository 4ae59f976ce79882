"""The columns of a table that hold plain numbers: not dates, not categories that look like numbers."""

from collections.abc import Mapping
from contextlib import suppress

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedora_vfl.datasets.partition import TableShare
from fedora_vfl.datasets.settings import Format
from party.data.columns import is_numeric, is_text, numbers, tidied


def numbers_of(share: TableShare, name: str) -> NDArray[np.float64] | None:
    """Read a column as the party will, with NaN where a value is missing; None if it is not one of plain numbers."""
    column = share.table.column(name)
    if not _may_be_numeric(share, name) or not (is_plain_number(column.type) or is_text(column.type)):
        return None
    array = tidied(column)
    with suppress(pa.ArrowInvalid):
        # Text that is a date fails here, where the party's own reading would go on and count days.
        array.slice(0, 16).cast(pa.float64(), safe=False)
        array.cast(pa.float64(), safe=False)
        return numbers(array)
    return None


def with_numbers(share: TableShare, columns: Mapping[str, NDArray[np.float64]]) -> TableShare:
    """Put other numbers in the place of columns; NaN is a missing value."""
    return share.with_columns(
        {name: pa.array(values, pa.float64(), mask=np.isnan(values)) for name, values in columns.items()}
    )


def reads_as_numbers(share: TableShare, name: str, *, also: str | None = None) -> bool:
    """Tell whether a party takes a column for numbers or dates, perhaps with one more text in it."""
    column = share.table.column(name)
    if not is_text(column.type):
        return is_numeric(column.type)
    added = [] if also is None else [also]
    values = pa.chunked_array([*column.chunks, pa.array(added, column.type)], column.type)
    return _may_be_numeric(share, name) and numbers(tidied(values)) is not None


def is_plain_number(kind: "pa.DataType") -> bool:
    """Tell whether a type is one of numbers that are not dates."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _may_be_numeric(share: TableShare, name: str) -> bool:
    """Tell whether a party may take a column for numbers; in a CSV file it looks at text too."""
    text = is_text(share.table.column(name).type)
    allowed = share.format is Format.CSV or not text or name in _listed(share, "numeric")
    return allowed and name not in _listed(share, "categorical")


def _listed(share: TableShare, kind: str) -> list[str]:
    names = share.reading.get(kind)
    return names if isinstance(names, list) else []
