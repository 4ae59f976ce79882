"""The line between two members: its round trip and rate, over the same kind of stream that parties use, and advice.

One member listens, the other calls. What travels is zeros; nothing of a party is read.
"""

import asyncio
import math
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
TRIPS, BYTES, SECONDS = 30, 256 * 1024, 2.0
# Messages under way at once while the rate is measured, as on a line that is never idle, and the seconds in which a
# connection finds out how fast it may go.
UNDER_WAY, WARM_UP_SECONDS = 16, 0.5
WAIT_SECONDS = 30.0
ECHO, TAKE, GIVE = b"e", b"t", b"g"  # the first byte of a message: send it back; only say that it came; send as much
NEARLY = 1.3  # a way that is slower than the best by no more, and simpler, is preferred


@dataclass(frozen=True)
class Choice:
    """A way, and how many times the plain one's epochs it takes to the same accuracy."""

    way: Way
    epochs: float = 1.0


# From the exact to the most thrifty. Epochs as in docs/results/to-accuracy.md, which `fedora bench comms --to-accuracy`
# measures: typical ones, of several data sets.
ADVISED = (
    Choice(Way("as it is")),
    Choice(Way("several steps", train={"local_steps": 4}), 0.7),
    Choice(Way("overlap", train={"overlap": 2}), 1.5),
    Choice(Way("overlap, several steps", train={"overlap": 8, "local_steps": 2}), 1.2),
    Choice(Way("overlap, smaller batches", train={"overlap": 8}, smaller=4), 1.3),
    Choice(Way("int8", {"encoding": "int8"}), 1.2),
    Choice(Way("few bytes", TIGHT)),
    Choice(Way("few bytes, overlap, several steps", TIGHT, {"overlap": 4, "local_steps": 2}), 1.0),
    Choice(Way("few bytes, overlap, smaller batches", TIGHT, {"overlap": 8}, smaller=4), 0.9),
)


@dataclass(frozen=True)
class Work:
    """A training step, as far as advice depends on it."""

    batch: int
    embedding: int
    parties: int  # passive ones
    compute: float  # seconds

    def batch_of(self, way: Way) -> int:
        """Return the rows of a batch."""
        return max(1, self.batch // way.smaller)

    def seconds(self, way: Way, line: LineSpeed) -> float:
        """Return what as many rows take as one batch has now, over a line."""
        return self.cost(way).seconds(line) * self.batch / self.batch_of(way)

    def cost(self, way: Way) -> StepCost:
        """Return what a step of a way takes."""
        encoding = way.wire.get("encoding", "float32")
        names = way.wire.get("embeddings", encoding), way.wire.get("gradients", encoding)
        up, down = (self.parties * encoding_named(name).nbytes(self.batch_of(way), self.embedding) for name in names)
        # A part of a step's time does not depend on its rows: a quarter of them takes about half of it.
        compute = self.compute * way.train.get("local_steps", 1) / math.sqrt(way.smaller)
        return StepCost(compute, up, down, way.overlap)


@dataclass(frozen=True)
class Advice:
    """What to take for a line, and what it gives."""

    choice: Choice
    batch: int  # rows
    seconds: float  # for as many rows as one batch has now
    exact: float

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        """What to write into the job file; nothing where all stays as it is."""
        way = self.way
        train = {**way.train, **({"batch_size": self.batch} if way.smaller > 1 else {})}
        return {name: one for name, one in (("wire", way.wire), ("train", train)) if one}

    @property
    def way(self) -> Way:
        """What to set."""
        return self.choice.way

    @property
    def faster(self) -> float:
        """How many times as fast the same accuracy is reached."""
        return self.exact / (self.seconds * self.choice.epochs)


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
            there, back = [await _rate(stream, kind) for kind in (TAKE, GIVE)]
        except (TimeoutError, grpc.RpcError, grpc.aio.BaseError):
            said = f"does not answer at {address}: start `fedora bench line --listen {address}` there"
            raise PartyError("the other member", said) from None
    return LineSpeed(min(there, back), trip), max(there, back)


async def _rate(stream: Any, kind: bytes) -> float:
    """Return bits per second one way, of messages that follow each other without a pause."""
    message = kind + bytes(BYTES) if kind == TAKE else kind
    async with asyncio.timeout(WAIT_SECONDS + WARM_UP_SECONDS + SECONDS):
        for _ in range(UNDER_WAY):
            await stream.write(message)
        await _pass(stream, message, WARM_UP_SECONDS)
        count, spent = await _pass(stream, message, SECONDS)
        for _ in range(UNDER_WAY):
            await _read(stream)
    return count * BYTES * 8 / spent


async def _pass(stream: Any, message: bytes, seconds: float) -> tuple[int, float]:
    """Follow every answer by another message, for so long; return how many came, and the seconds."""
    count, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds or count < 2:
        await _read(stream)
        await stream.write(message)
        count += 1
    return count, spent


async def _exchange(stream: Any, message: bytes) -> float:
    began = time.perf_counter()
    await stream.write(message)
    await _read(stream)
    return time.perf_counter() - began


async def _read(stream: Any) -> None:
    if not isinstance(await stream.read(), bytes):
        raise TimeoutError


def advise(line: LineSpeed, work: Work) -> Advice:
    """Return the first way that reaches an accuracy nearly as fast as the fastest."""
    exact = work.seconds(ADVISED[0].way, line)
    found = [Advice(one, work.batch_of(one.way), work.seconds(one.way, line), exact) for one in ADVISED]
    best = max(one.faster for one in found)
    return next(one for one in found if NEARLY * one.faster >= best)
