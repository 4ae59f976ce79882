"""Who is at fault when a party fails: the first error is often the echo of another."""

import asyncio
import time

from fedora_vfl.errors import FedoraError, PartyError, from_failure, in_one_line
from fedora_vfl.wire.protocol import COORDINATOR
from protos.fedora.v1.control_pb2 import FromParty
from protos.fedora.v1.failure_pb2 import Failure

# So many times the step deadline may pass without a new step: one for messages to come, one to compute, one to spare.
PATIENCE = 3
# What a party can truly say of itself, or of one that it is connected to.
_PARTIES_KINDS = {
    Failure.SETTINGS,
    Failure.DATA,
    Failure.PROTOCOL,
    Failure.SILENT,
    Failure.LOST,
    Failure.INTERNAL,
    Failure.LEFT,
    Failure.STORAGE,
    Failure.DIVERGED,
}
# What may pass by itself, or be mended while a job waits: a member that is gone or silent, a disk that is full.
_PASSING = (Failure.LOST, Failure.SILENT, Failure.LEFT, Failure.STORAGE)

# A broken connection is often the echo of something that another party can explain; so long is listened for it.
ECHO_SECONDS = 1.0


def is_passing(error: FedoraError) -> bool:
    """Tell whether a job that met an error goes on from its last commit, and does not end with it."""
    return isinstance(error, PartyError) and error.kind in _PASSING


def heard_from(reporter: str, failure: Failure, *, active: str) -> FedoraError:
    """Return the error that a party's failure is: it can speak of itself and of those that it is connected to."""
    culprit, reason = failure.culprit or reporter, in_one_line(failure.reason)
    kind = failure.kind if failure.kind in _PARTIES_KINDS else Failure.PROTOCOL
    if kind == Failure.DIVERGED:  # the coordinator knows what it sent: the same to both
        lies = failure.other if active in (reporter, failure.other) else reporter
        return PartyError(in_one_line(lies), f"holds another phase than {reporter}, and both were sent the same one")
    if culprit == reporter:
        return from_failure(Failure(kind=kind, culprit=reporter, reason=reason))
    # Passive parties are connected to the active one, the active one to all of them, and all to the coordinator.
    connected = culprit == COORDINATOR or active in (reporter, culprit)
    if not connected or kind in (Failure.SETTINGS, Failure.DATA):
        said = f"says that {in_one_line(culprit)} {reason}"
        return PartyError(reporter, f"{said}, which it is in no position to know")
    return PartyError(culprit, reason, kind)


async def all_done(tasks: dict[asyncio.Task[FromParty], str], lag: float | None, heard: dict[str, float]) -> None:
    """Wait until all tasks have succeeded, or raise the error that explains most."""
    pending = set(tasks)
    answered, began = None, time.monotonic()
    while pending:
        done, pending = await asyncio.wait(pending, timeout=lag, return_when=asyncio.FIRST_COMPLETED)
        if any(task.exception() for task in done):
            if pending:
                await asyncio.wait(pending, timeout=ECHO_SECONDS)
            raise best_reason({name: _error(task) for task, name in tasks.items()})
        answered = answered or (time.monotonic() if done else None)
        if lag and not answered and time.monotonic() - max([began, *heard.values()]) >= PATIENCE * lag:
            slowest = list(tasks.values())[-1]  # the active party, which tells of steps
            raise PartyError(slowest, f"has told of no new step for {PATIENCE * lag:g} s", Failure.SILENT)
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
