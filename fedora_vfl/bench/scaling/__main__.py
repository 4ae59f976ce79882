"""Measure FedORA's default settings beside Retrains.

    python -m fedora_vfl.bench.scaling --set digits --set income --request backdoor --seed 0 --out runs/scaling
    python -m fedora_vfl.bench.scaling --set digits --request backdoor --part all --seed 0 --seed 1 --out runs/parts
    python -m fedora_vfl.bench.scaling --set digits --request backdoor --robustness --out runs/robustness

Every job runs in one process, which equals a cluster to the bit (tests/test_one_process.py); bytes are what a cluster
would exchange. Cells are kept in cells.jsonl as soon as they are done, so that a stopped run goes on where it was.
"""

import itertools
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fedora_vfl.bench.scaling.cells import PARTS, TRAININGS, Group
from fedora_vfl.bench.scaling.measuring import measure, read_cells, write_cells
from fedora_vfl.bench.scaling.table import HEADER, beyond, lines, markdown
from fedora_vfl.errors import FedoraError, SettingsError
from fedora_vfl.storage import write_atomically


def main(
    sets: Annotated[list[str], typer.Option("--set", help="digits, mislabelled, income or an npz file; repeatable.")],
    request: Annotated[
        list[str],
        typer.Option(
            help="backdoor, label, clean, tenth, wrong, a number of rows, or backdoor 4 for 4 per cent; repeatable."
        ),
    ],
    part: Annotated[list[str] | None, typer.Option(help=f"{', '.join(PARTS)}, or all; repeatable. [full]")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Repeatable. [0]")] = None,
    robustness: Annotated[bool, typer.Option(help="Go through models that were trained in other ways.")] = False,
    retrains: Annotated[int, typer.Option(min=1, help="Retrains of every original model.")] = 3,
    draws: Annotated[int, typer.Option(min=1, help="Runs of every part, with other rows in their rounds.")] = 1,
    limit: Annotated[int | None, typer.Option(help="So many training rows.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Of the original training.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for cells.jsonl and table.md.")] = Path("runs/scaling"),
) -> None:
    """Run the cells that are not done yet and print the table."""
    parts = list(PARTS) if part == ["all"] else part or ["full"]
    if unknown := set(parts) - set(PARTS):
        raise SettingsError(f"--part {unknown.pop()}: is none of all, {', '.join(PARTS)}")
    out.mkdir(parents=True, exist_ok=True)
    kept = out / "cells.jsonl"
    cells = read_cells(kept)
    trainings = list(TRAININGS) if robustness else ["as it is"]
    for group in itertools.starmap(Group, itertools.product(sets, request, trainings, seed or [0])):
        done = {(cell.part, cell.draw) for cell in cells if cell.group == group}
        wanted = [one for one in itertools.product(parts, range(draws)) if one not in done]
        if not wanted:
            continue
        if not group.sensible:
            print(f"{group.data_set}, {group.request}, {group.training}: left out, nothing to measure", flush=True)
            continue
        folder = out / "run"
        shutil.rmtree(folder, ignore_errors=True)
        for cell in measure(group, wanted, folder, retrains=retrains, limit=limit, epochs=epochs):
            cells.append(cell)
            write_cells(kept, cells)
            print(" | ".join(next(lines([cell]))), f"| {cell.seconds:.1f} s | {cell.stopped}", flush=True)
    table = Table(*HEADER, title="per cent: original → unlearned (Retrain ± deviation)", title_justify="left")
    for line in lines(cells):
        table.add_row(*line)
    Console(width=220).print(table)
    said = "\n".join(beyond(cells))
    print(said)
    write_atomically(out / "table.md", f"{markdown(cells)}\n{said}\n")


if __name__ == "__main__":
    try:
        typer.run(main)
    except FedoraError as error:
        sys.exit(f"error: {error}")
