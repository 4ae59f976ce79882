"""How well FedORA forgets with its default settings, and what each part of its self-scaling rule is good for.

    python -m fedora_vfl.bench.scaling --set digits --set income --request backdoor --seed 0 --out runs/scaling
    python -m fedora_vfl.bench.scaling --set digits --request backdoor --part all --seed 0 --seed 1 --out runs/parts
    python -m fedora_vfl.bench.scaling --set digits --request backdoor --robustness --out runs/robustness

Every cell is an ordinary job on a local cluster of real processes; its figures are kept in cells.csv as soon as it is
done, so that a stopped run goes on where it was. A set is digits, income, or an npz file in MedMNIST's layout.
"""

import asyncio
import csv
import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from coordinator.job import Job
from fedora_vfl.cluster.runs import run_locally
from fedora_vfl.settings.files import check
from fedora_vfl.storage import write_atomically

FIGURES = ("test_accuracy", "forgotten_classes_accuracy", "forget_accuracy", "backdoor_asr", "mia_auc")
COSTS = ("bytes_share", "seconds_share")
COLUMNS = (
    "set",
    "request",
    "part",
    "training",
    "seed",
    *(f"{model} {one}" for one in FIGURES for model in ("original", "unlearned", "retrain")),
    *COSTS,
)

# What is left out or changed, by name.
PARTS: dict[str, dict[str, Any]] = {
    "full": {},
    "no push": {"without": ["unlearning-loss"]},
    "no recovery": {"scales": {"push_share": 1}},
    "a push that may raise L_r": {"scales": {"projected": False}},
    "no fading": {"scales": {"fade": 0}},
    "half the step": {"scales": {"step": 0.015}},
    "twice the step": {"scales": {"step": 0.06}},
    "pushed to guessing": {"scales": {"ceiling": 1}},
    "no end before the budget": {"scales": {"early_stop": False}},
    "no falling steps": {"scales": {"decay": False}},
    "twenty rounds": {"scales": {"rounds": 20}},
    "parameterwise": {"dual": "parameterwise"},
    "goal uncertain": {"goal": "uncertain"},
    "fixed steps": {"without": ["adaptive-steps"]},
    "whole D_r": {"without": ["asymmetric-batches"], "rounds": 10},
    **{f"paper, ω = {omega:g}": {"steps": "paper", "omega": omega} for omega in (0.5, 2, 20)},
    **{f"paper, δ = {delta:g}": {"steps": "paper", "delta": delta} for delta in (0, 0.01, 0.25, 1)},
    "paper, no push": {"steps": "paper", "without": ["unlearning-loss"]},
    "paper, fixed steps": {"steps": "paper", "without": ["adaptive-steps"]},
}

# How the original model, and Retrain, are trained, by name: what `--robustness` goes through.
TRAININGS: dict[str, dict[str, Any]] = {
    "as above": {},
    **{f"Adam {lr:g}": {"train": {"lr": lr}} for lr in (0.0002, 0.005, 0.02, 0.05)},
    **{f"SGD {lr:g}": {"train": {"optimizer": "sgd", "lr": lr}} for lr in (0.01, 0.1)},
    **{f"{epochs} epochs": {"train": {"epochs": epochs}} for epochs in (2, 100)},
    **{f"batches of {rows}": {"train": {"batch_size": rows}} for rows in (16, 512)},
    **{f"embeddings of {width}": {"model": {"embedding": width}} for width in (4, 512)},
    "MLP": {"model": {"bottom": "mlp", "channels": None}},
}


def job(
    name: str, request: str, part: str, seed: int, *, limit: int | None, epochs: int | None, training: str = "as above"
) -> Job:
    """Return one cell as a job."""
    images = name != "income"
    data: dict[str, Any] = {"source": name} if name in ("digits", "income") else {"source": "npz", "path": name}
    content: dict[str, Any] = {
        "data": {**data, **({"limit": limit} if limit else {})},
        "train": {"epochs": epochs or (25 if name == "digits" else 10), "batch_size": 128},
        "forget": _forget(request, seed, images=images),
        "unlearn": PARTS[part],
        "compare": ["retrain"],
        "seed": seed,
    }
    if images:
        content["model"] = {"bottom": "cnn", "channels": [16, 32], "embedding": 32, "top": [64]}
    for section, changes in TRAININGS[training].items():
        changed = {**content.get(section, {}), **changes}
        content[section] = {key: value for key, value in changed.items() if value is not None}
    if request == "backdoor":
        content["backdoor"] = {"target": str((seed + 2) % 8) if images else ">50K"}
    return check(content, Job, origin=f"{name}, {request}")


