"""What a private alignment costs: seconds beside the bare library's, bytes and memory, at several sizes of sets.

Every party is a process of its own, with the software's own alignment and streams on loopback. The bare library does
as many hashes and multiplications, in as many processes as there are cores, right after.
"""

import asyncio
import hashlib
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
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
from fedora_vfl.wire.tls import Member
from party.alignment import Terms
from party.exchange import ExchangeLink
from party.masking import library
from party.private_alignment import PrivateAlignment
from protos.fedora.v1.exchange_pb2 import DESCRIPTOR, Greeting, Parcel

OPEN = DESCRIPTOR.services_by_name["Exchange"].methods_by_name["Open"]
ACTIVE = "active"
SHARED = 0.8  # of every party's ids are common
TIMEOUT = 3600.0
BARE_SHARE = 0.1  # of the bare multiplications are done, and the rest reckoned


@dataclass(frozen=True)
class Point:
    """What one size came to."""

    ids: int
    passive: int
    seconds: float
    bare_seconds: float
    cpu_seconds: float  # of all parties together
    bare_cpu_seconds: float
    multiplications: int
    predicted_bytes: int
    protobuf_bytes: int
    memory_bytes: dict[str, int]  # by party: what the alignment added to the most that it held

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
    """Align sets of one size."""
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
    said = [json.loads(out) for out, _ in told]
    multiplications = ids * (1 + passive) + passive * 2 * ids
    bare_seconds, bare_cpu_seconds = bare(multiplications, hashes=ids * (1 + passive))
    return Point(
        ids=ids,
        passive=passive,
        seconds=max(one["seconds"] for one in said),
        bare_seconds=bare_seconds,
        cpu_seconds=sum(one["cpu"] for one in said),
        bare_cpu_seconds=bare_cpu_seconds,
        multiplications=multiplications,
        predicted_bytes=alignment_bytes(ids, [ids] * passive, told=int(SHARED * ids), masking=True),
        protobuf_bytes=said[0]["protobuf"],
        memory_bytes={_name(number): one["memory"] for number, one in enumerate(said)},
    )


def bare(multiplications: int, *, hashes: int) -> tuple[float, float]:
    """Return the seconds that the library alone takes on all cores, and those of the processors; a tenth is done."""
    with ProcessPoolExecutor(cores()) as pool:
        list(pool.map(_bare, [(10, 10)] * cores()))
        began = time.perf_counter()
        share = BARE_SHARE / cores()
        spent = list(pool.map(_bare, [(int(multiplications * share), int(hashes * share))] * cores()))
        return (time.perf_counter() - began) / BARE_SHARE, sum(spent) / BARE_SHARE


def _bare(counts: tuple[int, int]) -> float:
    """Hash and multiply, and return the processor's seconds."""
    began = time.process_time()
    rbcl = library()
    secret = rbcl.crypto_core_ristretto255_scalar_random()
    point = rbcl.crypto_core_ristretto255_random()
    multiply, to_point = rbcl.crypto_scalarmult_ristretto255, rbcl.crypto_core_ristretto255_from_hash
    for _ in range(counts[0]):
        point = multiply(secret, point)
    for number in range(counts[1]):
        to_point(hashlib.sha512(number.to_bytes(8, "little")).digest())
    return time.process_time() - began


def _name(number: int) -> str:
    return f"passive-{number}" if number else ACTIVE


async def _take_part(number: int, passive: int, count: int, address: str, folder: Path) -> dict[str, float]:
    """Be one party, and say what it cost."""
    names, me = tuple(_name(one) for one in range(1, passive + 1)), _name(number)
    alignment = PrivateAlignment(Terms("bench", me, ACTIVE, names, folder / me, threads=cores()))
    ids, meter = list(ids_of(number, count)), Meter()
    before, spent = _peak(), time.process_time()
    if number:
        channel = dial(address, 60, answer=TIMEOUT, credentials=None, peer=Member(ACTIVE, "active"))
        await channel.channel_ready()
        call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(path(OPEN))()
        link = _link(call, me, ACTIVE, meter)
        await link.send(Parcel(greeting=Greeting(party=me)))
        began = time.perf_counter()
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
        began = time.perf_counter()
        shared = int(SHARED * count)
        sets = {one: "train" if row % 5 else "test" for row, one in enumerate(ids)}
        order = await alignment.arrange(links, sets, timeout=TIMEOUT)
        seconds = time.perf_counter() - began
        assert len(order.train) + len(order.test) == shared
        await asyncio.sleep(0.5)  # for the last messages to leave
        done.set()
        await server.stop(grace=1)
    protobuf = sum(one.protobuf_bytes for reading in meter.close() for one in reading.counts)
    return {"seconds": seconds, "cpu": time.process_time() - spent, "memory": _peak() - before, "protobuf": protobuf}


def _link(stream: Stream, me: str, peer: str, meter: Meter) -> ExchangeLink:
    return Link(stream, me=me, peer=peer, meter=meter, pack=tensors.pack, unpack=tensors.unpack)


def _peak() -> int:
    """Return the most memory that this process has held, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def run(sizes: list[int], passive: int, out: Path, say: Callable[[str], None]) -> None:
    """Measure all sizes, and write them down."""
    points: list[Point] = []
    for ids in sizes:
        points.append(await measure(ids, passive))
        say(_described(points[-1]))
        _write(out, points)


def _described(point: Point) -> str:
    held = ", ".join(f"{name} {count / point.ids:.0f}" for name, count in point.memory_bytes.items())
    return (
        f"{point.ids:>9,} ids a party: {point.seconds:8.1f} s, {point.over_bare:.2f} times the bare library's "
        f"{point.bare_seconds:.1f} s ({point.cpu_over_bare:.2f} in processor time); "
        f"{point.protobuf_bytes / 1e6:.1f} MB, "
        f"{point.protobuf_bytes / point.predicted_bytes - 1:+.2%} over the prediction; bytes of memory an id: {held}"
    )


def _write(out: Path, points: list[Point]) -> None:
    content = {
        "cores": cores(),
        "points": [{**asdict(one), "over_bare": one.over_bare, "cpu_over_bare": one.cpu_over_bare} for one in points],
    }
    write_atomically(out / "alignment.json", json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    number, passive, count, address, folder = sys.argv[1:]
    print(json.dumps(asyncio.run(_take_part(int(number), int(passive), int(count), address, Path(folder)))))
