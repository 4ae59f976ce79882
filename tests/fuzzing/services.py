"""Mutated messages sent to real members on loopback, which must stay alive, prompt and small."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc

from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.errors import FedoraError
from fedora_vfl.process.health import UP, ask
from fedora_vfl.settings.federation import Federation
from fedora_vfl.wire.channels import Secured, dial, path
from fedora_vfl.wire.protocol import COORDINATOR, PROTOCOL, VERSION
from fedora_vfl.wire.tls import COORDINATOR_MEMBER, Credentials, Member
from party import process as party_process
from party.process import JOIN, PartyProcess
from party.settings import load_party
from protos.fedora.v1 import control_pb2, exchange_pb2
from protos.fedora.v1.control_pb2 import Dismiss, FromCoordinator, FromParty, Hello, Idle, Welcome
from protos.fedora.v1.exchange_pb2 import Greeting, Parcel
from tests.fuzzing.mutation import mutated

STALL_SECONDS = 1.0
GROWTH_BYTES = 200 * 1024 * 1024  # an allocator keeps some of what large messages took
AT_ONCE = 4  # calls under way
ANSWER_SECONDS = 0.2  # for what may never be answered

OPEN = exchange_pb2.DESCRIPTOR.services_by_name["Exchange"].methods_by_name["Open"]
SUBMIT = control_pb2.DESCRIPTOR.services_by_name["Jobs"].methods_by_name["Submit"]


@dataclass
class Outcome:
    """What came of it."""

    messages: int = 0
    longest_wait: float = 0.0
    growth: int = 0  # bytes of memory


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


async def _submit(channel: grpc.aio.Channel, data: bytes, number: int) -> None:
    submit: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path(SUBMIT))
    call = submit(data)

    async def answer() -> object:
        return await call

    await _bounded(call, answer)


async def _stream(call: "grpc.aio.StreamStreamCall[bytes, bytes]", data: bytes, number: int, first: bytes) -> None:
    """Send a message as the first of a stream, or behind a proper one."""

    async def speak() -> None:
        for message in [first, data] if number % 2 else [data]:
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
    "jobs": Service(COORDINATOR, Member("operator", "operator"), _submit),
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
            dial(address, federation.deadlines.silence, **secured) as asking,
        ):
            await channel.channel_ready()
            await asking.channel_ready()
            before = memory(process.pid)
            ends = time.monotonic() + seconds
            watch = asyncio.create_task(_watch(asking, ends, outcome))
            workers = [asyncio.create_task(_work(one, channel, messages, ends, outcome)) for _ in range(AT_ONCE)]
            await asyncio.gather(watch, *workers)
            assert process.returncode is None, f"{one.server} has ended"
            outcome.growth = memory(process.pid) - before
    return outcome


async def _work(
    service: Service, channel: grpc.aio.Channel, messages: Iterator[bytes], ends: float, outcome: Outcome
) -> None:
    while time.monotonic() < ends:
        outcome.messages += 1
        await service.send(channel, next(messages), outcome.messages)


async def _watch(channel: grpc.aio.Channel, ends: float, outcome: Outcome) -> None:
    """Ask again and again how the member is."""
    while time.monotonic() < ends:
        began = time.monotonic()
        await ask(channel, UP, timeout=20 * STALL_SECONDS)
        outcome.longest_wait = max(outcome.longest_wait, time.monotonic() - began)


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

    vars(party_process)["REJOIN_SECONDS"] = 0.0  # whatever it takes amiss, it comes back at once
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
