"""Who may call what: the table covers every method, nothing else can be called, and the refused are not listened to."""

import asyncio
import contextlib
import importlib
import pkgutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

import protos.fedora.v1
from coordinator.metrics import CoordinatorMetrics
from coordinator.roster import JOIN, Roster
from fedora_vfl.authority import issue_all
from fedora_vfl.cluster.local import free_address, loopback_federation
from fedora_vfl.errors import PartyError
from fedora_vfl.process.health import CHECK, WATCH, Health
from fedora_vfl.wire.authorisation import PERMISSIONS
from fedora_vfl.wire.channels import Secured, check_right_service, dial, listen, path
from fedora_vfl.wire.meter import Totals
from fedora_vfl.wire.tls import COORDINATOR_MEMBER, Credentials

SECONDS = 20.0
DENIED, UNIMPLEMENTED = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED
MEMBERS = {"coordinator": "coordinator", "active": "active", "passive": "passive-1", "operator": "operator"}  # by role


def methods() -> Iterator[MethodDescriptor]:
    """Yield every method of every service of the contract, and those of the health service that members answer."""
    for module in pkgutil.iter_modules(protos.fedora.v1.__path__, "protos.fedora.v1."):
        if module.name.endswith("_pb2"):
            for service in importlib.import_module(module.name).DESCRIPTOR.services_by_name.values():
                yield from service.methods
    yield from (CHECK, WATCH)


def unlisted() -> MethodDescriptor:
    """Return a method that is in no table."""
    file = FileDescriptorProto(name="later.proto", package="fedora.v1", syntax="proto3")
    file.message_type.add(name="Anything")
    method = file.service.add(name="Later").method.add(name="Added")
    method.input_type = method.output_type = ".fedora.v1.Anything"
    pool = DescriptorPool()
    pool.Add(file)
    return pool.FindServiceByName("fedora.v1.Later").methods_by_name["Added"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    issue_all(loopback_federation(["passive-1"]), folder)
    return folder


@asynccontextmanager
async def served(
    handlers: "dict[MethodDescriptor, grpc.RpcMethodHandler[Any, Any]]",
    credentials: Credentials | None = None,
    refused: Callable[[str], None] | None = None,
) -> AsyncIterator[str]:
    address = free_address()
    server = await listen(address, handlers, 10, credentials=credentials, refused=refused)
    try:
        yield address
    finally:
        await server.stop(grace=0)


async def status(address: str, method: MethodDescriptor, shown: Credentials | None) -> grpc.StatusCode:
    """Call a method without sending anything, and return how that ends."""
    async with dial(address, 10, credentials=shown, peer=COORDINATOR_MEMBER) as channel:
        call: Any = channel.stream_stream(path(method))(timeout=SECONDS, wait_for_ready=True)
        code: grpc.StatusCode = await call.code()
        return code


def test_the_table_has_every_method_of_every_service_and_no_other() -> None:
    found = {(method.containing_service.full_name, method.name) for method in methods()}
    assert len(found) == 11
    assert set(PERMISSIONS) == found


async def answer_at_once(_: object, context: Any) -> None:
    """Serve a call that nobody may need to send anything to."""


@pytest.mark.parametrize("role", MEMBERS)
def test_every_method_is_for_the_roles_of_the_table_and_refuses_the_others_unheard(
    role: str, certificates: Path
) -> None:
    async def work() -> None:
        handler: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(answer_at_once)
        own, calling = (Credentials.load(certificates / name) for name in ("coordinator", MEMBERS[role]))
        async with served(dict.fromkeys(methods(), handler), own) as address:
            for method in methods():
                permission = PERMISSIONS[method.containing_service.full_name, method.name]
                expected = grpc.StatusCode.OK if role in permission.roles else DENIED
                assert await status(address, method, calling) == expected

    asyncio.run(work())


@pytest.mark.parametrize("secured", [True, False])
def test_a_method_that_is_not_in_the_table_is_refused_to_everybody(secured: bool, certificates: Path) -> None:
    called, told = list[str](), list[str]()

    async def answer(request: bytes, _: object) -> bytes:
        called.append("it ran")
        return b""

    async def work() -> None:
        handler: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(answer)
        own = Credentials.load(certificates / "coordinator") if secured else None
        async with served({unlisted(): handler}, own, told.append) as address:
            for name in MEMBERS.values():
                shown = Credentials.load(certificates / name) if secured else None
                assert await status(address, unlisted(), shown) == DENIED
            assert await status(address, JOIN, own) == UNIMPLEMENTED, "which tells a caller that its address is wrong"

    asyncio.run(work())
    assert not called
    assert told == ["/fedora.v1.Later/Added"] * len(MEMBERS)


def test_a_unary_call_is_refused_before_its_message_is_read(certificates: Path) -> None:
    (submit,) = (method for method in methods() if method.name == "Submit")

    async def answer(request: bytes, _: object) -> bytes:
        return request

    async def work() -> None:
        handler: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(answer)
        own, passive, operator = (
            Credentials.load(certificates / name) for name in ("coordinator", "passive-1", "operator")
        )
        async with served({submit: handler}, own) as address:
            assert await status(address, submit, passive) == DENIED, "though it has not sent a message yet"
            secured: Secured = {"credentials": passive, "peer": COORDINATOR_MEMBER}
            async with dial(address, 10, **secured) as channel:
                ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path(submit))
                call = ask(b"job", timeout=SECONDS)
                with pytest.raises(grpc.RpcError):
                    await call
                with pytest.raises(PartyError) as caught:
                    await check_right_service(call, address, **secured)
            said = "came with a job, which only a certificate of role operator allows"
            assert (caught.value.culprit, caught.value.reason) == ("passive-1 (passive)", said)
            async with dial(address, 10, credentials=operator, peer=COORDINATOR_MEMBER) as channel:
                ask = channel.unary_unary(path(submit))
                assert await ask(b"job", timeout=SECONDS) == b"job"

    asyncio.run(work())


