"""Schedules that hide the way between parties: batches under way at once, and several steps for one exchange.

`overlap` n: a passive party sends n more batches before it waits for the first one's gradient. A gradient is then taken
at the parameters that its embedding was computed with, and applied to those of now, n steps later.

`local_steps` q (FedBCD): every party takes q steps for one exchange. The first is the exact one; for the others a
passive party keeps the gradient that came, and the active party the embeddings, and each computes its own part anew.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedora_vfl.errors import PartyError
from fedora_vfl.wire.protocol import MOST_LOCAL_STEPS, MOST_OVERLAP
from protos.fedora.v1.phase_pb2 import Phase


@dataclass(frozen=True)
class Schedule:
    """What a phase asks for; nothing unusual unless it says so."""

    overlap: int
    local_steps: int

    @classmethod
    def of(cls, phase: Phase) -> "Schedule":
        """Return a phase's schedule."""
        overlap, steps = phase.schedule.overlap, max(1, phase.schedule.local_steps)
        if overlap > MOST_OVERLAP or steps > MOST_LOCAL_STEPS:
            allowed = f"up to {MOST_OVERLAP} and {MOST_LOCAL_STEPS} are known here"
            raise PartyError("coordinator", f"asked for {overlap} batches under way and {steps} local steps; {allowed}")
        return cls(overlap, steps)


class Earlier:
    """A network's parameters as they were when an embedding was computed, for a gradient that comes back later."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        # Copies: an optimizer changes parameters in place, and a graph that used them could not be walked back.
        self.parameters = {name: one.detach().clone().requires_grad_() for name, one in network.named_parameters()}

    def __call__(self, batch: Tensor) -> Tensor:
        """Compute with the copies; running statistics are the network's own."""
        out: Tensor = torch.func.functional_call(self._network, self.parameters, (batch,))
        return out

    def hand_over(self) -> None:
        """Give the gradients of the copies to the network's own parameters."""
        for name, one in self._network.named_parameters():
            one.grad = self.parameters[name].grad
