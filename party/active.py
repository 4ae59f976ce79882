"""The active role: collect embeddings, compute the loss where the labels are, send each party its gradient."""

import asyncio
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import grpc
import torch
from torch import Tensor

from fedora_vfl.errors import DataError, FedoraError, PartyError, to_failure
from fedora_vfl.process.health import Health
from fedora_vfl.wire import tensors
from fedora_vfl.wire.channels import listen
from fedora_vfl.wire.link import Link, check_named, read_first
from fedora_vfl.wire.meter import Packed
from fedora_vfl.wire.protocol import check_protocol
from fedora_vfl.wire.tls import Member as MemberName
from fedora_vfl.wire.tls import check_caller, check_role
from party import duals, losses
from party.account import unlearning_loss
from party.assessment import Assessor
from party.clock import SENDING, WAITING
from party.confidence import Confidence, gathered
from party.data.split import assign
from party.exchange import ExchangeLink, TensorExchange
from party.request import resolve
from party.role import Role, Surroundings, Tell
from party.updates import DualAscent, Rule
from protos.fedora.v1.control_pb2 import Assess, Assessment, Request, Setup
from protos.fedora.v1.exchange_pb2 import DESCRIPTOR, Forget, Order, Parcel
from protos.fedora.v1.failure_pb2 import Failure
from protos.fedora.v1.meter_pb2 import Kind
from protos.fedora.v1.phase_pb2 import Phase, Progress, Report, Samples

OPEN = DESCRIPTOR.services_by_name["Exchange"].methods_by_name["Open"]

PROGRESS_SECONDS = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Caller:
    """A passive party at the door: its stream, its greeting, and whether a job has taken it in."""

    link: ExchangeLink
    greeting: Packed
    wanted: asyncio.Event = field(default_factory=asyncio.Event)


