"""What is known about the parties' files once they are there."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DataFile:
    """A party's file, and the settings by which the party reads it."""

    path: Path
    rows: int
    columns: tuple[str, ...]
    reading: dict[str, object]


@dataclass(frozen=True)
class Cut:
    """Every party's file, by its name, and the sorted ids of the training rows that got a backdoor."""

    files: dict[str, DataFile]
    poisoned: tuple[str, ...] = ()


def data_file(path: Path, rows: int, columns: tuple[str, ...], reading: dict[str, object]) -> DataFile:
    """Describe a file; its path must hold from wherever the party is started."""
    return DataFile(path, rows, columns, {"path": str(path.absolute()), **reading})
