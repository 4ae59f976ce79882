"""Mutated messages sent to real members on loopback, which must stay alive, prompt and small."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.errors import FedoraError
from fedora_vfl.settings.federation import Federation
from fedora_vfl.wire.channels import Secured, dial, path
from fedora_vfl.wire.protocol import COORDINATOR, PROTOCOL, VERSION
from fedora_vfl.wire.tls import COORDINATOR_MEMBER, Credentials, Member
from party import rejoining
from party.process import JOIN, PartyProcess
from party.settings import load_party
from protos.fedora.v1 import control_pb2, exchange_pb2
from protos.fedora.v1.control_pb2 import Dismiss, FromCoordinator, FromParty, Hello, Idle, Welcome
from protos.fedora.v1.exchange_pb2 import Greeting, Parcel
from protos.fedora.v1.failure_pb2 import Failure
from tests.fuzzing.mutation import mutated
from tests.stalls import stall

GROWTH_BYTES = 200 * 1024 * 1024  # an allocator keeps some of what large messages took
AT_ONCE, AT_ONCE_PLAINTEXT = 8, 24  # calls under way: one certificate may have eight streams
ANSWER_SECONDS = 0.2  # for what may never be answered
FRAME = re.compile(r'File ".+", line \d+, in |Traceback|unexpected')  # of a program, as logs have it
GREETED_ONE_IN = 4  # messages come behind a proper first one, where many are never answered

OPEN = exchange_pb2.DESCRIPTOR.services_by_name["Exchange"].methods_by_name["Open"]
JOBS = control_pb2.DESCRIPTOR.services_by_name["Jobs"]
SUBMIT = JOBS.methods_by_name["Submit"]


@dataclass
class Outcome:
    """What came of it."""

    messages: int = 0
    longest_wait: float = 0.0  # for an answer about its health, on a clock that also counts what else the machine does
    longest_stall: float = 0.0  # of such a wait, how long the member's event loop was at work
    growth: int = 0  # bytes of memory
    unforeseen: list[str] = field(default_factory=list)  # lines of its log


@dataclass(frozen=True)
class Service:
    """A service that a process offers: who serves it, and how one message is sent."""

    server: str
    caller: Member
    send: Callable[[grpc.aio.Channel, bytes, int], Awaitable[None]]


async def _open(channel: grpc.aio.Channel, data: bytes, number: int) -> None:
    greeting = Parcel(greeting=Greeting(protocol=PROTOCOL, party="passive-1", job=f"job-{number}"))
    await _stream(channel.stream_stream(path(OPEN))(), data, number, greeting.SerializeToString())


async def _join(channel: grpc.aio.Channel, data: bytes, number: int) -> None:
    hello = FromParty(hello=Hello(protocol=PROTOCOL, party="passive-1", version=VERSION))
    await _stream(channel.stream_stream(path(JOIN))(), data, number, hello.SerializeToString())


async def _ask_of_jobs(channel: grpc.aio.Channel, data: bytes, number: int) -> None:
    """Call one method of the service after the other; every other call submits, which reads the most."""
    method = SUBMIT if number % 2 else JOBS.methods[number // 2 % len(JOBS.methods)]
    if method.server_streaming:
        follow: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(path(method))
        stream = follow(data)
        await _bounded(stream, stream.read)
        return
    ask_once: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path(method))
    call = ask_once(data)

    async def answer() -> object:
        return await call

    await _bounded(call, answer)


async def _stream(call: "grpc.aio.StreamStreamCall[bytes, bytes]", data: bytes, number: int, first: bytes) -> None:
    """Send a message as the first of a stream, or behind a proper one."""

    async def speak() -> None:
        for message in [data] if number % GREETED_ONE_IN else [first, data]:
            await call.write(message)
        await call.read()

    await _bounded(call, speak)


async def _bounded(call: grpc.aio.Call, speak: Callable[[], Awaitable[object]]) -> None:
    """Say something, wait a little for an answer, and hang up."""
    try:
        with contextlib.suppress(TimeoutError, grpc.RpcError, asyncio.InvalidStateError):
            async with asyncio.timeout(ANSWER_SECONDS):
                await speak()
    finally:
        call.cancel()


SERVICES: dict[str, Service] = {
    "exchange": Service("active", Member("passive-1", "passive"), _open),
    "control": Service(COORDINATOR, Member("passive-1", "passive"), _join),
    "jobs": Service(COORDINATOR, Member("operator", "operator"), _ask_of_jobs),
}


async def fuzz(service: str, folder: Path, federation: Federation, *, seconds: float, seed: int, tls: bool) -> Outcome:
    """Send messages to one member for some time, and see how it takes them.

    Args:
        service: Which service.
        folder: A run that was prepared, with everybody's files.
        federation: Who takes part.
        seconds: How long.
        seed: What the messages follow from.
        tls: Whether the caller shows a member's certificate.
    """
    one = SERVICES[service]
    others = {name: list[str]() for name in (COORDINATOR, *federation.parties) if name != one.server}
    outcome, messages = Outcome(), mutated(service, seed)
    async with LocalCluster(folder, federation, programs=others) as cluster:
        address = (federation.coordinator if one.server == COORDINATOR else federation.active).address
        role = COORDINATOR_MEMBER if one.server == COORDINATOR else Member(one.server, "active")
        credentials = Credentials.load(folder / "certificates" / one.caller.name) if tls else None
        secured: Secured = {"credentials": credentials, "peer": role}
        process = cluster.processes[one.server]
        async with (
            dial(address, federation.deadlines.silence, **secured) as channel,
            # Channels of the same settings share a connection, and so its number of streams.
            dial(address, 2 * federation.deadlines.silence, **secured) as asking,
        ):
            await channel.channel_ready()
            await asking.channel_ready()
            before = memory(process.pid)
            ends = time.monotonic() + seconds
            watch = asyncio.create_task(_watch(asking, process.pid, ends, outcome))
            at_once = AT_ONCE if tls else AT_ONCE_PLAINTEXT
            workers = [asyncio.create_task(_work(one, channel, messages, ends, outcome)) for _ in range(at_once)]
            await asyncio.gather(watch, *workers)
            assert process.returncode is None, f"{one.server} has ended"
            outcome.growth = memory(process.pid) - before
            outcome.unforeseen = unforeseen_in(cluster.log_path(one.server))
    return outcome


async def _work(
    service: Service, channel: grpc.aio.Channel, messages: Iterator[bytes], ends: float, outcome: Outcome
) -> None:
    while time.monotonic() < ends:
        outcome.messages += 1
        await service.send(channel, next(messages), outcome.messages)


async def _watch(channel: grpc.aio.Channel, process: int, ends: float, outcome: Outcome) -> None:
    """Ask again and again how the member is."""
    while time.monotonic() < ends:
        waited, stalled = await stall(channel, process)
        outcome.longest_wait = max(outcome.longest_wait, waited)
        outcome.longest_stall = max(outcome.longest_stall, stalled)


def unforeseen_in(log: Path) -> list[str]:
    """Return the lines of a member's log that tell where an error came from which nobody foresaw."""
    return [line for line in log.read_text().splitlines() if FRAME.search(line)]


