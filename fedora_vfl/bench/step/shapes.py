"""The step that all ways of doing it have in common: its sizes, and its arithmetic without anything around it."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

CLASSES, VALUE_BYTES = 10, 4
LEARNING_RATE, MOMENTUM = 0.01, 0.9
EPOCHS = 6

warnings.filterwarnings("ignore", message="The given buffer is not writable")


@dataclass(frozen=True)
class Shape:
    """The sizes of a step."""

    batch: int
    embedding: int
    steps: int  # of an epoch
    inputs: int = 20  # columns of each passive party
    hidden: int | None = 128  # width of the one hidden layer of every network; None: linear networks
    parties: int = 2  # passive ones

    def bottom(self) -> nn.Module:
        """Make a passive party's network."""
        if self.hidden is None:
            return nn.Linear(self.inputs, self.embedding)
        return nn.Sequential(nn.Linear(self.inputs, self.hidden), nn.ReLU(), nn.Linear(self.hidden, self.embedding))

    def top(self) -> nn.Module:
        """Make the active party's network."""
        width = self.parties * self.embedding
        if self.hidden is None:
            return nn.Sequential(nn.ReLU(), nn.Linear(width, CLASSES))
        return nn.Sequential(nn.ReLU(), nn.Linear(width, self.hidden), nn.ReLU(), nn.Linear(self.hidden, CLASSES))


SHAPES = {
    "tabular": Shape(256, 64, 200),
    "wide": Shape(1024, 512, 40),
    "wide-linear": Shape(1024, 512, 60, inputs=64, hidden=None),
}


class PassiveWork:
    """A passive party's arithmetic."""

    def __init__(self, shape: Shape) -> None:
        torch.set_num_threads(1)
        self.network = shape.bottom()
        self.optimizer = torch.optim.SGD(self.network.parameters(), LEARNING_RATE, momentum=MOMENTUM)
        self.rows = torch.randn(shape.batch, shape.inputs)

    def embed(self) -> Tensor:
        """Return h."""
        self.embedding: Tensor = self.network(self.rows)
        detached: Tensor = self.embedding.detach()
        return detached

    def learn(self, gradient: Tensor) -> None:
        """Take a step along ∂L/∂h."""
        torch.autograd.backward(self.embedding, gradient)
        self.optimizer.step()
        self.optimizer.zero_grad()


class ActiveWork:
    """The active party's arithmetic."""

    def __init__(self, shape: Shape) -> None:
        torch.set_num_threads(1)
        self.network = shape.top()
        self.optimizer = torch.optim.SGD(self.network.parameters(), LEARNING_RATE, momentum=MOMENTUM)
        self.labels = torch.randint(0, CLASSES, (shape.batch,))

    def learn(self, embeddings: Sequence[Tensor]) -> list[Tensor]:
        """Take a step and return ∂L/∂h of every party."""
        leaves = [embedding.requires_grad_() for embedding in embeddings]
        torch.autograd.backward(functional.cross_entropy(self.network(torch.cat(leaves, dim=1)), self.labels))
        self.optimizer.step()
        self.optimizer.zero_grad()
        return [leaf.grad for leaf in leaves if leaf.grad is not None]


def to_bytes(tensor: Tensor) -> bytes:
    """Copy a tensor's values."""
    return tensor.numpy().tobytes()


def from_bytes(data: Any, shape: Shape) -> Tensor:
    """Look at bytes as a tensor."""
    return torch.frombuffer(data, dtype=torch.float32).view(shape.batch, shape.embedding)
