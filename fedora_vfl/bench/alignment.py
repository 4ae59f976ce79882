"""What a private alignment costs: seconds beside the bare library's, bytes and memory, at several sizes of sets.

Every party is a process of its own, with the software's own alignment and streams on loopback. The bare library does
as many hashes and multiplications, in as many processes as there are cores, right before and after.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import grpc

from fedora_vfl.cluster.local import free_address
from fedora_vfl.errors import PartyError
from fedora_vfl.storage import write_atomically
from fedora_vfl.wire import tensors
from fedora_vfl.wire.channels import dial, listen, path
from fedora_vfl.wire.link import Link, Stream
from fedora_vfl.wire.masking import alignment_bytes
from fedora_vfl.wire.meter import Meter
from fedora_vfl.wire.protocol import VERSION
from fedora_vfl.wire.tls import Member
from party.alignment import Terms
from party.curve_library import library
from party.exchange import ExchangeLink
from party.private_alignment import PrivateAlignment
from protos.fedora.v1.exchange_pb2 import DESCRIPTOR, Greeting, Parcel

OPEN = DESCRIPTOR.services_by_name["Exchange"].methods_by_name["Open"]
ACTIVE = "active"
SHARED = 0.8  # of every party's ids are common
TIMEOUT = 3600.0
BARE_SHARE = 0.1  # of the bare multiplications are done, and the rest reckoned
COLUMNS = (
    "ids of each party",
    "seconds",
    "bare library, seconds",
    "times",
    "in processor time",
    "hashes left out",
    "MB on all links",
    "predicted MB",
    "over",
    "memory of the active party, MB",
    "of a passive one",
    "pause, ms",
)
EXPLAINED = """\
The *bare library* does as many multiplications and hashes to the curve, in as many processes as there are cores, \
right before and after: a tenth of them, the rest is reckoned. *Times* is the one time by the other; *in processor \
time* other programs on the machine hardly count; *hashes left out* compares with multiplications alone. *MB on all \
links* are whole protobuf messages, and *predicted* is 32 bytes a masked id, 16 a slot of a table and a common row \
(`fedora_vfl/wire/masking.py`). *Memory* is what the alignment added to the most that a process held. *Pause* is the \
longest time in which a party's event loop did nothing else: what health checks may have had to wait."""


@dataclass(frozen=True)
class Point:
    """What one size came to."""

    ids: int
    passive: int
    seconds: float
    bare_seconds: float  # the library's, hashing to the curve included
    bare_multiplying: float  # of these, multiplications alone
    cpu_seconds: float  # of all parties together
    bare_cpu_seconds: float
    multiplications: int
    predicted_bytes: int
    protobuf_bytes: int
    memory_bytes: dict[str, int]  # by party: what the alignment added to the most that it held
    longest_pause: float  # seconds in which a party's event loop did nothing else, the longest of all parties
    load: float  # processes that wanted to run at once when it was done

    @property
    def over_bare(self) -> float:
        """How many times the bare library's time it took."""
        return self.seconds / self.bare_seconds

    @property
    def cpu_over_bare(self) -> float:
        """The same in the processors' own seconds, which other programs on the machine hardly change."""
        return self.cpu_seconds / self.bare_cpu_seconds


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def ids_of(member: int, count: int) -> Iterator[str]:
    """Yield a party's ids: the common ones, and some that are its own."""
    shared = int(SHARED * count)
    yield from (f"person-{number:09d}" for number in range(shared))
    yield from (f"person-of-{member}-{number:09d}" for number in range(count - shared))


async def measure(ids: int, passive: int) -> Point:
    """Align sets of one size, with the bare library's work before and after."""
    multiplications = ids * (1 + passive) + passive * 2 * ids
    bare = Bare(multiplications, hashes=ids * (1 + passive))
    bare.work()
    address, began = free_address(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        members = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", __spec__.name, str(number), str(passive), str(ids), address, folder),
                stdout=asyncio.subprocess.PIPE,
            )
            for number in range(passive + 1)
        ]
        try:
            told = await asyncio.gather(*(one.communicate() for one in members))
        finally:
            for one in members:
                if one.returncode is None:
                    one.kill()
    for number, one in enumerate(members):
        if one.returncode:
            raise PartyError(
                _name(number), f"failed with exit code {one.returncode} after {time.perf_counter() - began:.0f} s"
            )
    said, load = [json.loads(out) for out, _ in told], os.getloadavg()[0]
    bare.work()
    return Point(
        ids=ids,
        passive=passive,
        seconds=max(one["seconds"] for one in said),
        bare_seconds=bare.multiplying + bare.hashing,
        bare_multiplying=bare.multiplying,
        cpu_seconds=sum(one["cpu"] for one in said),
        bare_cpu_seconds=bare.cpu,
        multiplications=multiplications,
        predicted_bytes=alignment_bytes(ids, [ids] * passive, told=int(SHARED * ids), masking=True),
        protobuf_bytes=said[0]["protobuf"],
        memory_bytes={_name(number): one["memory"] for number, one in enumerate(said)},
        longest_pause=max(one["pause"] for one in said),
        load=load,
    )


