"""What can be seen of a network from outside: how deep it is, and whether it is linear."""

from collections.abc import Sequence

import torch
from torch import nn


def depth(bottom: nn.Module) -> int:
    """Count the layers whose weights are matrices or kernels."""
    return sum(any(one.dim() > 1 for one in module.parameters(recurse=False)) for module in bottom.modules())


def is_linear(bottom: nn.Module, shape: Sequence[int]) -> bool:
    """Tell whether a network is linear, up to a constant, among rows as large as encoded ones are."""
    training = bottom.training
    bottom.eval()
    generator = torch.Generator().manual_seed(0)
    one, other = (3 * torch.randn(8, *shape, generator=generator) for _ in range(2))
    with torch.no_grad():
        device = next((parameter.device for parameter in bottom.parameters()), torch.device("cpu"))
        at = [bottom(rows.to(device)).double() for rows in (one, other, one + other, torch.zeros_like(one))]
    bottom.train(training)
    bent = (at[0] + at[1] - at[2] - at[3]).abs().max()
    return bool(bent <= 1e-4 * max(float(value.abs().max()) for value in at))
