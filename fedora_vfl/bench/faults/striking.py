"""Inside a member: does what an order says at a named instant of the protocol.

The harness starts every member with a plugin of two lines that calls `arm`. Orders come and go while the member runs;
one that was carried out is gone, so that the member's next process is not struck again.
"""

import errno
import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from fedora_vfl import fault_points
from fedora_vfl.plugins import Registry
from fedora_vfl.storage import write_atomically

COUNT, KILL, FULL = "count", "kill", "full"
# Where a disk that is full is noticed.
WRITING = ("file.before-write", "file.before-sync")


@dataclass(frozen=True)
class Order:
    """What a member is to do to itself."""

    act: str
    point: str = ""  # the instant to be killed at
    nth: int = 1  # of its instants of that name
    until: float = 0.0  # seconds since 1970 at which a full disk has room again


class Orders:
    """The orders of one member: a file that the harness writes, and one in which it is told what came of it."""

    def __init__(self, folder: Path, member: str) -> None:
        self._order, self._log = folder / f"{member}.json", folder / f"{member}.log"

    def give(self, order: Order) -> None:
        """Have the member act from now on."""
        self._log.unlink(missing_ok=True)
        write_atomically(self._order, json.dumps(asdict(order)))

    def take_back(self) -> None:
        """Have the member do nothing any more."""
        self._order.unlink(missing_ok=True)
        self._log.unlink(missing_ok=True)

    def log(self) -> list[str]:
        """Return what the member has told."""
        return self._log.read_text().splitlines() if self._log.exists() else []

    def version(self) -> int | None:
        """Return by what an order is known; none where there is none."""
        try:
            return self._order.stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def read(self) -> Order | None:
        """Return the order."""
        try:
            return Order(**json.loads(self._order.read_text()))
        except FileNotFoundError:
            return None

    def done(self, said: str) -> None:
        """Note that the order was carried out, once."""
        self.say(said)
        self._order.unlink(missing_ok=True)

    def say(self, line: str) -> None:
        """Tell the harness something."""
        descriptor = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, f"{line}\n".encode())
        finally:
            os.close(descriptor)


class Striker:
    """Looks at every instant whether there is something to do."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._version: int | None = None
        self._order: Order | None = None
        self._passed = 0

    def __call__(self, name: str) -> None:
        """Do what the order says, if it is about this instant."""
        order = self._current()
        if order is None:
            return
        if order.act == COUNT:
            self._orders.say(name)
        elif order.act == KILL and name == order.point:
            self._passed += 1
            if self._passed == order.nth:
                self._orders.done(f"{time.time()}")
                os.kill(os.getpid(), signal.SIGKILL)
        elif order.act == FULL and name in WRITING and time.time() < order.until:
            self._orders.say(f"{time.time()}")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _current(self) -> Order | None:
        version = self._orders.version()
        if version != self._version:
            self._version, self._order, self._passed = version, self._orders.read(), 0
        return self._order


# A plugin registers something, or it is taken for a mistake.
STRIKERS = Registry[Striker]("striker")


def arm(folder: str, member: str) -> None:
    """Have this process heed the orders in a folder."""
    fault_points.strike = STRIKERS.register(member)(Striker(Orders(Path(folder), member)))


def plugin(folder: Path, member: str) -> Path:
    """Write the file that a member is started with."""
    path = folder / f"{member}.py"
    lines = f"from fedora_vfl.bench.faults.striking import arm\n\narm({str(folder)!r}, {member!r})\n"
    write_atomically(path, lines)
    return path
