"""Real jobs in which one member changes some of its messages: the others stay alive, prompt and small, and blame it."""

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import yaml

from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.cluster.submission import submit
from fedora_vfl.errors import FedoraError, PartyError
from fedora_vfl.settings.federation import Federation
from fedora_vfl.wire.protocol import COORDINATOR
from tests.fuzzing.services import memory, unforeseen_in
from tests.stalls import stall

MEMBERS = (COORDINATOR, "active", "passive-1")  # that may be hostile
JOB: dict[str, Any] = {
    "model": {"embedding": 4},
    "train": {"epochs": 2, "batch_size": 32, "overwrite": True},
    "forget": {"samples": 12},
    "unlearn": {"method": "fedora", "rounds": 2, "delta": 0.5, "overwrite": True},
}


@dataclass
class Attempts:
    """What came of the jobs."""

    finished: int = 0
    failures: list[str] = field(default_factory=list)
    misplaced: list[str] = field(default_factory=list)  # that blame an honest member
    longest_wait: float = 0.0  # for an answer about a member's health
    longest_stall: float = 0.0  # of such a wait, how long the member's event loop was at work
    growth: dict[str, int] = field(default_factory=dict)  # bytes of memory, by honest member
    same_result: bool = False
    unforeseen: list[str] = field(default_factory=list)  # lines of honest members' logs


async def attack(folder: Path, federation: Federation, hostile: str, *, seconds: float, seed: int) -> Attempts:
    """Run jobs for some time with one hostile member, between two in which it keeps the rules.

    Args:
        folder: A run that was prepared, with everybody's files.
        federation: Who takes part.
        hostile: Who changes messages.
        seconds: How long.
        seed: What the changes follow from.
    """
    found, switch = Attempts(), folder / "switch"
    programs = {hostile: ["tests.fuzzing.mutator", str(seed), str(switch)]}
    async with LocalCluster(folder, federation, programs=programs) as cluster:
        honest = [name for name in (COORDINATOR, *federation.parties) if name != hostile]
        before = await _run(federation)
        began = {name: memory(cluster.processes[name].pid) for name in honest}
        switch.touch()
        ends = time.monotonic() + seconds
        watches = [
            asyncio.create_task(_watch(address, cluster.processes[name].pid, found))
            for name, address in _addresses(federation).items()
            if name in honest
        ]
        try:
            while time.monotonic() < ends:
                await _attempt(federation, hostile, found)
                for name in honest:
                    assert cluster.processes[name].returncode is None, f"{name} has ended"
        finally:
            for watch in watches:
                watch.cancel()
            stopped = await asyncio.gather(*watches, return_exceptions=True)
        for error in stopped:
            if isinstance(error, Exception) and not isinstance(error, asyncio.CancelledError):
                raise error
        found.growth = {name: memory(cluster.processes[name].pid) - began[name] for name in honest}
        switch.unlink()
        found.same_result = await _afterwards(federation) == before
        for name in honest:
            found.unforeseen += [f"{name}: {one}" for one in unforeseen_in(cluster.log_path(name))]
    return found


def _addresses(federation: Federation) -> dict[str, str]:
    return {COORDINATOR: federation.coordinator.address, federation.active.name: federation.active.address}


async def _attempt(federation: Federation, hostile: str, found: Attempts) -> None:
    try:
        async with asyncio.timeout(4 * federation.deadlines.join):
            await _run(federation)
        found.finished += 1
    except FedoraError as error:
        found.failures.append(str(error))
        others = {COORDINATOR, *federation.parties} - {hostile}
        if hostile != COORDINATOR and _blamed(error) in others:
            found.misplaced.append(str(error))


def _blamed(error: FedoraError) -> str:
    """Return who is at fault, as the user is told: the first word, unless a pair is named."""
    if isinstance(error, PartyError):
        return error.culprit
    first = str(error).split(":")[0]
    return first if " " not in first else ""


async def _run(federation: Federation) -> dict[str, Any]:
    """Run the job; return what it came to, without times."""
    result = await submit(
        federation.coordinator.address,
        yaml.safe_dump(JOB),
        origin="job.yaml",
        follow=lambda event: None,
        deadlines=federation.deadlines,
    )
    content = json.loads(result.result_json)
    figures = {
        model: {name: value for name, value in content[model].items() if name not in ("bytes", "seconds")}
        for model in ("original", "unlearned")
    }
    return {**figures, "rounds": [(one["phase"], one["loss"], one["change"]) for one in content["rounds"]]}


async def _afterwards(federation: Federation) -> dict[str, Any]:
    """Run the job once more, when the hostile member keeps the rules again; it may have to join anew first."""
    for _ in range(3):
        with contextlib.suppress(FedoraError):
            return await _run(federation)
    return await _run(federation)


async def _watch(address: str, process: int, found: Attempts) -> None:
    """Ask a member again and again how it is."""
    async with grpc.aio.insecure_channel(address) as channel:
        await channel.channel_ready()
        while True:
            waited, stalled = await stall(channel, process)
            found.longest_wait = max(found.longest_wait, waited)
            found.longest_stall = max(found.longest_stall, stalled)
            await asyncio.sleep(0.01)
