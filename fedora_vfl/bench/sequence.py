"""Requests in a row: does what was forgotten stay forgotten, and does the distance to Retrain grow with their number?

    python -m fedora_vfl.bench.sequence --requests 10 --rows 50 --out runs/sequence

One cluster of real processes trains on digits with a backdoor, forgets the poisoned rows, and then so many clean rows a
request, each from the model that the last one left. Every job is compared with a Retrain without all rows named so far.
"""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from coordinator.job import Job
from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.cluster.preparation import JOB_FILE, prepare
from fedora_vfl.cluster.runs import perform
from fedora_vfl.settings.files import check
from fedora_vfl.storage import write_atomically
from protos.fedora.v1.control_pb2 import Event

DATA = {
    "data": {"source": "digits", "parties": 2},
    "forget": {"classes": ["0", "1"], "percent": 50},
    "backdoor": {"target": "2"},
}
MODEL = {"bottom": "cnn", "channels": [16, 32], "embedding": 32, "top": [64]}
TRAIN = {"epochs": 25, "batch_size": 128}
FIGURES = ("test_accuracy", "forget_accuracy", "backdoor_asr")
HEADER = ("request", "rows", "left out", *(f"{name}: unlearned (Retrain)" for name in FIGURES))


async def measure(requests: int, rows: int, seed: int, work: Path) -> list[list[str]]:
    """Run the jobs and return a line of the table for each."""
    federation = prepare(check(DATA, Job, origin="sequence"), origin=work / "sequence.yaml", out=work)
    poisoned = yaml.safe_load((work / JOB_FILE).read_text(encoding="utf-8"))["forget"]
    lines: list[list[str]] = []
    async with LocalCluster(work, federation) as cluster:
        for number in range(requests):
            begins = {"model": MODEL, "train": TRAIN} if number == 0 else {"train": {"from": f"unlearned-{number - 1}"}}
            content: dict[str, Any] = {
                **begins,
                "forget": poisoned if number == 0 else {"samples": rows},
                "unlearn": {"save": f"unlearned-{number}"},
                "compare": [{"method": "retrain", "save": f"retrain-{number}"}],
                "certificate": False,
                "seed": seed + number,
            }
            content["train"] = {**content["train"], "save": f"original-{number}"}
            done = await perform(cluster, yaml.safe_dump(content), origin="sequence", follow=_ignore)
            lines.append(_line(number + 1, json.loads(done.result_json)))
            print(" | ".join(lines[-1]), flush=True)
    return lines


def _line(number: int, result: dict[str, Any]) -> list[str]:
    pairs = [f"{result['unlearned'][name]:.3f} ({result['retrain'][name]:.3f})" for name in FIGURES]
    return [str(number), str(result["forget"]["rows"]), str(result["rows"]["forgotten"]), *pairs]


def _ignore(_: Event) -> None:
    """Say nothing of single rounds."""


def main(
    requests: Annotated[int, typer.Option(min=1, help="How many, the backdoor's included.")] = 10,
    rows: Annotated[int, typer.Option(min=1, help="Rows of every request after the first.")] = 50,
    seed: Annotated[int, typer.Option(help="Of the first job; every further one has the next.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for table.md.")] = Path("runs/sequence"),
) -> None:
    """Run requests in a row and write the table."""
    work = out / "run"
    shutil.rmtree(work, ignore_errors=True)
    lines = asyncio.run(measure(requests, rows, seed, work))
    table = [HEADER, ["---"] * len(HEADER), *lines]
    write_atomically(out / "table.md", "".join(f"| {' | '.join(line)} |\n" for line in table))


if __name__ == "__main__":
    typer.run(main)
