"""What `fedora bench paper` does, step by step."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedora_vfl.bench.paper.cells import Cell, Place, distinct, places
from fedora_vfl.bench.paper.experiments import HERE, Plan, Preset, load_plan
from fedora_vfl.bench.paper.from_csv import read_cells
from fedora_vfl.bench.paper.progress import Estimate, Teller, in_words
from fedora_vfl.bench.paper.report import Material, write_report
from fedora_vfl.bench.paper.sources import Sources, find
from fedora_vfl.bench.paper.store import Record, Store, locked
from fedora_vfl.bench.paper.sweep import Sweep
from fedora_vfl.errors import SettingsError


@dataclass(frozen=True)
class Asked:
    """What the user wants of a sweep."""

    preset: Preset
    only: Sequence[str]
    data: Path | None
    out: Path
    experiments: Path = HERE
    download: bool = False
    retry_failed: bool = False
    threads: int | None = None
    device: str | None = None
    cells: Path | None = None  # a cells.csv whose figures stand in for cells that are not in `out`


@dataclass(frozen=True)
class Scope:
    """What the experiment files come to on this machine."""

    plan: Plan
    preset: Preset
    sources: Sources
    every: list[Place]  # of the preset
    chosen: list[Place]  # of these, what --only names

    @property
    def cells(self) -> dict[str, Cell]:
        """The chosen cells, each once."""
        return distinct(self.chosen)


def scope(asked: Asked) -> Scope:
    """Work out which cells there are and which are wanted."""
    plan = load_plan(asked.experiments)
    names = {name for one in plan.experiments.values() for name in one.extent(asked.preset).data}
    wanted = _wanted(asked.only, plan)
    sources = find(
        [name for name in plan.data_sets if name in names], plan.data_sets, asked.data, download=asked.download
    )
    every = list(places(plan, asked.preset, sources.found))
    chosen = [place for place in every if any(_fits(place, *one) for one in wanted)]
    return Scope(plan, asked.preset, sources, every, chosen)


def _wanted(only: Sequence[str], plan: Plan) -> list[tuple[str | None, str | None]]:
    """Return the (data set, experiment) pairs that --only names; none stands for any."""
    if not only:
        return [(None, None)]
    return [_one_wanted(name, plan) for name in only]


def _one_wanted(name: str, plan: Plan) -> tuple[str | None, str | None]:
    if name in plan.data_sets:
        return name, None
    if name in plan.experiments:
        return None, name
    first, _, second = name.partition(":")
    if first in plan.data_sets and second in plan.experiments:
        return first, second
    known = f"{', '.join(plan.data_sets)}; {', '.join(plan.experiments)}"
    raise SettingsError(f"--only {name}: is no data set, experiment or DATA-SET:EXPERIMENT; allowed: {known}")


def _fits(place: Place, data_set: str | None, experiment: str | None) -> bool:
    return data_set in (None, place.data_set) and experiment in (None, place.experiment)


async def sweep(asked: Asked, console: Console) -> Scope:
    """Run the cells that are wanted and not done yet."""
    found = scope(asked)
    for sentence in found.sources.missing.values():
        console.print(sentence, soft_wrap=True)
    store = Store(asked.out)
    records = store.read_all(found.cells.values())
    waiting = [cell for digest, cell in found.cells.items() if _to_run(records.get(digest), asked.retry_failed)]
    estimate = Estimate(found.plan.data_sets, asked.preset, records.values())
    _announce(found, records, waiting, estimate, console)
    left = {cell.digest for cell in waiting}
    try:
        with Teller(console, estimate, [place for place in found.chosen if place.cell.digest in left]) as teller:
            await Sweep(store, teller, threads=asked.threads, device=asked.device).run(waiting)
    except asyncio.CancelledError:
        kept = len(store.read_all(found.cells.values()))
        console.print(
            f"Stopped: {kept} of {len(found.cells)} cells are kept; the same command goes on from there.",
            soft_wrap=True,
        )
        raise
    return found


def _to_run(record: Record | None, retry_failed: bool) -> bool:
    return record is None or (retry_failed and not record.done)


def _announce(
    found: Scope, records: dict[str, Record], waiting: list[Cell], estimate: Estimate, console: Console
) -> None:
    said = f"{len(found.cells)} cells, of which {len(found.cells) - len(waiting)} are done"
    broken = sum(not record.done for record in records.values())
    if broken and broken > len(waiting) - (len(found.cells) - len(records)):
        said += f" ({broken} failed; --retry-failed runs them again)"
    if waiting:
        said += f"; about {in_words(estimate.total(waiting))} to go"
    console.print(said, soft_wrap=True)


def listing(asked: Asked, console: Console) -> None:
    """Print which experiments there are, how many cells they have, and about how long these take."""
    found = scope(asked)
    records = Store(asked.out).read_all(found.cells.values()) if asked.out.is_dir() else {}
    estimate = Estimate(found.plan.data_sets, asked.preset, records.values())
    table = Table(title=f"Experiments of the preset {asked.preset}", title_justify="left")
    for name in ("experiment", "data set", "seeds", "cells", "done", "new", "time to go"):
        table.add_column(name, justify="left" if name in ("experiment", "data set") else "right")
    counted: set[str] = set()
    for experiment in found.plan.experiments:
        for data_set in found.plan.experiments[experiment].extent(asked.preset).data:
            members = [one for one in found.chosen if (one.experiment, one.data_set) == (experiment, data_set)]
            cells = distinct(members)
            fresh = {digest: cell for digest, cell in cells.items() if digest not in counted}
            counted |= set(cells)
            todo = [cell for digest, cell in fresh.items() if digest not in records]
            if members:
                table.add_row(
                    experiment,
                    data_set,
                    str(len({one.seed for one in members})),
                    str(len(cells)),
                    str(sum(digest in records for digest in cells)),
                    str(len(fresh)),
                    in_words(estimate.total(todo)) if todo else "–",
                )
    console.print(table)
    todo = [cell for digest, cell in found.cells.items() if digest not in records]
    console.print(
        f"{len(found.cells)} cells in all, as experiments share some (new: not shared with a line above); "
        f"{len(todo)} to run, about {in_words(estimate.total(todo))} on two cores.",
        soft_wrap=True,
    )
    for sentence in found.sources.missing.values():
        console.print(sentence, soft_wrap=True)


async def run(asked: Asked, console: Console) -> None:
    """Sweep, and report."""
    with locked(asked.out):
        await sweep(asked, console)
        report(asked, console)


def report(asked: Asked, console: Console) -> None:
    """Write the report from the cells that are done, whatever --only says."""
    found = scope(asked)
    records = Store(asked.out).read_all(distinct(found.every).values())
    if asked.cells:
        records = read_cells(asked.cells, found.every) | records
    # Where a reader's files lie is nobody's business: reports are published.
    missing = {name: _anonymous(sentence, asked.data) for name, sentence in found.sources.missing.items()}
    material = Material(found.plan, asked.preset, found.every, records, missing, _command(asked))
    write_report(material, asked.out)
    console.print(f"Report: {asked.out / 'report.html'} (also report.md, cells.csv, plots)", soft_wrap=True)


def _anonymous(sentence: str, folder: Path | None) -> str:
    return sentence.replace(str(folder), "FOLDER") if folder else sentence


def _command(asked: Asked) -> str:
    """Return the command that makes this report; folders are the reader's own."""
    only = "".join(f" --only {name}" for name in asked.only)
    return f"fedora bench paper --preset {asked.preset}{only}{' --data FOLDER' if asked.data else ''} --out FOLDER"
