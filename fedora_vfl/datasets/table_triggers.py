"""The mark of a backdoored row in a table: one column set to a rare value."""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
from numpy.typing import NDArray

from fedora_vfl.datasets.numbers import is_plain_number, numbers_of, reads_as_numbers
from fedora_vfl.datasets.partition import Rows, Share, TableShare, Whole
from fedora_vfl.datasets.settings import Backdoor
from fedora_vfl.errors import SettingsError
from party.data.checking import listing, text_of
from party.data.columns import is_text, texts, tidied

DEVIATIONS = 3  # how far above the largest number of the training rows the default value lies


@dataclass(frozen=True)
class RareValue:
    """One value in one column."""

    column: str
    value: float | str

    def put_on(self, share: Share, rows: Rows) -> Share:
        """Set the column's value in some rows, at the party that has the column."""
        assert isinstance(share, TableShare)
        if self.column not in share.features:
            return share
        column = share.table.column(self.column)
        value = self.fitted(column.type)
        marked = np.zeros(len(share), np.bool_)
        marked[rows] = True
        return share.with_columns({self.column: compute.if_else(pa.array(marked), value, column.cast(value.type))})

    def fitted(self, column_type: "pa.DataType") -> "pa.Scalar":
        """Give the value a column's type, or the wider one that the whole column needs to take it."""
        kind = column_type.value_type if pa.types.is_dictionary(column_type) else column_type
        if is_text(kind):
            return pa.scalar(text_of(self.value), pa.large_string())
        try:
            return pa.scalar(self.value).cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            if is_plain_number(kind) and isinstance(self.value, float):
                return pa.scalar(self.value)
            raise SettingsError(
                f"backdoor.value: {text_of(self.value)!r} does not fit column `{self.column}`, which holds {kind}"
            ) from None


def rare_value(backdoor: Backdoor, whole: Whole, training: NDArray[np.bool_]) -> RareValue:
    """Take the column and the value from the settings, or else ones that training rows do not, or hardly, hold."""
    shares = [share for share in whole.shares.values() if isinstance(share, TableShare) and share.features]
    if backdoor.column is None:
        if backdoor.value is not None:
            raise SettingsError("backdoor.value: needs `column`, to say where the value is put")
        return RareValue(*whole.trigger) if whole.trigger else _default(shares[-1], training)
    owner = next((share for share in shares if backdoor.column in share.features), None)
    if owner is None:
        known = listing(name for share in shares for name in share.features)
        raise SettingsError(f"backdoor.column: no party has a feature `{backdoor.column}`; the features are {known}")
    if backdoor.value is None:
        return RareValue(backdoor.column, _outside(owner, backdoor.column, training))
    return _checked(RareValue(backdoor.column, backdoor.value), owner)


def _checked(chosen: RareValue, share: TableShare) -> RareValue:
    """Refuse a value that would turn a column of numbers or dates into one of categories."""
    chosen.fitted(share.table.column(chosen.column).type)
    if reads_as_numbers(share, chosen.column) and not reads_as_numbers(
        share, chosen.column, also=text_of(chosen.value)
    ):
        raise SettingsError(
            f"backdoor.value: {text_of(chosen.value)!r} does not fit column `{chosen.column}`, whose values are all "
            "numbers, or all dates"
        )
    return chosen


def _default(share: TableShare, training: NDArray[np.bool_]) -> RareValue:
    """Take the last numeric column of a party, or else the last one of categories, or else of dates."""
    numeric = [name for name in share.features if numbers_of(share, name) is not None]
    categorical = [name for name in share.features if not reads_as_numbers(share, name)]
    name = (numeric or categorical or share.features)[-1]
    return RareValue(name, _outside(share, name, training))


def _outside(share: TableShare, name: str, training: NDArray[np.bool_]) -> float | str:
    """Find a number above those of the training rows, or their rarest category."""
    numbers = numbers_of(share, name)
    if numbers is not None:
        present = numbers[training & ~np.isnan(numbers)]
        if len(present):
            step = DEVIATIONS * float(present.std()) or 1.0
            value = float(present.max()) + step
            return float(math.ceil(value)) if (present == np.rint(present)).all() else value
    else:
        column = share.table.column(name).filter(pa.array(training))
        counts = Counter(value for value in texts(tidied(column)) if value is not None)
        if len(counts) > 1:
            return min(counts, key=lambda category: (counts[category], category))
    raise SettingsError(
        f"backdoor.column: `{name}` holds too few different values to find a rare one; give a `value`, or another "
        "`column`"
    )
