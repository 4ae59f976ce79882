"""Who may call what: one table, looked at before anything is read from a caller; what is not in it is refused."""

import contextlib
import inspect
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc

from fedora_vfl.errors import PartyError
from fedora_vfl.wire.tls import ROLES, caller

log = logging.getLogger(__name__)

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


@dataclass(frozen=True)
class Permission:
    """Whose certificates a method is for, and what its callers come for, to be put behind their name."""

    roles: tuple[str, ...]
    came: str
    at_once: int = 64  # calls that one caller may have under way, over all its connections


# By service and method. Without certificates, on one machine or in plaintext, a caller has no role: it may call what is
# in this table, and nothing else.
PERMISSIONS: dict[tuple[str, str], Permission] = {
    ("fedora.v1.Control", "Join"): Permission(("active", "passive"), "came to join", 8),
    ("fedora.v1.Jobs", "Submit"): Permission(("operator",), "came with a job"),
    # Of an operator's own jobs; with the coordinator's own certificate of all: coordinator/jobs.py.
    ("fedora.v1.Jobs", "Follow"): Permission(("operator", "coordinator"), "came to follow a job"),
    ("fedora.v1.Jobs", "List"): Permission(("operator", "coordinator"), "came to list jobs"),
    ("fedora.v1.Jobs", "Show"): Permission(("operator", "coordinator"), "came to look at a job"),
    ("fedora.v1.Jobs", "Cancel"): Permission(("operator", "coordinator"), "came to cancel a job"),
    ("fedora.v1.Jobs", "Fetch"): Permission(("operator", "coordinator"), "came for a job's result"),
    ("fedora.v1.Jobs", "Prune"): Permission(("operator", "coordinator"), "came to remove jobs"),
    ("fedora.v1.Exchange", "Open"): Permission(("passive",), "came with embeddings", 8),
    # Open to every certificate of the federation: whether a process is up is no secret among its members.
    ("grpc.health.v1.Health", "Check"): Permission(ROLES, "came to ask after its health"),
    ("grpc.health.v1.Health", "Watch"): Permission(ROLES, "came to watch its health"),
}


# Without certificates all members of one machine are one caller: a federation has up to 33 parties.
MEMBERS_OF_A_HOST = 40


def check_permitted(method: str, context: Context) -> None:
    """Refuse a caller whose certificate does not allow it to call a method, given by its path."""
    _, service, name = method.split("/")
    permission, shown = PERMISSIONS.get((service, name)), caller(context)
    if permission is None:
        raise PartyError(str(shown or "a caller"), f"called {method}, which nobody may call")
    if shown is not None and shown.role not in permission.roles:
        allowed = " or ".join(permission.roles)
        raise PartyError(str(shown), f"{permission.came}, which only a certificate of role {allowed} allows")


class Authorisation(grpc.aio.ServerInterceptor):
    """Stands before every method of a server; `refused` is told the path of each that was called in vain."""

    def __init__(self, refused: Callable[[str], None] | None = None) -> None:
        self._refused = refused
        self._under_way: Counter[tuple[str, str]] = Counter()  # calls, by caller and method

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "Handler | None":
        """Return the method behind its guard; for one that this server does not have gRPC says UNIMPLEMENTED."""
        handler = await continuation(handler_call_details)
        return handler and self._guarded(handler_call_details.method, handler)

    def _guarded(self, method: str, handler: Handler) -> Handler:
        """Return a method that looks at its caller first.

        gRPC reads the one message of a unary call before it calls anybody. So that a refused caller is not listened to,
        all methods are streams to gRPC, and a unary one's message is read here.
        """

        async def guarded(messages: AsyncIterator[Any], context: Context) -> None:
            try:
                check_permitted(method, context)
            except PartyError as error:
                log.warning("refused a call from %s: %s", context.peer(), error)
                if self._refused:
                    self._refused(method)
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, error.reason)
            async with self._counted(method, context):
                request = messages if handler.request_streaming else await anext(messages, b"")
                await _answer(handler, request, context)

        return grpc.stream_stream_rpc_method_handler(guarded, handler.request_deserializer, handler.response_serializer)

    @contextlib.asynccontextmanager
    async def _counted(self, method: str, context: Context) -> AsyncIterator[None]:
        """Count a call while it lasts; one too many is sent away before anything of it is read."""
        _, service, name = method.split("/")
        shown, most = caller(context), PERMISSIONS[service, name].at_once
        who = str(shown) if shown else context.peer().rpartition(":")[0]
        key, most = (who, method), most if shown else most * MEMBERS_OF_A_HOST
        if self._under_way[key] >= most:
            log.warning("refused a call from %s: it has %d of them under way", context.peer(), most)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"has {most} calls of this kind under way already")
        self._under_way[key] += 1
        try:
            yield
        finally:
            self._under_way[key] -= 1
            if not self._under_way[key]:
                del self._under_way[key]


async def _answer(handler: Handler, request: Any, context: Context) -> None:
    """Run a method of any of gRPC's four forms."""
    forms = (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
    run: Any = next(form for form in forms if form)
    if inspect.isasyncgenfunction(run):
        async with contextlib.aclosing(run(request, context)) as answers:
            async for answer in answers:
                await context.write(answer)
    elif handler.response_streaming:
        await run(request, context)  # it writes its answers itself
    else:
        await context.write(await run(request, context))
