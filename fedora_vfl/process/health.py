"""Whether a process is up and ready: gRPC's standard health service, on the server that a member has anyway."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from fedora_vfl.wire.channels import path

# The whole process: SERVING from the moment it listens until it is told to stop.
UP = ""
# The coordinator: all parties have joined. The active party: its data is read, and it has joined the coordinator.
READY = "fedora.ready"

SERVICE = health_pb2.DESCRIPTOR.services_by_name["Health"]
CHECK, WATCH = SERVICE.methods_by_name["Check"], SERVICE.methods_by_name["Watch"]

Request, Response = health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse


class Health:
    """What a member says of itself to whoever checks or watches it.

    Not the servicer of grpcio-health-checking: there a watcher that does not read could hold up the one who reports.
    """

    def __init__(self) -> None:
        self._status: dict[str, int] = {UP: Response.SERVING, READY: Response.NOT_SERVING}
        self._leaving = False
        self._changed = asyncio.Event()

    def handlers(self) -> "dict[MethodDescriptor, grpc.RpcMethodHandler[Any, Any]]":
        """Return the methods of the health service, for a server to listen for."""
        return {
            CHECK: grpc.unary_unary_rpc_method_handler(self._check),
            WATCH: grpc.unary_stream_rpc_method_handler(self._watch),
        }

    def set_ready(self, ready: bool) -> None:
        """Say whether this member can take part in a job now; once it is leaving it cannot."""
        if not self._leaving:
            self._tell({READY: Response.SERVING if ready else Response.NOT_SERVING})

    def leave(self) -> None:
        """Say NOT_SERVING of everything, for good: the process is about to end."""
        self._leaving = True
        self._tell(dict.fromkeys(self._status, Response.NOT_SERVING))

    def _tell(self, status: dict[str, int]) -> None:
        self._status.update(status)
        # Whoever waits for the old event looks again; the next change has an event of its own.
        self._changed.set()
        self._changed = asyncio.Event()

    async def _check(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        """Answer how a service is."""
        service = await _service(request, context)
        if service not in self._status:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service {service!r} here")
        answer: bytes = Response(status=self._status[service]).SerializeToString()
        return answer

    async def _watch(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> AsyncIterator[bytes]:
        """Tell how a service is, now and whenever that changes, until the process ends."""
        service, last = await _service(request, context), None
        while True:
            changed, status = self._changed, self._status.get(service, Response.SERVICE_UNKNOWN)
            if status != last:
                yield Response(status=status).SerializeToString()
                last = status  # and look again: it may have changed while the watcher read
            elif self._leaving:
                return
            else:
                await changed.wait()


async def _service(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> str:
    """Return what is asked about."""
    try:
        name: str = Request.FromString(request).service
    except DecodeError:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "this is not a question of the health service")
    return name


async def ask(channel: grpc.aio.Channel, service: str, *, timeout: float) -> str:
    """Return what a member says of a service, SERVING or another word; an RpcError if it says nothing."""
    check: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path(CHECK))
    answer = await check(Request(service=service).SerializeToString(), timeout=timeout)
    word: str = Response.ServingStatus.Name(Response.FromString(answer).status)
    return word