def memory(process: int) -> int:
    """Return the bytes of memory that a process holds."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * 4096


async def fuzz_party(folder: Path, party: str, *, seconds: float, seed: int) -> int:
    """Be a hostile coordinator to a real party, and return the number of messages; it may only fail as foreseen."""
    messages, count = mutated("party", seed), 0
    dismissal = FromCoordinator(dismiss=Dismiss()).SerializeToString()
    idle = FromParty(idle=Idle()).SerializeToString()

    async def serve(_: object, context: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
        nonlocal count
        await context.read()
        await context.write(FromCoordinator(welcome=Welcome(version=VERSION)).SerializeToString())
        while True:
            count += 1
            await context.write(next(messages))
            await context.write(dismissal)  # whatever it has begun, it lets go of and says so
            while (answer := await context.read()) != idle:
                if not isinstance(answer, bytes):
                    return  # it has hung up
                failure = FromParty.FromString(answer).failure
                assert failure.kind != Failure.INTERNAL, failure.reason

    rejoining.FIRST_PAUSE_SECONDS = 0.0  # whatever it takes amiss, it comes back at once
    settings, federation = load_party(folder / "parties" / f"{party}.yaml")
    async with _served(federation.coordinator.address, serve):
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            living = PartyProcess(settings, federation)
            with contextlib.suppress(TimeoutError, FedoraError):
                async with asyncio.timeout(ends - time.monotonic()):
                    await living.live()
    return count


@contextlib.asynccontextmanager
async def _served(address: str, join: Callable[..., Awaitable[None]]) -> AsyncIterator[None]:
    server = grpc.aio.server()
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(join)
    service = JOIN.containing_service.full_name
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {JOIN.name: handler}),))
    server.add_insecure_port(address)
    await server.start()
    try:
        yield
    finally:
        await server.stop(grace=0)
