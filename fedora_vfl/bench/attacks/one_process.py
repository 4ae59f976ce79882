"""All parties of a job in one process: their own code without sockets, equal to the bit, and open to be watched."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from coordinator.job import Job
from coordinator.methods import Method, PhaseOutcome, R, Rollback
from fedora_vfl.bench.attacks.defences import Defence
from fedora_vfl.datasets.settings import ACTIVE
from fedora_vfl.errors import SettingsError
from fedora_vfl.sampling.seeds import derive
from fedora_vfl.settings.model import Model
from fedora_vfl.wire.choice import Encodings
from party import batches, losses
from party.codec import Codec
from party.data.reading import read
from party.data.records import Records
from party.data.split import assign
from party.privacy import Noise
from party.settings import load_party
from party.state import PartyState, assemble
from party.updates import Rule, rule_for
from party.updates.primal_dual import DualAscent, unlearning_loss
from protos.fedora.v1.exchange_pb2 import Order
from protos.fedora.v1.meter_pb2 import Kind
from protos.fedora.v1.phase_pb2 import Phase, Report


@dataclass(frozen=True)
class Step:
    """What crossed for one batch, as its receivers have it."""

    phase: Phase
    rows: Tensor  # in the common order
    embeddings: dict[str, Tensor]  # by passive party, at the active one
    gradients: dict[str, Tensor]  # by passive party, at that party; none in a phase that only looks
    logits: Tensor  # which the active party computes of the embeddings


Watch = Callable[[Step], None]


@dataclass(frozen=True)
class Line:
    """The two ends of one link, each of which may remember what it has sent."""

    passive: Codec
    active: Codec

    def embedding(self, phase: Phase, step: int, tensor: Tensor, rows: Tensor) -> Tensor:
        """Return an embedding as it arrives at the active party."""
        data = self.passive.encode(Kind.EMBEDDING, phase, step, tensor.detach(), rows)
        return self.active.decode(Kind.EMBEDDING, phase, memoryview(data), rows, tensor.shape[1], _accept)

    def gradient(self, phase: Phase, step: int, tensor: Tensor, rows: Tensor) -> Tensor:
        """Return a gradient as it arrives at the passive party."""
        data = self.active.encode(Kind.GRADIENT, phase, step, tensor.detach(), rows)
        return self.passive.decode(Kind.GRADIENT, phase, memoryview(data), rows, tensor.shape[1], _accept)


def _accept(_: Tensor) -> None:
    """Find nothing wrong with a tensor of one's own."""


