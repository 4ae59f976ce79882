"""Multilayer perceptrons: a bottom model for tables (and flattened images), and the top model."""

from itertools import pairwise
from typing import Annotated

from pydantic import Field, PositiveInt
from torch import nn

from party.models.registry import BOTTOMS, Bottom

Layers = Annotated[tuple[PositiveInt, ...], Field(max_length=16)]


@BOTTOMS.register("mlp")
class Mlp(Bottom):
    """Fully connected layers with ReLU between them."""

    hidden: Layers = (128,)

    def build(self, shape: tuple[int, ...], embedding: int) -> nn.Module:
        """Return the network; inputs of more than one dimension are flattened."""
        inputs = 1
        for length in shape:
            inputs *= length
        return nn.Sequential(nn.Flatten(), *perceptron([inputs, *self.hidden, embedding]))


def perceptron(widths: list[int]) -> list[nn.Module]:
    """Return linear layers of the given widths with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return layers[:-1]


def top(embeddings: int, hidden: list[int], classes: int) -> nn.Module:
    """Return a top model from concatenated embeddings to logits; a ReLU comes first, as bottoms end without one."""
    return nn.Sequential(nn.ReLU(), *perceptron([embeddings, *hidden, classes]))
