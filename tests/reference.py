"""The same network in one process: plain autograd, torch's own optimizers, no messages. What the cluster must equal."""

import copy
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from coordinator.job import Job
from coordinator.methods import Method, PhaseOutcome, R, Rollback
from coordinator.methods.training import learning_rate
from fedora_vfl.sampling.seeds import derive
from fedora_vfl.settings.model import Model
from party import models
from party.data.encoding import LabelEncoding, learn
from party.data.reading import read
from party.data.split import assign
from party.models import perceptrons
from party.settings import load_party
from protos.fedora.v1.phase_pb2 import DualAscent, Loss, Phase, PrimalDescent, Samples


@dataclass
class Joint:
    """All parties' tables side by side, and all parties' networks as one."""

    inputs: list[Tensor]  # one per party with features
    owners: list[str]
    labels: Tensor
    train: int
    bottoms: nn.ModuleList
    top: nn.Module
    classes: list[str]

    def logits(self, rows: Tensor) -> Tensor:
        pairs = zip(self.bottoms, self.inputs, strict=True)
        logits: Tensor = self.top(torch.cat([bottom(inputs[rows]) for bottom, inputs in pairs], dim=1))
        return logits

    def state(self) -> dict[str, dict[str, Tensor]]:
        """Return every party's parameters by the names that its saved model has."""
        state: dict[str, dict[str, Tensor]] = {"active": {}}
        for owner, bottom in zip(self.owners, self.bottoms, strict=True):
            state.setdefault(owner, {}).update({f"bottom.{name}": value for name, value in bottom.state_dict().items()})
        state["active"].update({f"top.{name}": value for name, value in self.top.state_dict().items()})
        return state

    def assert_saved(self, run: Path, model: str) -> None:
        """Hold every party's saved model against this one, to the bit."""
        for party, expected in self.state().items():
            saved = load_file(run / "models" / party / f"{model}.safetensors")
            assert saved.keys() == expected.keys()
            for name, value in expected.items():
                assert saved[name].equal(value), f"{party} {name} differs by {(saved[name] - value).abs().max()}"

    def accuracy(self) -> float:
        with torch.no_grad():
            test = torch.arange(self.train, len(self.labels))
            return float((self.logits(test).argmax(dim=1) == self.labels[test]).double().mean())


def join(run: Path, job: Job) -> Joint:
    """Read all parties' files of a run's folder and join them by id."""
    members = {path.stem: load_party(path) for path in sorted((run / "parties").glob("*.yaml"))}
    federation = next(iter(members.values()))[1]
    records = {name: read(settings.data, with_labels=name == "active") for name, (settings, _) in members.items()}
    active = records["active"]
    split = dict(
        zip(active.ids, assign(active.ids, active.split, members["active"][0].data.test_fraction), strict=True)
    )
    common = sorted(set.intersection(*(set(one.ids) for one in records.values())))
    order = [one for name in ("train", "validation", "test") for one in common if split[one] == name]
    train = sum(split[one] == "train" for one in common)
    model = job.model or Model()
    inputs, owners, bottoms = [], [], nn.ModuleList()
    for place, name in enumerate(federation.parties):
        where = {one: row for row, one in enumerate(records[name].ids)}
        aligned = records[name].select(np.array([where[one] for one in order]))
        if aligned.features is not None:
            encoded = learn(aligned.features, np.arange(train)).apply(aligned.features)
            inputs.append(encoded.batch(torch.arange(len(order))))
            owners.append(name)
            torch.manual_seed(derive(job.seed, "bottom", place))
            chosen = models.bottom(model.bottom, model.bottom_settings, origin="reference")
            bottoms.append(chosen.build(tuple(inputs[-1].shape[1:]), model.embedding))
        if aligned.labels is not None:
            classes = LabelEncoding.learn(aligned.labels)
            labels = torch.from_numpy(classes.apply(aligned.labels))
    torch.manual_seed(derive(job.seed, "top"))
    top = perceptrons.top(len(bottoms) * model.embedding, model.top, len(classes.classes))
    return Joint(inputs, owners, labels, train, bottoms, top, classes.classes)


