"""A cluster that stays up: jobs in a row, two submitted at once, and what each process holds afterwards.

Every process should hold as much memory, as many files and as much disk after the last job as after the first ones.
"""

import asyncio
import contextlib
import csv
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from coordinator.job import Job
from coordinator.queue import MOST_KEPT_EACH
from fedora_vfl.bench.comms.stage import write_table
from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.cluster.submission import RemoteJobs
from fedora_vfl.errors import FedoraError
from fedora_vfl.settings.files import check
from fedora_vfl.storage import files_below, write_atomically
from protos.fedora.v1.control_pb2 import Event

PARTIES, ROWS = 2, 400
AT_ONCE = 2
PAGE = os.sysconf("SC_PAGE_SIZE")
# What may differ between a cluster that has just warmed up and one that has worked for long.
MORE_MEMORY, MORE_MEMORY_SHARE = 16 * 1024 * 1024, 0.05
MORE_FILES = 2  # a connection that is being replaced
MORE_DISK = 2 * 1024 * 1024
PATIENCE = 600.0  # for a pair of jobs

TRAINING = {"model": {"embedding": 16}, "train": {"epochs": 2, "save": "spring", "overwrite": True}}
FORGETTING = {
    "model": {"embedding": 16},
    "train": {"epochs": 1, "save": "autumn", "overwrite": True},
    "forget": {"ids": ["row-000003", "row-000011"]},
    "unlearn": {"steps": "paper", "rounds": 3, "overwrite": True},
}


class NotFlatError(FedoraError):
    """A process holds more and more."""


@dataclass(frozen=True)
class Held:
    """What one process holds at a moment."""

    jobs: int  # that the cluster has done
    member: str
    memory: int  # bytes that are resident
    files: int  # open ones, and sockets
    threads: int
    disk: int  # bytes in the folders that are its own


@dataclass(frozen=True)
class Growth:
    """What one process holds after the first jobs, and after the last."""

    member: str
    early: Held
    late: Held

    def excess(self) -> list[str]:
        """Say what has grown more than it may."""
        early, late = self.early, self.late
        allowed = max(MORE_MEMORY, MORE_MEMORY_SHARE * early.memory)
        grown = {
            "memory": (late.memory - early.memory, allowed),
            "open files": (late.files - early.files, MORE_FILES),
            "disk": (late.disk - early.disk, MORE_DISK),
        }
        return [f"{self.member}: {name} grew by {by:,}" for name, (by, most) in grown.items() if by > most]


async def measure(count: int, *, seed: int, told: Callable[[int, int], None] | None = None) -> list[Held]:
    """Run so many jobs on one cluster, two submitted at a time, and return what its processes held after each pair.

    Args:
        count: How many jobs.
        seed: Of the first job; each has its own.
        told: Is told how many are done, and of how many.
    """
    folder = Path(tempfile.mkdtemp(prefix="fedora-standing-"))
    try:
        write_table(folder / "table.parquet", parties=PARTIES, rows=ROWS)
        data = {"source": "parquet", "path": str(folder / "table.parquet"), "id": "id", "format": "parquet"}
        job = check({"data": {**data, "parties": PARTIES}}, Job, origin="standing")
        run = folder / "run"
        # The same people are forgotten again and again.
        federation = prepare(job, origin=folder / "job.yaml", out=run, threads=1, drops="for-the-job")
        held: list[Held] = []
        async with LocalCluster(run, federation) as cluster:
            address = federation.coordinator.address
            for done in range(0, count, AT_ONCE):
                jobs = [_job(number, seed) for number in range(done, min(done + AT_ONCE, count))]
                # A new connection for each pair, as users come and go.
                async with (
                    RemoteJobs(address, deadlines=federation.deadlines) as remote,
                    asyncio.timeout(PATIENCE),
                ):
                    await asyncio.gather(*(_run(remote, one) for one in jobs))
                held += [_look(done + len(jobs), name, process.pid, run) for name, process in cluster.processes.items()]
                if told:
                    told(done + len(jobs), count)
        return held
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _job(number: int, seed: int) -> dict[str, Any]:
    return {**(FORGETTING if number % AT_ONCE else TRAINING), "seed": seed + number}


async def _run(remote: RemoteJobs, content: dict[str, Any]) -> None:
    submitted = await remote.submit(yaml.safe_dump(content), origin="standing.yaml")
    await remote.follow(submitted.id, _ignore)


def _ignore(_: Event) -> None:
    """Say nothing of single rounds."""


def _look(jobs: int, member: str, process: int, run: Path) -> Held:
    """See what a process holds."""
    proc = Path("/proc") / str(process)
    memory = int((proc / "statm").read_text().split()[1]) * PAGE
    folders = [run / "keys" / member, run / "models" / member]
    return Held(
        jobs=jobs,
        member=member,
        memory=memory,
        files=len(list((proc / "fd").iterdir())),
        threads=len(list((proc / "task").iterdir())),
        disk=sum(_size(path) for folder in folders for path in files_below(folder)),
    )


def _size(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):  # a temporary file has gone meanwhile
        return path.stat().st_size
    return 0


def growth(held: Sequence[Held]) -> list[Growth]:
    """Compare what every process held early on with what it holds at the end.

    Early is when as many jobs have ended as the coordinator keeps, or the first half of a shorter run; each is the
    median over a tenth of the run, at least three looks.
    """
    found = []
    for member in dict.fromkeys(one.member for one in held):
        looks = [one for one in held if one.member == member]
        width = max(3, len(looks) // 10)
        warm = next((place for place, one in enumerate(looks) if one.jobs >= MOST_KEPT_EACH), 0)
        warm = min(warm, max(0, len(looks) // 2 - width))
        found.append(Growth(member, _typical(looks[warm : warm + width]), _typical(looks[-width:])))
    return found


def _typical(looks: Sequence[Held]) -> Held:
    """Return the median of some looks, figure by figure."""
    last = looks[-1]
    return Held(
        jobs=last.jobs,
        member=last.member,
        memory=int(median(one.memory for one in looks)),
        files=int(median(one.files for one in looks)),
        threads=int(median(one.threads for one in looks)),
        disk=int(median(one.disk for one in looks)),
    )


def write(held: Sequence[Held], path: Path) -> None:
    """Write all looks as a table."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(("jobs", "member", "memory", "files", "threads", "disk"))
    for one in held:
        writer.writerow((one.jobs, one.member, one.memory, one.files, one.threads, one.disk))
    write_atomically(path, lines.getvalue())


def check_flat(found: Sequence[Growth]) -> None:
    """Refuse a cluster that holds more and more."""
    if excess := [line for one in found for line in one.excess()]:
        raise NotFlatError("; ".join(excess))
