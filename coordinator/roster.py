"""Who is here: the parties that have joined, each with its control stream."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import grpc

from coordinator.metrics import CoordinatorMetrics
from fedora_vfl.errors import FedoraError, PartyError, to_failure
from fedora_vfl.process.health import Health
from fedora_vfl.process.logs import discreet
from fedora_vfl.settings.federation import Federation
from fedora_vfl.wire.channels import path
from fedora_vfl.wire.link import CALLER, Link, check_named, pack_control, read_first, unpack_control
from fedora_vfl.wire.meter import Meter, Totals
from fedora_vfl.wire.protocol import COORDINATOR, VERSION, check_protocol
from fedora_vfl.wire.tls import Member, check_caller
from protos.fedora.v1.control_pb2 import DESCRIPTOR, FromCoordinator, FromParty, Hello, Welcome
from protos.fedora.v1.failure_pb2 import Failure

JOIN = DESCRIPTOR.services_by_name["Control"].methods_by_name["Join"]

log = logging.getLogger(__name__)

ControlLink = Link[FromCoordinator, FromParty]
GoingOn = Callable[[list[str]], Awaitable[list[str]]]  # which of some jobs go on


async def _all(jobs: list[str]) -> list[str]:
    return jobs


@dataclass(frozen=True)
class Connection:
    """One party's control stream, with the coordinator's own count of it."""

    name: str
    link: ControlLink
    meter: Meter = field(repr=False)


class Roster:
    """Lets parties join and tells when all are here."""

    def __init__(self, federation: Federation, metrics: CoordinatorMetrics, health: Health, totals: Totals) -> None:
        self._federation, self._metrics, self._health, self._totals = federation, metrics, health, totals
        self._present: dict[str, Connection] = {}
        self._arriving: set[str] = set()  # who is about to be let in: one of a name at a time
        self._been_here: set[str] = set()  # since this process began
        self._refused: dict[str, tuple[float, PartyError]] = {}  # when, and why
        self._changed = asyncio.Condition()
        self.going_on: GoingOn = _all

    async def complete(self) -> list[Connection]:
        """Return every party's connection, in the federation's order, once all have joined."""
        join = self._federation.deadlines.join
        try:
            async with asyncio.timeout(join), self._changed:
                await self._changed.wait_for(lambda: self._refusal() or not self.missing())
        except TimeoutError:
            missing = self.missing()
            verb = "has" if len(missing) == 1 else "have"
            raise PartyError(" and ".join(missing), f"{verb} not joined within {join:g} s", Failure.SILENT) from None
        if refusal := self._refusal():
            raise refusal
        return self.in_order()

    def in_order(self) -> list[Connection]:
        """Return every party's connection, in the federation's order; all must be here."""
        return [self._present[name] for name in self._federation.parties]

    async def change(self, missing: list[str], *, timeout: float | None) -> None:
        """Wait until others are missing than these, for so many seconds at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(lambda: self.missing() != missing)

    def present(self) -> list[Connection]:
        """Return the connections of the parties that are here."""
        return list(self._present.values())

    def missing(self) -> list[str]:
        """Return the parties that are not here."""
        return [name for name in self._federation.parties if name not in self._present]

    def expected_back(self) -> bool:
        """Tell whether all that are missing have been here before, and none of them was just sent away."""
        return self._been_here.issuperset(self.missing()) and not self._refusal()

    def _refusal(self) -> PartyError | None:
        """Return why a party that is missing was just sent away, if one was: waiting longer would not help."""
        recently = time.monotonic() - self._federation.deadlines.silence
        refused = (self._refused[name] for name in self.missing() if name in self._refused)
        return next((error for when, error in refused if when > recently), None)

    async def join(self, _: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        """Serve one party's control stream for as long as it lasts."""
        name = ""
        try:
            unpack = unpack_control(FromParty)
            message, packed = await read_first(context, unpack, timeout=self._federation.deadlines.join)
            if message.WhichOneof("content") != "hello":
                raise PartyError(CALLER, "did not begin with hello")
            check_named(message.hello.party)
            check_caller(context, Member(message.hello.party, self._federation.role(message.hello.party)))
            name = message.hello.party
            self._check(name, message.hello.protocol)
        except FedoraError as error:
            await self._refuse(name, error, context)
            return
        meter = Meter(self._totals)
        meter.count(name, COORDINATOR, packed)
        link: ControlLink = Link(
            context, me=COORDINATOR, peer=name, meter=meter, pack=pack_control, unpack=unpack_control(FromParty)
        )
        connection = Connection(name, link, meter)
        try:
            await self._let_in(connection, message.hello)
            await link.ended()
        finally:
            log.info("%s left", name)
            if self._present.get(name) is connection:
                del self._present[name]
                self._tell_joined(name, False)
                async with self._changed:
                    self._changed.notify_all()

    async def _let_in(self, connection: Connection, hello: Hello) -> None:
        """Welcome a party, and only then count it among those who are here.

        A job that took it for present earlier could reach it before the welcome does, with which it opens its books.
        """
        name = connection.name
        self._arriving.add(name)
        try:
            jobs = await self.going_on(list(hello.jobs))
            await connection.link.send(FromCoordinator(welcome=Welcome(version=VERSION, jobs=jobs)))
            self._present[name] = connection
        finally:
            self._arriving.discard(name)
        log.info("%s joined, release %.20s", name, hello.version)
        self._been_here.add(name)
        self._refused.pop(name, None)
        self._tell_joined(name, True)
        async with self._changed:
            self._changed.notify_all()
        if await self.going_on(jobs) != jobs:
            connection.link.close()  # one ended before it could be dismissed here: it has to join again to hear of it

    def note_refused_call(self, method: str) -> None:
        """Count an attempt to join by one whose certificate does not allow it; it has not come as far as `join`."""
        if method == path(JOIN):
            self._metrics.refused_join()

    def hang_up(self) -> None:
        """End the control streams of all parties."""
        for connection in self._present.values():
            connection.link.close()

    def _tell_joined(self, name: str, here: bool) -> None:
        """Let those who look at the coordinator know who is here, and whether all are."""
        self._metrics.joined(name, here)
        self._health.set_ready(not self.missing())

    def _check(self, name: str, protocol: int) -> None:
        """Refuse whoever may not join."""
        if name not in self._federation.parties:
            members = ", ".join(self._federation.parties)
            raise PartyError(name, f"is not a party of this federation: {members}")
        check_protocol(protocol, peer=name)
        if name in self._present or name in self._arriving:
            raise PartyError(name, "has joined already; a second process uses its name", Failure.TAKEN)

    async def _refuse(self, name: str, error: FedoraError, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        """Tell the caller why, and remember it for the job that waits for that party."""
        log.warning("refused a connection from %s: %s", context.peer(), discreet(error))
        self._metrics.refused_join()
        failure = to_failure(error, reporter=COORDINATOR)
        await context.write(FromCoordinator(failure=failure).SerializeToString())
        # Of one whose earlier connection is only just found to be gone, it says nothing that the name was taken.
        if isinstance(error, PartyError) and error.kind != Failure.TAKEN and name in self.missing():
            async with self._changed:
                self._refused[name] = (time.monotonic(), error)
                self._changed.notify_all()