class Bare:
    """The library alone on all cores: a tenth of the work is done, half of it at a time, and the rest reckoned."""

    def __init__(self, multiplications: int, *, hashes: int) -> None:
        self._counts = {_multiply: multiplications, _hash: hashes}
        self.multiplying = self.hashing = 0.0  # seconds of all of it
        self.cpu = 0.0  # the processors' own

    def work(self) -> None:
        """Do half of it."""
        for work, count in self._counts.items():
            with ProcessPoolExecutor(cores()) as pool:
                list(pool.map(work, [10] * cores()))
                began = time.perf_counter()
                spent = list(pool.map(work, [max(1, int(count * BARE_SHARE / 2 / cores()))] * cores()))
                seconds = (time.perf_counter() - began) / BARE_SHARE
            self.multiplying += seconds if work is _multiply else 0.0
            self.hashing += seconds if work is _hash else 0.0
            self.cpu += sum(spent) / BARE_SHARE


def _multiply(count: int) -> float:
    """Multiply points, and return the processor's seconds."""
    began, rbcl = time.process_time(), library()
    secret = rbcl.crypto_core_ristretto255_scalar_random()
    point = rbcl.crypto_core_ristretto255_random()
    multiply = rbcl.crypto_scalarmult_ristretto255
    for _ in range(count):
        point = multiply(secret, point)
    return time.process_time() - began


def _hash(count: int) -> float:
    """Hash ids to points, and return the processor's seconds."""
    began, to_point = time.process_time(), library().crypto_core_ristretto255_from_hash
    for number in range(count):
        to_point(hashlib.sha512(number.to_bytes(8, "little")).digest())
    return time.process_time() - began


def _name(number: int) -> str:
    return f"passive-{number}" if number else ACTIVE


