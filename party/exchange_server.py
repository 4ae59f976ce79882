"""The active party's listening side: it lets passive parties in, and hands each to the job that it names."""

import asyncio
import logging
from dataclasses import dataclass, field

import grpc

from fedora_vfl.errors import FedoraError, PartyError, to_failure
from fedora_vfl.process.health import Health
from fedora_vfl.wire import tensors
from fedora_vfl.wire.channels import listen
from fedora_vfl.wire.link import CALLER, Link, check_named, read_first
from fedora_vfl.wire.meter import Packed
from fedora_vfl.wire.protocol import check_protocol
from fedora_vfl.wire.tls import Member, check_caller
from party.context import PartyContext
from party.exchange import ExchangeLink
from protos.fedora.v1.exchange_pb2 import DESCRIPTOR, Parcel
from protos.fedora.v1.failure_pb2 import Failure

OPEN = DESCRIPTOR.services_by_name["Exchange"].methods_by_name["Open"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Caller:
    """A passive party at the door: its stream, its greeting, and whether a job has taken it in."""

    link: ExchangeLink
    greeting: Packed
    wanted: asyncio.Event = field(default_factory=asyncio.Event)


class ExchangeServer:
    """Serves the streams of passive parties, for any job."""

    def __init__(self, context: PartyContext) -> None:
        self._context = context
        self.health = Health()
        self._arrivals: dict[tuple[str, int, str], asyncio.Future[_Caller]] = {}  # by job, attempt and party
        self._ended: dict[str, int] = {}  # by job, the last attempt that is over
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        settings, federation = self._context.settings, self._context.federation
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(self._open)
        address = settings.listen or federation.active.address
        self._server = await listen(
            address,
            {OPEN: handler, **self.health.handlers()},
            federation.deadlines.silence,
            credentials=self._context.credentials,
            # Embeddings on a slow line hold pings up. One that was stopped is missed by the coordinator first.
            answer=federation.deadlines.step,
        )

    async def stop(self) -> None:
        """Stop listening and hang up on everyone."""
        self.health.leave()
        if self._server:
            await self._server.stop(grace=0)

    async def arrival(self, job: str, attempt: int, party: str) -> ExchangeLink:
        """Return the stream of one party for one attempt at a job, once it is there."""
        join = self._context.federation.deadlines.join
        try:
            async with asyncio.timeout(join):
                caller = await asyncio.shield(self._expected(job, attempt, party))
        except TimeoutError:
            address = self._context.federation.active.address
            reason = f"did not connect to the active party at {address} within {join:g} s"
            raise PartyError(party, reason, Failure.SILENT) from None
        # Counted only now: a greeting for a job that nobody runs is in no book.
        self._context.meter.count(party, self._context.settings.name, caller.greeting)
        caller.wanted.set()
        return caller.link

    def end(self, job: str, attempt: int) -> None:
        """Hang up on all parties of a job that came for this attempt or an earlier one, also if they come too late."""
        self._ended[job] = max(attempt, self._ended.get(job, 0))
        for key in [key for key in self._arrivals if key[0] == job and key[1] <= attempt]:
            arrival = self._arrivals.pop(key)
            if arrival.done():
                arrival.result().link.close()

    def _expected(self, job: str, attempt: int, party: str) -> asyncio.Future[_Caller]:
        return self._arrivals.setdefault((job, attempt, party), asyncio.get_running_loop().create_future())

    async def _open(self, _: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        """Serve one stream for as long as its job lasts."""
        me, federation = self._context.settings.name, self._context.federation
        try:
            parcel, packed = await read_first(context, tensors.unpack, timeout=federation.deadlines.join)
            if not isinstance(parcel, Parcel) or parcel.WhichOneof("content") != "greeting":
                raise PartyError(CALLER, "did not begin with a greeting")
            greeting = parcel.greeting
            check_named(greeting.party)
            check_caller(context, Member(greeting.party, "passive"))
            check_protocol(greeting.protocol, peer=greeting.party)
            if greeting.party not in federation.passive:
                raise PartyError(greeting.party, "is not a passive party of this federation")
            if greeting.attempt <= self._ended.get(greeting.job, -1):
                raise PartyError(me, "has ended that job already", Failure.LOST)
            key = (greeting.job, greeting.attempt, greeting.party)
            arrival = self._expected(*key)
            if arrival.done():
                raise PartyError(greeting.party, "is connected already; a second process uses its name")
        except FedoraError as error:
            log.warning("refused a connection from %s: %s", context.peer(), error)
            await context.write(Parcel(failure=to_failure(error, reporter=me)).SerializeToString())
            return
        meter = self._context.meter
        link: ExchangeLink = Link(
            context,
            me=me,
            peer=greeting.party,
            meter=meter,
            pack=tensors.pack,
            unpack=tensors.unpack,
            in_pieces=True,
        )
        caller = _Caller(link, packed)
        arrival.set_result(caller)
        try:
            async with asyncio.timeout(federation.deadlines.join):
                await caller.wanted.wait()
            await link.ended()
        except TimeoutError:
            log.warning("hung up on %s: nobody runs the job it came for", greeting.party)
        finally:
            link.close()
            if self._arrivals.get(key) is arrival:
                del self._arrivals[key]
