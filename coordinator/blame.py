"""Who is at fault when a party fails: the first error is often the echo of another."""

import asyncio
import time

from fedora_vfl.errors import PartyError
from protos.fedora.v1.control_pb2 import FromParty
from protos.fedora.v1.failure_pb2 import Failure

# A broken connection is often the echo of something that another party can explain; so long is listened for it.
ECHO_SECONDS = 1.0


async def all_done(tasks: dict[asyncio.Task[FromParty], str], lag: float | None, heard: dict[str, float]) -> None:
    """Wait until all tasks have succeeded, or raise the error that explains most."""
    pending = set(tasks)
    answered = None
    while pending:
        timeout = lag if answered else None
        done, pending = await asyncio.wait(pending, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if any(task.exception() for task in done):
            if pending:
                await asyncio.wait(pending, timeout=ECHO_SECONDS)
            raise best_reason({name: _error(task) for task, name in tasks.items()})
        answered = answered or (time.monotonic() if done else None)
        for task in pending:
            name = tasks[task]
            if lag and answered and time.monotonic() - max(answered, heard.get(name, 0.0)) >= lag:
                raise PartyError(name, f"did not report within {lag:g} s of the first party that did", Failure.SILENT)


def _error(task: asyncio.Task[FromParty]) -> BaseException | None:
    return task.exception() if task.done() and not task.cancelled() else None


def best_reason(errors: dict[str, BaseException | None]) -> BaseException:
    """Choose among the errors by party that reported or lost it.

    A reason counts more than a silence or a broken connection. Among those, whoever reports is alive: what others hold
    against it is an echo of what it waits for itself. A silence counts more than a broken connection. Last, the active
    party knows best: it waits for each passive one, and each of them for it alone.
    """
    found = {reporter: error for reporter, error in errors.items() if error}
    places = list(found)  # the active party's is last

    def order(reporter: str) -> tuple[bool, bool, bool, int]:
        error = found[reporter]
        if not isinstance(error, PartyError) or error.kind not in (Failure.SILENT, Failure.LOST):
            return False, False, False, 0
        echo = error.culprit in found and error.culprit != reporter
        return True, echo, error.kind == Failure.LOST, -places.index(reporter)

    return found[min(found, key=order)]
