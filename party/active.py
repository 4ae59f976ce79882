"""The active role: collect embeddings, compute the loss where the labels are, send each party its gradient."""

import asyncio
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedora_vfl.certificates.statement import request_secret
from fedora_vfl.errors import DataError, PartyError, SettingsError
from party import line, losses
from party.assessment import OF_FORGOTTEN, Assessor
from party.audit import Auditor
from party.batches import end_of_part, part
from party.clock import Interval
from party.confidence import gathered
from party.context import PartyContext
from party.data.split import assign
from party.exchange import TensorExchange, collect, expect
from party.exchange_server import ExchangeServer
from party.handed_request import bits_bytes, from_bits, handed_rows
from party.joint_round import compare, descend, embed_parts, judge
from party.many_ids import set_of
from party.request import resolve
from party.role import Role, Tell
from party.schedule import Schedule
from party.updates import JointRounds, Rule
from party.updates.dual_messages import DualMessages
from protos.fedora.v1.control_pb2 import Assess, Assessment, Ids, Request, Setup
from protos.fedora.v1.exchange_pb2 import Forget, Order, Parcel
from protos.fedora.v1.meter_pb2 import EMBEDDING, GRADIENT
from protos.fedora.v1.phase_pb2 import Phase, Progress, Report

PROGRESS_SECONDS = 1.0
# With so many, gradients of embeddings are computed and sent first, then those of own parameters, which nobody waits
# for. With fewer, going back twice costs more than the others gain.
MANY_PARAMETERS = 1 << 16


