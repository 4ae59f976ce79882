"""All parties of a job in one process: their own code without sockets, equal to the bit, and open to be watched."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from coordinator.methods import Method, PhaseOutcome, R, Rollback, phases_in
from fedora_vfl.bench.attacks.defences import Defence
from fedora_vfl.datasets.settings import ACTIVE
from fedora_vfl.sampling.seeds import derive
from party import batches, losses
from party.batches import PARTS, parts_of
from party.codec import Codec
from party.data.records import Records
from party.joint_round import compare, descend, embed_parts, judge
from party.privacy import Noise
from party.state import PartyState
from party.updates import JointRounds, Rule, rule_for
from party.updates.primal_dual import DualAscent, unlearning_loss
from party.updates.rule import gradients_of
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


def _accept(_: object) -> None:
    """Find nothing wrong with what is one's own."""


def _gradient(embedding: Tensor) -> Tensor:
    assert embedding.grad is not None
    return embedding.grad


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

    @property
    def layers(self) -> int:
        """Layers of weights from the inputs of the deepest bottom model to the logits."""
        return max(state.layers("bottom") for state in self.states.values()) + self.active.layers("top")

    def perform(self, method: Method[R]) -> R:
        """Run a method's phases."""
        try:
            step = next(method)
            while True:
                if isinstance(step, Rollback):
                    for state in self.states.values():
                        state.rollback(step.checkpoints)
                else:
                    outcomes = [self.run(phase) for phase in phases_in(step)]
                    outcome = replace(outcomes[-1], earlier=tuple(outcomes[:-1]))
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

    def load(self, networks: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Go on from parameters that were kept, by party; they are θ_init then."""
        for name, state in self.states.items():
            state.networks.load_state_dict(networks[name])
            state.begin()

    def restart(self, seed: int) -> None:
        """Go on from fresh parameters."""
        for place, state in enumerate(self.states.values()):
            state.restart(None, place=place, seed=seed)

    def run(self, phase: Phase) -> PhaseOutcome:
        """Run one phase at all parties."""
        self._phases += 1
        phase.number = self._phases
        joint, sets = phase.HasField("joint"), self.active.sets
        drawn = (
            batches.draw_joint(sets, phase.joint, phase.plan.seed)
            if joint
            else batches.draw(sets, phase.over, phase.plan)
        )
        if phase.checkpoint:
            for state in self.states.values():
                state.checkpoint()
        rules = {
            name: rule_for(phase.update, one.networks.parameters(), one.memory) for name, one in self.states.items()
        }
        before = {name: state.snapshot() for name, state in self.states.items()}
        for state in self.states.values():
            state.networks.train(phase.train_mode)
        for rule in rules.values():
            if isinstance(rule, JointRounds):
                rule.begin(len(drawn), labelled=losses.of_labels(phase.loss))
        report = Report(phase=phase.number, rows=sum(len(rows) for rows in drawn), steps=len(drawn))
        kept: list[Tensor] = []
        with torch.set_grad_enabled(rules[ACTIVE].needs_gradients):
            for step, rows in enumerate(drawn):
                if joint:
                    self._round(phase, step, rows, rules, report)
                else:
                    kept.append(self._step(phase, step, rows, rules, report))
        self._settle(phase, rules, report)
        if phase.update.observe.record and drawn:
            self.active.recorded[phase.over.set] = torch.cat(drawn), torch.cat(kept)
        figures = {name: self.states[name].finish(rule) for name, rule in rules.items()}
        figures[ACTIVE] |= report.figures
        change = sum(state.change_squared(before[name]) for name, state in self.states.items())
        self.reports.append(report)
        judged = 0 if joint else report.rows
        return PhaseOutcome(
            report.rows,
            loss=report.loss_sum / judged if judged else math.nan,
            accuracy=report.correct / max(1, judged),
            change=math.sqrt(change),
            seconds=0.0,
            figures=figures,
            within_bounds=report.within_bounds if report.HasField("within_bounds") else None,
        )

    def _step(self, phase: Phase, step: int, rows: Tensor, rules: dict[str, Rule], report: Report) -> Tensor:
        """Do for one batch what party/passive.py and party/active.py do; return its logits."""
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
            gradients = {name: self._answer(name, _gradient(one), phase, step, rows) for name, one in arrived.items()}
            rules[ACTIVE].step()
            for name in self.passive:
                self._absorb(name, rows, sent[name], gradients[name])
                rules[name].step()
        rules[ACTIVE].see(logits)
        if self.watch:
            seen = {name: one.detach() for name, one in arrived.items()}
            self.watch(Step(phase, rows, seen, gradients, logits.detach()))
        return logits.detach()

    def _round(self, phase: Phase, step: int, rows: Tensor, rules: dict[str, Rule], report: Report) -> None:
        """Do for one joint round, or a comparison, what `run_rounds` of both roles does; a watch does not see it."""
        sent = {name: self._send_parts(name, rows, phase, step) for name in self.passive}
        arrived = [self.lines[name].embedding(phase, step, torch.cat(one), rows) for name, one in sent.items()]
        own = embed_parts(self.active, rows, phase, step) if self.active.inputs else None
        active = rules[ACTIVE]
        if not isinstance(active, JointRounds):
            compare(self.active, phase, rows, arrived, own, report)
            return
        told = report.rounds.add()
        found = judge(self.active, phase, active, rows, arrived, own, told, _accept)
        answered = rows[: phase.joint.forget + phase.joint.remaining]
        for name, answer in zip(self.passive, found.answers, strict=True):
            rule, gradient = rules[name], self._answer(name, answer, phase, step, answered)
            assert isinstance(rule, JointRounds)
            parts = zip(sent[name], parts_of(gradient, phase.joint), strict=True)
            g, gradients, _ = (gradients_of(rule.parameters, one, part) for one, part in parts)
            descend(self.states[name], rule, g, gradients, found.omega)
        descend(self.active, active, found.g, found.gradients, found.omega)

    def _send_parts(self, party: str, rows: Tensor, phase: Phase, step: int) -> list[Tensor]:
        """Return what a passive party sends of a round's rows, part by part."""
        found = zip(embed_parts(self.states[party], rows, phase, step), parts_of(rows, phase.joint), PARTS, strict=True)
        return [self.noises[party].apply(one, part, phase.number, step, name) for one, part, name in found]

    def _answer(self, party: str, gradient: Tensor, phase: Phase, step: int, rows: Tensor) -> Tensor:
        """Return a gradient as a passive party gets it."""
        if self.defence.withheld:
            gradient = torch.zeros_like(gradient)
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
