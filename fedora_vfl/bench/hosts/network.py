"""Hosts on one machine: network namespaces with addresses of their own, on a switch that can be slow, distant or cut.

    with Network({"bank": HostLine(), "hospital": HostLine(closed=True, rate=50e6, delay=0.01)}) as network:
        subprocess.run(network.command("hospital", "python", "-m", "party", "--config", "hospital.yaml"))

The machine's own network has no part in it: the hosts reach each other and nothing else. It needs root and `ip`; a
`closed` line needs `iptables`, a `delay` /dev/net/tun. `why_not` says what is missing.
"""

import ctypes
import fcntl
import itertools
import json
import os
import re
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fedora_vfl.bench.hosts.distance import DEVICE, LARGEST_FRAME, NAMESPACES, READY, inside
from fedora_vfl.errors import FedoraError

PREFIX = "fedora-host"
BRIDGE = "switch0"
# Set aside for measurements between networks (RFC 2544): no real network is hidden by it.
ADDRESSES = "198.18.77"
# What `ip netns exec` lays over /etc for the processes of a namespace: here hosts have names.
ETC = Path("/etc/netns")
MOST_MOVES = 15  # then addresses come back
# What comes on top of every piece of a TCP connection: Ethernet, IPv4, and TCP with time stamps.
HEADER_BYTES = 14 + 20 + 32
# What a line may hold back: enough for a few batches of embeddings, so that a slow line waits and does not lose frames.
QUEUE_BYTES = 4_000_000
# What a line that was idle sends at once, beyond its rate: little, or a message would cross for nothing.
BURST_SECONDS = 0.0002
SMALLEST_BURST_BYTES = 3_200
_ALL_FRAMES = 0x0003  # ETH_P_ALL
_OUTGOING = 4  # PACKET_OUTGOING
_FORCE_BUFFER = 33  # SO_RCVBUFFORCE
_DEVICE_FEATURES = 0x8946  # SIOCETHTOOL
_SEGMENTATION_OFFLOAD = 0x1F  # ETHTOOL_STSO
_serial = itertools.count()


class HostsError(FedoraError):
    """Hosts cannot be made or changed."""


@dataclass(frozen=True)
class HostLine:
    """What lies between a host and the switch; the same each way."""

    rate: float | None = None  # bits per second
    delay: float = 0.0  # seconds from the host to the switch
    closed: bool = False  # whether every connection from outside is dropped, answers to the host's own apart
    open_ports: tuple[int, ...] = ()  # where a closed host takes connections all the same
    # Whether packets of up to 64 KB cross whole and are counted as one, as with a network card that cuts them; else
    # they are frames of at most 1,514 bytes, as on a cable. A line with a delay always has frames.
    whole_packets: bool = False


@dataclass(frozen=True)
class Counters:
    """What the kernel has counted at a host's device: frames with all their headers."""

    received_bytes: int
    received_packets: int
    sent_bytes: int
    sent_packets: int

    def __sub__(self, earlier: "Counters") -> "Counters":
        """Return what has come since."""
        return Counters(*(getattr(self, name) - getattr(earlier, name) for name in self.__dataclass_fields__))

    @property
    def bytes(self) -> int:
        """Both ways."""
        return self.received_bytes + self.sent_bytes

    @property
    def packets(self) -> int:
        """Both ways."""
        return self.received_packets + self.sent_packets


def why_not(*, closed: bool = False, delay: bool = False) -> str | None:
    """Say why hosts cannot be made here; None when they can."""
    if os.geteuid() != 0:
        return "hosts in network namespaces need root"
    tools = ["ip", "tc", *(["iptables"] if closed else [])]
    if missing := [tool for tool in tools if not shutil.which(tool)]:
        return f"hosts in network namespaces need {' and '.join(missing)}: apt-get install iproute2 iptables"
    if delay and not Path("/dev/net/tun").exists():
        return "lines with a delay need /dev/net/tun"
    trial = _name(os.getpid(), next(_serial), "trial")
    made = subprocess.run(["ip", "netns", "add", trial], capture_output=True, text=True)
    if made.returncode != 0:
        return f"network namespaces cannot be made here: {made.stderr.strip()}"
    _run("ip", "netns", "delete", trial)
    return None