class Active(Role):
    """The party with the labels and the top model; it may hold features too."""

    def __init__(self, context: PartyContext, setup: Setup, attempt: int, exchange_server: ExchangeServer) -> None:
        super().__init__(context, setup, attempt)
        self._exchange_server = exchange_server

    async def connect(self) -> Order:
        """Wait for all passive parties and tell them which rows all have in common."""
        records, federation = self.context.records, self.context.federation
        if records.labels is None:
            raise DataError(f"{records.origin}: the active party's file has no labels")
        ids = await asyncio.to_thread(self._by_set)  # millions of ids must not keep others waiting
        await self.open_streams()
        links = [one.link for one in self.exchanges]
        return await self.alignment.arrange(links, ids, timeout=federation.deadlines.setup)

    def _by_set(self) -> dict[str, str]:
        """Return the own ids, with the set that each belongs to."""
        records, data = self.context.records, self.context.settings.data
        split = assign(records.ids, records.split, data.test_fraction, origin=records.origin)
        held = set_of(self.ids)
        return {one: part for one, part in zip(records.ids, split, strict=True) if one in held}

    async def open_streams(self) -> None:
        """Wait for all passive parties."""
        job, attempt = self.job.job, self.attempt
        links = [await self._exchange_server.arrival(job, attempt, name) for name in self.job.passive]
        clock = self.context.metrics.clock
        self.exchanges = [TensorExchange(link, self.encodings[link.peer], clock, passive=link.peer) for link in links]

    async def measure_line(self) -> int:
        """Answer all passive parties."""
        timeout = self.context.federation.deadlines.step
        await line.answer([one.link for one in self.exchanges], timeout=timeout)
        return 0

    async def run_batches(self, phase: Phase, rule: Rule, drawn: list[Tensor], report: Report, tell: Tell) -> None:
        """For every batch: embeddings in, loss, gradients out, own step."""
        state = self.state
        assert state.labels is not None
        online = [one for one in self.exchanges if one.link.peer not in phase.offline]
        kept, due = self.kept, Interval(PROGRESS_SECONDS)
        learning = [one for one in rule.parameters if one.requires_grad]
        early = sum(one.numel() for one in learning) >= MANY_PARAMETERS
        for step, rows in part(phase, drawn):
            own = [state.embed(rows, phase, step)] if state.inputs else []
            labels = state.labels.index_select(0, rows).to(state.device)
            sent = await self._collect(online, phase, step, rows)
            if rule.needs_gradients:
                for embedding in sent.values():
                    embedding.requires_grad_()
            logits: Tensor = state.networks["top"](torch.cat([*self._in_order(sent, rows), *own], dim=1))
            summed, loss = losses.of_batch(phase.loss, self._judged(phase, rows, logits), labels, report.rows)
            report.loss_sum += self._finite(float(summed), phase, step)
            if rule.needs_gradients:
                await self._answer(online, phase, step, rows, _gradients(loss, sent, early=early))
                if early:
                    torch.autograd.backward(loss, inputs=learning)
                rule.step()
                self._step_again(phase, step, rows, sent, rule, report)
            rule.see(logits)
            report.correct += int((logits.detach().argmax(dim=1) == labels).sum())
            if phase.update.observe.record or phase.update.observe.confidence:
                kept.append((logits.cpu(), {name: sent[name] for name in phase.update.observe.cache}))
            if due.is_over():
                seen = sum(len(rows) for rows in drawn[: step + 1])
                mean = report.loss_sum / seen if self.consent.tells_progress else None
                await tell(Progress(phase=phase.number, steps=step + 1, of_steps=len(drawn), loss=mean))
        if end_of_part(phase, len(drawn)) == len(drawn):
            self.kept = []
            self._keep(phase, drawn, kept)

    async def settle(self) -> None:
        """Do nothing: what is under way here are gradients, which are the others' to wait for."""

    async def run_rounds(self, phase: Phase, rule: Rule, drawn: list[Tensor], report: Report, tell: Tell) -> None:
        """For every round: embeddings in, L_u and L_r at the same parameters, gradients and Ω out, own step."""
        messages, due = DualMessages(self.end_of(phase, report)), Interval(PROGRESS_SECONDS)
        if isinstance(rule, JointRounds):
            rule.begin(len(drawn), labelled=losses.of_labels(phase.loss), done=phase.first_step)
        for step, rows in part(phase, drawn):
            own = embed_parts(self.state, rows, phase, step) if self.state.inputs else None
            sent = await self._collect(self.exchanges, phase, step, rows)
            embeddings = [sent[one.link.peer] for one in self.exchanges]
            if isinstance(rule, JointRounds):
                await self._round(phase, rule, step, rows, embeddings, own, messages, report)
            else:
                compare(self.state, phase, rows, embeddings, own, report)
            if due.is_over():
                await tell(Progress(phase=phase.number, steps=step + 1, of_steps=len(drawn)))

    async def _round(
        self,
        phase: Phase,
        rule: JointRounds,
        step: int,
        rows: Tensor,
        embeddings: Sequence[Tensor],
        own: Sequence[Tensor] | None,
        messages: DualMessages,
        report: Report,
    ) -> None:
        """Do one round, of which the passive parties' embeddings have come."""
        told = report.rounds.add()
        found = judge(
            self.state, phase, rule, rows, embeddings, own, told, lambda loss: self._finite(loss, phase, step)
        )
        timeout = self.context.federation.deadlines.step
        answered = rows[: phase.joint.forget + phase.joint.remaining]
        for answer, exchange in zip(found.answers, self.exchanges, strict=True):
            gradient = self.noise.apply(self.consent.sendable(answer), answered, phase.number, step, exchange.link.peer)
            await exchange.send(GRADIENT, phase, step, gradient, answered, timeout=timeout)
        if phase.joint.forget:
            await messages.agree(found.omega, most=rule.most, step=step)
        told.change_squared = descend(self.state, rule, found.g, found.gradients, found.omega)

    def _step_again(
        self, phase: Phase, step: int, rows: Tensor, sent: Mapping[str, Tensor], rule: Rule, report: Report
    ) -> None:
        """Take the further steps of a schedule, with the embeddings as they came and everything of one's own anew."""
        state, kept = self.state, {name: one.detach() for name, one in sent.items()}
        assert state.labels is not None
        for _ in range(1, Schedule.of(phase).local_steps):
            own = [state.embed(rows, phase, step)] if state.inputs else []
            logits: Tensor = state.networks["top"](torch.cat([*self._in_order(kept, rows), *own], dim=1))
            _, loss = losses.of_batch(phase.loss, logits, state.labels[rows].to(state.device), report.rows)
            torch.autograd.backward(loss)
            rule.step()

    def _in_order(self, sent: Mapping[str, Tensor], rows: Tensor) -> list[Tensor]:
        """Return every passive party's embedding of some rows, those of parties that are offline from memory."""
        state, names = self.state, [one.link.peer for one in self.exchanges]
        found = [sent[name] if name in sent else state.confidence.embedding(name, rows) for name in names]
        return [one.to(state.device) for one in found]

    def _judged(self, phase: Phase, rows: Tensor, logits: Tensor) -> Tensor:
        """Return the logits that the loss is taken of: the fresh ones, or those of the confidence matrix."""
        stale = phase.loss.WhichOneof("form") == "stale_cross_entropy"
        return self.state.confidence.straight_through(rows, logits) if stale else logits

    def _keep(self, phase: Phase, drawn: list[Tensor], kept: list[tuple[Tensor, dict[str, Tensor]]]) -> None:
        """End a phase: keep what it was to record."""
        self.state.confidence.refresh()
        if not kept:
            return
        rows, logits = torch.cat(drawn), torch.cat([one for one, _ in kept])
        if phase.update.observe.record:
            self.state.recorded[phase.over.set] = rows, logits
        if phase.update.observe.confidence:
            cached = gathered(phase.update.observe.cache, [sent for _, sent in kept])
            self.state.confidence.fill(rows, logits.to(self.state.device), cached)

    async def find_rows(self, request: Request, pending: Sequence[int]) -> tuple[Tensor, bytes]:
        """Find the rows that a request means, draw its secret, and tell every passive party both."""
        state = self.state
        assert state.labels is not None
        labels = state.labels[: len(state.order.train)]
        classes = state.description["classes"]["classes"]
        request = self._as_compared(request)
        handed = await self._handed(request.request.name) if request.HasField("request") else []
        rows = resolve(request, state.order, labels, classes, pending=pending, handed=handed)
        secret = request_secret(self.context.secret, job=self.job.job)
        parcel = Parcel(forget=Forget(rows=rows.tolist(), secret=secret))
        for exchange in self.exchanges:
            await exchange.link.send(parcel, timeout=self.context.federation.deadlines.setup)
        return rows, secret

    def _as_compared(self, request: Request) -> Request:
        """Return a request with its ids, if it has some, in the form in which ids are compared."""
        if not request.HasField("ids"):
            return request
        matching, written = self.context.federation.matching, self.context.settings.data.date_format
        try:
            ids = [matching.of_written(one, date_format=written) for one in request.ids.ids]
        except ValueError as error:
            raise SettingsError(f"forget.ids: an id {error}") from None
        return Request(ids=Ids(ids=ids), seed=request.seed)

    async def _handed(self, name: str) -> list[int]:
        """Return the rows of a request that was handed in here, or at passive parties, who tell theirs."""
        training, timeout = self.state.order.train, self.context.federation.deadlines.setup
        rows = set(handed_rows(self.context.settings.keys, name, training))
        for exchange in self.exchanges:
            most = bits_bytes(len(training))
            told = (await expect(exchange.link, "forget", timeout=timeout, most=most)).forget
            named = from_bits(told.named, len(training))
            if named is None or told.rows:
                raise PartyError(exchange.link.peer, "asked to forget other rows than those in common")
            rows.update(named)
        return sorted(rows)

    def assess(self, assess: Assess) -> Assessment:
        """Turn the predictions recorded since the last time into figures."""
        state, assessor = self.state, Assessor(self.state, smallest_group=self.consent.smallest_group)
        if assess.audit == Assess.FIGURES:
            return self._audited(assess.model)
        recorded, state.recorded = state.recorded, {}
        if assess.audit != Assess.NO_PART:
            assessor.keep_for_audit(assess, recorded, silence=self.consent.silence)
        if assess.audit == Assess.REFERENCE:
            return Assessment()
        fitted = assessor.fit_attack(recorded) if assess.fit_attack else {}
        figures = {**assessor.figures(recorded), **fitted}
        kept_back = {name: self.consent.keeps_back(name, assessor.about(name, recorded)) for name in figures}
        left_out = {name: reason for name, reason in kept_back.items() if reason}
        if (reason := left_out.get("forget_accuracy")) and state.truth is None:
            left_out |= {name: reason for name in OF_FORGOTTEN if name not in figures}
        told = {name: self.consent.rounded(one) for name, one in figures.items() if name not in left_out}
        state.figures[assess.model] = told
        return Assessment(figures=told, left_out=left_out)

    def _audited(self, model: str) -> Assessment:
        """Return the audit's figures of a model that was kept before, as far as they may leave."""
        state = self.state
        auditor = Auditor(state.audit, state.ids)
        figures = auditor.figures(model) if state.truth is None else {}
        # Distances are to other models, so that of these too nothing else may be told.
        silence = next((one.silence for one in state.audit.shown.values() if one.silence), "")
        kept_back = {name: silence or self.consent.keeps_back(name, auditor.about(name, model)) for name in figures}
        left_out = {name: reason for name, reason in kept_back.items() if reason}
        told = {name: self.consent.rounded(one) for name, one in figures.items() if name not in left_out}
        state.figures[model] = state.figures.get(model, {}) | told
        return Assessment(figures=told, left_out=left_out)

    async def _collect(
        self, online: Sequence[TensorExchange], phase: Phase, step: int, rows: Tensor
    ) -> dict[str, Tensor]:
        """Return every passive party's embedding of one batch."""
        timeout = self.context.federation.deadlines.step
        sent = await collect(online, EMBEDDING, phase, step, rows, timeout=timeout)
        return {party: self.consent.embedding(one, phase, sender=party) for party, one in sent.items()}

    async def _answer(
        self, online: Sequence[TensorExchange], phase: Phase, step: int, rows: Tensor, gradients: Mapping[str, Tensor]
    ) -> None:
        """Send every passive party ∂L/∂h_i of one batch."""
        timeout = self.context.federation.deadlines.step
        for exchange in online:
            party = exchange.link.peer
            gradient = self.noise.apply(self.consent.sendable(gradients[party]), rows, phase.number, step, party)
            await exchange.send(GRADIENT, phase, step, gradient, rows, timeout=timeout)
        await asyncio.sleep(0)  # links read on before this party computes its own step

    def _finite(self, loss: float, phase: Phase, step: int) -> float:
        """Pass a loss on, unless there is nothing to learn from it."""
        if not math.isfinite(loss) and self.consent.may_fail:
            where = f"step {step} of {phase.name} round {phase.round}"
            reason = f"found a loss that is not finite at {where}: a lower learning rate may help"
            raise PartyError(self.context.settings.name, reason)
        return loss

    async def close(self) -> None:
        """Let the passive parties go."""
        self._exchange_server.end(self.job.job, self.attempt)


def _gradients(loss: Tensor, sent: Mapping[str, Tensor], *, early: bool) -> dict[str, Tensor]:
    """Return ∂L/∂h_i for every party's embedding; unless `early`, also compute those of own parameters."""
    if early and sent:
        found = torch.autograd.grad(loss, list(sent.values()), retain_graph=True)
        return dict(zip(sent, found, strict=True))
    if not early:
        torch.autograd.backward(loss)
    return {name: one.grad for name, one in sent.items() if one.grad is not None}