def _forget(request: str, seed: int, *, images: bool) -> dict[str, Any]:
    classes = [str(seed % 8), str((seed + 1) % 8)] if images else ["<=50K"]
    match request:
        case "label":
            return {"classes": classes}
        case "clean" | "backdoor":
            return {"classes": classes, "percent": 50}
        case number:
            return {"samples": int(number)}


def run_cell(cell: Job, out: Path) -> dict[str, Any]:
    """Run one cell and return its figures."""
    origin = Path("scaling.yaml")
    result = asyncio.run(run_locally(cell, origin=origin, out=out))
    models = {
        f"{model} {one}": result[model].get(one) for one in FIGURES for model in ("original", "unlearned", "retrain")
    }
    return {**models, **{one: result["gap"][one] for one in COSTS}}


def read_cells(path: Path) -> list[dict[str, str]]:
    """Read what is done already."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_cells(path: Path, cells: list[dict[str, Any]]) -> None:
    """Keep all cells, or none of the new ones."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(cells)
    write_atomically(path, text.getvalue())


def summary(cells: list[dict[str, str]]) -> Iterator[list[str]]:
    """Yield a line per set, request and part: means over seeds, as original → unlearned (Retrain)."""
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for cell in cells:
        groups.setdefault(tuple(cell[one] for one in ("set", "request", "part", "training")), []).append(cell)
    for (name, request, part, training), group in groups.items():
        line = [Path(name).stem, request, part, training, str(len(group))]
        for figure in FIGURES:
            values = [
                [float(cell[f"{model} {figure}"] or "nan") for cell in group]
                for model in ("original", "unlearned", "retrain")
            ]
            before, after, retrain = (mean(one) for one in values)
            line.append("" if after != after else f"{before:.3f} → {after:.3f} ({retrain:.3f})")
        yield [*line, *(f"{mean(float(cell[one]) for cell in group):.2f}" for one in COSTS)]


HEADER = (
    "set",
    "request",
    "part",
    "training",
    "seeds",
    "test",
    "forgotten classes",
    "forgotten rows",
    "backdoor",
    "honest AUC",
    "bytes",
    "seconds",
)


def main(
    sets: Annotated[list[str], typer.Option("--set", help="digits, income or an npz file; repeatable.")],
    request: Annotated[list[str], typer.Option(help="backdoor, label, clean, or a number of rows; repeatable.")],
    part: Annotated[list[str] | None, typer.Option(help=f"{', '.join(PARTS)}, or all; repeatable. [full]")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Repeatable. [0]")] = None,
    robustness: Annotated[bool, typer.Option(help="Go through models that were trained in other ways.")] = False,
    limit: Annotated[int | None, typer.Option(help="So many training rows.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Of the original training.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for cells.csv and table.md.")] = Path("runs/scaling"),
) -> None:
    """Run the cells that are not done yet and print the table."""
    parts = list(PARTS) if part == ["all"] else part or ["full"]
    cells: list[dict[str, Any]] = [dict(cell) for cell in read_cells(out / "cells.csv")]
    known = ("set", "request", "part", "training", "seed")
    done = {tuple(str(cell[one]) for one in known) for cell in cells}
    trainings = list(TRAININGS) if robustness else ["as above"]
    for cell in itertools.product(sets, request, parts, trainings, seed or [0]):
        name, asked, chosen, training, number = cell
        if tuple(map(str, cell)) in done or (name == "income" and (asked == "label" or training == "MLP")):
            continue  # one of two classes leaves nothing to tell apart, and Income has MLPs anyway
        print(f"{name}, {asked}, {chosen}, {training}, seed {number}", flush=True)
        wanted = job(name, asked, chosen, number, limit=limit, epochs=epochs, training=training)
        cells.append({**dict(zip(known, cell, strict=True)), **run_cell(wanted, out / "run")})
        write_cells(out / "cells.csv", cells)
    lines = list(summary(read_cells(out / "cells.csv")))
    table = Table(*HEADER, title="original → unlearned (Retrain); costs as shares of Retrain's", title_justify="left")
    for line in lines:
        table.add_row(*line)
    Console(width=200).print(table)
    rows = [HEADER, ["---"] * len(HEADER), *lines]
    write_atomically(out / "table.md", "".join(f"| {' | '.join(row)} |\n" for row in rows))


if __name__ == "__main__":
    typer.run(main)
