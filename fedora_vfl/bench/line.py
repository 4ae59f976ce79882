"""The line between two members: its round trip and rate, over the same kind of stream that parties use, and advice.

One member listens, the other calls. What travels is zeros; nothing of a party is read.
"""

import asyncio
import statistics
import time
from dataclasses import dataclass
from typing import Any

import grpc

from fedora_vfl.bench.to_accuracy.seconds import LineSpeed, StepCost
from fedora_vfl.bench.to_accuracy.ways import TIGHT, Way
from fedora_vfl.errors import PartyError
from fedora_vfl.wire.encodings import encoding_named

METHOD = "/fedora.bench.Line/Open"
OPTIONS = [("grpc.max_receive_message_length", 64 * 1024 * 1024), ("grpc.max_send_message_length", -1)]
TRIPS, BYTES, SECONDS = 30, 1024 * 1024, 3.0
WAIT_SECONDS = 30.0
ECHO, TAKE, GIVE = b"e", b"t", b"g"  # the first byte of a message: send it back; only say that it came; send as much
NEARLY = 1.3  # a way that is slower than the best by no more, and simpler, is preferred

# From the exact to the most thrifty. `fedora bench comms --to-accuracy` measures what each does to the accuracy.
ADVISED = (
    Way("as it is"),
    Way("overlap", train={"overlap": 2}),
    Way("more overlap", train={"overlap": 8}),
    Way("int8", {"encoding": "int8"}),
    Way("fewest bytes", TIGHT),
    Way("fewest bytes, overlap", TIGHT, {"overlap": 4}),
    Way("fewest bytes, more overlap", TIGHT, {"overlap": 8}),
)


@dataclass(frozen=True)
class Work:
    """A training step, as far as advice depends on it."""

    batch: int
    embedding: int
    parties: int  # passive ones
    compute: float  # seconds

    def cost(self, way: Way) -> StepCost:
        """Return what a step of a way takes."""
        encoding = way.wire.get("encoding", "float32")
        names = way.wire.get("embeddings", encoding), way.wire.get("gradients", encoding)
        up, down = (self.parties * encoding_named(name).nbytes(self.batch, self.embedding) for name in names)
        return StepCost(self.compute, up, down, way.overlap)


@dataclass(frozen=True)
class Advice:
    """What to take for a line, and what it gives."""

    way: Way
    seconds: float
    exact: float


async def serve(address: str) -> None:
    """Answer callers until stopped."""

    async def open_stream(_: object, context: Any) -> None:
        while isinstance(message := await context.read(), bytes) and message:
            match message[:1]:
                case b"e":
                    await context.write(message)
                case b"g":
                    await context.write(bytes(BYTES))
                case _:
                    await context.write(b"\x00")

    server = grpc.aio.server(options=OPTIONS)
    service, method = METHOD[1:].split("/")
    handlers: dict[str, Any] = {method: grpc.stream_stream_rpc_method_handler(open_stream)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    try:
        server.add_insecure_port(address)
    except RuntimeError:
        raise PartyError(
            "this member", f"cannot listen at {address}: it is taken, or no address of this host"
        ) from None
    await server.start()
    try:
        await server.wait_for_termination()
    finally:
        await server.stop(0)


async def measure(address: str) -> tuple[LineSpeed, float]:
    """Return the line to a member that listens, at the rate of its slower direction, and the rate of the other."""
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await channel.channel_ready()
                stream: Any = channel.stream_stream(METHOD)()
                trips = [await _exchange(stream, ECHO) for _ in range(TRIPS)]
            trip = statistics.median(trips[5:])
            there, back = [await _rate(stream, kind, trip) for kind in (TAKE, GIVE)]
        except (TimeoutError, grpc.RpcError, grpc.aio.BaseError):
            said = f"does not answer at {address}: start `fedora bench line --listen {address}` there"
            raise PartyError("the other member", said) from None
    return LineSpeed(min(there, back), trip), max(there, back)


async def _rate(stream: Any, kind: bytes, trip: float) -> float:
    """Return bits per second one way: messages one after the other, without the time that a way and back takes."""
    message = kind + bytes(BYTES) if kind == TAKE else kind
    count, spent, began = 0, 0.0, time.perf_counter()
    async with asyncio.timeout(WAIT_SECONDS + SECONDS):
        while time.perf_counter() - began < SECONDS or count < 2:
            spent += max(1e-9, await _exchange(stream, message) - trip)
            count += 1
    return count * BYTES * 8 / spent


async def _exchange(stream: Any, message: bytes) -> float:
    began = time.perf_counter()
    await stream.write(message)
    if not isinstance(await stream.read(), bytes):
        raise TimeoutError
    return time.perf_counter() - began


def advise(line: LineSpeed, work: Work) -> Advice:
    """Return the first way that is nearly as fast as the fastest."""
    times = {way: work.cost(way).seconds(line) for way in ADVISED}
    best = min(times.values())
    way = next(way for way, seconds in times.items() if seconds <= NEARLY * best)
    return Advice(way, times[way], times[ADVISED[0]])
