"""Where a point is measured: a cluster on hosts whose lines the kernel counts, or on loopback where there are none."""

import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow
import pyarrow.parquet
import yaml

from coordinator.job import Job
from fedora_vfl.bench.comms.points import Extent, Point
from fedora_vfl.bench.hosts.network import Counters, HostLine, Network
from fedora_vfl.bench.hosts.placement import move, starters
from fedora_vfl.cluster.local import CERTIFICATES, LocalCluster
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.cluster.runs import perform
from fedora_vfl.errors import PartyError
from fedora_vfl.settings.federation import Federation
from fedora_vfl.settings.files import check
from fedora_vfl.wire.protocol import COORDINATOR
from protos.fedora.v1.control_pb2 import Event

COLUMNS_PER_PARTY, CLASSES = 2, 10
TEST_ROWS = 256


class Stage(Protocol):
    """A cluster that is up."""

    async def submit(self, job: dict[str, Any]) -> dict[str, Any]:
        """Run a job and return its figures."""

    def limit(self, rate: float | None) -> None:
        """Set the rate of every line."""

    def counters(self) -> dict[str, Counters]:
        """Return what the kernel has counted at every host; nothing where there are no hosts."""


class OnLoopback:
    """A cluster of which only the ledger can tell bytes."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    async def submit(self, job: dict[str, Any]) -> dict[str, Any]:
        """Run a job and return its figures."""
        result = await perform(self._cluster, yaml.safe_dump(job), origin="cell", follow=_ignore)
        figures: dict[str, Any] = json.loads(result.result_json)
        return figures

    def limit(self, rate: float | None) -> None:
        """Leave loopback as it is."""

    def counters(self) -> dict[str, Counters]:
        """Return nothing: loopback is everybody's."""
        return {}


class OnHosts:
    """A cluster with a host for every member."""

    def __init__(self, folder: Path, federation: Federation, network: Network) -> None:
        self._folder, self._federation, self._network = folder, federation, network

    async def submit(self, job: dict[str, Any]) -> dict[str, Any]:
        """Run a job from the coordinator's host, so that what the user is told crosses no line."""
        operator = self._folder / CERTIFICATES / "operator"
        credentials = str(operator) if operator.exists() else "-"
        words = (
            sys.executable,
            "-m",
            "fedora_vfl.bench.comms.submission",
            self._federation.coordinator.address,
            credentials,
        )
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self._network.command(COORDINATOR, *words), stdin=pipe, stdout=pipe, stderr=pipe
        )
        try:
            told, said = await process.communicate(yaml.safe_dump(job).encode())
        except asyncio.CancelledError:
            process.terminate()
            await process.wait()
            raise
        if process.returncode != 0:
            lines = said.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise PartyError("the job", f"failed: {lines[-1].removeprefix('error: ')}")
        figures: dict[str, Any] = json.loads(told)
        return figures

    def limit(self, rate: float | None) -> None:
        """Set the rate of every line."""
        for host in self._network.hosts:
            self._network.limit(host, rate)

    def counters(self) -> dict[str, Counters]:
        """Return what the kernel has counted at every host."""
        return {host: self._network.counters(host) for host in self._network.hosts}


def _ignore(_: Event) -> None:
    """Say nothing of single rounds."""


@contextlib.asynccontextmanager
async def open_stage(point: Point, extent: Extent, work: Path, *, hosts: bool) -> AsyncIterator[Stage]:
    """Start the cluster that points of one place need; its folder goes with it."""
    folder = _new_folder(work)
    try:
        write_table(folder / "table.parquet", parties=point.parties, rows=extent.rows, classes=CLASSES)
        data = {"source": "parquet", "path": str(folder / "table.parquet"), "id": "id"}
        job = check({"data": {**data, "parties": point.parties, "format": "parquet"}}, Job, origin="comms")
        run = folder / "run"
        # Every point forgets the same rows, from the same original.
        origin = folder / "job.yaml"
        federation = prepare(
            job,
            origin=origin,
            out=run,
            threads=1,
            tls=point.tls,
            alignment="private" if point.aligns else "plain",
            drops="for-the-job",
        )
        # Half of the way lies at each of the two hosts.
        line = HostLine(delay=point.delay / 2, whole_packets=point.whole_packets)
        async with started(run, federation, line if hosts else None, plaintext=not point.tls) as stage:
            yield stage
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.asynccontextmanager
async def started(
    run: Path, federation: Federation, line: HostLine | None, *, plaintext: bool = True
) -> AsyncIterator[Stage]:
    """Start a cluster whose folder is prepared: every member on a host with such a line, or all on loopback."""
    if line is None:
        async with LocalCluster(run, federation) as cluster:
            yield OnLoopback(cluster)
        return
    with Network(dict.fromkeys((COORDINATOR, *federation.parties), line)) as network:
        moved = move(run, federation, network, plaintext=plaintext)
        async with LocalCluster(run, moved, hosts=starters(moved, network)):
            yield OnHosts(run, moved, network)


def _new_folder(work: Path) -> Path:
    work.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="run-", dir=work))


def write_table(path: Path, *, parties: int, rows: int, classes: int = 2) -> None:
    """Write rows whose label follows from columns of all parties; what is measured does not depend on what they say."""
    draw = np.random.default_rng(0)
    total = rows + TEST_ROWS
    columns = {f"x{number}": draw.normal(size=total) for number in range(COLUMNS_PER_PARTY * parties)}
    level = np.sum(list(columns.values()), axis=0)
    # As many rows of each class, "0" the least.
    label = np.searchsorted(np.quantile(level, np.arange(1, classes) / classes), level).astype(str)
    split = ["train"] * rows + ["test"] * TEST_ROWS
    ids = [f"row-{number:06d}" for number in range(total)]
    table = pyarrow.table({"id": ids, **columns, "label": label, "split": split})
    pyarrow.parquet.write_table(table, path)
