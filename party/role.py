"""What both roles have in common: a job is set up once, then runs phases, then is closed."""

import asyncio
import hmac
import logging
import os
import tempfile
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedora_vfl.certificates.statement import commit, now, sign_statement, statement
from fedora_vfl.errors import DataError, PartyError, SettingsError
from fedora_vfl.settings.files import parse
from fedora_vfl.settings.matching import Matching
from fedora_vfl.settings.model import Model
from fedora_vfl.signing import SigningKey
from fedora_vfl.wire.choice import encodings_of, told
from party import batches
from party.account import Account
from party.alignment import ALIGNMENTS, Alignment, Terms
from party.consent import Consent
from party.context import PartyContext
from party.device import device_for
from party.dropped import DroppedRequest, drop_for_good, nothing_dropped, read_list
from party.exchange import TensorExchange, digest_of
from party.kept_alignment import rows_of
from party.lineage import Lineage, check_lineage
from party.many_ids import set_of
from party.pending import pending_rows
from party.phase_bounds import check_batches, check_phase
from party.privacy import Noise
from party.private_alignment import rounded_up
from party.schedule import Late, Unanswered
from party.scrutiny import asked_of, check_asked, check_files, check_joint, read_joint
from party.state import PartyState, assemble, model_lineage, reload
from party.updates import PhaseEnd, Rule, rule_for
from protos.fedora.v1.control_pb2 import (
    Accepted,
    Attest,
    Dropped,
    Ready,
    Request,
    Restart,
    Restarted,
    Save,
    Saved,
    Setup,
    Statement,
)
from protos.fedora.v1.exchange_pb2 import Order
from protos.fedora.v1.phase_pb2 import Phase, Progress, Report, Samples, Update

Tell = Callable[[Progress], Awaitable[None]]

log = logging.getLogger(__name__)


@dataclass
class PhaseUnderWay:
    """A phase that a party has begun and not ended."""

    phase: Phase
    rule: Rule
    drawn: list[Tensor]
    report: Report
    before: list[Tensor]  # parameters as they were, where the rule changes them
    steps: int = 0  # that are done


