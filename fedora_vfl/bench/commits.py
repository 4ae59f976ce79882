"""What commits cost: the same job with them and without, run in turns on clusters of real processes."""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from coordinator.job import Job
from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.cluster.runs import run_on
from fedora_vfl.settings.files import check
from fedora_vfl.wire.protocol import COORDINATOR

EPOCHS, ROUNDS = 8, 150  # so many that one commit more or less does not decide


@dataclass(frozen=True)
class Stretch:
    """A stretch of a job whose phases are timed."""

    name: str
    phases: tuple[str, ...]
    most: float  # share of the time that commits may take


STRETCHES = (
    Stretch("an epoch of training", ("train",), 0.03),
    Stretch("a round of FedORA", ("unlearning", "remaining"), 0.05),
)


@dataclass(frozen=True)
class Cost:
    """What a phase of one stretch takes, with commits and without: means over all rounds of all runs."""

    stretch: Stretch
    with_commits: float  # seconds
    without: float

    @property
    def share(self) -> float:
        """How much longer it takes with commits."""
        return self.with_commits / self.without - 1


def job(seed: int) -> dict[str, Any]:
    """Return a job over Income, with models as the examples have them."""
    return {
        "data": {"source": "income", "parties": 2},
        "train": {"epochs": EPOCHS, "batch_size": 256},
        "forget": {"samples": 500},
        "unlearn": {"method": "fedora", "steps": "paper", "rounds": ROUNDS, "patience": ROUNDS},
        "certificate": False,
        "seed": seed,
    }


async def measure(repeats: int, *, seed: int, told: Callable[[int], None] | None = None) -> list[Cost]:
    """Run the job so many times each way, in turns; `told` hears how many runs are done."""
    seconds: dict[tuple[str, bool], list[float]] = {}
    for number in range(2 * repeats):
        commits = number % 2 == 0
        for stretch, found in (await _run(commits=commits, seed=seed)).items():
            seconds.setdefault((stretch, commits), []).extend(found)
        if told:
            told(number + 1)
    return [Cost(one, mean(seconds[one.name, True]), mean(seconds[one.name, False])) for one in STRETCHES]


async def _run(*, commits: bool, seed: int) -> dict[str, list[float]]:
    """Run the job once and return the seconds of each phase, its commit included."""
    folder = Path(tempfile.mkdtemp(prefix="fedora-commits-"))
    try:
        out = folder / "run"
        federation = prepare(check(job(seed), Job, origin="commits"), origin=folder / "job.yaml", out=out)
        program = ["coordinator" if commits else "fedora_vfl.bench.uncommitted"]
        async with LocalCluster(out, federation, programs={COORDINATOR: program}) as cluster:
            result = await run_on(cluster, out, lambda event: None)
        return {one.name: _seconds(result["rounds"], one.phases) for one in STRETCHES}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _seconds(rounds: Sequence[dict[str, Any]], phases: Sequence[str]) -> list[float]:
    """Return the seconds of the phases of some names, the first round left out: it warms up."""
    return [one["seconds"] for one in rounds if one["phase"] in phases and one["round"] > 1]
