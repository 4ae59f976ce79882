"""The floors: the same arithmetic and the same tensors, without metering, checks, protobuf and deadlines."""

import asyncio
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc

from fedora_vfl.authority import issue_all
from fedora_vfl.bench.step.shapes import EPOCHS, ActiveWork, PassiveWork, Shape, from_bytes, to_bytes
from fedora_vfl.cluster.local import free_address
from fedora_vfl.settings.federation import Active, Coordinator, Federation
from fedora_vfl.wire.tls import Credentials, Member

OPTIONS: list[tuple[str, Any]] = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
ACTIVE, PASSIVE = Member("active", "active"), "passive-1"


def make_certificates(folder: Path) -> Path:
    """Make the certificates of both ends."""
    members = Federation(
        coordinator=Coordinator(address="127.0.0.1:1"),
        active=Active(name=ACTIVE.name, address="127.0.0.1:2"),
        passive=[PASSIVE],
    )
    issue_all(members, folder)
    return folder


class Watch:
    """Takes the time of every epoch."""

    def __init__(self, shape: Shape) -> None:
        self._steps, self._done, self._began = shape.steps, 0, 0.0
        self.seconds: list[float] = []  # of a step, by epoch

    def begin(self) -> None:
        """Begin to measure."""
        self._began = time.perf_counter()

    def step(self) -> None:
        """Count a step that is done."""
        self._done += 1
        if self._done % self._steps == 0:
            now = time.perf_counter()
            self.seconds.append((now - self._began) / self._steps)
            self._began = now


def one_process(shape: Shape) -> list[float]:
    """Run all parties' arithmetic here; return the seconds of a step in each epoch."""
    active, passive = ActiveWork(shape), [PassiveWork(shape) for _ in range(shape.parties)]
    watch = Watch(shape)
    watch.begin()
    for _ in range(EPOCHS * shape.steps):
        for party, gradient in zip(passive, active.learn([party.embed() for party in passive]), strict=True):
            party.learn(gradient)
        watch.step()
    return watch.seconds


def sockets(shape: Shape) -> list[float]:
    """Exchange over pairs of connected Unix sockets."""
    active, watch = ActiveWork(shape), Watch(shape)
    with Processes(_socket_passive, shape) as ends:
        received = [from_bytes(bytearray(end.recv_bytes()), shape) for end in ends]  # once all have started
        watch.begin()
        for step in range(EPOCHS * shape.steps):
            if step:
                received = [from_bytes(bytearray(end.recv_bytes()), shape) for end in ends]
            for end, gradient in zip(ends, active.learn(received), strict=True):
                end.send_bytes(to_bytes(gradient))
            watch.step()
    return watch.seconds


def _socket_passive(end: Connection, shape: Shape) -> None:
    work = PassiveWork(shape)
    for _ in range(EPOCHS * shape.steps):
        end.send_bytes(to_bytes(work.embed()))
        work.learn(from_bytes(bytearray(end.recv_bytes()), shape))


def bare_grpc(shape: Shape, certificates: Path | None = None) -> list[float]:
    """Exchange raw bytes over gRPC's bidirectional streams, with or without certificates."""
    active, address, watch = ActiveWork(shape), free_address(), Watch(shape)

    async def serve(ends: list[Connection]) -> None:
        arrived: asyncio.Queue[Any] = asyncio.Queue()
        over = asyncio.Event()

        async def open_stream(_: object, context: Any) -> None:
            await arrived.put(context)
            await over.wait()

        server = grpc.aio.server(options=OPTIONS)
        handlers: dict[str, Any] = {"Open": grpc.stream_stream_rpc_method_handler(open_stream)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench", handlers),))
        if certificates is None:
            server.add_insecure_port(address)
        else:
            server.add_secure_port(address, Credentials.load(certificates / ACTIVE.name).for_server())
        await server.start()
        for end in ends:
            end.send(address)
        streams = [await arrived.get() for _ in ends]
        watch.begin()
        for _ in range(EPOCHS * shape.steps):
            messages = await asyncio.gather(*(stream.read() for stream in streams))
            gradients = active.learn([from_bytes(message, shape) for message in messages])
            pairs = zip(streams, gradients, strict=True)
            await asyncio.gather(*(stream.write(to_bytes(gradient)) for stream, gradient in pairs))
            watch.step()
        over.set()
        await server.stop(1)

    with Processes(_grpc_passive, shape, certificates) as ends:
        asyncio.run(serve(ends))
    return watch.seconds


def _grpc_passive(end: Connection, shape: Shape, certificates: Path | None) -> None:
    work = PassiveWork(shape)

    async def exchange() -> None:
        async with _dial(end.recv(), certificates) as channel:
            await channel.channel_ready()
            stream: Any = channel.stream_stream("/bench/Open")()
            for _ in range(EPOCHS * shape.steps):
                await stream.write(to_bytes(work.embed()))
                work.learn(from_bytes(await stream.read(), shape))

    asyncio.run(exchange())


def _dial(address: str, certificates: Path | None) -> grpc.aio.Channel:
    if certificates is None:
        return grpc.aio.insecure_channel(address, options=OPTIONS)
    options = [*OPTIONS, ("grpc.ssl_target_name_override", ACTIVE.dns)]
    return grpc.aio.secure_channel(address, Credentials.load(certificates / PASSIVE).for_client(), options=options)


class Processes:
    """The passive parties of a floor, each a process with a socket to this one."""

    def __init__(self, target: Callable[..., None], shape: Shape, *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        pairs = [context.Pipe() for _ in range(shape.parties)]
        self._ends = [ours for ours, _ in pairs]
        self._processes = [context.Process(target=target, args=(theirs, shape, *arguments)) for _, theirs in pairs]

    def __enter__(self) -> list[Connection]:
        for process in self._processes:
            process.start()
        return self._ends

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.join(timeout=30)
            process.kill()
