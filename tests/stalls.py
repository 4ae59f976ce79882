"""How long a member keeps others waiting, told from what else a busy machine does meanwhile."""

import time
from pathlib import Path

import grpc

from fedora_vfl.process.health import UP, ask

STALL_SECONDS = 1.0  # longer than a member may keep others waiting, whatever it is sent
PATIENCE_SECONDS = 60.0  # for an answer, on a machine that has other things to do


async def stall(channel: grpc.aio.Channel, process: int) -> tuple[float, float]:
    """Ask a member how it is; return the seconds until its answer, and for how many of them its event loop worked.

    What keeps an event loop from answering takes processor time of the thread that runs it, the first of the process.
    """
    began, worked = time.monotonic(), _seconds_at_work(process)
    await ask(channel, UP, timeout=PATIENCE_SECONDS)
    waited = time.monotonic() - began
    return waited, min(waited, _seconds_at_work(process) - worked)


def _seconds_at_work(process: int) -> float:
    nanoseconds = Path(f"/proc/{process}/task/{process}/schedstat").read_text().split()[0]
    return int(nanoseconds) / 1e9
