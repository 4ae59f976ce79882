"""Cells read back from a cells.csv, such as the one that is kept with the docs: figures without their settings."""

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path

from coordinator.job import Job
from fedora_vfl.bench.paper.cells import Place
from fedora_vfl.bench.paper.store import Record
from fedora_vfl.errors import DataError
from fedora_vfl.settings.files import check

NAMED = ("experiment", "data set", "request", "run", "setting", "method", "seed")
COSTS = ("rounds", "forgotten_rows", "remaining_rows", "predicted", "tensor", "protobuf")
UNKNOWN = "0.5.0 or earlier"  # releases that did not write which they were


def read_cells(path: Path, places: Iterable[Place]) -> dict[str, Record]:
    """Return the cells of a file that stand in some experiment, by their digests now."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = {tuple(line[name] for name in NAMED): line for line in csv.DictReader(file)}
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except (KeyError, TypeError, ValueError, csv.Error):
        raise DataError(f"{path}: is no cells.csv: it lacks one of the columns {', '.join(NAMED)}") from None
    found: dict[str, Record] = {}
    for place in places:
        name = (place.experiment, place.data_set, place.request, place.run, place.setting, place.title, str(place.seed))
        line = lines.get(name)
        if line and line["status"] != "missing":
            found.setdefault(place.cell.digest, _record(place, line, path))
    return found


def _record(place: Place, line: Mapping[str, str], path: Path) -> Record:
    cell = place.cell
    try:
        return Record(
            cell=cell.content,
            digest=cell.digest,
            method=cell.method,
            settings=_settings(cell.unlearn),
            status=line["status"],
            why=line["why"],
            figures=_figures(line, "unlearned "),
            original=_figures(line, "original "),
            cost={name: float(line[name]) for name in COSTS if line[name]},
            seconds={
                name: float(line[column])
                for name, column in (("method", "seconds"), ("cell", "seconds of the cell"))
                if line[column]
            },
            versions={"fedora": line.get("release") or UNKNOWN, "date": line.get("date") or ""},
        )
    except (KeyError, ValueError):
        raise DataError(f"{path}: a line of {place.data_set}, {place.title} is not of the form of a cell") from None


def _figures(line: Mapping[str, str], whose: str) -> dict[str, float | None]:
    names = [name.removeprefix(whose) for name in line if name and name.startswith(whose)]
    return {name: float(line[whose + name]) if line[whose + name] else None for name in names}


def _settings(unlearn: Mapping[str, object]) -> dict[str, object]:
    """Return a method's settings with its defaults, as a result has them."""
    job = check({"forget": {"samples": 1}, "unlearn": dict(unlearn)}, Job, origin="cell")
    return job.unlearn.model_dump(mode="json")
