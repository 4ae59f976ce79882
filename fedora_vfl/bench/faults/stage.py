"""A cluster that faults can befall: its members are started again when they end, and its lines can be cut."""

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

from coordinator.job import Job
from fedora_vfl.bench.comms.stage import write_table
from fedora_vfl.bench.faults.scenarios import PARTIES, ROWS
from fedora_vfl.bench.faults.striking import Orders, plugin
from fedora_vfl.bench.hosts.network import HostLine, Network
from fedora_vfl.bench.hosts.placement import COORDINATOR_PORT, EVERYWHERE, move, starters
from fedora_vfl.bench.warm import WarmStart
from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.cluster.preparation import JOB_FILE, prepare
from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.federation import Deadlines, Federation
from fedora_vfl.settings.files import check
from fedora_vfl.storage import files_below
from fedora_vfl.wire.protocol import COORDINATOR

# A loss is noticed sooner, and commits are made more often, than with the defaults: more happens in less time.
DEADLINES = Deadlines(join=60, setup=60, step=15, silence=3, absence=300, commit_every=0.2)

LOOK_SECONDS = 0.02


class Stage:
    """The processes of one scenario, their orders and their lines."""

    def __init__(
        self,
        folder: Path,
        cluster: LocalCluster,
        federation: Federation,
        network: Network | None,
    ) -> None:
        self.folder, self.run = folder, folder / "run"
        self._cluster, self._federation, self.network = cluster, federation, network
        self.orders = {name: Orders(folder / "orders", name) for name in self.members}
        self.pauses: dict[str, float] = {}  # seconds until a member that ended is started again
        self.held_down: set[str] = set()  # who is not started again for now
        self.restarts: Counter[str] = Counter()
        self.last_words: list[str] = []
        self.hopeless = asyncio.Event()  # a member cannot be started

    @property
    def members(self) -> list[str]:
        """All members, the coordinator first."""
        return [COORDINATOR, *self._federation.parties]

    def signal(self, members: Iterable[str], number: signal.Signals) -> None:
        """Send members a signal, one right after the other."""
        for process in self._running(members):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)

    async def kill(self, members: Iterable[str]) -> None:
        """Kill members, one right after the other, and wait until these processes are gone; others may come."""
        running = self._running(members)
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        for process in running:
            await process.wait()

    async def back(self, members: Iterable[str]) -> None:
        """Wait until members that were killed have been started again."""
        expected = set(members)
        await until(lambda: len(self._running(expected)) == len(expected))

    def _running(self, members: Iterable[str]) -> list[asyncio.subprocess.Process]:
        processes = [self._cluster.processes[name] for name in members]
        return [one for one in processes if one.returncode is None]

    async def supervise(self) -> None:
        """Start every member again that ends, as a supervisor of services would."""
        async with asyncio.TaskGroup() as group:
            for name in self.members:
                group.create_task(self._keep_up(name))

    async def _keep_up(self, name: str) -> None:
        while True:
            code = await self._cluster.processes[name].wait()
            if code != -signal.SIGKILL:
                lines = self._cluster.log_path(name).read_text(errors="replace").splitlines()
                self.last_words.append(f"{name} ended with {code}: {lines[-1] if lines else ''}")
            if code == SettingsError.exit_code:  # it would end like this for ever
                self.hopeless.set()
                return
            await asyncio.sleep(self.pauses.pop(name, 0.0))
            await until(lambda: name not in self.held_down)
            self.restarts[name] += 1
            await self._cluster.start(name)
            await asyncio.sleep(random.uniform(0.0, 0.1))

    async def user(
        self, results: Path, patience: float, *, id: str = ""
    ) -> tuple[asyncio.subprocess.Process, asyncio.StreamReader]:
        """Submit the scenario's job, or follow one, as a user would on the coordinator's machine; return what it says.

        Its events and its errors come by one pipe.
        """
        address = self._federation.coordinator.address
        settings = [address, str(self.run / JOB_FILE), str(results), str(patience), id]
        words = [sys.executable, "-m", "fedora_vfl.bench.faults.user", *settings]
        ours, theirs = os.pipe()
        said = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(said), os.fdopen(ours, "rb"))
        with os.fdopen(theirs, "wb") as pipe:
            started = self.network.command(COORDINATOR, *words) if self.network else words
            return await self._cluster.starting(started, pipe), said

    def commits(self, member: str) -> list[Path]:
        """Return the files of a party's commits, the newest last."""
        found = files_below(self.run / "keys" / member / "commits")
        return sorted((path for path in found if path.suffix == ".safetensors"), key=lambda path: path.name)

    def left_over(self) -> list[str]:
        """Return what should have gone with the job."""
        found = files_below(self.run)
        unfinished = [path for path in found if path.name.endswith(".unfinished")]
        commits = [path for path in found if "commits" in path.parts]
        return [str(path.relative_to(self.run)) for path in (*unfinished, *commits)]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that nobody tells of."""
    while True:
        if condition():
            return
        await asyncio.sleep(LOOK_SECONDS)


@contextlib.asynccontextmanager
async def opened(
    folder: Path, content: dict[str, Any], *, hosts: bool, starting: WarmStart | None = None
) -> AsyncIterator[Stage]:
    """Start the cluster of a scenario in a folder; all of its processes end with it.

    Args:
        folder: For all of its files.
        content: The scenario's job.
        hosts: Whether every member has a host of its own.
        starting: How members are started, unless each imports for itself.
    """
    (folder / "orders").mkdir(parents=True)
    write_table(folder / "table.parquet", parties=PARTIES, rows=ROWS)
    data = {"source": "parquet", "path": str(folder / "table.parquet"), "id": "id", "parties": PARTIES}
    prepared = check({"data": {**data, "format": "parquet"}, **content}, Job, origin="faults")
    run = folder / "run"
    # The same rows are forgotten in every trial.
    federation = prepare(
        prepared, origin=folder / "job.yaml", out=run, threads=1, deadlines=DEADLINES, drops="for-the-job"
    )
    with contextlib.ExitStack() as stack:
        network = None
        if hosts:
            lines = dict.fromkeys((COORDINATOR, *federation.parties), HostLine())
            network = stack.enter_context(Network(lines))
            federation = move(run, federation, network, plaintext=True, by_name=True)
        programs = {
            name: ["coordinator" if name == COORDINATOR else "party", "--plugin", str(plugin(folder / "orders", name))]
            for name in (COORDINATOR, *federation.parties)
        }
        if hosts:
            programs[COORDINATOR] += ["--listen", f"{EVERYWHERE}:{COORDINATOR_PORT}"]
        where = starters(federation, network) if network else None
        async with LocalCluster(run, federation, programs=programs, hosts=where, starting=starting) as cluster:
            stage = Stage(folder, cluster, federation, network)
            keeping_up = asyncio.create_task(stage.supervise())
            try:
                yield stage
            finally:
                keeping_up.cancel()
                await asyncio.gather(keeping_up, return_exceptions=True)
                stage.signal(stage.members, signal.SIGCONT)
