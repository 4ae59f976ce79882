"""GA, ICO and CVFU in one process, each in the plainest way there is: loops over rows, autograd, torch's optimizers."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from coordinator.job import Job
from fedora_vfl.sampling.seeds import derive
from tests.reference import Joint


@dataclass
class Baseline:
    """A trained network, and the rows that it is to forget."""

    joint: Joint
    forget: Tensor
    job: Job

    def __post_init__(self) -> None:
        train = torch.arange(self.joint.train)
        self.remaining = train[~torch.isin(train, self.forget)]
        self.seed = derive(self.job.seed, "unlearn")
        self.settings: Any = self.job.unlearn

    def parties(self) -> dict[str, list[Tensor]]:
        """Return every party's parameters; the active party's own bottom comes before the top."""
        owned: dict[str, list[Tensor]] = {}
        for owner, bottom in zip(self.joint.owners, self.joint.bottoms, strict=True):
            owned.setdefault(owner, []).extend(bottom.parameters())
        owned.setdefault("active", []).extend(self.joint.top.parameters())
        return owned

    def learning(self, yes: bool) -> None:
        self.joint.bottoms.train(yes)
        self.joint.top.train(yes)

    def batches(self, rows: Tensor, name: str, round: int, part: float = 1.0) -> Iterator[Tensor]:
        seed = derive(derive(self.seed, name, round), "batches")
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
        chosen = rows[order[: math.ceil(part * len(rows) - 1e-9)]]
        yield from torch.split(chosen, self.settings.batch_size or self.job.train.batch_size)

    def clear(self) -> None:
        for parameters in self.parties().values():
            for one in parameters:
                one.grad = None

    def loss_of_forgotten(self) -> float:
        with torch.no_grad():
            parts = torch.split(self.forget, self.settings.micro_batch)
            return sum(float(self._loss(rows, "sum")) for rows in parts) / len(self.forget)

    def gradient_of_forgotten(self) -> dict[str, list[Tensor]]:
        self.learning(False)
        self.clear()
        for rows in torch.split(self.forget, self.settings.micro_batch):
            torch.autograd.backward(self._loss(rows, "none").sum() / len(self.forget))
        g = {name: [one.grad.clone() for one in own if one.grad is not None] for name, own in self.parties().items()}
        self.clear()
        return g

    def move(self, g: dict[str, list[Tensor]], by: float) -> None:
        with torch.no_grad():
            for name, own in self.parties().items():
                for parameter, one in zip(own, g[name], strict=True):
                    parameter.add_(one, alpha=by)

    def optimizers(self, lr: float | None) -> dict[str, torch.optim.Optimizer]:
        train = self.job.train
        rate = lr or train.rate
        if train.optimizer == "sgd":
            options = {"momentum": train.momentum, "nesterov": train.nesterov, "weight_decay": train.weight_decay}
            return {name: torch.optim.SGD(own, lr=rate, **options) for name, own in self.parties().items()}  # type: ignore[arg-type]
        options = {"betas": train.betas, "eps": train.epsilon, "weight_decay": train.weight_decay}  # type: ignore[dict-item]
        return {name: torch.optim.Adam(own, lr=rate, **options) for name, own in self.parties().items()}  # type: ignore[arg-type]

    def _loss(self, rows: Tensor, reduction: str) -> Tensor:
        return functional.cross_entropy(self.joint.logits(rows), self.joint.labels[rows], reduction=reduction)


def norm(tensors: list[Tensor]) -> float:
    return math.sqrt(sum(float(one.detach().double().square().sum()) for one in tensors))


def everything(parts: dict[str, list[Tensor]]) -> list[Tensor]:
    return [one for own in parts.values() for one in own]


def gradient_ascent(this: Baseline) -> None:
    """K times over D_u: each party adds its clipped gradient, the steps of a round sharing the rate."""
    this.learning(True)
    rate = this.settings.lr / math.ceil(len(this.forget) / (this.settings.batch_size or this.job.train.batch_size))
    for round in range(1, this.settings.rounds + 1):
        for rows in this.batches(this.forget, "ascent", round):
            this.clear()
            torch.autograd.backward(functional.cross_entropy(this.joint.logits(rows), this.joint.labels[rows]))
            for own in this.parties().values():
                gradients = [one.grad for one in own if one.grad is not None]
                by = rate * min(1.0, this.settings.clip / norm(gradients))
                with torch.no_grad():
                    for parameter, gradient in zip(own, gradients, strict=True):
                        parameter.add_(gradient, alpha=by)


def inverse_contribution(this: Baseline, target: float) -> int:
    """Subtract D_u's contribution as far as needed, then correct; return how many lengths were tried."""
    g = this.gradient_of_forgotten()
    unit = norm(everything(this.parties())) / norm(everything(g))
    tried, by, at = 0, this.settings.first * unit, 0.0
    while this.loss_of_forgotten() < target and at < this.settings.most * unit:
        by = min(by, this.settings.most * unit)
        this.move(g, by - at)
        at, by, tried = by, 2 * by, tried + 1
    this.learning(True)
    optimizers = this.optimizers(this.settings.lr)
    for round in range(1, this.settings.rounds + 1):
        for rows in this.batches(this.remaining, "correction", round, this.settings.part):
            this.clear()
            torch.autograd.backward(functional.cross_entropy(this.joint.logits(rows), this.joint.labels[rows]))
            for name, own in this.parties().items():
                pairs = [(one, back) for one, back in zip(own, g[name], strict=True)]
                along = sum(
                    float((one.grad.double() * back.double()).sum()) for one, back in pairs if one.grad is not None
                )
                if along > 0:
                    for one, back in pairs:
                        assert one.grad is not None
                        one.grad = one.grad - (along / norm(g[name]) ** 2) * back
                optimizers[name].step()
    return tried


