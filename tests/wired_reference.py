"""Training in one process over a line that leaves something out, or with a schedule: plain, slow, and bit by bit.

Nothing of party/ is used but its models. The encodings are; tests/test_encodings.py holds these against others.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from coordinator.job import Job
from coordinator.methods.training import learning_rate
from fedora_vfl.sampling.seeds import derive
from fedora_vfl.wire.encodings import TensorEncoding, encoding_named
from tests.reference import Joint


class Line:
    """One direction of one link, both of its ends."""

    def __init__(self, encoding: str, *, party: str, purpose: str, differences: bool, feedback: bool) -> None:
        self._encoding: TensorEncoding = encoding_named(encoding)()
        self._party, self._purpose, self._differences, self._feedback = party, purpose, differences, feedback
        self._kept: dict[int, Tensor] = {}  # by row: what has arrived so far, or what is missing

    def cross(self, tensor: Tensor, rows: Tensor, seed: int, step: int) -> Tensor:
        """Return a batch as it arrives."""
        drawn = derive(seed, "encoding", self._party, self._purpose, step)
        self._encoding.draw_from(None if self._feedback else drawn)
        if not self._feedback:
            return self._arrived(tensor)
        kept = torch.stack([self._kept.get(row, torch.zeros(tensor.shape[1])) for row in rows.tolist()])
        if self._differences:
            new = arrived = kept + self._arrived(tensor - kept)
        else:
            arrived = self._arrived(tensor + kept)
            new = tensor + kept - arrived
        self._kept.update(zip(rows.tolist(), new.clone(), strict=True))
        return arrived

    def _arrived(self, tensor: Tensor) -> Tensor:
        data = bytes(self._encoding.encode(tensor))
        assert len(data) == self._encoding.nbytes(*tensor.shape)
        return self._encoding.decode(memoryview(data), *tensor.shape)


class PassiveParty:
    """A bottom model, its optimizer, and both directions of its link."""

    def __init__(self, name: str, bottom: nn.Module, inputs: Tensor, job: Job) -> None:
        self.bottom, self.inputs, self.optimizer = bottom, inputs, _optimizer(job, list(bottom.parameters()))
        link = job.wire.link(name)
        feedback = link.error_feedback
        self.up = Line(link.embeddings, party=name, purpose="embedding", differences=True, feedback=feedback)
        self.down = Line(link.gradients, party=name, purpose="gradient", differences=False, feedback=feedback)
        self.flying: list[tuple[Tensor, nn.Module, Tensor]] = []  # rows, the model as it was, what it gave

    def embed(self, rows: Tensor) -> Tensor:
        """Compute an embedding with the model as it is now, and remember how."""
        then = copy.deepcopy(self.bottom)
        embedding: Tensor = then(self.inputs[rows])
        self.flying.append((rows, then, embedding))
        return embedding.detach()

    def learn(self, gradient: Tensor, times: int) -> None:
        """Take the oldest batch's gradient, at the parameters it was computed with, then again at those of now."""
        rows, then, embedding = self.flying.pop(0)
        torch.autograd.backward(embedding, gradient)
        for own, old in zip(self.bottom.parameters(), then.parameters(), strict=True):
            own.grad = old.grad
        self.optimizer.step()
        for _ in range(times - 1):
            self.optimizer.zero_grad()
            torch.autograd.backward(self.bottom(self.inputs[rows]), gradient)
            self.optimizer.step()


def train(joint: Joint, job: Job) -> None:
    """Train with the job's wire and schedule."""
    settings = job.train
    parts = zip(joint.owners, joint.bottoms, joint.inputs, strict=True)
    passive = [PassiveParty(owner, bottom, inputs, job) for owner, bottom, inputs in parts if owner != "active"]
    own = [place for place, owner in enumerate(joint.owners) if owner == "active"]
    top = [*(one for place in own for one in joint.bottoms[place].parameters()), *joint.top.parameters()]
    optimizer = _optimizer(job, top)
    waiting: list[
        list[Tensor]
    ] = []  # gradients that have not come yet, also from one epoch to the next; the last never
    for epoch in range(settings.rounds):
        for one in (optimizer, *(party.optimizer for party in passive)):
            one.param_groups[0]["lr"] = learning_rate(settings, epoch)
        seed = derive(job.seed, "train", epoch)
        order = torch.randperm(joint.train, generator=torch.Generator().manual_seed(derive(seed, "batches")))
        for step, rows in enumerate(torch.split(order, settings.batch_size)):
            sent = [party.up.cross(party.embed(rows), rows, seed, step).requires_grad_() for party in passive]
            for turn in range(settings.local_steps):
                optimizer.zero_grad()
                parts_now = [*sent, *(joint.bottoms[place](joint.inputs[place][rows]) for place in own)]
                loss = functional.cross_entropy(joint.top(torch.cat(parts_now, dim=1)), joint.labels[rows])
                torch.autograd.backward(loss)
                if turn == 0:
                    gradients = [one.grad.clone() for one in sent if one.grad is not None]
                    pairs = zip(passive, gradients, strict=True)
                    waiting.append([party.down.cross(one, rows, seed, step) for party, one in pairs])
                optimizer.step()
            if len(waiting) > settings.overlap:
                _deliver(passive, waiting, settings.local_steps)


def _deliver(passive: list[PassiveParty], waiting: list[list[Tensor]], times: int) -> None:
    for party, gradient in zip(passive, waiting.pop(0), strict=True):
        party.learn(gradient, times)


def _optimizer(job: Job, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    settings = job.train
    options: dict[str, Any] = {"weight_decay": settings.weight_decay}
    if settings.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=settings.momentum, nesterov=settings.nesterov, **options)
    return torch.optim.Adam(parameters, betas=settings.betas, eps=settings.epsilon, **options)