class Role(ABC):
    """A passive or active party in one job."""

    def __init__(self, context: PartyContext, setup: Setup, attempt: int) -> None:
        self.context, self.job, self.attempt = context, setup, attempt
        self.consent = Consent(context, setup, active=self._is_active)
        self.exchanges: list[TensorExchange] = []
        self.encodings = encodings_of(setup)
        self._state: PartyState | None = None
        self._noise: Noise | None = None
        self.dropped = nothing_dropped()
        self._pending: list[DroppedRequest] = []  # which the job takes up, as this party's list has them
        self.under_way: PhaseUnderWay | None = None  # between two parts of a phase
        self.kept: list[tuple[Tensor, dict[str, Tensor]]] = []  # active party: what the phase is to record, so far
        self.unanswered: deque[Unanswered] = deque()  # passive party: what was sent and has no gradient yet
        self.late: deque[Late] = deque()  # passive party, batches that overlap: what is heard and not yet applied
        self.ids: list[str] = []  # of this party's rows, without those that were dropped in earlier jobs
        self.tell: Tell | None = None  # is handed the progress of a long alignment

    @abstractmethod
    async def connect(self) -> Order:
        """Open the streams to the other side and agree on the rows."""

    @abstractmethod
    async def open_streams(self) -> None:
        """Open the streams to the other side, in a job whose rows are agreed on."""

    @abstractmethod
    async def measure_line(self) -> int:
        """Find out how many milliseconds a word takes there and back; 0 at the active party, which only answers."""

    @abstractmethod
    async def run_batches(self, phase: Phase, rule: Rule, drawn: list[Tensor], report: Report, tell: Tell) -> None:
        """Run the batches of a phase and add to the report.

        Args:
            phase: What the coordinator asked for.
            rule: What to do with each batch's gradients.
            drawn: The rows of each batch.
            report: Gets what the batches come to.
            tell: Is handed the progress of a long phase.
        """

    @abstractmethod
    async def settle(self) -> None:
        """Wait for what is under way between parties, before the state is made to last or other work begins."""

    @abstractmethod
    async def run_rounds(self, phase: Phase, rule: Rule, drawn: list[Tensor], report: Report, tell: Tell) -> None:
        """Run the rounds of a joint phase and add to the report; what is handed over is as for batches."""

    @abstractmethod
    async def find_rows(self, request: Request, pending: Sequence[int]) -> tuple[Tensor, bytes]:
        """Return the rows that a request means and its secret, the same at all parties.

        Args:
            request: Whom to forget; a passive party is told only that somebody is.
            pending: The rows of requests that are taken up, as this party's list has them, ascending.
        """

    @abstractmethod
    async def close(self) -> None:
        """Leave the job: close streams, forget its state."""

    @property
    def state(self) -> PartyState:
        """The state of a job that has been set up."""
        if self._state is None:
            raise PartyError("coordinator", "asked for work before the job was set up")
        return self._state

    @property
    def noise(self) -> Noise:
        """What is put on every row that leaves, and counts it."""
        if self._noise is None:
            raise PartyError("coordinator", "asked for work before the job was set up")
        return self._noise

    async def prepare(self) -> Ready:
        """Join the rows and make the networks."""
        self._check_members()
        self.consent.begin()
        _check_writable(self.context.settings.models)
        for name in self.job.saves if self.attempt == 1 else ():  # the job may have saved some of them before
            if self.context.settings.model_path(name).exists():
                raise _taken(name)
        await asyncio.to_thread(self._leave_out_dropped)  # millions of ids must not keep others waiting
        order = await self.connect()
        await asyncio.to_thread(self._check_order, order)
        state = self._made(order)
        self.consent.networks(state, order)
        self.take(state)
        return Ready(
            round_trip=await self.measure_line(),
            own_rows=rounded_up(len(self.context.records.ids), self.context.settings.padding),
            parameters=state.parameters,
            bottom_layers=state.layers("bottom"),
            top_layers=state.layers("top"),
            embedding=state.model.embedding,
            train=len(order.train),
            validation=len(order.validation),
            test=len(order.test),
            probe=len(order.probe),
            classes=state.classes,
            features=state.inputs is not None,
            identity=state.description.get("identity", "") if self.job.load else "",
            training=state.description.get("training", "") if self.job.load else "",
            forgotten_rows=len(self.context.records.ids) - len(self.ids),
            repeatable_start=self.context.settings.seed is not None,
            pending=[one.job for one in self._pending],
            aligned=self.alignment.aligned,
        )

    def _leave_out_dropped(self) -> None:
        """Take rows that were dropped in earlier jobs out of all that this job sees, but for those it takes up."""
        settings, ids = self.context.settings, self.context.records.ids
        listed = read_list(settings.keys) if settings.drops == "for-good" else nothing_dropped()
        self.dropped = listed.without([one for one in listed.requests if one.job == self.job.job])  # it begins again
        if self.job.take_up_pending:
            self._pending = self.dropped.lacking(model_lineage(settings.model_path(self.job.load)).honoured)
        left_out = self.dropped.without(self._pending)
        self.ids = [one for one in ids if one not in left_out]
        if len(self.ids) < len(ids):
            log.info("%d rows were dropped in earlier jobs, and are left out", len(ids) - len(self.ids))

    def _check_order(self, order: Order) -> None:
        """Refuse rows that this party did not offer, whatever the way in which common rows are found."""
        if not set_of(rows_of(order)) <= set_of(self.ids):
            active = self.context.federation.active.name
            raise PartyError(active, "sent an order with rows that this party did not offer")
        if self._pending and any(one in self.dropped for one in (*order.validation, *order.test, *order.probe)):
            said = "rows of pending requests are no longer among the training rows: bring the earlier split back"
            raise SettingsError(f"forget.pending: {said}, or train anew")

    def _made(self, order: Order) -> PartyState:
        """Return the state that a job begins with: from a saved model, or with fresh parameters."""
        settings, setup, records = self.context.settings, self.job, self.context.records
        model = parse(setup.model, Model, origin="model") if setup.model else None
        passive = list(setup.passive) if self._is_active else None
        if setup.load:
            state = reload(records, order, settings.model_path(setup.load), wanted=model, passive=passive)
            self._check_lineage(state, setup.load)
            return state
        state = assemble(
            records,
            order,
            party=settings.name,
            place=self._place,
            seed=self._start(setup.seed),
            model=model or Model(),
            own_bottom=settings.model,
            passive=passive,
            secret=self._secret,
        )
        state.lineage = Lineage(tuple(self.dropped.jobs))  # it will never have seen their rows
        return state

    def _check_lineage(self, state: PartyState, name: str) -> None:
        """Refuse a model that remembers what was forgotten since, unless the job says, and the policy, that it may."""
        if self.context.settings.drops != "for-good":
            return
        requests = state.account.requests if state.account else [one.job for one in self._pending]
        honouring = [self.job.job, *requests]
        if not self.job.allow_remembering:
            check_lineage(state.lineage, self.dropped, model=name, honouring=honouring)
        elif self.dropped.lacking([*state.lineage.honoured, *honouring]):
            self.consent.remember(name)

    def _start(self, seed: int) -> int:
        """Return what fresh parameters are drawn from: the job's seed and, if there is one, that of the party file."""
        return (seed + (self.context.settings.seed or 0)) % 2**63

    @property
    def _secret(self) -> bytes:
        """What else they are drawn from: nothing, where the party file has a seed, so that others can repeat it.

        Another job begins elsewhere: two models that began alike would tell, by how they differ, of the few rows that
        only one of them has learned from.
        """
        secret, job = self.context.secret, self.job.job.encode()
        return hmac.digest(secret, b"start/" + job, "sha256") if self.context.settings.seed is None else b""

    def state_dict(self) -> dict[str, Any]:
        """Return all that this party must know to go on with the job in a new process: tensors and plain values."""
        return {
            "state": self.state.state_dict(),
            "consent": self.consent.state_dict(),
            "noise": self.noise.key.hex(),
            "dropped": self.dropped.jobs,
            "pending": [one.job for one in self._pending],
            "random": torch.get_rng_state(),
            "under_way": self._under_way_dict() if self.under_way else None,
            "late": [one.state_dict() for one in self.late],
            "data": self.context.data_digest,
        }

    def load_state_dict(self, content: Mapping[str, Any]) -> None:
        """Go on from where an earlier process, or an earlier attempt, was."""
        settings, pending = self.context.settings, set(content["pending"])
        if content["data"] != self.context.data_digest:
            remedy = "bring back the file that the job began with, or cancel the job"
            raise DataError(f"{settings.data.path}: was changed while the job was interrupted: {remedy}")
        listed = read_list(settings.keys) if settings.drops == "for-good" else nothing_dropped()
        # What this job has dropped since is not known yet.
        self.dropped = listed.without([one for one in listed.requests if one.job not in content["dropped"]])
        self._pending = [one for one in listed.requests if one.job in pending]
        state = PartyState.restored(content["state"], self.context.records)
        self.consent.load_state_dict(content["consent"], state.order)
        self.take(state, noise_key=bytes.fromhex(content["noise"]))
        torch.set_rng_state(content["random"])
        if content["under_way"]:
            self._load_under_way(content["under_way"])
        self.late = deque(Late.restored(one, self.state.device) for one in content["late"])

    def take(self, state: PartyState, *, noise_key: bytes | None = None) -> None:
        """Go on with this state: a new job's, or one that was saved."""
        settings = self.context.settings
        state.move_to(device_for(settings.device, origin=f"{settings.name}'s party file"))
        self._state = state
        self._noise = Noise(settings.privacy, party=settings.name, releases=state.releases, key=noise_key)
        self.take_streams()

    def take_streams(self) -> None:
        """Expect embeddings of the model's width on all streams."""
        for exchange in self.exchanges:
            exchange.take(self.state.model.embedding, self.state.links.of(exchange.link.peer))

    def _check_members(self) -> None:
        """Refuse a job among others than this party's federation file says."""
        here, there = set(self.context.federation.passive), set(self.job.passive)
        if here != there:
            said = f"runs jobs with the passive parties {', '.join(sorted(there))}, and the file here has"
            remedy = "give all members the same federation file, and start them again"
            raise PartyError("coordinator", f"{said} {', '.join(sorted(here))}: {remedy}")

    @cached_property
    def alignment(self) -> Alignment:
        """The way in which this federation finds its common rows, which the coordinator's file must name too."""
        here, there = self.context.federation.alignment, self.job.alignment
        if here != there:
            remedy = "give all members the same federation file, and start them again"
            raise PartyError("coordinator", f"aligns rows by {there!r}, and the file here says {here!r}: {remedy}")
        self._check_matching()
        try:
            return ALIGNMENTS.get(here)(self._terms)
        except ValueError as error:
            raise SettingsError(f"the federation file's alignment: {error}") from None

    def _check_matching(self) -> None:
        """Refuse a job whose coordinator compares ids in another way than this party's federation file says."""
        there = parse(self.job.matching, Matching, origin="matching") if self.job.matching else Matching()
        if there != self.context.federation.matching:
            remedy = "give all members the same federation file, and start them again"
            raise PartyError("coordinator", f"has another `matching` than the federation file here: {remedy}")

    @property
    def _terms(self) -> Terms:
        """What the alignment may have to know."""
        settings, federation = self.context.settings, self.context.federation
        return Terms(
            job=self.job.job,
            party=settings.name,
            active=federation.active.name,
            passive=tuple(self.job.passive),
            keys=settings.keys,
            threads=settings.threads or len(os.sched_getaffinity(0)),
            padding=settings.padding,
            public_keys=federation.keys,
            tell=self._tell_aligning,
            before=self.context.masked,
            agree=self.consent.mask,
        )

    async def _tell_aligning(self, done: int, due: int) -> None:
        if self.tell:
            await self.tell(Progress(steps=done, of_steps=due))

    @property
    def _is_active(self) -> bool:
        return self.context.settings.name == self._active

    @property
    def _active(self) -> str:
        return self.context.federation.active.name

    @property
    def _place(self) -> int:
        """The place among the bottom models; the active party's is last."""
        # The coordinator's order counts, whatever the order in this party's copy of the federation file.
        passive = list(self.job.passive)
        return len(passive) if self._is_active else passive.index(self.context.settings.name)

    async def request(self, request: Request) -> Accepted:
        """Find the rows to forget, but go on as before until they are dropped."""
        state, settings = self.state, self.context.settings
        self.consent.request()
        taken_up = self._take_up(request)
        pending = sorted({row for rows in taken_up.values() for row in rows})
        rows, secret = await self.find_rows(request, pending)
        ids = [state.order.train[row] for row in rows.tolist()]
        commitment = commit(settings.keys, job=self.job.job, party=settings.name, ids=ids, secret=secret)
        state.sets = state.sets.forgetting(rows)
        remaining = len(state.sets.rows[Samples.REMAINING])
        state.account = Account(
            commitment,
            dropped=len(rows),
            remaining=remaining,
            requests=taken_up or {self.job.job: rows.tolist()},
            asked=asked_of(request),
        )
        return Accepted(rows=len(rows), remaining=remaining, commitment=commitment)

    def _take_up(self, request: Request) -> dict[str, list[int]]:
        """Return the rows of the pending requests that this job takes up, by job: all that this party offered again."""
        if request.HasField("pending") != self.job.take_up_pending:
            raise PartyError("coordinator", "sent another kind of request than it said when it set the job up")
        jobs = list(request.pending.jobs)
        if left_out := {one.job for one in self._pending}.difference(jobs):
            raise PartyError("coordinator", f"left out the pending request of job {min(left_out)}")
        return pending_rows(jobs, self.dropped, keys=self.context.settings.keys, training=self.state.order.train)

    def drop(self) -> Dropped:
        """Take the rows to forget out of the training rows for good; the model as it is now is Θ_init."""
        state, settings = self.state, self.context.settings
        if state.account is None:
            raise PartyError("coordinator", "asked to drop rows before a request named any")
        state.account.begin(now())
        if settings.drops == "for-good":
            for job, rows in state.account.requests.items():
                ids = [state.order.train[row] for row in rows]
                self.dropped = drop_for_good(settings.keys, job=job, ids=ids)
        state.links.forget(state.sets.rows[Samples.FORGET])
        state.sets = state.sets.dropping()
        self.late.clear()
        state.begin()
        return Dropped(rows=state.account.dropped, remaining=state.account.remaining)

    def restart(self, restart: Restart) -> Restarted:
        """Go on from a saved model, or from fresh parameters."""
        path = self.context.settings.model_path(restart.load) if restart.load else None
        self.late.clear()
        if restart.load:
            self.consent.load(restart.load)
        else:
            self.consent.restart(restart.seed)
        self.state.restart(path, place=self._place, seed=self._start(restart.seed), secret=self._secret)
        if path:
            self._check_lineage(self.state, restart.load)
        else:
            self.state.lineage = Lineage(tuple(self.dropped.jobs))
        if self.state.account:
            self.state.account.restart(fresh=path is None)
        return Restarted(identity=self.state.description.get("identity", ""))

    def rollback(self, checkpoints: int) -> None:
        """Return to an earlier checkpoint; what came since has no effect."""
        self.state.rollback(checkpoints)
        self.late.clear()

    def save_model(self, save: Save) -> Saved:
        """Write the model to this party's disk; one that has moved since rows were dropped has honoured the request."""
        state, path = self.state, self.context.settings.model_path(save.name)
        self.consent.save(save.name, replaces=save.overwrite and path.exists())
        if state.account and state.memory.initial and state.change_squared(state.memory.initial):
            for job in state.account.requests:
                state.lineage = state.lineage.honouring(job)
        state.description.pop("salt", None)
        if self.consent.silence:
            # Two models that the same labels have left as they were would otherwise have the same digest.
            salted = f"salt/{self.job.job}/{save.name}".encode()
            state.description["salt"] = hmac.digest(self.context.secret, salted, "sha256").hex()
        if not path.exists():
            self.consent.saved(save.name)  # first: a process that ends in between must know the file for this job's
        try:
            digest = state.save_model(path, save.identity, save.training, overwrite=save.overwrite)
        except FileExistsError:
            raise _taken(save.name) from None
        self.consent.saved(save.name)
        if state.account:
            state.account.save(save.name, digest)
        log.info("the model is kept as %s", path)
        return Saved(name=save.name, sha256=digest)

    def attest(self, attest: Attest) -> Statement:
        """Sign the joint statement, if it is true as far as can be seen here, and what this party can say itself."""
        settings, account = self.context.settings, self.state.account
        if account is None or not account.began:
            raise PartyError("coordinator", "asked for a statement before rows were dropped")
        account.close()
        self.state.links.forget(self.state.sets.rows[Samples.FORGET])
        joint = read_joint(attest.joint)
        passive = list(self.job.passive)
        check_joint(
            joint,
            account,
            job=self.job.job,
            party=settings.name,
            active=self._active,
            passive=passive,
            wire=told(self.job),
        )
        if self._is_active:
            check_asked(attest.asked, joint, account)
        content = statement(
            job=self.job.job,
            party=settings.name,
            role=self.context.federation.role(settings.name),
            joint=joint,
            began=account.began,
            commitment=account.commitment,
            dropped=account.dropped,
            remaining=account.remaining,
            phases=account.phases,
            before=settings.model_path(joint.models.before),
            after=settings.model_path(joint.models.after),
            change_squared=account.moved_squared,
            dual=account.dual if account.dual_told else None,
            residual_squared=account.residual_squared,
            residual_rows=account.residual_rows,
            traffic=self.context.meter.by_kind(settings.name),
            uncertainty=account.uncertainty,
            metrics=self.state.figures or None,
            unseen=account.unseen,
        )
        check_files(content["models"], account)
        return sign_statement(content, SigningKey.load_or_make(settings.keys))

    async def run(self, phase: Phase, tell: Tell) -> Report:
        """Run one phase and report on it."""
        metrics = self.context.metrics
        with metrics.clock.phase(phase.name) as spent:
            report = await self._run(phase, tell)
            told = spent()
        report.compute_seconds += told.computing
        report.wait_seconds += told.waiting + told.sending
        if self.under_way:
            return Report(phase=phase.number, steps=self.under_way.steps, partial=True)
        metrics.finished(phase.name, report)
        return report

    async def _run(self, phase: Phase, tell: Tell) -> Report:
        """Do what a phase, or a part of it, asks for and say what came of it."""
        now = self._go_on(phase) if phase.first_step else self._begin(phase)
        with torch.set_grad_enabled(now.rule.needs_gradients):
            if phase.HasField("joint"):
                await self.run_rounds(phase, now.rule, now.drawn, now.report, tell)
            else:
                await self.run_batches(phase, now.rule, now.drawn, now.report, tell)
        now.steps = batches.end_of_part(phase, len(now.drawn))
        self.under_way = now if now.steps < len(now.drawn) else None
        return now.report if self.under_way else await self._finish(phase, now)

    def _begin(self, phase: Phase) -> "PhaseUnderWay":
        """Agree to a phase, draw its batches and make its update rule."""
        state = self.state
        self.kept = []
        check_phase(phase, passive=self.job.passive)
        drawn = self._drawn(phase)
        check_batches(phase, max(map(len, drawn), default=0), embedding=state.model.embedding)
        self.consent.phase(phase, drawn, state.sets)
        for exchange in self.exchanges:
            exchange.agreed = digest_of(self.job, phase)
        if phase.checkpoint:
            state.checkpoint()
        rule = rule_for(phase.update, state.networks.parameters(), state.memory)
        if phase.forward_only == rule.needs_gradients:
            reason = f"and the update rule of phase {phase.name} disagree on whether gradients are sent back"
            raise PartyError("coordinator", f"{reason}: install the same release everywhere")
        changes = rule.needs_gradients or not rule.parameters_frozen
        if (self.late or self.unanswered) and changes and not phase.schedule.overlap:
            raise PartyError(
                "coordinator", f"asked for {phase.name} before the last gradients of a training were applied"
            )
        if self.job.take_up_pending and not rule.parameters_frozen and not (state.account and state.account.began):
            raise PartyError("coordinator", "asked to learn before the rows of pending requests were dropped")
        state.networks.train(phase.train_mode)
        before = [] if rule.parameters_frozen else state.snapshot()
        report = Report(phase=phase.number, rows=sum(len(rows) for rows in drawn), steps=len(drawn))
        return PhaseUnderWay(phase, rule, drawn, report, before)

    def _drawn(self, phase: Phase) -> list[Tensor]:
        """Return the rows of every batch, or round, of a phase."""
        sets = self.state.sets
        if phase.HasField("joint"):
            return batches.draw_joint(sets, phase.joint, phase.plan.seed)
        return batches.draw(sets, phase.over, phase.plan, self.state.ids_for(phase.over))

    def _go_on(self, phase: Phase) -> "PhaseUnderWay":
        """Return the phase that a part before this one has left."""
        now = self.under_way
        if now is None or now.steps != phase.first_step or _whole(now.phase) != _whole(phase):
            raise PartyError("coordinator", f"asked for steps from {phase.first_step} on of a phase that is not there")
        return now

    async def _finish(self, phase: Phase, now: "PhaseUnderWay") -> Report:
        """End a phase: agree on what its rule has to agree on, and report."""
        state, rule, report = self.state, now.rule, now.report
        await rule.exchange(self.end_of(phase, report))
        report.figures.update(state.finish(rule))
        if now.before:
            report.change_squared = state.change_squared(now.before)
            state.learned_from(phase.over)
        self.consent.screen(phase, now.drawn, report, classes=state.classes, sets=state.sets)
        if state.account:
            state.account.add(phase, rule, report, classes=state.classes)
        return report

    def _under_way_dict(self) -> dict[str, Any]:
        """Return what must be known of a phase to go on with its next part."""
        now = self.under_way
        assert now
        return {
            "phase": now.phase.SerializeToString().hex(),
            "report": now.report.SerializeToString().hex(),
            "steps": now.steps,
            "before": now.before,
            "gradients": [one.grad for one in now.rule.parameters],
            "kept": [[logits, sent] for logits, sent in self.kept],
            "fresh": self.state.confidence.fresh,
        }

    def _load_under_way(self, content: Mapping[str, Any]) -> None:
        """Go on in the middle of a phase."""
        state, phase = self.state, Phase.FromString(bytes.fromhex(content["phase"]))
        update = Update()
        update.CopyFrom(phase.update)
        update.fresh = False  # what the rule remembers is of this phase
        rule = rule_for(update, state.networks.parameters(), state.memory)
        rule.go_on()
        for parameter, gradient in zip(rule.parameters, content["gradients"], strict=True):
            parameter.grad = None if gradient is None else gradient.to(state.device)
        state.networks.train(phase.train_mode)
        drawn = self._drawn(phase)
        report = Report.FromString(bytes.fromhex(content["report"]))
        before = [one.to(state.device) for one in content["before"]]
        self.under_way = PhaseUnderWay(phase, rule, drawn, report, before, content["steps"])
        self.kept = [(logits, sent) for logits, sent in content["kept"]]
        state.confidence.fresh = content["fresh"]

    def end_of(self, phase: Phase, report: Report) -> PhaseEnd:
        """Return what a rule may need to speak to the other side."""
        links = [one.link for one in self.exchanges if one.link.peer not in phase.offline]
        timeout = self.context.federation.deadlines.step
        return PhaseEnd(phase, report, links, self._is_active, self.context.metrics.clock, timeout)


def _whole(phase: Phase) -> Phase:
    """Return a phase of which a part was asked for."""
    whole = Phase()
    whole.CopyFrom(phase)
    whole.ClearField("first_step")
    whole.ClearField("steps")
    return whole


def _taken(name: str) -> SettingsError:
    remedy = "choose another name as `train.save`, `unlearn.save` or a comparison's, or say `overwrite: true` beside it"
    return SettingsError(f"a model is saved as {name!r} already: {remedy}")


def _check_writable(folder: Path) -> None:
    """Find out before the training, not after it, that a model could not be saved."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise DataError(f"{folder}: models cannot be saved there: {error.strerror}") from None
