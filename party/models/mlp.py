"""Multilayer perceptrons, for tables and flattened images."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from fedora_vfl.settings.bounds import Layer
from party.models.registry import BOTTOMS, Bottom

if TYPE_CHECKING:
    from torch import nn

Layers = Annotated[tuple[Layer, ...], Field(max_length=16)]


@BOTTOMS.register("mlp")
class Mlp(Bottom):
    """Fully connected layers with ReLU between them."""

    hidden: Layers = (128,)

    def build(self, shape: tuple[int, ...], embedding: int) -> "nn.Module":
        """Return the network; inputs of more than one dimension are flattened."""
        from torch import nn

        from party.models.perceptrons import perceptron

        inputs = 1
        for length in shape:
            inputs *= length
        return nn.Sequential(nn.Flatten(), *perceptron([inputs, *self.hidden, embedding]))
