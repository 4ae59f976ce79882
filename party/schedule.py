"""Schedules that hide the way between parties: batches under way at once, and several steps for one exchange.

`overlap` n: a passive party sends n more batches before it waits for the first one's gradient. A gradient is then taken
at the parameters that its embedding was computed with, and applied to those of now, n steps later; where a phase goes
on in the next one, also across its end.

`local_steps` q (FedBCD): every party takes q steps for one exchange. The first is the exact one; for the others a
passive party keeps the gradient that came, and the active party the embeddings, and each computes its own part anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
    goes_on: bool = False

    @classmethod
    def of(cls, phase: Phase) -> "Schedule":
        """Return a phase's schedule."""
        overlap, steps = phase.schedule.overlap, max(1, phase.schedule.local_steps)
        if overlap > MOST_OVERLAP or steps > MOST_LOCAL_STEPS:
            allowed = f"up to {MOST_OVERLAP} and {MOST_LOCAL_STEPS} are known here"
            raise PartyError("coordinator", f"asked for {overlap} batches under way and {steps} local steps; {allowed}")
        return cls(overlap, steps, phase.schedule.goes_on)


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

    def gradients(self) -> list[Tensor | None]:
        """Return the gradients of the copies, in the order of the network's parameters."""
        return [one.grad for one in self.parameters.values()]


@dataclass(frozen=True)
class Unanswered:
    """A batch whose embedding was sent, and whose gradient has not come yet."""

    phase: Phase
    step: int
    rows: Tensor
    of_rows: int  # of the whole phase
    embedding: Tensor
    earlier: Earlier | None  # where batches overlap


@dataclass(frozen=True)
class Late:
    """A batch's gradient that has come and waits for its turn to be applied."""

    phase: Phase  # that its embedding was sent in; the one it is applied in may be the next
    step: int
    rows: Tensor
    gradient: Tensor  # of the embedding
    of_parameters: list[Tensor | None]  # as they were when the embedding was computed

    def hand_over(self, network: nn.Module) -> None:
        """Give the gradients to the network's own parameters."""
        for one, gradient in zip(network.parameters(), self.of_parameters, strict=True):
            one.grad = gradient

    def state_dict(self) -> dict[str, Any]:
        """Return all of it as tensors and plain values."""
        content = {name: getattr(self, name) for name in ("step", "rows", "gradient", "of_parameters")}
        return {**content, "phase": self.phase.SerializeToString().hex()}

    @classmethod
    def restored(cls, content: Mapping[str, Any], device: torch.device) -> "Late":
        """Return what `state_dict` told of."""
        on_device = [None if one is None else one.to(device) for one in content["of_parameters"]]
        phase = Phase.FromString(bytes.fromhex(content["phase"]))
        return cls(phase, content["step"], content["rows"], content["gradient"], on_device)
