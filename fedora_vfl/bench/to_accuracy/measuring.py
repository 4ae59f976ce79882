"""The runs: every way on every data set, on a cluster of real processes, measured after every epoch."""

import asyncio
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from coordinator.job import Job
from fedora_vfl.bench.to_accuracy.seconds import StepCost
from fedora_vfl.bench.to_accuracy.ways import DataSet, Way
from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.cluster.runs import perform
from fedora_vfl.settings.files import check
from fedora_vfl.storage import write_atomically
from fedora_vfl.wire.protocol import VERSION
from protos.fedora.v1.control_pb2 import Event


@dataclass(frozen=True)
class Run:
    """What one way came to on one data set."""

    data_set: str
    way: str
    accuracies: list[float]  # after every epoch
    up: float  # protobuf bytes of an epoch, of all passive parties
    down: float
    steps: int  # of an epoch
    compute: float  # seconds of a step without any line

    @property
    def epoch_bytes(self) -> float:
        """Bytes of an epoch, both ways."""
        return self.up + self.down

    def epochs_to(self, accuracy: float) -> int | None:
        """Return after how many epochs an accuracy was reached; None if never."""
        reached = (epoch for epoch, one in enumerate(self.accuracies, 1) if one >= accuracy)
        return next(reached, None)

    def cost(self, overlap: int) -> StepCost:
        """Return what a step takes."""
        return StepCost(self.compute, self.up / self.steps, self.down / self.steps, overlap)


async def measure(
    sets: Sequence[DataSet], ways: Sequence[Way], out: Path, *, seed: int, tell: Callable[[Run], None]
) -> list[Run]:
    """Run what is not kept in the folder yet; return all runs."""
    runs = []
    for one in sets:
        kept = {way: _kept(out, one, way, seed) for way in one.among(ways)}
        missing = [way for way, run in kept.items() if run is None]
        if missing:
            work = Path(tempfile.mkdtemp(prefix="run-", dir=out))
            try:
                job = check({**one.job(missing[0], seed), "data": one.data}, Job, origin=one.name)
                federation = prepare(job, origin=work / "job.yaml", out=work / "run", threads=1)
                async with LocalCluster(work / "run", federation) as cluster:
                    for way in missing:
                        kept[way] = run = await _run(cluster, one, way, seed)
                        write_atomically(_path(out, one, way, seed), json.dumps(asdict(run)).encode())
                        tell(run)
            finally:
                await asyncio.to_thread(shutil.rmtree, work, ignore_errors=True)
        runs += [run for run in kept.values() if run]
    return runs


async def _run(cluster: LocalCluster, data_set: DataSet, way: Way, seed: int) -> Run:
    text = yaml.safe_dump(data_set.job(way, seed))
    result = await perform(cluster, text, origin=data_set.name, follow=_ignore)
    figures: dict[str, Any] = json.loads(result.result_json)
    epochs = [one for one in figures["rounds"] if one["phase"] == "train"]
    looks = [one["accuracy"] for one in figures["rounds"] if one["phase"] == "progress"]
    links = [one for one in figures["original"]["bytes"]["links"] if one["kind"] in ("embedding", "gradient")]
    sums = {kind: sum(one["protobuf"] for one in links if one["kind"] == kind) for kind in ("embedding", "gradient")}
    steps = -(-epochs[0]["rows"] // data_set.batch_of(way))
    # The fastest: whatever else the machine does only adds, and a first epoch warms up.
    seconds = min(one["seconds"] for one in epochs)
    return Run(
        data_set.name,
        way.name,
        looks,
        sums["embedding"] / len(epochs),
        sums["gradient"] / len(epochs),
        steps,
        seconds / steps,
    )


def _ignore(_: Event) -> None:
    """Say nothing of single rounds."""


def kept_under(folder: Path, data_set: DataSet, way: Way, seed: int) -> Path:
    """Return the file in which what one way came to is kept."""
    content = {**data_set.job(way, seed), "data": {name: one for name, one in data_set.data.items() if name != "path"}}
    decided = json.dumps([VERSION, content], sort_keys=True)
    return folder / f"{data_set.name}-{hashlib.sha256(decided.encode()).hexdigest()[:16]}.json"


def _path(out: Path, data_set: DataSet, way: Way, seed: int) -> Path:
    return kept_under(out / "runs", data_set, way, seed)


def _kept(out: Path, data_set: DataSet, way: Way, seed: int) -> Run | None:
    path = _path(out, data_set, way, seed)
    return Run(**json.loads(path.read_text())) if path.is_file() else None
