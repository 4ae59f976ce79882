"""Connections: every gRPC option is set here, once, with its reason."""

import asyncio
import contextlib
import errno
import logging
import socket
import time
from collections.abc import Callable
from typing import Any, TypedDict

import grpc
from google.protobuf.descriptor import MethodDescriptor

from fedora_vfl.errors import PartyError, PortError
from fedora_vfl.wire import addresses
from fedora_vfl.wire.authorisation import Authorisation
from fedora_vfl.wire.handshakes import diagnose, look
from fedora_vfl.wire.pieces import FRAME_BYTES, PIECE_BYTES
from fedora_vfl.wire.tls import Credentials, Member
from protos.fedora.v1.failure_pb2 import Failure

# So long a connection may take to come up before somebody looks whether certificates are the reason.
SECURED_SECONDS = 3.0
HANDSHAKE_MS = 10_000
IDLE_MS = 300_000
# A job that names half a million ids is smaller. A party may answer far less, and the engine refuses it unread.
LARGEST_CONTROL_BYTES = 64 * 1024 * 1024
# An offer of five million ids of twenty letters is smaller, and so are twice the values of the largest batch. Such a
# parcel comes in pieces, the first of which says how large it is; no message between parties is larger than a piece.
LARGEST_EXCHANGE_BYTES = 128 * 1024 * 1024
MOST_STREAMS = 64  # on one connection; a member needs a few

log = logging.getLogger(__name__)


class Secured(TypedDict):
    """What a connection is secured by, if by anything: the own certificate, and whose the other one must be."""

    credentials: Credentials | None
    peer: Member


def options(silence: float, answer: float | None = None) -> list[tuple[str, int]]:
    """Return the options of both servers and clients.

    `answer` is for connections that carry tensors: how long a ping's answer may wait behind them on a slow line.
    """
    half = int(silence * 1000 / 2)
    return [
        # What is larger is not read: nobody can fill another's memory. A sender says itself what it may not send; see
        # Link.
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", PIECE_BYTES + FRAME_BYTES if answer else LARGEST_CONTROL_BYTES),
        ("grpc.max_concurrent_streams", MOST_STREAMS),
        # gRPC's own threads answer pings: a member that computes for minutes is alive, and one that was stopped, or cut
        # off without a goodbye, is known to be gone after `silence`: half of it until the ping, half for its answer.
        ("grpc.keepalive_time_ms", half),
        ("grpc.keepalive_timeout_ms", half),
        ("grpc.http2.ping_timeout_ms", max(half, int((answer or 0) * 1000))),
        ("grpc.keepalive_permit_without_calls", 1),
        # Nobody here compresses; a message that says it is could be small on the way and huge in memory.
        ("grpc.compression_enabled_algorithms_bitset", 1),
        # Without these a quiet connection's pings are taken for abuse and the connection is closed.
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", max(half // 2, 1)),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", max(half // 2, 1)),
        ("grpc.http2.max_ping_strikes", 0),
        # A connection over which nobody has anything under way does not stay for ever. (For servers.)
        ("grpc.max_connection_idle_ms", IDLE_MS),
        # Whoever connects and says nothing does not keep its place for two minutes, as it would otherwise.
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
        # Two servers must not share a port in silence.
        ("grpc.so_reuseport", 0),
        # Reconnect within the deadline, whatever the number of earlier attempts.
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 2000),
        # A name may stand for another address when a connection has broken; by default it is asked for twice a minute.
        ("grpc.dns_min_time_between_resolutions_ms", 1000),
        # Every channel has connections of its own. By default one that is dialled anew, after a machine has got another
        # address, may be given the connection of the last one, over which nothing comes any more.
        ("grpc.use_local_subchannel_pool", 1),
        # A proxy for the web, set in the environment, is not meant for members of a federation.
        ("grpc.enable_http_proxy", 0),
    ]


def path(method: MethodDescriptor) -> str:
    """Return the name by which a method of the wire contract is called."""
    return f"/{method.containing_service.full_name}/{method.name}"


def dial(
    address: str, silence: float, *, credentials: Credentials | None, peer: Member, answer: float | None = None
) -> grpc.aio.Channel:
    """Return a channel to a member at an address; it connects when it is first used."""
    chosen = options(silence, answer)
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=chosen)
    # The certificate must be that member's, wherever it is; the address need not be in it.
    known_as = ("grpc.ssl_target_name_override", peer.dns)
    return grpc.aio.secure_channel(address, credentials.for_client(), options=[*chosen, known_as])


async def reach(
    channel: grpc.aio.Channel,
    address: str,
    timeout: float,
    *,
    credentials: Credentials | None,
    peer: Member,
    waiting: Callable[[str], None] | None = None,
) -> None:
    """Wait until the member answers at the other end; a certificate that stands in the way is not waited for.

    `waiting` is told once, when that takes longer than it should.
    """
    began = time.monotonic()
    while (left := began + timeout - time.monotonic()) > 0:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(left, SECURED_SECONDS)):
                return await channel.channel_ready()
        if reason := await asyncio.to_thread(diagnose, address, credentials, peer):
            raise PartyError(peer.name, f"{reason} ({address})", Failure.PROTOCOL)
        if waiting:
            waiting(f"waiting for {peer.name} at {address}, {left:.0f} s at most")
            waiting = None
    obstacle = await asyncio.to_thread(look, address)
    raise PartyError(peer.name, f"cannot be reached at {address} within {timeout:g} s{obstacle}", Failure.SILENT)


async def check_right_service(
    call: grpc.aio.Call, address: str, *, credentials: Credentials | None, peer: Member
) -> None:
    """After a call has failed: say so if it was not for this caller, or not for whoever answers at the address."""
    code = await call.code() if call.done() else None
    if code == grpc.StatusCode.PERMISSION_DENIED:
        me = str(credentials.member) if credentials else "a caller"
        raise PartyError(me, await call.details(), Failure.PROTOCOL) from None
    if code == grpc.StatusCode.UNIMPLEMENTED:
        reason = f"is not what answers at {address}: the address leads to something else"
        raise PartyError(peer.name, reason, Failure.PROTOCOL) from None


async def listen(
    address: str,
    handlers: "dict[MethodDescriptor, grpc.RpcMethodHandler[Any, Any]]",
    silence: float,
    *,
    credentials: Credentials | None,
    answer: float | None = None,
    refused: Callable[[str], None] | None = None,
) -> grpc.aio.Server:
    """Start a server for the given methods; `refused` is told the path of each that a caller may not call."""
    server = grpc.aio.server(interceptors=[Authorisation(refused)], options=options(silence, answer))
    for method, handler in handlers.items():
        service = method.containing_service.full_name
        generic = grpc.method_handlers_generic_handler(service, {method.name: handler})
        server.add_generic_rpc_handlers((generic,))
    _check_free(address)
    try:
        if credentials is None:
            server.add_insecure_port(address)
        else:
            server.add_secure_port(address, credentials.for_server())
    except RuntimeError:
        raise PortError(f"{address} cannot be listened on") from None
    await server.start()
    log.info("listens at %s", address)
    return server


def _check_free(address: str) -> None:
    """Refuse an address that cannot be bound, with the reason that gRPC does not give."""
    host, port = addresses.split(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, _, _, place = found[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortError(f"{address} is in use by another process: stop it or choose another port") from None
        if error.errno == errno.EADDRNOTAVAIL:
            raise PortError(
                f"{address} is not this machine's: say where to listen, such as 0.0.0.0:{port}, with `--listen` "
                "(coordinator) or `listen` in the party file"
            ) from None
        raise PortError(f"{address} cannot be listened on: {error.strerror or error}") from None
