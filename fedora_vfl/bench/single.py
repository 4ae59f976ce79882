"""How sure a model is of a single forgotten row, beside models that never saw it: neither surer should it be, nor less.

    python -m fedora_vfl.bench.single --set digits --set income --set mislabelled --out runs/single

Some rows of a set, drawn at random (of `mislabelled`: such as have a wrong label), are asked for one by one, each of
the same original. The Retrains lack all of them.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import typer

from coordinator.methods.catalogue import Fedora
from fedora_vfl.bench.one_process.course import CONFIDENCE, Course
from fedora_vfl.bench.scaling.cells import MISLABELLED, MISLABELLED_SHARE, Group
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.storage import write_atomically

HEADER = "| set | seed | original | unlearned | Retrain | mean distance | below | above | rows |"
ALLOWED = 0.05  # beyond the least and the most that Retrains have


@dataclass(frozen=True)
class Single:
    """The confidence in one row's label."""

    original: float
    unlearned: float
    retrains: Sequence[float]

    @property
    def retrain(self) -> float:
        """The mean of the Retrains."""
        return sum(self.retrains) / len(self.retrains)

    @property
    def below(self) -> bool:
        """Whether the unlearned model is less sure than any Retrain."""
        return self.unlearned < min(self.retrains) - ALLOWED

    @property
    def above(self) -> bool:
        """Whether it is surer than any of them."""
        return self.unlearned > max(self.retrains) + ALLOWED


def measure(course: Course, rows: int, retrains: int) -> list[Single]:
    """Train, retrain without all rows, and forget each alone."""
    asked = course.forget[:rows]
    course.train()
    before = course.confidences(asked)
    anew = []
    for repeat in range(1, retrains + 1):
        course.retrain(repeat)
        anew.append(course.confidences(asked))
    found = []
    for place, row in enumerate(asked):
        course.ask(row[None])
        _, figures = course.unlearn(Fedora())
        found.append(Single(before[place], figures[CONFIDENCE], [one[place] for one in anew]))
    return found


def opened(data_set: str, rows: int, seed: int, work: Path, *, limit: int | None = None) -> Course:
    """Return a course in which so many rows are asked for: some at random, or such as have a wrong label."""
    torch.set_num_threads(1)
    shutil.rmtree(work, ignore_errors=True)
    job = Group(data_set, str(rows), "as it is", seed).job(limit=limit, epochs=None)
    prepare(job, origin=work / "single.yaml", out=work, threads=1)
    course = Course(work)
    if data_set == MISLABELLED:
        course.ask(course.mislabel(MISLABELLED_SHARE, seed=seed)[:rows])
    return course


def line(name: str, seed: int, found: Sequence[Single]) -> str:
    """Return a set's line of the table, in per cent."""
    rows = len(found)
    triples = ((one.original, one.unlearned, one.retrain) for one in found)
    means = [100 * sum(values) / rows for values in zip(*triples, strict=True)]
    distance = 100 * sum(abs(one.unlearned - one.retrain) for one in found) / rows
    figures = [f"{value:.0f}" for value in (*means, distance, sum(s.below for s in found), sum(s.above for s in found))]
    return f"| {Path(name).stem} | {seed} | {' | '.join(figures)} | {rows} |"


def main(
    sets: Annotated[list[str], typer.Option("--set", help="digits, mislabelled, income or an npz file; repeatable.")],
    rows: Annotated[int, typer.Option(min=1)] = 12,
    retrains: Annotated[int, typer.Option(min=2)] = 4,
    seed: Annotated[list[int] | None, typer.Option(help="Repeatable. [0]")] = None,
    out: Annotated[Path, typer.Option(help="Folder for table.md.")] = Path("runs/single"),
) -> None:
    """Print how sure models are of rows that they have forgotten one by one."""
    out.mkdir(parents=True, exist_ok=True)
    table = [HEADER, f"|{' --- |' * HEADER.count(' | ')} --- |"]
    print(HEADER)
    for name in sets:
        for one in seed or [0]:
            table.append(line(name, one, measure(opened(name, rows, one, out / "run"), rows, retrains)))
            print(table[-1], flush=True)
    write_atomically(out / "table.md", "\n".join([*table, ""]))


if __name__ == "__main__":
    typer.run(main)
