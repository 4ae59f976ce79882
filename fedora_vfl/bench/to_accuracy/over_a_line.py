"""Seconds to the target over a line that really is long: plain steps against those that hide the distance."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coordinator.job import Job
from fedora_vfl.bench.comms.stage import Stage, started
from fedora_vfl.bench.hosts.network import HostLine, why_not
from fedora_vfl.bench.to_accuracy.measuring import kept_under
from fedora_vfl.bench.to_accuracy.report import Line
from fedora_vfl.bench.to_accuracy.seconds import LineSpeed
from fedora_vfl.bench.to_accuracy.ways import PLAIN, DataSet
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.settings.files import check
from fedora_vfl.storage import write_atomically

LONG = LineSpeed(100e6, 0.04)
SCHEDULED = 2  # how many of the fastest schedules are run beside the plain one


@dataclass(frozen=True)
class Timed:
    """One way over the line: the seconds of training until it reached the target, and the accuracy it had then."""

    data_set: str
    way: str
    seconds: float
    accuracy: float
    modelled: float


async def time_over(
    sets: Sequence[DataSet],
    found: Mapping[str, Sequence[Line]],
    out: Path,
    *,
    seed: int,
    loopback: bool,
    say: Callable[[str], None],
) -> list[Timed]:
    """Run the plain way and the fastest schedules over the line, on hosts in network namespaces, until the target."""
    obstacle = "loopback was asked for" if loopback else await asyncio.to_thread(why_not, delay=True)
    if obstacle:
        say(f"No line is really long: {obstacle}.")
        return []
    timed = []
    for one in (one for one in sets if one.schedules):
        chosen = _chosen(found[one.name])
        paths = {line.way: kept_under(out / "over-a-line", one, line.way, seed) for line in chosen}
        missing = [line for line in chosen if not paths[line.way].is_file()]
        if missing:
            work = Path(tempfile.mkdtemp(prefix="run-", dir=out))
            try:
                job = check({**one.job(missing[0].way, seed), "data": one.data}, Job, origin=one.name)
                federation = prepare(job, origin=work / "job.yaml", out=work / "run", threads=1)
                # A quarter of the way there and back lies at each host, each way.
                async with started(work / "run", federation, HostLine(delay=LONG.round_trip / 4)) as stage:
                    stage.limit(LONG.rate)
                    for line in missing:
                        took = await _time(stage, one, line, seed)
                        write_atomically(paths[line.way], json.dumps(asdict(took)).encode())
                        say(f"{one.name} at {LONG.describe()}, {line.way.name}: {took.seconds:.1f} s")
            finally:
                await asyncio.to_thread(shutil.rmtree, work, ignore_errors=True)
        timed += [Timed(**json.loads(path.read_text())) for path in paths.values()]
    return timed


def _chosen(lines: Sequence[Line]) -> list[Line]:
    """Return the plain way, and the schedules that the model finds fastest."""
    times = {line.way.name: line.seconds(LONG) for line in lines}
    scheduled = [line for line in lines if line.way.train and times[line.way.name] is not None]
    fastest = sorted(scheduled, key=lambda line: times[line.way.name] or 0.0)[:SCHEDULED]
    return [*(line for line in lines if line.way.name == PLAIN), *fastest]


async def _time(stage: Stage, data_set: DataSet, line: Line, seed: int) -> Timed:
    job = data_set.job(line.way, seed)
    job["train"] = {**job["train"], "epochs": line.epochs}
    job["evaluate"] = {"every": line.epochs}  # looks in between have no effect on the model, and take time
    figures: dict[str, Any] = await stage.submit(job)
    trained = [one for one in figures["rounds"] if one["phase"] == "train"]
    looks = [one for one in figures["rounds"] if one["phase"] == "progress"]
    seconds = sum(one["seconds"] for one in trained)
    return Timed(data_set.name, line.way.name, seconds, looks[-1]["accuracy"], line.seconds(LONG) or 0.0)


def told(timed: Sequence[Timed]) -> list[str]:
    """Return a table of what was measured over the line, for the page."""
    if not timed:
        return []
    plain = {one.data_set: one.seconds for one in timed if one.way == PLAIN}
    rows = ["| data set | way | seconds | times faster | by the model | accuracy |", "|---|---|---:|---:|---:|---:|"]
    rows += [
        f"| {one.data_set} | {one.way} | {one.seconds:.1f} | {plain[one.data_set] / one.seconds:.1f} "
        f"| {one.modelled:.1f} | {one.accuracy:.1%} |"
        for one in timed
    ]
    said = (
        f"## Really measured at {LONG.describe()}\n\nThe plain way and the schedules that the model finds fastest, "
        "run until the target on hosts in network namespaces. *Accuracy* is that of the test rows then."
    )
    return [said, "\n".join(rows)]
