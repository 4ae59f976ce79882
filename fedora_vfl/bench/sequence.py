"""Requests in a row: does what was forgotten stay forgotten, and does the distance to Retrain grow with their number?

    python -m fedora_vfl.bench.sequence --requests 10 --rows 50 --out runs/sequence

Training on digits with a backdoor, forgetting the poisoned rows, and then so many clean rows a request, each from the
model that the last one left, in one process. Every model is compared with Retrains without all rows named so far.
"""

import shutil
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import torch
import typer

from coordinator.job import Forget, Job
from fedora_vfl.bench.one_process.course import Course, Figures
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.settings.files import check
from fedora_vfl.storage import write_atomically

JOB: dict[str, Any] = {
    "data": {"source": "digits", "parties": 2},
    "model": {"bottom": "cnn", "channels": [16, 32], "embedding": 32, "top": [64]},
    "train": {"epochs": 25, "batch_size": 128},
    "forget": {"classes": ["0", "1"], "percent": 50},
    "backdoor": {"target": "2"},
}
FIGURES = {"backdoor": "backdoor_asr", "forgotten rows": "forget_accuracy", "test": "test_accuracy"}

Sequence = list[tuple[Figures, list[Figures]]]  # of every request: the unlearned model, and its Retrains


def measure(requests: int, rows: int, seed: int, retrains: int, work: Path) -> Sequence:
    """Run the requests of one sequence."""
    torch.set_num_threads(1)
    prepare(check({**JOB, "seed": seed}, Job, origin="sequence"), origin=work / "sequence.yaml", out=work, threads=1)
    course, found = Course(work), []
    course.train()
    for number in range(requests):
        if number:
            course.go_on(Forget(samples=rows), seed=seed + number)
        anew = [course.retrain(repeat) for repeat in range(1, retrains + 1)]
        _, unlearned = course.unlearn(course.job.unlearn)  # last: the next request goes on from it
        found.append((unlearned, anew))
        print(seed, number + 1, *(f"{name} {_pair([found[-1]], key)}" for name, key in FIGURES.items()), flush=True)
    return found


def slope(sequences: list[Sequence], figure: str) -> tuple[float, float]:
    """Return by how many points a request the distance to Retrain grows after the first, and its standard error."""
    points = [
        (float(number), 100 * (unlearned[figure] - mean(one[figure] for one in anew)))
        for sequence in sequences
        for number, (unlearned, anew) in enumerate(sequence)
        if number
    ]
    middle, height = (mean(values) for values in zip(*points, strict=True))
    spread = sum((x - middle) ** 2 for x, _ in points)
    if not spread or len(points) < 3:
        return 0.0, 0.0
    found = sum((x - middle) * (y - height) for x, y in points) / spread
    rest = sum((y - height - found * (x - middle)) ** 2 for x, y in points)
    return found, (rest / (len(points) - 2) / spread) ** 0.5


def table(sequences: list[Sequence]) -> str:
    """Write all requests, unlearned (Retrain), as means over the sequences, and how the distance grows."""
    count = len(sequences[0])
    lines = [["request", *map(str, range(1, count + 1)), "growth a request"], ["---"] * (count + 2)]
    for name, key in FIGURES.items():
        of_request = [[sequence[number] for sequence in sequences] for number in range(count)]
        growth, error = slope(sequences, key) if count > 1 else (0.0, 0.0)
        lines.append([name, *(_pair(one, key) for one in of_request), f"{growth:+.1f} ± {error:.1f}"])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _pair(runs: Sequence, figure: str) -> str:
    anew = mean(mean(one[figure] for one in retrains) for _, retrains in runs)
    return f"{100 * mean(unlearned[figure] for unlearned, _ in runs):.0f} ({100 * anew:.0f})"


def main(
    requests: Annotated[int, typer.Option(min=1, help="How many, the backdoor's included.")] = 10,
    rows: Annotated[int, typer.Option(min=1, help="Rows of every request after the first.")] = 50,
    seed: Annotated[list[int] | None, typer.Option(help="Of a sequence; repeatable. [0]")] = None,
    retrains: Annotated[int, typer.Option(min=1, help="Retrains of every request.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for table.md.")] = Path("runs/sequence"),
) -> None:
    """Run requests in a row and write the table."""
    work, sequences = out / "run", []
    for one in seed or [0]:
        shutil.rmtree(work, ignore_errors=True)
        sequences.append(measure(requests, rows, one, retrains, work))
    text = table(sequences)
    print(text, end="")
    write_atomically(out / "table.md", text)


if __name__ == "__main__":
    typer.run(main)