@dataclass
class OneProcess:
    """The parties of one job."""

    states: dict[str, PartyState]  # in the order of the bottoms, the active party's last
    records: dict[str, Records]  # every party's own rows, in the common order
    order: Order
    lines: dict[str, Line]  # by passive party
    noises: dict[str, Noise]
    defence: Defence
    reports: list[Report] = field(default_factory=list)  # what the coordinator is told by the active party
    watch: Watch | None = None
    _phases: int = 0

    @property
    def passive(self) -> list[str]:
        """The names of the passive parties."""
        return [name for name in self.states if name != ACTIVE]

    @property
    def active(self) -> PartyState:
        """The active party's state."""
        return self.states[ACTIVE]

    @property
    def labels(self) -> Tensor:
        """The classes of all rows."""
        assert self.active.labels is not None
        return self.active.labels

    def perform(self, method: Method[R]) -> R:
        """Run a method's phases."""
        try:
            step = next(method)
            while True:
                if isinstance(step, Rollback):
                    for state in self.states.values():
                        state.rollback(step.checkpoints)
                else:
                    outcome = self.run(step)
                step = method.send(outcome)
        except StopIteration as stop:
            value: R = stop.value
            return value

    def forget(self, rows: Tensor) -> None:
        """Drop training rows at every party."""
        for state in self.states.values():
            state.links.forget(rows)
            state.sets = state.sets.forgetting(rows).dropping()
            state.begin()

    def run(self, phase: Phase) -> PhaseOutcome:
        """Run one phase at all parties; one of joint rounds is refused, as these are not repeated here."""
        if phase.HasField("joint"):
            raise SettingsError("joint rounds run on a cluster only: choose `steps: paper` for one process")
        self._phases += 1
        phase.number = self._phases
        drawn = batches.draw(self.active.sets, phase.over, phase.plan)
        if phase.checkpoint:
            for state in self.states.values():
                state.checkpoint()
        rules = {
            name: rule_for(phase.update, one.networks.parameters(), one.memory) for name, one in self.states.items()
        }
        before = {name: state.snapshot() for name, state in self.states.items()}
        for state in self.states.values():
            state.networks.train(phase.train_mode)
        report = Report(phase=phase.number, rows=sum(len(rows) for rows in drawn), steps=len(drawn))
        with torch.set_grad_enabled(rules[ACTIVE].needs_gradients):
            for step, rows in enumerate(drawn):
                self._step(phase, step, rows, rules, report)
        self._settle(phase, rules, report)
        figures = {name: rule.finish() for name, rule in rules.items()}
        change = sum(state.change_squared(before[name]) for name, state in self.states.items())
        self.reports.append(report)
        rows_seen = max(report.rows, 1)
        loss = report.loss_sum / rows_seen if report.rows else math.nan
        return PhaseOutcome(report.rows, loss, report.correct / rows_seen, math.sqrt(change), 0.0, figures)

    def _step(self, phase: Phase, step: int, rows: Tensor, rules: dict[str, Rule], report: Report) -> None:
        """Do for one batch what party/passive.py and party/active.py do."""
        sent = {
            name: self.noises[name].apply(self.states[name].embed(rows, phase, step), rows, phase.number, step)
            for name in self.passive
        }
        arrived = {name: self.lines[name].embedding(phase, step, one, rows) for name, one in sent.items()}
        if rules[ACTIVE].needs_gradients:
            for embedding in arrived.values():
                embedding.requires_grad_()
        own = [self.active.embed(rows, phase, step)] if self.active.inputs else []
        logits: Tensor = self.active.networks["top"](torch.cat([*arrived.values(), *own], dim=1))
        labels = self.labels[rows]
        each = losses.per_sample(phase.loss, logits, labels)
        report.loss_sum += float(each.detach().sum())
        report.correct += int((logits.detach().argmax(dim=1) == labels).sum())
        gradients: dict[str, Tensor] = {}
        if rules[ACTIVE].needs_gradients:
            torch.autograd.backward(losses.reduce(phase.loss, each, report.rows))
            gradients = {name: self._answer(name, one, phase, step, rows) for name, one in arrived.items()}
            rules[ACTIVE].step()
            for name in self.passive:
                self._absorb(name, rows, sent[name], gradients[name])
                rules[name].step()
        if self.watch:
            seen = {name: one.detach() for name, one in arrived.items()}
            self.watch(Step(phase, rows, seen, gradients, logits.detach()))

    def _answer(self, party: str, embedding: Tensor, phase: Phase, step: int, rows: Tensor) -> Tensor:
        """Return the gradient that a passive party gets."""
        assert embedding.grad is not None
        gradient = torch.zeros_like(embedding.grad) if self.defence.withheld else embedding.grad
        if self.defence.label_shield:
            seed = derive(phase.plan.seed, "shield", party, step)
            gradient = self.defence.shielded(gradient, self.labels[rows], seed)
        gradient = self.noises[ACTIVE].apply(gradient, rows, phase.number, step, party)
        return self.lines[party].gradient(phase, step, gradient, rows)

    def _absorb(self, party: str, rows: Tensor, embedding: Tensor, gradient: Tensor) -> None:
        """Let a gradient flow into a passive party's bottom, with its own penalty if it has one."""
        if not self.defence.distance_correlation:
            torch.autograd.backward(embedding, gradient)
            return
        inputs = self.states[party].inputs
        assert inputs is not None
        penalty = self.defence.penalty(inputs.batch(rows), embedding)
        torch.autograd.backward([embedding, penalty], [gradient, torch.ones(())])

    def _settle(self, phase: Phase, rules: dict[str, Rule], report: Report) -> None:
        """End an unlearning phase as its rules do between processes."""
        active = rules[ACTIVE]
        if isinstance(active, DualAscent):
            omega = active.ascend(unlearning_loss(phase, report)) if active.scalar else None
            for rule in rules.values():
                assert isinstance(rule, DualAscent)
                rule.settle(omega)


def join(folder: Path, job: Job, defence: Defence) -> OneProcess:
    """Make the parties of a folder that `fedora_vfl.cluster.preparation.prepare` has made, rows joined by id."""
    members = {path.stem: load_party(path) for path in sorted((folder / "parties").glob("*.yaml"))}
    names = next(iter(members.values()))[1].parties
    settings = {name: members[name][0] for name in names}
    records = {name: read(settings[name].data, with_labels=name == ACTIVE) for name in names}
    order = _order(records, settings[ACTIVE].data.test_fraction)
    passive = [name for name in names if name != ACTIVE]
    states = {
        name: assemble(
            records[name],
            order,
            party=name,
            place=len(passive) if name == ACTIVE else passive.index(name),
            seed=job.seed,
            model=job.model or Model(),
            own_bottom=settings[name].model,
            passive=passive if name == ACTIVE else None,
        )
        for name in [*passive, ACTIVE]
    }
    noises = {name: Noise(defence.privacy(name == ACTIVE, seed=job.seed), party=name) for name in states}
    lines = {}
    for name in passive:
        encodings = Encodings.of(job.wire.link(name))
        ends = (states[ACTIVE].links.of(name), states[name].links.of(ACTIVE))
        active, own = (Codec(encodings, passive=name, memory=memory) for memory in ends)
        lines[name] = Line(own, active)
    return OneProcess(states, records, order, lines, noises, defence)


def _order(records: dict[str, Records], test_fraction: float) -> Order:
    """Arrange the rows that all hold as the active party does."""
    active = records[ACTIVE]
    split = dict(zip(active.ids, assign(active.ids, active.split, test_fraction, origin=active.origin), strict=True))
    common = sorted(set.intersection(*(set(one.ids) for one in records.values())))
    sets = ("train", "validation", "test", "probe")
    return Order(**{name: [one for one in common if split[one] == name] for name in sets})