def test_methods_of_all_forms_work_behind_the_guard() -> None:
    async def unary(request: bytes, _: object) -> bytes:
        return request + b"!"

    async def answers(request: bytes, _: object) -> AsyncIterator[bytes]:
        yield request
        yield b"!"

    async def joined(requests: AsyncIterator[bytes], _: object) -> bytes:
        return b"".join([one async for one in requests])

    async def echo(requests: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
        async for one in requests:
            yield one

    async def words() -> AsyncIterator[bytes]:
        for word in (b"a", b"b"):
            yield word

    async def ask(make: Any, behaviour: Any, call: Callable[[Any, str], Any]) -> Any:
        async with (
            served({JOIN: make(behaviour)}) as address,
            dial(address, 10, credentials=None, peer=COORDINATOR_MEMBER) as channel,
        ):
            return await call(channel, path(JOIN))

    async def all_of(stream: Any) -> list[bytes]:
        return [one async for one in stream]

    async def work() -> None:
        found = await ask(grpc.unary_unary_rpc_method_handler, unary, lambda at, name: at.unary_unary(name)(b"a"))
        assert found == b"a!"
        found = await ask(
            grpc.unary_stream_rpc_method_handler, answers, lambda at, name: all_of(at.unary_stream(name)(b"a"))
        )
        assert found == [b"a", b"!"]
        found = await ask(grpc.stream_unary_rpc_method_handler, joined, lambda at, name: at.stream_unary(name)(words()))
        assert found == b"ab"
        found = await ask(
            grpc.stream_stream_rpc_method_handler, echo, lambda at, name: all_of(at.stream_stream(name)(words()))
        )
        assert found == [b"a", b"b"]

    asyncio.run(work())


def test_an_attempt_to_join_with_a_certificate_that_does_not_allow_it_is_counted() -> None:
    federation = loopback_federation(["passive-1"])

    async def work() -> dict[tuple[str, ...], float]:
        metrics = CoordinatorMetrics(federation.parties)
        roster = Roster(federation, metrics, Health(), Totals())
        for method in (path(JOIN), "/fedora.v1.Jobs/Submit"):
            roster.note_refused_call(method)
        return next(dict(figure.values) for figure in metrics.figures() if figure.name == "refused_joins")

    assert asyncio.run(work()) == {(): 1.0}


def test_a_caller_has_only_so_many_calls_under_way_over_all_its_connections(certificates: Path) -> None:
    async def hold(messages: AsyncIterator[bytes], context: Any) -> None:
        await context.write(b"here")
        await asyncio.Event().wait()

    async def work() -> None:
        handler: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(hold)
        own, passive, active = (
            Credentials.load(certificates / name) for name in ("coordinator", "passive-1", "active")
        )
        most = PERMISSIONS["fedora.v1.Control", "Join"].at_once
        async with served({JOIN: handler}, own) as address, contextlib.AsyncExitStack() as channels:

            async def call(credentials: Credentials) -> "grpc.aio.StreamStreamCall[bytes, bytes]":
                secured: Secured = {"credentials": credentials, "peer": COORDINATOR_MEMBER}
                channel = await channels.enter_async_context(dial(address, SECONDS, **secured))
                return channel.stream_stream(path(JOIN))()

            async def let_in(credentials: Credentials) -> bool:
                try:
                    return await (await call(credentials)).read() == b"here"
                except grpc.aio.AioRpcError as error:
                    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
                    return False

            first = await call(passive)
            assert await first.read() == b"here"
            assert [await let_in(passive) for _ in range(most)] == [True] * (most - 1) + [False]
            assert await let_in(active), "others are not held up"
            first.cancel()
            async with asyncio.timeout(SECONDS):
                while not await let_in(passive):
                    pass

    asyncio.run(work())
