"""A whole data set, already cut by columns: one share per party, all with the same rows."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from datasets.settings import Format
from settings.storage import write_atomically
from wire.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

Rows = NDArray[np.int64]


class Share(Protocol):
    """One party's columns of all rows."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Say what the file will hold."""

    @property
    def reading(self) -> dict[str, object]:
        """The settings, beside the path, by which the party reads the file."""

    def write(self, folder: Path, party: str, rows: Rows) -> Path:
        """Write the given rows, in the order given, to the party's file."""


@dataclass(frozen=True, eq=False)
class Whole:
    """A data set: the parties' shares, and which rows are training rows."""

    shares: dict[str, Share]
    training: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class TableShare:
    """Columns of a table, the id first."""

    table: "pa.Table"
    format: Format
    reading: dict[str, object]
    origin: str

    @property
    def columns(self) -> tuple[str, ...]:
        """Say what the file will hold."""
        return tuple(self.table.column_names)

    def write(self, folder: Path, party: str, rows: Rows) -> Path:
        """Write the given rows, in the order given, to the party's file."""
        import pyarrow as pa

        path = folder / f"{party}.{self.format}"
        table = self.table.take(pa.array(rows))
        try:
            write_atomically(path, _parquet(table) if self.format is Format.PARQUET else _csv(table))
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
    """Named arrays of images, ids and labels."""

    arrays: dict[str, NDArray[Any]]
    columns: tuple[str, ...]
    reading: dict[str, object]

    def write(self, folder: Path, party: str, rows: Rows) -> Path:
        """Write the given rows, in the order given, to the party's file."""
        path = folder / f"{party}.npz"
        buffer = io.BytesIO()
        chosen: dict[str, Any] = {name: array[rows] for name, array in self.arrays.items()}
        np.savez(buffer, **chosen)
        write_atomically(path, buffer.getvalue())
        return path
