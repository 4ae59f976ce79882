"""The search for inputs of FedORA with the paper's steps, which the paper does not give: on one data set, at random.

Every trial is a cell like any other, so that a search that was stopped goes on, and goes further with more trials.
"""

import csv
import io
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedora_vfl.bench.paper.cells import Place, distinct, places
from fedora_vfl.bench.paper.experiments import Experiment, Extent, MethodLine, Plan, Preset, Request, load_plan
from fedora_vfl.bench.paper.progress import Estimate, Teller
from fedora_vfl.bench.paper.sheet import RETRAIN, Sheet, SheetRow
from fedora_vfl.bench.paper.sources import find
from fedora_vfl.bench.paper.store import Store, locked
from fedora_vfl.bench.paper.sweep import Sweep
from fedora_vfl.errors import SettingsError
from fedora_vfl.storage import write_atomically

NAME = "search"
DEFAULTS = "as it is"  # the inputs that `steps: paper` has by default, as a trial
METRICS = ("test_accuracy", "forget_accuracy", "mia_auc")  # whose distances from Retrain's are added up


@dataclass(frozen=True)
class Found:
    """What a trial came to."""

    name: str
    inputs: dict[str, Any]
    distance: float  # the mean over METRICS
    gaps: dict[str, float]


def trials(count: int, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Draw inputs; the first so many are the same however many are asked for."""
    draw = random.Random(seed)
    found: dict[str, dict[str, Any]] = {DEFAULTS: {}}
    for number in range(1, count + 1):
        found[f"trial {number}"] = {
            "dual": draw.choice(["scalar", "parameterwise"]),
            "sigma": _rounded(10 ** draw.uniform(-3, 1)),
            "tau": _rounded(10 ** draw.uniform(-4, -1)),
            "delta": draw.choice([0.01, 0.05, 0.1, 0.25]),
            "omega": draw.choice([0.5, 1.0, 2.0, 5.0]),
            "rounds": draw.choice([5, 10, 20, 40]),
        }
    return found


def _rounded(value: float) -> float:
    return float(f"{value:.2g}")


def plan_of(data_set: str, drawn: dict[str, dict[str, Any]]) -> Plan:
    """Return a plan with one experiment: every trial on half of two classes, and Retrain beside them."""
    plan = load_plan()
    if data_set not in plan.data_sets:
        raise SettingsError(f"--data-set {data_set}: is no data set; allowed: {', '.join(plan.data_sets)}")
    lines: list[str | MethodLine] = [
        MethodLine(method="fedora-paper", name=name, unlearn=inputs) for name, inputs in drawn.items()
    ]
    one = Extent(data=[data_set], seeds=[0])
    experiment = Experiment(
        title="A search for inputs",
        about="Inputs of FedORA with the paper's steps, drawn at random.",
        labels=["ours"],
        layout="methods",
        requests={data_set: [Request(classes=2, percent=50, runs=["clean"])]},
        methods=["retrain", *lines],
        small=one,
        medium=one if plan.data_sets[data_set].medium else Extent(),
        paper=one,
    )
    return plan.model_copy(update={"experiments": {NAME: experiment}})


def ranked(sheet: Sheet, drawn: dict[str, dict[str, Any]]) -> list[Found]:
    """Return the trials that gave figures, the nearest to Retrain first."""
    found = []
    for line in sheet.lines(NAME):
        gaps = _gaps(sheet, line) if line.title != RETRAIN else {}
        if len(gaps) == len(METRICS):
            distance = sum(abs(gap) for gap in gaps.values()) / len(gaps)
            found.append(Found(line.title, drawn[line.title], distance, gaps))
    return sorted(found, key=lambda one: one.distance)


def _gaps(sheet: Sheet, line: SheetRow) -> dict[str, float]:
    gaps = {metric: sheet.gap(line, metric) for metric in METRICS}
    return {metric: gap for metric, gap in gaps.items() if gap is not None}


async def search(data_set: str, preset: Preset, count: int, data: Path | None, out: Path, console: Console) -> None:
    """Run the trials that are not done yet, and say which inputs came nearest to Retrain."""
    drawn = trials(count)
    plan = plan_of(data_set, drawn)
    if plan.data_sets[data_set].size(preset) is None:
        raise SettingsError(f"--preset {preset}: has no {data_set}")
    sources = find([data_set], plan.data_sets, data, download=False)
    for sentence in sources.missing.values():
        raise SettingsError(sentence)
    every = list(places(plan, preset, sources.found))
    cells = distinct(every)
    with locked(out):
        store = Store(out)
        records = store.read_all(cells.values())
        waiting = [cell for digest, cell in cells.items() if digest not in records]
        estimate = Estimate(plan.data_sets, preset, records.values())
        left = [place for place in every if place.cell.digest not in records]
        with Teller(console, estimate, left) as teller:
            await Sweep(store, teller, threads=None, device=None).run(waiting)
        _tell(every, store, drawn, out, console)


def _tell(every: Sequence[Place], store: Store, drawn: dict[str, dict[str, Any]], out: Path, console: Console) -> None:
    found = ranked(Sheet(every, store.read_all(distinct(every).values())), drawn)
    write_atomically(out / "search.csv", as_csv(found))
    table = Table(title=f"Nearest to Retrain, of {len(found)} trials that gave figures", title_justify="left")
    for name in ("inputs", "distance", "test", "forgotten", "AUC"):
        table.add_column(name, justify="left" if name == "inputs" else "right", overflow="fold")
    for one in found[:10]:
        gaps = [f"{100 * one.gaps[metric]:+.1f}" for metric in METRICS]
        table.add_row(str(one.inputs) if one.inputs else DEFAULTS, f"{100 * one.distance:.1f}", *gaps)
    console.print(table)
    console.print(f"All trials: {out / 'search.csv'}", soft_wrap=True)


def as_csv(found: Sequence[Found]) -> str:
    """Write the trials as a table."""
    text = io.StringIO()
    names = list(dict.fromkeys(name for one in found for name in one.inputs))
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", *names, "distance", *(f"{metric} - Retrain" for metric in METRICS)])
    for one in found:
        gaps = [f"{one.gaps[metric]:.6g}" for metric in METRICS]
        writer.writerow([one.name, *(one.inputs.get(name, "") for name in names), f"{one.distance:.6g}", *gaps])
    return text.getvalue()
