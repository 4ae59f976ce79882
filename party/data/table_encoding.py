"""Columns to numbers: standardised, or one-hot, by what the training rows showed."""

import math
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedora_vfl.errors import DataError
from party.data.inputs import TableInputs
from party.data.records import Features, Rows, Table

CLIP = 10.0  # standard deviations; one entry of heavy-tailed data must not drown the rest of its row
MOST_CATEGORIES = 64


@dataclass(frozen=True)
class NumericColumn:
    """(x − mean)/std, and 0 where x is missing, with an indicator beside it if training rows had gaps."""

    name: str
    mean: float
    std: float
    missing: bool

    @property
    def width(self) -> int:
        """The number of values it gives."""
        return 2 if self.missing else 1

    @classmethod
    def learn(cls, name: str, values: NDArray[np.float64]) -> "NumericColumn":
        """Learn mean and deviation; exact sums make them the same in whatever order rows come."""
        present = values[~np.isnan(values)]
        missing = len(present) < len(values)
        if not len(present) or present.min() == present.max():
            return cls(name, float(present[0]) if len(present) else 0.0, 1.0, missing)
        # Scaling by a power of two is exact, and keeps squares of very large values finite.
        exponent = math.frexp(float(np.abs(present).max()))[1]
        scaled = np.ldexp(present, -exponent)
        mean = math.fsum(scaled) / len(scaled)
        std = math.sqrt(math.fsum(np.square(scaled - mean)) / len(scaled))
        return cls(name, math.ldexp(mean, exponent), math.ldexp(std, exponent) or 1.0, missing)

    def apply(self, values: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Give one column, or two."""
        absent = np.isnan(values)
        with np.errstate(over="ignore"):  # too large is clipped like any other
            standard = np.clip((values - self.mean) / self.std, -CLIP, CLIP)
        standard[absent] = 0.0
        return [standard, absent.astype(np.float64)] if self.missing else [standard]


@dataclass(frozen=True)
class CategoricalColumn:
    """A one among the known categories, `missing` if training rows had gaps, and `other`, which comes last."""

    name: str
    categories: tuple[str, ...]
    missing: bool

    @property
    def width(self) -> int:
        """The number of values it gives."""
        return len(self.categories) + self.missing + 1

    @classmethod
    def learn(cls, name: str, values: NDArray[np.object_]) -> "CategoricalColumn":
        """Learn the categories, the most frequent ones if there are very many."""
        counts = Counter(values.tolist())
        missing = counts.pop(None, 0) > 0
        frequent = sorted(counts, key=lambda category: (-counts[category], category))[:MOST_CATEGORIES]
        return cls(name, tuple(sorted(frequent)), missing)

    def apply(self, values: NDArray[np.object_]) -> NDArray[np.int32]:
        """Give the place of the one in every row."""
        places: dict[str | None, int] = {category: place for place, category in enumerate(self.categories)}
        if self.missing:
            places[None] = len(self.categories)
        other = self.width - 1
        return np.array([places.get(value, other) for value in values.tolist()], dtype=np.int32)


@dataclass(frozen=True)
class TableEncoding:
    """How rows of a table become model input; numeric columns first, then the one-hot blocks."""

    numeric: tuple[NumericColumn, ...]
    categorical: tuple[CategoricalColumn, ...]

    @property
    def width(self) -> int:
        """The number of values of one encoded row."""
        return sum(column.width for column in self.numeric) + sum(column.width for column in self.categorical)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one encoded row."""
        return (self.width,)

    @classmethod
    def learn(cls, table: Table, rows: Rows) -> "TableEncoding":
        """Learn from the training rows alone."""
        return cls(
            tuple(NumericColumn.learn(name, values[rows]) for name, values in table.numeric.items()),
            tuple(CategoricalColumn.learn(name, values[rows]) for name, values in table.categorical.items()),
        )

    def apply(self, features: Features) -> TableInputs:
        """Encode any rows; columns that were not there in training are left out."""
        if not isinstance(features, Table):
            raise DataError(f"{features.origin}: holds images where the model was trained on columns of a table")
        count = len(features)
        self._check(features)
        numbers = [part for column in self.numeric for part in column.apply(features.numeric[column.name])]
        offset = len(numbers)
        ones = []
        for column in self.categorical:
            ones.append(column.apply(features.categorical[column.name]) + np.int32(offset))
            offset += column.width
        return TableInputs(
            torch.from_numpy(_side_by_side(numbers, count, np.float32)),
            torch.from_numpy(_side_by_side(ones, count, np.int32)),
            self.width,
        )

    def _check(self, table: Table) -> None:
        """Refuse a table without the columns of the training."""
        expected = {column.name: "numeric" for column in self.numeric}
        expected |= {column.name: "categorical" for column in self.categorical}
        found = dict.fromkeys(table.numeric, "numeric") | dict.fromkeys(table.categorical, "categorical")
        for name, kind in expected.items():
            if name not in found:
                raise DataError(
                    f"{table.origin}: has no column `{name}`, which the model was trained on; its feature columns are "
                    f"{', '.join(found)}"
                )
            if found[name] != kind:
                raise DataError(
                    f"{table.origin}: column `{name}` is {found[name]} where the model was trained on a {kind} one; "
                    f"correct its values, or name it in `{kind}`"
                )

    def to_json(self) -> dict[str, Any]:
        """Describe the encoding; floats survive JSON to the last bit."""
        return {
            "kind": "table",
            "numeric": [asdict(column) for column in self.numeric],
            "categorical": [{**asdict(column), "categories": list(column.categories)} for column in self.categorical],
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "TableEncoding":
        """Rebuild what `to_json` described."""
        return cls(
            tuple(NumericColumn(**column) for column in content["numeric"]),
            tuple(
                CategoricalColumn(**{**column, "categories": tuple(column["categories"])})
                for column in content["categorical"]
            ),
        )


def _side_by_side(columns: list[Any], count: int, kind: type[Any]) -> NDArray[Any]:
    """Stack columns; none at all is a table of no width."""
    stacked = np.empty((count, len(columns)), dtype=kind)
    for place, column in enumerate(columns):
        stacked[:, place] = column
    return stacked