def confidence_matrix(this: Baseline, offline: tuple[str, ...] = ()) -> None:
    """Learn from logits of the round before; a party that is offline is used as it was when the rounds began."""
    joint, settings = this.joint, this.settings
    this.learning(False)
    confidence = torch.full((joint.train, len(joint.classes)), math.nan)
    cached: dict[str, Tensor] = {}
    with torch.no_grad():
        for rows in torch.split(this.remaining, settings.micro_batch):
            confidence[rows] = joint.logits(rows)
        for name, bottom, inputs in zip(joint.owners, joint.bottoms, joint.inputs, strict=True):
            if name in offline:
                cached[name] = torch.cat(
                    [bottom(inputs[part]) for part in torch.split(this.remaining, settings.micro_batch)]
                )
    where = {int(row): place for place, row in enumerate(this.remaining)}

    def logits(rows: Tensor) -> Tensor:
        parts = []
        for name, bottom, inputs in zip(joint.owners, joint.bottoms, joint.inputs, strict=True):
            known = torch.tensor([where[int(row)] for row in rows])
            parts.append(cached[name][known] if name in offline else bottom(inputs[rows]))
        found: Tensor = joint.top(torch.cat(parts, dim=1))
        return found

    g = this.gradient_of_forgotten()
    length = norm(everything(g))
    away = {name: [torch.zeros_like(one) for one in own] if name in offline else own for name, own in g.items()}
    this.move(away, settings.subtract * min(1.0, settings.clip / length))
    this.learning(True)
    rate = settings.lr / math.ceil(len(this.remaining) / (settings.batch_size or this.job.train.batch_size))
    optimizers = {name: torch.optim.SGD(own, lr=rate) for name, own in this.parties().items()}
    for round in range(1, settings.rounds + 1):
        fresh = confidence.clone()
        for rows in this.batches(this.remaining, "refresh", round):
            this.clear()
            z = logits(rows)
            attached = confidence[rows] + z - z.detach()
            torch.autograd.backward(functional.cross_entropy(attached, joint.labels[rows]))
            fresh[rows] = z.detach()
            for name, optimizer in optimizers.items():
                if name not in offline:
                    optimizer.step()
        confidence = fresh
