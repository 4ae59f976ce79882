"""The same network in one process: plain autograd, torch's own optimizers, no messages. What the cluster must equal."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from coordinator.job import Job
from coordinator.methods.training import learning_rate
from party import models
from party.data.encoding import LabelEncoding, learn
from party.data.reading import read
from party.data.split import assign
from party.settings import load_party
from settings.model import Model
from wire.seeds import derive


@dataclass
class Joint:
    """All parties' tables side by side, and all parties' networks as one."""

    inputs: list[Tensor]  # one per party with features
    owners: list[str]
    labels: Tensor
    train: int
    bottoms: nn.ModuleList
    top: nn.Module

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
    top = models.mlp.top(len(bottoms) * model.embedding, model.top, len(classes.classes))
    return Joint(inputs, owners, labels, train, bottoms, top)


def train(joint: Joint, job: Job) -> None:
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
        seed = derive(derive(job.seed, "train", epoch), "batches")
        order = torch.randperm(joint.train, generator=torch.Generator().manual_seed(seed))
        for rows in torch.split(order, settings.batch_size):
            optimizer.zero_grad()
            torch.autograd.backward(functional.cross_entropy(joint.logits(rows), joint.labels[rows]))
            optimizer.step()