def remove_orphans() -> None:
    """Remove the hosts of processes that ended without doing so."""
    for path in NAMESPACES.glob(f"{PREFIX}-*") if NAMESPACES.is_dir() else []:
        found = re.match(rf"{PREFIX}-(\d+)-", path.name)
        if found and not Path(f"/proc/{found[1]}").exists():
            subprocess.run(["ip", "netns", "delete", path.name], capture_output=True)
            shutil.rmtree(ETC / path.name, ignore_errors=True)


def _name(process: int, serial: int, host: str) -> str:
    return f"{PREFIX}-{process}-{serial}-{host}"


def _run(*words: str) -> str:
    """Run a command of the system's."""
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise HostsError(f"`{' '.join(words)}` failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Network:
    """Hosts and the switch between them. They last as long as this object, or else are removed by the next one."""

    def __init__(self, lines: Mapping[str, HostLine], *, addresses: str = ADDRESSES) -> None:
        """`addresses` are the first three numbers of all hosts' addresses; the fourth counts the hosts from 1."""
        self._lines, self._addresses = dict(lines), addresses
        self._places = {host: place for place, host in enumerate(self._lines)}
        self._moves = dict.fromkeys(self._lines, 0)
        self._serial = next(_serial)
        self._distance: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Make the switch and all hosts."""
        remove_orphans()
        try:
            self._make()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove everything."""
        self.remove()

    @property
    def hosts(self) -> list[str]:
        """The names of all hosts."""
        return list(self._lines)

    def address(self, host: str) -> str:
        """Return a host's address; the first of a network's hosts may be moved."""
        return f"{self._addresses}.{1 + self._places[host] + (MOST_MOVES + 1) * self._moves[host]}"

    def name(self, host: str) -> str:
        """Return the name by which hosts know each other, wherever they are."""
        return f"{host}.fedora.test"

    def move(self, host: str) -> None:
        """Give a host another address behind the same name: nothing reaches it at the earlier one."""
        if self._places[host] > MOST_MOVES:
            raise HostsError(f"only the first {MOST_MOVES + 1} hosts of a network have other addresses to move to")
        here, before = self.namespace(host), self.address(host)
        self._moves[host] = (self._moves[host] + 1) % MOST_MOVES
        _run("ip", "-n", here, "address", "del", f"{before}/24", "dev", DEVICE)  # first: it would take others along
        _run("ip", "-n", here, "address", "add", f"{self.address(host)}/24", "dev", DEVICE)
        self._tell_names()

    def namespace(self, host: str) -> str:
        """Return the system's name of a host's namespace."""
        return _name(os.getpid(), self._serial, host)

    @property
    def switch(self) -> str:
        """The system's name of the switch's namespace."""
        return _name(os.getpid(), self._serial, "SWITCH")

    def command(self, host: str, *words: str) -> list[str]:
        """Return the command that runs another one on a host."""
        return ["ip", "netns", "exec", self.namespace(host), *words]

    def processes(self, host: str) -> list[int]:
        """Return the ids of the processes that run on a host."""
        return [int(word) for word in _run("ip", "netns", "pids", self.namespace(host)).split()]

    def counters(self, host: str) -> Counters:
        """Read the kernel's counters of a host's device."""
        told: dict[str, Any] = json.loads(
            _run("ip", "-n", self.namespace(host), "-j", "-s", "link", "show", "dev", DEVICE)
        )[0]["stats64"]
        received, sent = told["rx"], told["tx"]
        return Counters(received["bytes"], received["packets"], sent["bytes"], sent["packets"])

    def limit(self, host: str, rate: float | None) -> None:
        """Set the rate of a line, in bits per second each way; None lifts the limit."""
        for namespace, device in ((self.namespace(host), DEVICE), (self.switch, self._port(host))):
            if rate is None:
                # Fails when there is no limit, which is what is wanted.
                subprocess.run(["tc", "-n", namespace, "qdisc", "del", "dev", device, "root"], capture_output=True)
                continue
            burst = max(SMALLEST_BURST_BYTES, int(rate / 8 * BURST_SECONDS))
            bucket = ("tbf", "rate", f"{int(rate)}bit", "burst", f"{burst}", "limit", f"{QUEUE_BYTES}")
            _run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", *bucket)

    def cut(self, host: str) -> None:
        """Pull a host's cable: nothing arrives any more, and nobody is told."""
        _run("ip", "-n", self.switch, "link", "set", self._port(host), "down")

    def mend(self, host: str) -> None:
        """Put a host's cable back."""
        _run("ip", "-n", self.switch, "link", "set", self._port(host), "up")

    def round_trip(self, one: str, other: str, *, times: int = 5) -> float:
        """Measure the seconds that a small packet takes from one host to another and back: the median of some."""
        with self._socket(one, socket.SOCK_DGRAM) as near, self._socket(other, socket.SOCK_DGRAM) as far:
            near.connect(far.getsockname())
            taken = []
            for _ in range(times + 1):
                began = time.perf_counter()
                near.send(b"?")
                _, caller = far.recvfrom(16)
                far.sendto(b"!", caller)
                near.recv(16)
                taken.append(time.perf_counter() - began)
        return statistics.median(taken[1:])  # the first also asks for the other's hardware address

    def throughput(self, one: str, other: str, *, size: int, timeout: float = 30.0) -> float:
        """Measure the bits per second of a TCP connection that sends `size` bytes from one host to another."""
        with self._socket(other, socket.SOCK_STREAM) as door, self._socket(one, socket.SOCK_STREAM) as near:
            near.settimeout(timeout)
            door.listen()
            near.connect(door.getsockname())
            far, _ = door.accept()
            sender = threading.Thread(target=near.sendall, args=(bytes(size),))
            began = time.perf_counter()
            sender.start()
            with far:
                left = size
                while left:
                    left -= len(far.recv(min(left, 1 << 16)))
            taken = time.perf_counter() - began
            sender.join()
        return size * 8 / taken

    @contextmanager
    def capture(self) -> Iterator["Capture"]:
        """Record every frame that enters the switch, while this lasts."""
        with inside(self.switch):
            ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_FRAMES))
        ear.setsockopt(socket.SOL_SOCKET, _FORCE_BUFFER, 1 << 27)
        ear.settimeout(0.2)
        capture = Capture(ear)
        try:
            yield capture
        finally:
            capture.stop()

    def remove(self) -> None:
        """Remove everything that was made."""
        if self._distance:
            if self._distance.stdin:
                self._distance.stdin.close()
            self._distance.wait(timeout=10)
            self._distance = None
        for namespace in (*(self.namespace(host) for host in self._lines), self.switch):
            if (NAMESPACES / namespace).exists():
                _run("ip", "netns", "delete", namespace)
            shutil.rmtree(ETC / namespace, ignore_errors=True)

    def _socket(self, host: str, kind: socket.SocketKind) -> socket.socket:
        with inside(self.namespace(host)):
            made = socket.socket(socket.AF_INET, kind)
        made.settimeout(30)
        made.bind((self.address(host), 0))
        return made

    def _port(self, host: str) -> str:
        return f"port{self._places[host]}"

    def _make(self) -> None:
        _make_namespace(self.switch)
        _run("ip", "-n", self.switch, "link", "add", BRIDGE, "type", "bridge")
        _run("ip", "-n", self.switch, "link", "set", BRIDGE, "up")
        for host in self._lines:
            _make_namespace(self.namespace(host))
        self._make_distance({host: line.delay for host, line in self._lines.items() if line.delay})
        for host, line in self._lines.items():
            self._connect(host, line)
        self._tell_names()

    def _tell_names(self) -> None:
        """Have all hosts know each other by name; files are changed in place, as processes have them open."""
        lines = ["127.0.0.1 localhost", *(f"{self.address(host)} {self.name(host)}" for host in self._lines)]
        for host in self._lines:
            folder = ETC / self.namespace(host)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "hosts").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _make_distance(self, delays: Mapping[str, float]) -> None:
        """Start the process that is the distance; its devices are the lines of the hosts that have one."""
        if not delays:
            return
        wires = [f"{self.namespace(host)}:{self._port(host)}:{seconds}" for host, seconds in delays.items()]
        # Its standard input is held open here, so that it ends even if this process is killed.
        self._distance = subprocess.Popen(
            [sys.executable, "-m", "fedora_vfl.bench.hosts.distance", self.switch, *wires],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if not self._distance.stdout or self._distance.stdout.readline().strip() != READY:
            raise HostsError(
                "lines with a delay cannot be made: the process that holds frames back ended before it was ready"
            )

    def _connect(self, host: str, line: HostLine) -> None:
        here, port = self.namespace(host), self._port(host)
        if not line.delay:
            _run("ip", "link", "add", DEVICE, "netns", here, "type", "veth", "peer", "name", port, "netns", self.switch)
            if not line.whole_packets:
                for namespace, device in ((here, DEVICE), (self.switch, port)):
                    _cut_packets(namespace, device)
        _run("ip", "-n", self.switch, "link", "set", port, "master", BRIDGE)
        _run("ip", "-n", self.switch, "link", "set", port, "up")
        _run("ip", "-n", here, "link", "set", DEVICE, "up")
        _run("ip", "-n", here, "address", "add", f"{self.address(host)}/24", "dev", DEVICE)
        if line.closed:
            self._close(host, line.open_ports)
        self.limit(host, line.rate)

    def _close(self, host: str, ports: Sequence[int]) -> None:
        """Drop whatever does not answer the host's own calls, and is not for an open port."""
        accepted = (
            ("--in-interface", "lo"),
            ("--match", "conntrack", "--ctstate", "ESTABLISHED,RELATED"),
            *(("--protocol", "tcp", "--dport", str(port)) for port in ports),
        )
        rules = [("--append", "INPUT", *one, "--jump", "ACCEPT") for one in accepted]
        for rule in (*rules, ("--policy", "INPUT", "DROP")):
            _run(*self.command(host, "iptables", "--wait", *rule))


def _make_namespace(namespace: str) -> None:
    """Make a namespace with a loopback device and without IPv6, whose announcements would be counted too."""
    _run("ip", "netns", "add", namespace)
    _run("ip", "-n", namespace, "link", "set", "lo", "up")
    with suppress(OSError), inside(namespace):  # a kernel without IPv6 has nothing to turn off
        for which in ("all", "default"):
            Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6").write_text("1")


def _cut_packets(namespace: str, device: str) -> None:
    """Have the kernel cut packets into frames before a device takes, and counts, them."""
    value = ctypes.create_string_buffer(struct.pack("II", _SEGMENTATION_OFFLOAD, 0))
    request = struct.pack("16sP16x", device.encode(), ctypes.addressof(value))
    with inside(namespace), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        fcntl.ioctl(handle, _DEVICE_FEATURES, request)


class Capture:
    """The frames that entered a switch, put together again to what was said over TCP."""

    def __init__(self, ear: socket.socket) -> None:
        self._ear, self._stopping = ear, threading.Event()
        self._pieces: dict[bytes, dict[int, bytes]] = {}
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Hear out what is under way, and no more."""
        self._stopping.set()
        self._thread.join()
        self._ear.close()

    def said(self) -> list[bytes]:
        """Return what was said, one entry per connection and direction."""
        return [b"".join(piece for _, piece in sorted(pieces.items())) for pieces in self._pieces.values()]

    def contains(self, words: bytes) -> bool:
        """Tell whether some words were said in the open."""
        return any(words in one for one in self.said())

    def _listen(self) -> None:
        while True:
            try:
                frame, origin = self._ear.recvfrom(LARGEST_FRAME)
            except TimeoutError:
                if self._stopping.is_set():
                    return
                continue
            if origin[2] != _OUTGOING:  # it has been heard where it came in
                self._keep(frame)

    def _keep(self, frame: bytes) -> None:
        """Keep the content of a TCP segment in IPv4."""
        if len(frame) < 54 or frame[12:14] != b"\x08\x00" or frame[23] != socket.IPPROTO_TCP:
            return
        start = 14 + 4 * (frame[14] & 0x0F)
        end = 14 + int.from_bytes(frame[16:18], "big")
        content = frame[start + 4 * (frame[start + 12] >> 4) : end]
        if content:
            connection = frame[26:34] + frame[start : start + 4]
            self._pieces.setdefault(connection, {})[int.from_bytes(frame[start + 4 : start + 8], "big")] = content
