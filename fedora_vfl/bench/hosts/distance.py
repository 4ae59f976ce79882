"""Distance between hosts of one machine: a process that holds every frame back for a while, each way.

    python -m fedora_vfl.bench.hosts.distance SWITCH HOST:PORT:SECONDS ...

Each host gets a device `eth0`, whose other end is PORT in the switch's namespace; frames travel between the two through
this process. The devices last as long as it does, and it ends when its standard input closes. It is made for a few
hundred megabits per second: the kernel's own delay (netem) is faster, where it is built in.
"""

import ctypes
import fcntl
import heapq
import os
import select
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

NAMESPACES = Path("/run/netns")
DEVICE = "eth0"
LARGEST_FRAME = 65600
READY = "ready"

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_SET_DEVICE = 0x400454CA  # TUNSETIFF
_FRAMES_ALONE = 0x0002 | 0x1000  # IFF_TAP, IFF_NO_PI
_FRAMES_AT_ONCE = 64


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Enter a network namespace with this thread: sockets and devices opened here belong to it for ever."""
    library = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        there = os.open(NAMESPACES / namespace, os.O_RDONLY)
        try:
            _enter(library, there)
        finally:
            os.close(there)
        try:
            yield
        finally:
            _enter(library, home)
    finally:
        os.close(home)


def _enter(library: ctypes.CDLL, descriptor: int) -> None:
    if library.setns(descriptor, _NEW_NETWORK) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _device(namespace: str, name: str) -> int:
    """Make a device whose frames are read and written here."""
    with inside(namespace):
        descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(descriptor, _SET_DEVICE, struct.pack("16sH22x", name.encode(), _FRAMES_ALONE))
    return descriptor


class Distance:
    """Devices in pairs, and the frames that are on their way between them."""

    def __init__(self) -> None:
        self._other_end: dict[int, tuple[int, float]] = {}
        self._under_way: list[tuple[float, int, int, bytes]] = []
        self._count = 0

    def join(self, one: int, other: int, seconds: float) -> None:
        """Join two devices at a distance."""
        self._other_end[one] = other, seconds
        self._other_end[other] = one, seconds

    def carry(self, until: int) -> None:
        """Carry frames until a descriptor can be read or is closed."""
        poll = select.epoll()
        for descriptor in (until, *self._other_end):
            poll.register(descriptor, select.EPOLLIN)
        while True:
            self._deliver()
            wait = max(0.0, self._under_way[0][0] - time.monotonic()) if self._under_way else None
            for descriptor, _ in poll.poll(wait):
                if descriptor == until:
                    return
                self._take(descriptor)

    def _take(self, descriptor: int) -> None:
        other, seconds = self._other_end[descriptor]
        for _ in range(_FRAMES_AT_ONCE):
            try:
                frame = os.read(descriptor, LARGEST_FRAME)
            except BlockingIOError:
                return
            self._count += 1  # frames of one instant keep their order
            heapq.heappush(self._under_way, (time.monotonic() + seconds, self._count, other, frame))

    def _deliver(self) -> None:
        now = time.monotonic()
        while self._under_way and self._under_way[0][0] <= now:
            _, _, descriptor, frame = heapq.heappop(self._under_way)
            with suppress(OSError):  # a device that is down, or full, loses the frame, as a cable would
                os.write(descriptor, frame)


def main(words: Sequence[str]) -> None:
    """Make the devices, say so, and carry frames."""
    switch, *wires = words
    distance = Distance()
    for wire in wires:
        host, port, seconds = wire.rsplit(":", 2)
        distance.join(_device(host, DEVICE), _device(switch, port), float(seconds))
    print(READY, flush=True)
    distance.carry(until=sys.stdin.fileno())


if __name__ == "__main__":
    main(sys.argv[1:])
