"""The active role: collect embeddings, compute the loss where the labels are, send each party its gradient."""

import asyncio
import math
import time
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedora_vfl.certificates.statement import request_secret
from fedora_vfl.errors import DataError, PartyError, SettingsError
from party import losses
from party.assessment import Assessor
from party.audit import Auditor
from party.batches import PARTS, end_of_part, part, parts_of
from party.confidence import gathered
from party.context import PartyContext
from party.data.split import assign
from party.exchange import TensorExchange, expect
from party.exchange_server import ExchangeServer
from party.handed_request import handed_rows
from party.kept_alignment import are_places
from party.request import ROW_BYTES, resolve
from party.role import FORGET, HELD_OUT, REMAINING, Role, Tell
from party.schedule import Schedule
from party.unseen import stand
from party.updates import JointRounds, Rule
from party.updates.dual_messages import DualMessages
from party.updates.rule import gradients_of
from protos.fedora.v1.control_pb2 import Assess, Assessment, Ids, Request, Setup
from protos.fedora.v1.exchange_pb2 import Forget, Order, Parcel
from protos.fedora.v1.meter_pb2 import Kind
from protos.fedora.v1.phase_pb2 import CrossEntropy, Loss, Phase, Progress, Report, Samples

PROGRESS_SECONDS = 1.0
CROSS_ENTROPY = Loss(cross_entropy=CrossEntropy())


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
        split = assign(records.ids, records.split, self.context.settings.data.test_fraction, origin=records.origin)
        await self.open_streams()
        held = set(self.ids)
        ids = {one: part for one, part in zip(records.ids, split, strict=True) if one in held}
        links = [one.link for one in self.exchanges]
        return await self.alignment.arrange(links, ids, timeout=federation.deadlines.setup)

    async def open_streams(self) -> None:
        """Wait for all passive parties."""
        job, attempt = self.job.job, self.attempt
        links = [await self._exchange_server.arrival(job, attempt, name) for name in self.job.passive]
        clock = self.context.metrics.clock
        self.exchanges = [TensorExchange(link, self.encodings[link.peer], clock, passive=link.peer) for link in links]

    async def run_batches(self, phase: Phase, rule: Rule, drawn: list[Tensor], report: Report, tell: Tell) -> None:
        """For every batch: embeddings in, loss, gradients out, own step."""
        state = self.state
        assert state.labels is not None
        online = [one for one in self.exchanges if one.link.peer not in phase.offline]
        told = time.monotonic()
        kept = self.kept
        for step, rows in part(phase, drawn):
            own = [state.embed(rows, phase, step)] if state.inputs else []
            sent = await self._collect(online, phase, step, rows)
            if rule.needs_gradients:
                for embedding in sent.values():
                    embedding.requires_grad_()
            labels = state.labels[rows].to(state.device)
            logits: Tensor = state.networks["top"](torch.cat([*self._in_order(sent, rows), *own], dim=1))
            each = losses.per_sample(phase.loss, self._judged(phase, rows, logits), labels)
            report.loss_sum += self._finite(float(each.detach().sum()), phase, step)
            if rule.needs_gradients:
                torch.autograd.backward(losses.reduce(phase.loss, each, report.rows))
                await self._answer(online, phase, step, rows, sent)
                rule.step()
                self._step_again(phase, step, rows, sent, rule, report)
            report.correct += int((logits.detach().argmax(dim=1) == labels).sum())
            if phase.update.observe.record or phase.update.observe.confidence:
                kept.append((logits.cpu(), {name: sent[name] for name in phase.update.observe.cache}))
            if time.monotonic() - told > PROGRESS_SECONDS:
                told = time.monotonic()
                seen = sum(len(rows) for rows in drawn[: step + 1])
                mean = report.loss_sum / seen if self.consent.tells_progress else None
                await tell(Progress(phase=phase.number, steps=step + 1, of_steps=len(drawn), loss=mean))
        if end_of_part(phase, len(drawn)) == len(drawn):
            self.kept = []
            self._keep(phase, drawn, kept)

    async def run_rounds(self, phase: Phase, rule: Rule, drawn: list[Tensor], report: Report) -> None:
        """For every round: embeddings in, L_u and L_r at the same parameters, gradients and Ω out, own step."""
        messages = DualMessages(self.end_of(phase, report))
        if isinstance(rule, JointRounds):
            rule.begin(len(drawn))
        for step, rows in enumerate(drawn):
            own = self.embed_parts(rows, phase, step) if self.state.inputs else None
            sent = await self._collect(self.exchanges, phase, step, rows)
            parts = [[one.detach() for one in parts_of(sent[peer.link.peer], phase.joint)] for peer in self.exchanges]
            if isinstance(rule, JointRounds):
                await self._round(phase, rule, step, rows, parts, own, messages, report)
            else:
                self._compare(phase, rows, [self._top(place, parts, own) for place in range(len(PARTS))], report)

    async def _round(
        self,
        phase: Phase,
        rule: JointRounds,
        step: int,
        rows: Tensor,
        parts: Sequence[Sequence[Tensor]],
        own: Sequence[Tensor] | None,
        messages: DualMessages,
        report: Report,
    ) -> None:
        """Do one round; `parts` are the embeddings by party, each cut into D_u, D_r and held-out rows."""
        state, joint = self.state, phase.joint
        assert state.labels is not None
        leaves = [[one.requires_grad_() for one in party[:HELD_OUT]] for party in parts]
        labels = [state.labels[one].to(state.device) for one in parts_of(rows, joint)]
        told = report.rounds.add()
        # Gradients of L_u and of L_r: of the parties' embeddings, then of own parameters.
        found = [[torch.zeros_like(party[place]) for party in leaves] for place in (FORGET, REMAINING)]
        omega = 0.0
        for place, loss in ((REMAINING, CROSS_ENTROPY), (FORGET, phase.loss)):
            of_part = [party[place] for party in leaves]
            if not len(labels[place]):
                continue
            state.networks.train(place == REMAINING)
            logits = self._top(place, leaves, own)
            each = losses.per_sample(loss, logits, labels[place])
            self._finite(float(each.detach().sum()), phase, step)
            if place == REMAINING:
                told.loss_sum = float(each.detach().sum())
                told.correct = int((logits.detach().argmax(dim=1) == labels[place]).sum())
            else:
                each = each.clamp(max=rule.ceiling)
                told.unlearning_loss = float(each.detach().mean())
                omega = told.omega = rule.ascend(told.unlearning_loss)
            found[place] = gradients_of([*of_part, *rule.parameters], each.mean())
        for place, exchange in enumerate(self.exchanges):
            both = torch.cat([gradients[place] for gradients in found]).cpu()
            answered = rows[: joint.forget + joint.remaining]
            gradient = self.noise.apply(both, answered, phase.number, step, exchange.link.peer)
            timeout = self.context.federation.deadlines.step
            await exchange.send(Kind.GRADIENT, phase, step, gradient, answered, timeout=timeout)
        if joint.forget:
            await messages.agree(omega, most=rule.most, step=step)
        of_u, of_r = (gradients[len(self.exchanges) :] for gradients in found)
        told.change_squared = self.round_of(rule, of_u, of_r, omega)

    def _top(self, place: int, parts: Sequence[Sequence[Tensor]], own: Sequence[Tensor] | None) -> Tensor:
        """Return the logits of one part of a round's rows."""
        state = self.state
        blocks = [party[place].to(state.device) for party in parts] + ([own[place]] if own else [])
        if not len(blocks[0]):
            return torch.zeros(0, state.classes)
        logits: Tensor = state.networks["top"](torch.cat(blocks, dim=1))
        return logits

    def _compare(self, phase: Phase, rows: Tensor, logits: Sequence[Tensor], report: Report) -> None:
        """Hold D_u against held-out rows, and keep what later rounds go by."""
        state, compare, kept = self.state, phase.update.compare, self.state.memory.of("compare")
        assert state.labels is not None
        forget, _, held_out = (state.labels[one] for one in parts_of(rows, phase.joint))
        gone = forget[~torch.isin(forget, state.labels[state.sets.rows[Samples.REMAINING]])]
        found = stand(logits[0].cpu(), forget, logits[HELD_OUT].cpu(), held_out, gone, compare)
        first: float = kept.setdefault("accuracy", found.held_out_accuracy)
        kept["level"] = found.mean_loss
        report.figures.update(found.figures(first, compare))
        report.within_bounds = found.holds

    def _step_again(
        self, phase: Phase, step: int, rows: Tensor, sent: Mapping[str, Tensor], rule: Rule, report: Report
    ) -> None:
        """Take the further steps of a schedule, with the embeddings as they came and everything of one's own anew."""
        state, kept = self.state, {name: one.detach() for name, one in sent.items()}
        assert state.labels is not None
        for _ in range(1, Schedule.of(phase).local_steps):
            own = [state.embed(rows, phase, step)] if state.inputs else []
            logits: Tensor = state.networks["top"](torch.cat([*self._in_order(kept, rows), *own], dim=1))
            each = losses.per_sample(phase.loss, logits, state.labels[rows].to(state.device))
            torch.autograd.backward(losses.reduce(phase.loss, each, report.rows))
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
            most = ROW_BYTES * len(training)
            told = list((await expect(exchange.link, "forget", timeout=timeout, most=most)).forget.rows)
            if not are_places(told, len(training)):
                raise PartyError(
                    exchange.link.peer, "asked to forget rows that are no ascending part of those in common"
                )
            rows.update(told)
        return sorted(rows)

    def assess(self, assess: Assess) -> Assessment:
        """Turn the predictions recorded since the last time into figures."""
        state, assessor = self.state, Assessor(self.state)
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
        told = state.figures[assess.model] = {name: one for name, one in figures.items() if name not in left_out}
        return Assessment(figures=told, left_out=left_out)

    def _audited(self, model: str) -> Assessment:
        """Return the audit's figures of a model that was kept before, as far as they may leave."""
        state = self.state
        auditor = Auditor(state.audit, state.ids)
        figures = auditor.figures(model) if state.truth is None else {}
        # Distances are to other models, so that of these too nothing else may be told.
        silence = next((one.silence for one in state.audit.shown.values() if one.silence), "")
        kept_back = {name: silence or self.consent.keeps_back(name, auditor.about(name)) for name in figures}
        left_out = {name: reason for name, reason in kept_back.items() if reason}
        told = {name: one for name, one in figures.items() if name not in left_out}
        state.figures[model] = state.figures.get(model, {}) | told
        return Assessment(figures=told, left_out=left_out)

    async def _collect(
        self, online: Sequence[TensorExchange], phase: Phase, step: int, rows: Tensor
    ) -> dict[str, Tensor]:
        """Return every passive party's embedding of one batch."""
        timeout = self.context.federation.deadlines.step
        due = (one.receive(Kind.EMBEDDING, phase, step, rows, timeout=timeout) for one in online)
        sent = dict(zip((one.link.peer for one in online), await asyncio.gather(*due), strict=True))
        for party, embedding in sent.items():
            self.consent.embedding(embedding, phase, sender=party)
        return sent

    async def _answer(
        self, online: Sequence[TensorExchange], phase: Phase, step: int, rows: Tensor, sent: Mapping[str, Tensor]
    ) -> None:
        """Send every passive party ∂L/∂h_i of one batch."""
        timeout = self.context.federation.deadlines.step
        for exchange in online:
            party = exchange.link.peer
            gradient = self.noise.apply(_gradient(sent[party]), rows, phase.number, step, party)
            await exchange.send(Kind.GRADIENT, phase, step, gradient, rows, timeout=timeout)

    def _finite(self, loss: float, phase: Phase, step: int) -> float:
        """Pass a loss on, unless there is nothing to learn from it."""
        if not math.isfinite(loss):
            where = f"step {step} of {phase.name} round {phase.round}"
            reason = f"found a loss that is not finite at {where}: a lower learning rate may help"
            raise PartyError(self.context.settings.name, reason)
        return loss

    async def close(self) -> None:
        """Let the passive parties go."""
        self._exchange_server.end(self.job.job, self.attempt)


def _gradient(embedding: Tensor) -> Tensor:
    assert embedding.grad is not None
    return embedding.grad
