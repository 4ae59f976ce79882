"""One Arrow column in; numbers, categories or text out."""

from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
from numpy.typing import NDArray

from party.data.checking import NULLS, text_of

_DAY = 86_400_000_000  # microseconds
_FEW = 16


def tidied(column: "pa.ChunkedArray") -> "pa.Array":
    """Join chunks, unpack dictionaries, and strip text; the spellings of "missing" become nulls."""
    array = stripped(column)
    if pa.types.is_large_string(array.type):
        missing = compute.is_in(array, value_set=pa.array(NULLS, array.type))
        return compute.if_else(missing, pa.scalar(None, array.type), array)
    return array


def stripped(column: "pa.ChunkedArray") -> "pa.Array":
    """Join chunks, unpack dictionaries, and strip text, of which only nothing is missing."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if is_text(kind):
        kind = pa.large_string()
    array = pa.concat_arrays(column.cast(kind).chunks)
    return compute.utf8_trim_whitespace(array) if is_text(kind) else array


def is_text(kind: "pa.DataType") -> bool:
    """Tell whether a column holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_usable(kind: "pa.DataType") -> bool:
    """Tell whether a column can be a feature at all."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return is_text(value) or pa.types.is_boolean(value) or _is_quantity(value)


def is_numeric(kind: "pa.DataType") -> bool:
    """Tell whether a typed column is a number by its nature."""
    return not pa.types.is_dictionary(kind) and _is_quantity(kind)


def _is_quantity(kind: "pa.DataType") -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_temporal(kind)
        or types.is_null(kind)
    )


def numbers(array: "pa.Array", *, decimal_comma: bool = False) -> NDArray[np.float64] | None:
    """Read a tidied column as numbers, dates as days since 1970; None if it is not one of numbers."""
    # Where the first few values are no numbers, the column is none; a long cast that fails is slow.
    first = array.drop_null().slice(0, _FEW) if is_text(array.type) and len(array) > _FEW else None
    if first is not None and numbers(first, decimal_comma=decimal_comma) is None:
        return None
    with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return _floats(_counted(array))
    if is_text(array.type):
        if decimal_comma:
            with suppress(pa.ArrowInvalid):
                return _floats(compute.replace_substring(array, pattern=",", replacement="."))
        # A time without a day is one of the first day, so that it counts as a fraction of 1.
        of_first_day = compute.binary_join_element_wise(
            pa.scalar("1970-01-01", array.type), array, pa.scalar(" ", array.type)
        )
        for moments, zone in ((array, None), (array, "UTC"), (of_first_day, None)):
            with suppress(pa.ArrowInvalid):
                return _floats(_counted(moments.cast(pa.timestamp("us", zone))))
    return None


def _counted(array: "pa.Array") -> "pa.Array":
    """Turn points in time into days and spans into a count; leave the rest alone."""
    kind = array.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        zone = kind.tz if pa.types.is_timestamp(kind) else None
        moments = array.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())
        return compute.divide(moments.cast(pa.float64(), safe=False), float(_DAY))
    if pa.types.is_time32(kind):
        return array.cast(pa.int32())
    if pa.types.is_time64(kind) or pa.types.is_duration(kind):
        return array.cast(pa.int64())
    return array


def _floats(array: "pa.Array") -> NDArray[np.float64]:
    """Turn a column into floats with NaN where a value is missing or infinite."""
    values = array.cast(pa.float64(), safe=False).fill_null(float("nan"))
    floats = np.array(values.to_numpy(zero_copy_only=False), dtype=np.float64)
    floats[~np.isfinite(floats)] = np.nan
    return floats


def texts(array: "pa.Array") -> list[str | None]:
    """Read a column as text; whole numbers have no point."""
    if is_text(array.type):
        values: list[str | None] = array.to_pylist()
        return values
    if pa.types.is_floating(array.type):
        return [text_of(value) for value in array.to_pylist()]
    return [text_of(value) for value in array.cast(pa.string()).to_pylist()]
