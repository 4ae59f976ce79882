"""How often clean requests are taken for poisoned ones: by how much the labels of few rows lean on one party's columns.

    python -m fedora_vfl.bench.leaning --set digits --set income --requests 25 --out runs/leaning

A model of each set, trained once, looks at many requests of a few rows: of any class, and of one class alone. Where
labels lean on one party by more standard errors than `unlearn.scales.carried`, rows would be taken for poisoned.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

from coordinator.methods.fedora_settings import Fedora
from fedora_vfl.bench.one_process.course import Course
from fedora_vfl.bench.scaling.cells import Group
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.storage import write_atomically
from protos.fedora.v1.phase_pb2 import Samples

ROWS = (4, 6, 10, 20, 50)
OF = ("any class", "one class")


def requests(course: Course, rows: int, of: str, count: int, draw: torch.Generator) -> Iterator[Tensor]:
    """Draw clean requests."""
    train, labels = course.process.active.sets.rows[Samples.TRAIN], course.process.labels
    for _ in range(count):
        one = labels[train[torch.randint(len(train), (1,), generator=draw)]]
        among = train[labels[train] == one] if of == "one class" else train
        yield among[torch.randperm(len(among), generator=draw)[:rows]]


def measure(data_set: str, count: int, seed: int, work: Path) -> Iterator[tuple[int, str, list[float]]]:
    """Train one model and yield, for every kind of request, how far labels lean."""
    torch.set_num_threads(1)
    job = Group(data_set, "50", "as it is", seed).job(limit=None, epochs=None)
    prepare(job, origin=work / "leaning.yaml", out=work, threads=1)
    course, draw = Course(work), torch.Generator().manual_seed(seed)
    course.train()
    for rows in ROWS:
        for of in OF:
            yield rows, of, sorted(course.leaning(one) for one in requests(course, rows, of, count, draw))


def main(
    sets: Annotated[list[str], typer.Option("--set", help="digits, income or an npz file; repeatable.")],
    count: Annotated[int, typer.Option("--requests", min=1, help="Of each kind.")] = 25,
    seed: Annotated[int, typer.Option()] = 0,
    out: Annotated[Path, typer.Option(help="Folder for table.md.")] = Path("runs/leaning"),
) -> None:
    """Print the largest leanings of clean requests, set by set."""
    out.mkdir(parents=True, exist_ok=True)
    table, found = ["| set | rows | of | median | largest |", "| --- | --- | --- | --- | --- |"], []
    for name in sets:
        shutil.rmtree(out / "run", ignore_errors=True)
        for rows, of, leanings in measure(name, count, seed, out / "run"):
            found += leanings
            table.append(f"| {Path(name).stem} | {rows} | {of} | {leanings[count // 2]:.1f} | {leanings[-1]:.1f} |")
            print(table[-1], flush=True)
    least = Fedora().scales.carried
    taken = sum(one > least for one in found)
    said = f"{taken} of {len(found)} clean requests lean on one party by more than {least} standard errors."
    print(said)
    write_atomically(out / "table.md", "\n".join([*table, "", said, ""]))


if __name__ == "__main__":
    typer.run(main)
