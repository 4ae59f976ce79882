"""What commits cost: a job that commits in some blocks of rounds and not in others, on clusters of real processes."""

import math
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from coordinator.job import Job
from fedora_vfl.bench.alternating import BLOCKS, ROUNDS, block_of, is_committing
from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.cluster.runs import run_on
from fedora_vfl.settings.files import check
from fedora_vfl.wire.protocol import COORDINATOR


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
    """What a phase of one stretch takes, in pairs of blocks that follow each other: with commits, and without."""

    stretch: Stretch
    pairs: tuple[tuple[float, float], ...]  # seconds

    @property
    def with_commits(self) -> float:
        """The mean, in seconds."""
        return mean(one for one, _ in self.pairs)

    @property
    def without(self) -> float:
        """The mean, in seconds."""
        return mean(one for _, one in self.pairs)

    @property
    def share(self) -> float:
        """How much longer it takes with commits."""
        return mean(self._shares)

    @property
    def error(self) -> float:
        """The standard error of that."""
        return stdev(self._shares) / math.sqrt(len(self.pairs))

    @property
    def _shares(self) -> list[float]:
        return [with_commits / without - 1 for with_commits, without in self.pairs]


def job(seed: int) -> dict[str, Any]:
    """Return a job over Income, with models as the examples have them."""
    rounds = ROUNDS["unlearning"]
    return {
        "data": {"source": "income", "parties": 2},
        "train": {"epochs": ROUNDS["train"], "batch_size": 256},
        "forget": {"samples": 500},
        "unlearn": {"method": "fedora", "steps": "paper", "rounds": rounds, "patience": rounds},
        "certificate": False,
        "seed": seed,
    }


async def measure(repeats: int, *, seed: int, told: Callable[[int], None] | None = None) -> list[Cost]:
    """Run the job so many times; `told` hears how many runs are done."""
    found: dict[str, list[tuple[float, float]]] = {one.name: [] for one in STRETCHES}
    for number in range(repeats):
        rounds = await _run(seed=seed)
        for one in STRETCHES:
            found[one.name] += pairs(rounds, one.phases)
        if told:
            told(number + 1)
    return [Cost(one, tuple(found[one.name])) for one in STRETCHES]


async def _run(*, seed: int) -> list[dict[str, Any]]:
    """Run the job once and return its rounds."""
    folder = Path(tempfile.mkdtemp(prefix="fedora-commits-"))
    try:
        out = folder / "run"
        federation = prepare(check(job(seed), Job, origin="commits"), origin=folder / "job.yaml", out=out)
        programs = {COORDINATOR: ["fedora_vfl.bench.alternating"]}
        async with LocalCluster(out, federation, programs=programs) as cluster:
            rounds: list[dict[str, Any]] = (await run_on(cluster, out, lambda event: None))["rounds"]
        return rounds
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def pairs(rounds: Sequence[dict[str, Any]], phases: Sequence[str]) -> list[tuple[float, float]]:
    """Return the mean seconds of the phases of some names in blocks that follow each other: with commits, without."""
    seconds: dict[int, list[float]] = {block: [] for block in range(BLOCKS)}
    for one in rounds:
        if one["phase"] in phases:
            seconds[block_of(one["phase"], one["round"])].append(one["seconds"])
    found = []
    for first in range(1, BLOCKS - 1, 2):
        two = sorted((first, first + 1), key=is_committing, reverse=True)
        if all(seconds[block] for block in two):  # rounds may end before their time
            with_commits, without = (mean(seconds[block]) for block in two)
            found.append((with_commits, without))
    return found
