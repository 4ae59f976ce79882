"""A whole data set, already cut by columns: one share per party, all with the same rows."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedora_vfl.datasets.settings import ACTIVE, Format
from fedora_vfl.errors import DataError
from fedora_vfl.storage import write_atomically
from party.data.checking import by_row, checked_ids, checked_labels, checked_split, text_of
from party.data.split import assign

if TYPE_CHECKING:
    import pyarrow as pa

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TableShare:
    """Columns of a table, the id first."""

    table: "pa.Table"
    format: Format
    reading: dict[str, object]
    origin: str

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """Say what the file will hold."""
        return tuple(self.table.column_names)

    @property
    def features(self) -> tuple[str, ...]:
        """Name the columns that are features."""
        special = {self.reading.get(role) for role in ("id", "label", "split")}
        return tuple(name for name in self.columns if name not in special)

    def take(self, rows: Rows) -> "TableShare":
        """Take rows, in the order given; a row may come more than once."""
        import pyarrow as pa

        return replace(self, table=self.table.take(pa.array(rows)))

    def texts(self, name: str) -> list[str | None]:
        """Read a column as the party will."""
        from party.data.columns import stripped, texts

        return texts(stripped(self.table.column(name)))

    def with_texts(self, columns: Mapping[str, Sequence[str]]) -> "TableShare":
        """Put columns of text in the place of those of the same name, or else last."""
        import pyarrow as pa

        return self.with_columns({name: pa.array(values, pa.string()) for name, values in columns.items()})

    def with_columns(self, columns: "Mapping[str, pa.Array | pa.ChunkedArray]") -> "TableShare":
        """Put columns in the place of those of the same name, or else last."""
        table = self.table
        for name, values in columns.items():
            if name in self.columns:
                table = table.set_column(self.columns.index(name), name, values)
            else:
                table = table.append_column(name, values)
        return replace(self, table=table)

    def write(self, folder: Path, party: str) -> Path:
        """Write all rows to the party's file."""
        import pyarrow as pa

        path = folder / f"{party}.{self.format}"
        try:
            write_atomically(path, _parquet(self.table) if self.format is Format.PARQUET else _csv(self.table))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(f"{self.origin}: cannot be written as {self.format}: {error}") from None
        return path


def _parquet(table: "pa.Table") -> bytes:
    import pyarrow.parquet

    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


def _csv(table: "pa.Table") -> bytes:
    """Write a table as CSV, with quotes only if some value needs them."""
    import pyarrow as pa
    import pyarrow.csv

    header = io.StringIO()
    # A name with any delimiter in it is quoted, so that a reader who guesses the delimiter guesses right.
    doubtful = any(set(name) & set(',;\t|"') for name in table.column_names)
    writer = csv.writer(header, quoting=csv.QUOTE_ALL if doubtful else csv.QUOTE_MINIMAL, lineterminator="\n")
    writer.writerow(table.column_names)
    for style in ("none", "needed"):
        buffer = io.BytesIO(header.getvalue().encode())
        buffer.seek(0, io.SEEK_END)
        try:
            pyarrow.csv.write_csv(table, buffer, pyarrow.csv.WriteOptions(include_header=False, quoting_style=style))
            break
        except pa.ArrowInvalid:
            if style == "needed":
                raise
    return buffer.getvalue()


@dataclass(frozen=True, eq=False)
class ArrayShare:
    """Named arrays: ids, and images, labels or both; of an image's columns the party has a stripe."""

    arrays: dict[str, NDArray[Any]]
    columns: tuple[str, ...]
    reading: dict[str, object]
    origin: str
    stripe: range | None
    width: int  # of the whole images

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    @property
    def features(self) -> tuple[str, ...]:
        """Name the arrays that are features."""
        return () if self.stripe is None else ("images",)

    def take(self, rows: Rows) -> "ArrayShare":
        """Take rows, in the order given; a row may come more than once."""
        return replace(self, arrays={name: array[rows] for name, array in self.arrays.items()})

    def texts(self, name: str) -> list[str | None]:
        """Read an array as the party will."""
        return [text_of(value) for value in self.arrays[name].tolist()]

    def with_texts(self, arrays: Mapping[str, Sequence[str]]) -> "ArrayShare":
        """Put arrays of text in the place of those of the same name, or else last."""
        added = tuple(name for name in arrays if name not in self.arrays)
        merged = self.arrays | {name: np.array(values, dtype=np.str_) for name, values in arrays.items()}
        return replace(self, arrays=merged, columns=(*self.columns, *added))

    def with_images(self, images: NDArray[np.uint8]) -> "ArrayShare":
        """Put other images in the place of these."""
        return replace(self, arrays=self.arrays | {"images": images})

    def write(self, folder: Path, party: str) -> Path:
        """Write all rows to the party's file."""
        path = folder / f"{party}.npz"
        buffer = io.BytesIO()
        arrays: dict[str, Any] = self.arrays
        np.savez(buffer, **arrays)
        write_atomically(path, buffer.getvalue())
        return path


# One party's columns of all rows.
Share = TableShare | ArrayShare


@dataclass(frozen=True, eq=False)
class Whole:
    """A data set: the parties' shares, which rows `limit` counts, and perhaps a backdoor's trigger of its own."""

    shares: dict[str, Share]
    training: NDArray[np.bool_]
    trigger: tuple[str, str] | None = None  # a column, and the rare value to be put into it

    def __len__(self) -> int:
        return len(self.training)

    def take(self, rows: Rows) -> "Whole":
        """Take rows, in the order given."""
        shares = {party: share.take(rows) for party, share in self.shares.items()}
        return replace(self, shares=shares, training=self.training[rows])

    def ids(self) -> list[str]:
        """Read the ids as the active party will."""
        active = self.shares[ACTIVE]
        return checked_ids(active.texts(str(active.reading["id"])), Path(active.origin), by_row)

    def classes(self) -> list[str]:
        """Read the labels as the active party will."""
        active = self.shares[ACTIVE]
        name = str(active.reading["label"])
        return checked_labels(active.texts(name), self.ids(), Path(active.origin), name)

    def split(self) -> list[str]:
        """Say of every row whether it will be a train, validation or test row."""
        active = self.shares[ACTIVE]
        name = str(active.reading["split"])
        if name in active.columns:
            return checked_split(active.texts(name), self.ids(), Path(active.origin), name)
        return assign(self.ids(), None, float(str(active.reading["test_fraction"])), origin=active.origin)