async def _take_part(number: int, passive: int, count: int, address: str, folder: Path) -> dict[str, float]:
    """Be one party, and say what it cost."""
    names, me = tuple(_name(one) for one in range(1, passive + 1)), _name(number)
    alignment = PrivateAlignment(Terms("bench", me, ACTIVE, names, folder / me, threads=cores()))
    ids, meter = list(ids_of(number, count)), Meter()
    sets = {one: "train" if row % 5 else "test" for row, one in enumerate(ids)}  # what a party has before
    before, spent = _peak(), time.process_time()
    pauses = Pauses()
    if number:
        channel = dial(address, 60, answer=TIMEOUT, credentials=None, peer=Member(ACTIVE, "active"))
        await channel.channel_ready()
        call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(path(OPEN))()
        link = _link(call, me, ACTIVE, meter)
        await link.send(Parcel(greeting=Greeting(party=me)))
        began = time.perf_counter()
        async with pauses.watched():
            await alignment.offer(link, ids, timeout=TIMEOUT)
        seconds = time.perf_counter() - began
        link.close()
        await channel.close()
    else:
        arrived: asyncio.Queue[ExchangeLink] = asyncio.Queue()
        done = asyncio.Event()

        async def serve(_: object, context: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
            greeting = Parcel.FromString(await context.read()).greeting
            await arrived.put(_link(context, me, greeting.party, meter))
            await done.wait()

        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(serve)
        server = await listen(address, {OPEN: handler}, 60, credentials=None, answer=TIMEOUT)
        links = sorted([await arrived.get() for _ in range(passive)], key=lambda one: one.peer)
        shared = int(SHARED * count)
        began = time.perf_counter()
        async with pauses.watched():
            order = await alignment.arrange(links, sets, timeout=TIMEOUT)
        seconds = time.perf_counter() - began
        assert len(order.train) + len(order.test) == shared
        await asyncio.sleep(0.5)  # for the last messages to leave
        done.set()
        await server.stop(grace=1)
    protobuf = sum(one.protobuf_bytes for reading in meter.close() for one in reading.counts)
    return {
        "seconds": seconds,
        "cpu": time.process_time() - spent,
        "memory": _peak() - before,
        "protobuf": protobuf,
        "pause": pauses.longest,
    }


class Pauses:
    """How long an event loop leaves what else it has to do, such as health checks, waiting."""

    EVERY = 0.02

    def __init__(self) -> None:
        self.longest = 0.0
        self.longest_work = 0.0  # of the loop's own, in processor time: what else the machine does is not in it

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Watch while this lasts."""

        async def watch() -> None:
            while True:
                asked, worked = time.perf_counter(), time.thread_time()
                await asyncio.sleep(self.EVERY)
                self.longest = max(self.longest, time.perf_counter() - asked - self.EVERY)
                self.longest_work = max(self.longest_work, time.thread_time() - worked)

        task = asyncio.create_task(watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _link(stream: Stream, me: str, peer: str, meter: Meter) -> ExchangeLink:
    return Link(stream, me=me, peer=peer, meter=meter, pack=tensors.pack, unpack=tensors.unpack)


def _peak() -> int:
    """Return the most memory that this process has held, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def run(sizes: list[int], passive: int, out: Path, page: Path | None, say: Callable[[str], None]) -> None:
    """Measure all sizes, and write them down."""
    points: list[Point] = []
    pages = [out / "alignment.md", *([page] if page else [])]
    for ids in sizes:
        points.append(await measure(ids, passive))
        say(_described(points[-1]))
        _write(out / "alignment.json", points)
        for one in pages:
            write_atomically(one, as_page(points))
    say(f"Report: {' and '.join(map(str, pages))}")


def _described(point: Point) -> str:
    held = ", ".join(f"{name} {count / point.ids:.0f}" for name, count in point.memory_bytes.items())
    return (
        f"{point.ids:>9,} ids a party: {point.seconds:8.1f} s, {point.over_bare:.2f} times the bare library's "
        f"{point.bare_seconds:.1f} s ({point.cpu_over_bare:.2f} in processor time); "
        f"{point.protobuf_bytes / 1e6:.1f} MB, "
        f"{point.protobuf_bytes / point.predicted_bytes - 1:+.2%} over the prediction; bytes of memory an id: {held}; "
        f"longest pause of an event loop {1000 * point.longest_pause:.0f} ms"
    )


def as_page(points: Sequence[Point]) -> str:
    """Return all sizes as a page."""
    first = points[0]
    asked = "".join(f" --ids {one.ids}" for one in points) + (f" --passive {first.passive}" * (first.passive != 2))
    made = f"Made by `fedora bench alignment{asked}`, release {VERSION}, on {cores()} cores"
    who = f"{first.passive} passive parties and the active one, a process each, on loopback"
    lines = ("| " + " | ".join(cells) + " |" for cells in (COLUMNS, ["---:"] * len(COLUMNS), *map(_cells, points)))
    blocks = [
        "# What a private alignment costs",
        f"{made}: {who}; {SHARED:.0%} of each party's ids are common.",
        "\n".join(lines),
        EXPLAINED,
    ]
    # The parties themselves want two cores or more each.
    if (most := max(one.load for one in points)) > (first.passive + 2) * cores():
        busy = f"**The machine was busy**: up to {most:.0f} processes at once wanted its {cores()} cores"
        blocks.insert(2, f"{busy}. Figures by the clock tell little then; those in processor time hold.")
    return "\n\n".join(blocks) + "\n"


def _cells(point: Point) -> list[str]:
    held = point.memory_bytes
    passive = max(count for name, count in held.items() if name != ACTIVE)
    return [
        f"{point.ids:,}",
        f"{point.seconds:.1f}",
        f"{point.bare_seconds:.1f}",
        f"**{point.over_bare:.2f}**",
        f"{point.cpu_over_bare:.2f}",
        f"{point.seconds / point.bare_multiplying:.2f}",
        f"{point.protobuf_bytes / 1e6:.3f}",
        f"{point.predicted_bytes / 1e6:.3f}",
        f"{point.protobuf_bytes / point.predicted_bytes - 1:+.2%}",
        *(f"{count / 1e6:.0f} ({count / point.ids:.0f} B an id)" for count in (held[ACTIVE], passive)),
        f"{1000 * point.longest_pause:.0f}",
    ]


def _write(path: Path, points: Sequence[Point]) -> None:
    content = {
        "cores": cores(),
        "points": [{**asdict(one), "over_bare": one.over_bare, "cpu_over_bare": one.cpu_over_bare} for one in points],
    }
    write_atomically(path, json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    number, passive, count, address, folder = sys.argv[1:]
    print(json.dumps(asyncio.run(_take_part(int(number), int(passive), int(count), address, Path(folder)))))
