"""Inside a member: does what orders say at named instants of the protocol.

The harness starts every member with a plugin of two lines that calls `arm`. Orders come and go while the member runs,
each a file of its own; one that was carried out is gone, so that the member's next process is not struck again.
"""

import errno
import itertools
import json
import os
import shutil
import signal
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from fedora_vfl import fault_points
from fedora_vfl.plugins import Registry
from fedora_vfl.storage import write_atomically

COUNT, KILL, FULL = "count", "kill", "full"
# Where a disk that is full is noticed.
WRITING = ("file.before-write", "file.before-sync", "store.before")


@dataclass(frozen=True)
class Order:
    """What a member is to do to itself."""

    act: str
    point: str = ""  # the instant to be killed at
    nth: int = 1  # of its instants of that name
    until: float = 0.0  # seconds since 1970 at which a full disk has room again


class Orders:
    """The orders of one member: files that the harness writes, and one in which it is told what came of them."""

    def __init__(self, folder: Path, member: str) -> None:
        self._folder, self._log = folder / member, folder / f"{member}.log"
        self._numbers = itertools.count(1)

    def give(self, order: Order) -> int:
        """Have the member act from now on; return the number by which it tells of this order."""
        number = next(self._numbers)
        write_atomically(self._folder / f"{number}.json", json.dumps(asdict(order)))
        return number

    def take_back(self) -> None:
        """Have the member do nothing any more."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._log.unlink(missing_ok=True)

    def log(self, number: int) -> list[str]:
        """Return what the member has told of an order."""
        lines = (line.split(" ", 1) for line in self._log.read_text().splitlines()) if self._log.exists() else ()
        return [said for of, said in lines if of == str(number)]

    def version(self) -> int | None:
        """Return what changes when orders come or go; none where there are none."""
        try:
            return self._folder.stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def read(self) -> dict[int, Order]:
        """Return all orders by their numbers."""
        found = {}
        for path in self._folder.glob("[0-9]*.json"):
            try:
                found[int(path.stem)] = Order(**json.loads(path.read_text()))
            except FileNotFoundError:
                continue  # it was taken back meanwhile
        return found

    def done(self, number: int, said: str) -> None:
        """Note that an order was carried out, once."""
        self.say(number, said)
        (self._folder / f"{number}.json").unlink(missing_ok=True)

    def say(self, number: int, said: str) -> None:
        """Tell the harness something of an order."""
        descriptor = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, f"{number} {said}\n".encode())
        finally:
            os.close(descriptor)


class Striker:
    """Looks at every instant whether there is something to do."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._version: int | None = None
        self._known: dict[int, Order] = {}
        self._passed: Counter[int] = Counter()  # by order: instants of its name

    def __call__(self, name: str) -> None:
        """Do what orders say of this instant."""
        for number, order in self._current().items():
            if order.act == COUNT:
                self._orders.say(number, name)
            elif order.act == KILL and name == order.point:
                self._passed[number] += 1
                if self._passed[number] == order.nth:
                    self._orders.done(number, f"{time.time()}")
                    os.kill(os.getpid(), signal.SIGKILL)
            elif order.act == FULL and name in WRITING and time.time() < order.until:
                self._orders.say(number, f"{time.time()}")
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _current(self) -> dict[int, Order]:
        version = self._orders.version()
        if version != self._version:
            self._version, self._known = version, self._orders.read() if version is not None else {}
        return self._known


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
