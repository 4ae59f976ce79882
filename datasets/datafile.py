"""What is known about a party's file once it is there."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DataFile:
    """A party's file, and the settings by which the party reads it."""

    path: Path
    rows: int
    columns: tuple[str, ...]
    reading: dict[str, object]


def data_file(path: Path, rows: int, columns: tuple[str, ...], reading: dict[str, object]) -> DataFile:
    """Describe a file; its path must hold from wherever the party is started."""
    return DataFile(path, rows, columns, {"path": str(path.absolute()), **reading})
