"""Linear layers with ReLU between them, and the top model, which is made of them."""

from itertools import pairwise

from torch import nn

from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.bounds import MOST_PARAMETERS


def perceptron(widths: list[int]) -> list[nn.Module]:
    """Return linear layers of the given widths with ReLU between them."""
    count = sum(inputs * outputs for inputs, outputs in pairwise(widths))
    if count > MOST_PARAMETERS:
        said = f"layers from {widths[0]} inputs to {widths[-1]} outputs would have {count} parameters"
        raise SettingsError(f"model: {said}; allowed: up to {MOST_PARAMETERS}: make `hidden` or `top` smaller")
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return layers[:-1]


def top(embeddings: int, hidden: list[int], classes: int) -> nn.Module:
    """Return a top model from concatenated embeddings to logits; a ReLU comes first, as bottoms end without one."""
    return nn.Sequential(nn.ReLU(), *perceptron([embeddings, *hidden, classes]))
