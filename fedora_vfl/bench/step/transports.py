"""Other ways to use gRPC: how long a message takes there and back over a stream, both ends in one process.

Nothing is computed in between, so that what a setting does shows in little time. Every way has a process of its own,
as what the C library was told about memory cannot be taken back.
"""

import multiprocessing
import queue
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import Connection
from typing import Any

import grpc

from fedora_vfl.process.memory import keep_freed_memory

OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
# An embedding of the tabular step and one of the wide step, and how often each goes there and back.
MESSAGES = {"64 KiB": (64 * 1024, 300), "2 MiB": (2 * 1024 * 1024, 40)}
WARM_UP = 5


@dataclass(frozen=True)
class Manner:
    """How gRPC is used."""

    options: tuple[tuple[str, int | str], ...] = ()
    keeps_memory: bool = True  # whether freed memory is kept, as parties do
    uvloop: bool = False
    unix: bool = False  # a socket in the file system in place of the network's
    threads: bool = False  # gRPC's blocking calls in place of those for asyncio

    @property
    def all_options(self) -> list[tuple[str, Any]]:
        """Options of either end."""
        return [*OPTIONS, *self.options]

    @property
    def address(self) -> str:
        """Where the server listens; a port is chosen then."""
        return f"unix:{tempfile.mktemp()}" if self.unix else "127.0.0.1:0"


PARTIES = "as parties do"
MANNERS = {
    PARTIES: Manner(),
    "freed memory is handed back": Manner(keeps_memory=False),
    "blocking calls": Manner(threads=True),
    "Unix socket": Manner(unix=True),
    "HTTP/2 frames of 1 MiB": Manner((("grpc.http2.max_frame_size", 1 << 20),)),
    "reads of 256 KiB and more": Manner(
        (
            ("grpc.experimental.tcp_read_chunk_size", 1 << 18),
            ("grpc.experimental.tcp_min_read_chunk_size", 1 << 18),
            ("grpc.experimental.tcp_max_read_chunk_size", 4 << 20),
        )
    ),
    "write buffer of 8 MiB": Manner((("grpc.http2.write_buffer_size", 8 << 20),)),
    "no bandwidth probe, window of 16 MiB": Manner(
        (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 16 << 20))
    ),
    "optimised for throughput": Manner((("grpc.optimization_target", "throughput"),)),
}
if find_spec("uvloop"):
    MANNERS["uvloop"] = Manner(uvloop=True)


def compare(repeat: int) -> dict[str, dict[str, float]]:
    """Return the milliseconds of a message there and back, by manner and message: the median of all repetitions."""
    found: dict[str, dict[str, list[float]]] = {name: {size: [] for size in MESSAGES} for name in MANNERS}
    for _ in range(repeat):
        for name, manner in MANNERS.items():
            for size, milliseconds in _apart(manner).items():
                found[name][size].append(milliseconds)
    return {name: {size: statistics.median(times) for size, times in sizes.items()} for name, sizes in found.items()}


def _apart(manner: Manner) -> dict[str, float]:
    """Measure in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_measure, args=(theirs, manner))
    process.start()
    theirs.close()
    try:
        measured: dict[str, float] = ours.recv()
        return measured
    finally:
        process.join(timeout=30)
        process.kill()


def _measure(end: Connection, manner: Manner) -> None:
    if manner.keeps_memory:
        keep_freed_memory()
    found = {}
    for name, (size, count) in MESSAGES.items():
        if manner.threads:
            times = _blocking(manner, bytes(size), count)
        else:
            times = import_module("uvloop" if manner.uvloop else "asyncio").run(_awaiting(manner, bytes(size), count))
        # The lower quartile: whatever else the machine does only adds.
        found[name] = 1000 * statistics.quantiles(times[WARM_UP:], n=4)[0]
    end.send(found)


async def _awaiting(manner: Manner, message: bytes, count: int) -> list[float]:
    async def echo(_: object, context: Any) -> None:
        while isinstance(received := await context.read(), bytes):
            await context.write(received)

    server = grpc.aio.server(options=manner.all_options)
    address = _listen(server, manner, echo)
    await server.start()
    times = []
    async with grpc.aio.insecure_channel(address, options=manner.all_options) as channel:
        stream: Any = channel.stream_stream("/bench/Echo")()
        for _ in range(WARM_UP + count):
            began = time.perf_counter()
            await stream.write(message)
            await stream.read()
            times.append(time.perf_counter() - began)
        await stream.done_writing()
        await stream.read()
    await server.stop(0)
    return times


def _blocking(manner: Manner, message: bytes, count: int) -> list[float]:
    def echo(received: Iterable[bytes], _: object) -> Iterator[bytes]:
        yield from received

    server = grpc.server(ThreadPoolExecutor(1), options=manner.all_options)
    address = _listen(server, manner, echo)
    server.start()
    sent, times = queue.SimpleQueue[bytes | None](), []
    with grpc.insecure_channel(address, options=manner.all_options) as channel:
        call: Any = channel.stream_stream("/bench/Echo")
        received = call(iter(sent.get, None))
        for _ in range(WARM_UP + count):
            began = time.perf_counter()
            sent.put(message)
            next(received)
            times.append(time.perf_counter() - began)
        sent.put(None)
    server.stop(0).wait()
    return times


def _listen(server: Any, manner: Manner, echo: Any) -> str:
    handlers: dict[str, Any] = {"Echo": grpc.stream_stream_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench", handlers),))
    port = server.add_insecure_port(address := manner.address)
    return address if manner.unix else f"127.0.0.1:{port}"
