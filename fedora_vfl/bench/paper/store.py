"""What a sweep keeps: one file per finished cell, and the lock that keeps two sweeps apart."""

import contextlib
import fcntl
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedora_vfl.bench.paper.cells import Cell
from fedora_vfl.errors import DataError, SettingsError
from fedora_vfl.storage import write_atomically

FORMAT = 1
DONE, FAILED = "done", "failed"


@dataclass(frozen=True)
class Record:
    """A cell that was run: what came of it, or why nothing did."""

    cell: dict[str, Any]  # all that decides the figures
    digest: str
    method: str
    settings: dict[str, Any]  # the method's, with its defaults
    status: str
    why: str  # it failed
    figures: dict[str, float | None]  # of the unlearned model
    original: dict[str, float | None]  # of the model it was made from
    cost: dict[str, float]  # bytes and rounds of the method, rows, width of embeddings
    seconds: dict[str, float]  # of the method, of the whole cell
    versions: dict[str, str]

    @property
    def data_set(self) -> str:
        """The data set's name."""
        return str(self.cell["data_set"])

    @property
    def done(self) -> bool:
        """Whether there are figures."""
        return self.status == DONE


class Store:
    """The cells of one output folder."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self._folder = out / "cells"

    def path(self, cell: Cell) -> Path:
        """Return where a cell is kept."""
        return self._folder / cell.group.data_set / f"{cell.digest}.json"

    def keep(self, cell: Cell, record: Record) -> None:
        """Keep what came of a cell: all of it or nothing."""
        content = {"format": FORMAT, **record.__dict__}
        write_atomically(self.path(cell), json.dumps(content, indent=1, allow_nan=False) + "\n")

    def read(self, cell: Cell) -> Record | None:
        """Return what came of a cell, if it was run."""
        path = self.path(cell)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            raise DataError(f"{path}: is not a cell that can be read; delete it, and it is run again") from None
        if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
            raise DataError(f"{path}: is a cell of another release; choose another --out, or delete it")
        try:
            record = Record(**content)
        except TypeError:
            raise DataError(f"{path}: is not a whole cell; delete it, and it is run again") from None
        if record.cell != cell.content:
            raise DataError(f"{path}: holds another cell than its name says; delete it, and it is run again")
        return record

    def read_all(self, cells: Iterable[Cell]) -> dict[str, Record]:
        """Return what came of the cells that were run, by digest."""
        records = ((cell.digest, self.read(cell)) for cell in cells)
        return {digest: record for digest, record in records if record is not None}


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """Keep other sweeps out of a folder; the lock goes with the process, however that ends."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        file = (out / ".lock").open("w")
    except OSError as error:
        raise SettingsError(f"{out}: cannot be written to: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingsError(
                f"{out}: another sweep is at work in this folder; wait for it, or choose another --out"
            ) from None
        yield


def finite(figures: dict[str, Any]) -> dict[str, float | None]:
    """Keep plain numbers; one that is not finite counts as not measured."""
    numbers = {name: value for name, value in figures.items() if value is None or isinstance(value, int | float)}
    return {name: value if value is not None and math.isfinite(value) else None for name, value in numbers.items()}
