"""A cluster on this machine: real processes with real sockets on loopback, started together and ended together."""

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import yaml

from fedora_vfl.authority import OPERATOR, issue_all
from fedora_vfl.errors import FedoraError, PartyError, PortError, StoppedError, from_exit_code
from fedora_vfl.settings.federation import Active, Coordinator, Deadlines, Federation
from fedora_vfl.signing import SigningKey
from fedora_vfl.storage import write_atomically
from fedora_vfl.wire.addresses import split
from fedora_vfl.wire.protocol import COORDINATOR
from fedora_vfl.wire.tls import Credentials

# Above the well-known ports, below the range from which outgoing connections take theirs.
PORTS = range(20000, 32768)
GRACE_SECONDS = 5.0
MOST_LETTERS = 300  # of the last line of a log that an error repeats
# Of a member that dies while the job gets no further.
MOST_RESTARTS, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 10, 0.5, 5.0
CERTIFICATES = "certificates"


_given: set[int] = set()  # ports that were handed out: whoever is to listen there may not have come to it yet


def free_address() -> str:
    """Return a loopback address that nobody listens on, another one at each call."""
    left = [port for port in PORTS if port not in _given]
    for port in random.SystemRandom().sample(left, min(100, len(left))):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _given.add(port)
            return f"127.0.0.1:{port}"
    raise PortError("no free port was found on 127.0.0.1")


async def until_free(*addresses: str) -> None:
    """Wait for processes of an earlier cluster that are just ending; whoever listens longer is met when it starts."""
    deadline = time.monotonic() + GRACE_SECONDS
    while not all(map(_is_free, addresses)):
        if time.monotonic() > deadline:
            return
        await asyncio.sleep(FIRST_PAUSE_SECONDS / 5)


def _is_free(address: str) -> bool:
    host, port = split(address)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def loopback_federation(
    passive: list[str], *, deadlines: Deadlines | None = None, alignment: str = "plain"
) -> Federation:
    """Describe a federation on this machine."""
    # Many processes on few cores are slow to start.
    waiting = deadlines or Deadlines(join=60 + 5 * len(passive))
    coordinator, active = Coordinator(address=free_address()), Active(address=free_address())
    # One user holds all files: there is nobody to hide ids from.
    return Federation(coordinator=coordinator, active=active, passive=passive, deadlines=waiting, alignment=alignment)


def lay_out(
    folder: Path,
    federation: Federation,
    data: Mapping[str, Mapping[str, object]],
    *,
    threads: int | None = None,
    privacy: Mapping[str, Mapping[str, object]] | None = None,
    tls: bool = False,
    drops: str = "for-good",
) -> None:
    """Write the federation file and every party's file into a folder, as organisations would each on their own.

    The parties share this machine's cores: each gets so many compute threads that all together do not get in each
    other's way, unless a number is given.
    """
    members = [COORDINATOR, *federation.parties]
    keys = {name: SigningKey.load_or_make(folder / "keys" / name).public for name in members}
    _write_yaml(folder / "federation.yaml", {**federation.model_dump(), "keys": keys})
    if tls:
        issue_all(federation, folder / CERTIFICATES)
    threads = threads or max(1, (os.cpu_count() or 1) // (len(federation.parties) + 1))
    for name in federation.parties:
        party = {
            "name": name,
            "federation": "../federation.yaml",
            "data": {key: _plain(value) for key, value in data[name].items()},
            "models": f"../models/{name}",
            "keys": f"../keys/{name}",
            "drops": drops,
            "threads": threads,
            # One user holds all these files: nobody has to consent, and the job's seed repeats a run.
            "seed": 0,
            "policy": "open",
        }
        if tls:
            party["certificates"] = f"../{CERTIFICATES}/{name}"
        if privacy and name in privacy:
            party["privacy"] = dict(privacy[name])
        _write_yaml(folder / "parties" / f"{name}.yaml", party)


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def _write_yaml(path: Path, content: dict[str, Any]) -> None:
    write_atomically(path, yaml.safe_dump(content, sort_keys=False))


async def start_process(words: Sequence[str], log: IO[bytes]) -> asyncio.subprocess.Process:
    """Start a member's process, which writes to a log.

    It has its own session: Ctrl-C reaches this process alone, which then ends the others in order. Its standard input
    is held open here, so that it ends even if this process is killed.
    """
    return await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
    )


class Restarts:
    """How often members that die are started again: a few times in a row, each after a longer pause."""

    def __init__(self, told: Callable[[str], None]) -> None:
        """`told` is handed the reason of each."""
        self.told = told
        self._deaths: Counter[str] = Counter()

    def progress(self) -> None:
        """Note that the job goes on: deaths before this do not count any more."""
        self._deaths.clear()

    def pause(self, name: str, code: int) -> float | None:
        """Return how long to wait before a member is started again; nothing where that would not help."""
        self._deaths[name] += 1
        # One that was killed, or stopped, or met a fault of this software; what is wrong with its files stays wrong.
        died = code < 0 or code in (StoppedError.exit_code, FedoraError.exit_code)
        if not died or self._deaths[name] > MOST_RESTARTS:
            return None
        growing = float(FIRST_PAUSE_SECONDS * 2 ** (self._deaths[name] - 1) - FIRST_PAUSE_SECONDS)
        return min(growing, LONGEST_PAUSE_SECONDS)