def train(joint: Joint, job: Job, *, name: str = "train") -> None:
    """Train in the plainest way there is."""
    settings = job.train
    parameters = [*joint.bottoms.parameters(), *joint.top.parameters()]
    options: dict[str, Any] = {"weight_decay": settings.weight_decay}
    optimizer: torch.optim.Optimizer
    if settings.optimizer == "sgd":
        optimizer = torch.optim.SGD(parameters, momentum=settings.momentum, nesterov=settings.nesterov, **options)
    else:
        optimizer = torch.optim.Adam(parameters, betas=settings.betas, eps=settings.epsilon, **options)
    for epoch in range(settings.rounds):
        optimizer.param_groups[0]["lr"] = learning_rate(settings, epoch)
        seed = derive(derive(job.seed, name, epoch), "batches")
        order = torch.randperm(joint.train, generator=torch.Generator().manual_seed(seed))
        for rows in torch.split(order, settings.batch_size):
            optimizer.zero_grad()
            torch.autograd.backward(functional.cross_entropy(joint.logits(rows), joint.labels[rows]))
            optimizer.step()


@dataclass
class Unlearning:
    """Unlearning in the plainest way there is: it runs a method's phases on the joint network."""

    joint: Joint
    forget: Tensor  # D_u

    def __post_init__(self) -> None:
        train = torch.arange(self.joint.train)
        self.sets = {Samples.FORGET: self.forget, Samples.REMAINING: train[~torch.isin(train, self.forget)]}
        self.parameters = [*self.joint.bottoms.parameters(), *self.joint.top.parameters()]
        self.initial = [one.detach().clone() for one in self.parameters]
        self.omega: Any = None
        self.push: list[Tensor] = []
        self.g: list[Tensor] = []
        self.optimizer: torch.optim.Optimizer | None = None
        self.support = [torch.zeros_like(one) for one in self.parameters]
        self.losses: list[float] = []  # L_u of every unlearning phase
        self.checkpoints: list[Any] = []

    def perform(self, method: Method[R]) -> R:
        try:
            phase = next(method)
            while True:
                if isinstance(phase, Rollback):
                    self._rollback(phase.checkpoints)
                else:
                    outcome = self._run(phase)
                phase = method.send(outcome)
        except StopIteration as stop:
            value: R = stop.value
            return value

    def _run(self, phase: Phase) -> PhaseOutcome:
        if phase.checkpoint:
            moments = self.optimizer.state_dict() if self.optimizer else None
            self.checkpoints.append(
                copy.deepcopy((self._values(), self.omega, self.push, self.g, moments, self.support))
            )
        before = self._values()
        batches = self._draw(phase)
        self.joint.bottoms.train(phase.train_mode)
        self.joint.top.train(phase.train_mode)
        run = self._ascend if phase.update.HasField("dual_ascent") else self._descend
        loss = run(phase, batches)
        rows = sum(len(batch) for batch in batches)
        pairs = zip(self.parameters, before, strict=True)
        change = math.sqrt(sum(float((now.detach().double() - then.double()).square().sum()) for now, then in pairs))
        size = sum(float(one.detach().double().square().sum()) for one in self.parameters)
        return PhaseOutcome(rows, loss, 0.0, change, 0.0, {"all": {"parameters_squared": size}})

    def _draw(self, phase: Phase) -> list[Tensor]:
        rows = self.sets[phase.over.set]
        if phase.over.share == 0:
            return []
        if phase.plan.shuffle or phase.over.share < 1:
            order = torch.randperm(
                len(rows), generator=torch.Generator().manual_seed(derive(phase.plan.seed, "batches"))
            )
            rows = rows[order[: max(1, math.ceil(phase.over.share * len(rows) - 1e-9))]]
        return list(torch.split(rows, phase.plan.batch_size))

    def _ascend(self, phase: Phase, batches: list[Tensor]) -> float:
        """Dual ascent: Ω ← max(0, Ω + σ(γ − L_u)), or with g in the place of L_u, parameter by parameter."""
        rule, count = phase.update.dual_ascent, sum(len(batch) for batch in batches)
        self._clear()
        total = 0.0
        for batch in batches:
            p = self.joint.logits(batch).log_softmax(dim=1)
            entropy = -(p.exp() * p).sum(dim=1)
            each = phase.loss.uncertainty.omega * (2 * entropy - torch.log(torch.tensor(float(p.shape[1]))))
            total += float(each.detach().sum())
            torch.autograd.backward(each.sum() if phase.loss.reduction == Loss.SUM else each.sum() / count)
        self.g = [one.grad.clone() if one.grad is not None else torch.zeros_like(one) for one in self.parameters]
        if rule.taking_away:
            self.g = [g * (g * one.detach() < 0) for g, one in zip(self.g, self.parameters, strict=True)]
        loss = total if phase.loss.reduction == Loss.SUM else total / count
        self.losses.append(loss)
        most = rule.omega_max or math.inf
        if rule.form == DualAscent.SCALAR:
            before = 0.0 if phase.update.fresh or self.omega is None else self.omega
            self.omega = min(most, max(0.0, before + rule.sigma * (rule.gamma - loss)))
            self.push = [self.omega * one for one in self.g]
        else:
            fresh = phase.update.fresh or self.omega is None
            before = [torch.zeros_like(one) for one in self.g] if fresh else self.omega
            measured = [g / (float(g.square().mean().sqrt()) or 1.0) for g in self.g] if rule.normalised else self.g
            pairs = zip(before, measured, strict=True)
            self.omega = [(old + rule.sigma * (rule.gamma - g)).clamp(0, most) for old, g in pairs]
            self.push = [g * omega for g, omega in zip(self.g, self.omega, strict=True)]
        return total / count

    def _descend(self, phase: Phase, batches: list[Tensor]) -> float:
        """Primal descent: Θ ← Θ − τ(∇L_r − push + ρ(Θ − Θ_init)), by plain steps or by Adam."""
        rule = phase.update.primal_descent
        if phase.update.fresh or self.optimizer is None:
            adam = rule.WhichOneof("step") == "adam"
            self.optimizer = torch.optim.Adam(self.parameters) if adam else torch.optim.SGD(self.parameters)
            self.support = [torch.zeros_like(one) for one in self.parameters]
        self.optimizer.param_groups[0]["lr"] = rule.adam.lr if rule.WhichOneof("step") == "adam" else rule.sgd.lr
        total = 0.0
        for batch in batches or [torch.arange(0)]:
            self._clear()
            if len(batch):
                each = functional.cross_entropy(self.joint.logits(batch), self.joint.labels[batch], reduction="none")
                total += float(each.detach().sum())
                torch.autograd.backward(each.mean())
            for place, one in enumerate(self.parameters):
                gradient = torch.zeros_like(one) if one.grad is None else one.grad
                if rule.fade:
                    self.support[place] += gradient * gradient
                push = None
                if rule.push == PrimalDescent.AS_IT_IS and self.push:
                    push = self.push[place]
                if rule.push == PrimalDescent.BALANCED:
                    length = float(self.g[place].norm())
                    push = self.push[place] * (float(gradient.norm()) / length) if length else self.push[place]
                gradient = gradient if push is None else gradient - push
                one.grad = gradient + rule.rho * (one.detach() - self.initial[place]) if rule.rho else gradient
            self.optimizer.step()
            if rule.fade:
                with torch.no_grad():
                    for one, support in zip(self.parameters, self.support, strict=True):
                        one.mul_(1 - rule.fade / (1 + support / (1e-5 * float(support.mean()))))
        count = sum(len(batch) for batch in batches)
        return total / count if count else math.nan

    def _rollback(self, checkpoints: int) -> None:
        values, self.omega, self.push, self.g, moments, self.support = self.checkpoints[-checkpoints]
        del self.checkpoints[-checkpoints:]
        if self.optimizer and moments:
            self.optimizer.load_state_dict(moments)
        else:
            self.optimizer = None
        with torch.no_grad():
            for one, value in zip(self.parameters, values, strict=True):
                one.copy_(value)

    def _values(self) -> list[Tensor]:
        return [one.detach().clone() for one in self.parameters]

    def _clear(self) -> None:
        for one in self.parameters:
            one.grad = None