class Reception:
    """The active party's listening side: lets passive parties in, for any job, and hands each to the job it names."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self.health = Health()
        self._arrivals: dict[tuple[str, str], asyncio.Future[_Caller]] = {}
        self._ended: set[str] = set()
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        settings, federation = self._around.settings, self._around.federation
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(self._open)
        address = settings.listen or federation.active.address
        self._server = await listen(
            address,
            {OPEN: handler, **self.health.handlers()},
            federation.deadlines.silence,
            identity=self._around.identity,
            # Embeddings on a slow line hold pings up. One that was stopped is missed by the coordinator first.
            answer=federation.deadlines.step,
        )

    async def stop(self) -> None:
        """Stop listening and hang up on everyone."""
        self.health.leave()
        if self._server:
            await self._server.stop(grace=0)

    async def arrival(self, job: str, party: str) -> ExchangeLink:
        """Return the stream of one party for one job, once it is there."""
        join = self._around.federation.deadlines.join
        try:
            async with asyncio.timeout(join):
                caller = await asyncio.shield(self._expected(job, party))
        except TimeoutError:
            address = self._around.federation.active.address
            reason = f"did not connect to the active party at {address} within {join:g} s"
            raise PartyError(party, reason, Failure.SILENT) from None
        # Counted only now: a greeting for a job that nobody runs is in no book.
        self._around.meter.count(party, self._around.settings.name, caller.greeting)
        caller.wanted.set()
        return caller.link

    def end(self, job: str) -> None:
        """Hang up on all parties of a job, also on those that come too late."""
        self._ended.add(job)
        for key in [key for key in self._arrivals if key[0] == job]:
            arrival = self._arrivals.pop(key)
            if arrival.done():
                arrival.result().link.close()

    def _expected(self, job: str, party: str) -> asyncio.Future[_Caller]:
        return self._arrivals.setdefault((job, party), asyncio.get_running_loop().create_future())

    async def _open(self, _: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        """Serve one stream for as long as its job lasts."""
        me, federation = self._around.settings.name, self._around.federation
        try:
            check_role(context, "passive", came="with embeddings")
            parcel, packed = await read_first(context, tensors.unpack, patience=federation.deadlines.join)
            if not isinstance(parcel, Parcel) or parcel.WhichOneof("content") != "greeting":
                raise PartyError("a caller", "did not begin with a greeting")
            greeting = parcel.greeting
            check_named(greeting.party)
            check_caller(context, MemberName(greeting.party, "passive"))
            check_protocol(greeting.protocol, peer=greeting.party)
            if greeting.party not in federation.passive:
                raise PartyError(greeting.party, "is not a passive party of this federation")
            if greeting.job in self._ended:
                raise PartyError(me, "has ended that job already", Failure.LOST)
            arrival = self._expected(greeting.job, greeting.party)
            if arrival.done():
                raise PartyError(greeting.party, "is connected already; a second process uses its name")
        except FedoraError as error:
            log.warning("refused a connection from %s: %s", context.peer(), error)
            await context.write(Parcel(failure=to_failure(error, reporter=me)).SerializeToString())
            return
        meter = self._around.meter
        link: ExchangeLink = Link(
            context, me=me, peer=greeting.party, meter=meter, pack=tensors.pack, unpack=tensors.unpack
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
            if self._arrivals.get((greeting.job, greeting.party)) is arrival:
                del self._arrivals[greeting.job, greeting.party]


class Active(Role):
    """The party with the labels and the top model; it may hold features too."""

    def __init__(self, around: Surroundings, setup: Setup, reception: Reception) -> None:
        super().__init__(around, setup)
        self._reception = reception
        self._recorded: dict[Samples.Set, tuple[Tensor, Tensor]] = {}  # rows and logits of the phases just observed
        self._assessor: Assessor | None = None
        self._confidence = Confidence()

    async def connect(self) -> Order:
        """Wait for all passive parties and tell them which rows all have in common."""
        records, federation = self.around.records, self.around.federation
        if records.labels is None:
            raise DataError(f"{records.origin}: the active party's file has no labels")
        split = assign(records.ids, records.split, self.around.settings.data.test_fraction, origin=records.origin)
        links = [await self._reception.arrival(self.job.job, name) for name in self.job.passive]
        clock = self.around.observations.clock
        self.exchanges = [TensorExchange(link, self.job.wire_dtype, 0, clock) for link in links]
        ids = dict(zip(records.ids, split, strict=True))
        return await self.alignment.arrange(links, ids, patience=federation.deadlines.setup)

    async def run_batches(self, phase: Phase, rule: Rule, drawn: list[Tensor], report: Report, tell: Tell) -> None:
        """For every batch: embeddings in, loss, gradients out, own step."""
        share = self.ready()
        assert share.labels is not None
        online = [one for one in self.exchanges if one.link.peer not in phase.offline]
        told = time.monotonic()
        kept: list[tuple[Tensor, dict[str, Tensor]]] = []
        for step, rows in enumerate(drawn):
            own = [share.embed(rows, phase, step)] if share.inputs else []
            sent = await self._collect(online, phase, step, len(rows))
            if rule.needs_gradients:
                for embedding in sent.values():
                    embedding.requires_grad_()
            labels = share.labels[rows].to(share.device)
            logits: Tensor = share.networks["top"](torch.cat([*self._in_order(sent, rows), *own], dim=1))
            each = losses.per_sample(phase.loss, self._judged(phase, rows, logits), labels)
            report.loss_sum += self._finite(float(each.detach().sum()), phase, step)
            if rule.needs_gradients:
                torch.autograd.backward(losses.reduce(phase.loss, each, report.rows))
                await self._answer(online, phase, step, rows, sent)
                rule.step()
            report.correct += int((logits.detach().argmax(dim=1) == labels).sum())
            if phase.update.observe.record or phase.update.observe.confidence:
                kept.append((logits.cpu(), {name: sent[name] for name in phase.update.observe.cache}))
            if time.monotonic() - told > PROGRESS_SECONDS:
                told = time.monotonic()
                seen = sum(len(rows) for rows in drawn[: step + 1])
                mean = report.loss_sum / seen
                await tell(Progress(phase=phase.number, steps=step + 1, of_steps=len(drawn), loss=mean))
        self._keep(phase, drawn, kept)

    def _in_order(self, sent: Mapping[str, Tensor], rows: Tensor) -> list[Tensor]:
        """Return every passive party's embedding of some rows, those of parties that are offline from memory."""
        device = self.ready().device
        names = [one.link.peer for one in self.exchanges]
        return [(sent[name] if name in sent else self._confidence.embedding(name, rows)).to(device) for name in names]

    def _judged(self, phase: Phase, rows: Tensor, logits: Tensor) -> Tensor:
        """Return the logits that the loss is taken of: the fresh ones, or those of the confidence matrix."""
        stale = phase.loss.WhichOneof("form") == "stale_cross_entropy"
        return self._confidence.straight_through(rows, logits) if stale else logits

    def _keep(self, phase: Phase, drawn: list[Tensor], kept: list[tuple[Tensor, dict[str, Tensor]]]) -> None:
        """End a phase: keep what it was to record."""
        self._confidence.refresh()
        if not kept:
            return
        rows, logits = torch.cat(drawn), torch.cat([one for one, _ in kept])
        if phase.update.observe.record:
            self._recorded[phase.over.set] = rows, logits
        if phase.update.observe.confidence:
            cached = gathered(phase.update.observe.cache, [sent for _, sent in kept])
            self._confidence.fill(rows, logits.to(self.ready().device), cached)

    async def find_rows(self, request: Request) -> Tensor:
        """Find the rows that a request means, and tell every passive party."""
        assert self.share is not None and self.share.labels is not None
        labels = self.share.labels[: len(self.order.train)]
        rows = resolve(request, self.order, labels, self.share.description["classes"]["classes"])
        for exchange in self.exchanges:
            await exchange.link.send(
                Parcel(forget=Forget(rows=rows.tolist())), patience=self.around.federation.deadlines.setup
            )
        return rows

    async def settle_dual(self, phase: Phase, rule: DualAscent, report: Report) -> None:
        """Update the scalar form's Ω and send it to all; or update the own one and hear of the others'."""
        patience, clock = self.around.federation.deadlines.step, self.around.observations.clock
        if rule.scalar:
            omega = rule.ascend(unlearning_loss(phase, report))
            rule.settle(omega)
            with clock.spend(SENDING):
                for exchange in self.exchanges:
                    await duals.send_omega(exchange.link, phase, omega, patience=patience)
        else:
            rule.settle(None)
            with clock.spend(WAITING):
                for exchange in self.exchanges:
                    await duals.receive_summary(exchange.link, phase, rule, patience=patience)
        if self.account:
            self.account.add_uncertainty(phase, rule, report, self.ready().classes)

    def assess(self, assess: Assess) -> Assessment:
        """Turn the predictions recorded since the last time into figures."""
        self._assessor = self._assessor or Assessor(self.ready())
        recorded, self._recorded = self._recorded, {}
        figures = self._assessor.fit_attack(recorded) if assess.fit_attack else {}
        self.metrics[assess.model] = {**self._assessor.figures(recorded), **figures}
        return Assessment(figures=self.metrics[assess.model])

    async def _collect(self, online: Sequence[TensorExchange], phase: Phase, step: int, rows: int) -> dict[str, Tensor]:
        """Return every passive party's embedding of one batch."""
        patience = self.around.federation.deadlines.step
        due = (one.receive(Kind.EMBEDDING, phase, step, rows, patience=patience) for one in online)
        return dict(zip((one.link.peer for one in online), await asyncio.gather(*due), strict=True))

    async def _answer(
        self, online: Sequence[TensorExchange], phase: Phase, step: int, rows: Tensor, sent: Mapping[str, Tensor]
    ) -> None:
        """Send every passive party ∂L/∂h_i of one batch."""
        patience = self.around.federation.deadlines.step
        for exchange in online:
            party = exchange.link.peer
            gradient = self.noise.apply(_gradient(sent[party]), rows, phase.number, step, party)
            await exchange.send(Kind.GRADIENT, phase, step, gradient, patience=patience)

    def _finite(self, loss: float, phase: Phase, step: int) -> float:
        """Pass a loss on, unless there is nothing to learn from it."""
        if not math.isfinite(loss):
            where = f"step {step} of {phase.name} round {phase.round}"
            reason = f"found a loss that is not finite at {where}: a lower learning rate may help"
            raise PartyError(self.around.settings.name, reason)
        return loss

    async def close(self) -> None:
        """Let the passive parties go."""
        self._reception.end(self.job.job)


def _gradient(embedding: Tensor) -> Tensor:
    assert embedding.grad is not None
    return embedding.grad