class LocalCluster:
    """The processes of a folder made by `lay_out`. They end with this object, and with this process."""

    def __init__(
        self,
        folder: Path,
        federation: Federation,
        *,
        programs: Mapping[str, Sequence[str]] | None = None,
        hosts: Mapping[str, Sequence[str]] | None = None,
        starting: Callable[[Sequence[str], IO[bytes]], Awaitable[asyncio.subprocess.Process]] | None = None,
    ) -> None:
        """`programs` are other Python modules, with arguments, to run for some members; an empty one is not run.

        `hosts` are the words that, put before some member's command, run it on a host of its own; `starting` is another
        way to start a process than `start_process`.
        """
        self.starting = starting or start_process
        self._folder, self.federation, self._hosts = folder, federation, hosts or {}
        self._programs = {COORDINATOR: ["coordinator"], **{name: ["party"] for name in federation.parties}}
        self._programs.update({name: list(program) for name, program in (programs or {}).items()})
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self._stopping = False

    async def __aenter__(self) -> Self:
        """Start the coordinator and all parties."""
        try:
            for name in self._programs:
                await self.start(name)
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all processes."""
        await self.stop()

    async def keep_running(self, restarts: "Restarts") -> FedoraError:
        """Start members again that die, and return why one that cannot go on has ended."""
        while True:
            name, code = await self._first_to_end()
            reason = self._epitaph(name, code)
            pause = restarts.pause(name, code)
            if pause is None or self._stopping:
                return reason
            restarts.told(f"{reason}; it is started again")
            await asyncio.sleep(pause)
            if self._stopping:
                return reason
            await self._start(name)

    async def first_to_end(self) -> FedoraError:
        """Wait until a process ends, which none should, and return why."""
        return self._epitaph(*await self._first_to_end())

    async def _first_to_end(self) -> tuple[str, int]:
        waiting = {asyncio.create_task(process.wait()): name for name, process in self.processes.items()}
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            task = next(iter(done))
            return waiting[task], task.result()
        finally:
            for task in waiting:
                task.cancel()

    async def stop(self) -> None:
        """Ask every process to end, and make it end if it does not."""
        self._stopping = True  # nobody starts one again
        running = [process for process in self.processes.values() if process.returncode is None]
        for process in running:
            _signal(process, signal.SIGTERM)
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                await asyncio.gather(*(process.wait() for process in running))
        except TimeoutError:
            for process in running:
                _signal(process, signal.SIGKILL)
            await asyncio.gather(*(process.wait() for process in running))

    @property
    def operator(self) -> Credentials | None:
        """Who submits jobs; nobody in particular in a cluster without certificates."""
        folder = self._folder / CERTIFICATES / OPERATOR.name
        return Credentials.load(folder) if folder.exists() else None

    def log_path(self, name: str) -> Path:
        """Return where a process's log is."""
        return self._folder / "logs" / f"{name}.log"

    async def start(self, name: str) -> None:
        """Start one member's process."""
        self._stopping = False
        await self._start(name)

    async def _start(self, name: str) -> None:
        if not (program := self._programs[name]):
            return
        config = self._folder / ("federation.yaml" if name == COORDINATOR else f"parties/{name}.yaml")
        if name == COORDINATOR and (self._folder / CERTIFICATES).exists():
            program = [*program, "--certificates", str(self._folder / CERTIFICATES / COORDINATOR)]
        path = self.log_path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        # A member that is started again goes on with its log.
        with path.open("ab" if name in self.processes else "wb") as log:
            words = [sys.executable, "-m", *program, "--config", str(config), "--end-with-parent"]
            self.processes[name] = await self.starting([*self._hosts.get(name, ()), *words], log)

    def _epitaph(self, name: str, code: int) -> FedoraError:
        """Say why a process ended: its own last words if it had any."""
        if code < 0:
            return PartyError(name, f"was ended by {signal.Signals(-code).name}")
        lines = self.log_path(name).read_text(errors="replace").splitlines()
        words = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        if words:
            error = from_exit_code(code)
            said = f"{name}: {words[-1]}"
            return PartyError(name, words[-1]) if error is PartyError else error(said)
        last = f", after it said: {lines[-1][:MOST_LETTERS]}" if lines else ""
        return PartyError(name, f"ended with exit code {code}{last}; its log is {self.log_path(name)}")


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Signal a process. asyncio's own way may reap it first, and asyncio then complains that it is unknown."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
