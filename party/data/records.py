"""What a party's own file holds once it is read: ids, features, labels and split, row by row."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns: numbers with NaN where missing, and categories with None where missing."""

    numeric: dict[str, NDArray[np.float64]]
    categorical: dict[str, NDArray[np.object_]]
    origin: Path

    def __len__(self) -> int:
        return next((len(column) for column in (*self.numeric.values(), *self.categorical.values())), 0)

    def select(self, rows: Rows) -> "Table":
        """Take rows, in the order given."""
        return replace(
            self,
            numeric={name: column[rows] for name, column in self.numeric.items()},
            categorical={name: column[rows] for name, column in self.categorical.items()},
        )


@dataclass(frozen=True, eq=False)
class Images:
    """Pixels, N×H×W×C, of one byte each."""

    pixels: NDArray[np.uint8]
    origin: Path

    def __len__(self) -> int:
        return len(self.pixels)

    def select(self, rows: Rows) -> "Images":
        """Take rows, in the order given."""
        return replace(self, pixels=self.pixels[rows])


Features = Table | Images


@dataclass(frozen=True, eq=False)
class Records:
    """One party's rows; `features` is None for an active party that holds labels only."""

    ids: list[str]
    features: Features | None
    labels: list[str] | None
    split: list[str] | None
    origin: Path
    truth: list[str] | None = None  # the true classes, where labels were changed on purpose

    def __len__(self) -> int:
        return len(self.ids)

    def described(self) -> str:
        """Say what the columns were taken for, as a guess may be wrong."""
        match self.features:
            case Table(numeric=numeric, categorical=categorical):
                return f"numeric: {', '.join(numeric) or 'none'}; categorical: {', '.join(categorical) or 'none'}"
            case Images(pixels=pixels):
                return f"images of {' × '.join(map(str, pixels.shape[1:]))}"
            case None:
                return "no features"

    def select(self, rows: Rows) -> "Records":
        """Take rows, in the order given, of every field."""
        return replace(
            self,
            ids=_take(self.ids, rows),
            features=None if self.features is None else self.features.select(rows),
            labels=None if self.labels is None else _take(self.labels, rows),
            split=None if self.split is None else _take(self.split, rows),
            truth=None if self.truth is None else _take(self.truth, rows),
        )


def _take(values: list[str], rows: Rows) -> list[str]:
    return [values[row] for row in rows]
