"""What every update rule has in common, and what rules remember from one phase to the next."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor
from torch.nn import Parameter

from protos.fedora.v1.phase_pb2 import Update


@dataclass
class Memory:
    """What update rules keep from one phase to the next, by the rule's own name."""

    kept: dict[str, Any] = field(default_factory=dict)
    # θ_init: the trained model's parameters, from the moment its rows to forget were dropped.
    initial: list[Tensor] | None = None


class Rule(ABC):
    """One update rule for the length of one phase."""

    # Whether the active party sends gradients at all.
    needs_gradients: ClassVar[bool] = True
    # Whether parameters stand still while the phase runs, so that batches may overtake each other's answers.
    parameters_frozen: ClassVar[bool] = False

    def __init__(self, update: Update, parameters: Iterable[Parameter], memory: Memory) -> None:
        self.update, self.parameters, self.memory = update, list(parameters), memory
        self.clear_gradients()
        if update.fresh:
            memory.kept.pop(update.WhichOneof("rule") or "", None)

    @abstractmethod
    def step(self) -> None:
        """Act after one batch's gradients have been added to `parameter.grad`."""

    def with_gradients(self) -> tuple[list[int], list[Tensor], list[Tensor]]:
        """Return number, value and gradient of the parameters that the loss reached."""
        reached = [(index, one, one.grad) for index, one in enumerate(self.parameters) if one.grad is not None]
        return [index for index, _, _ in reached], [one for _, one, _ in reached], [grad for _, _, grad in reached]

    def clear_gradients(self) -> None:
        """Start gathering gradients from zero."""
        for parameter in self.parameters:
            parameter.grad = None

    def finish(self) -> dict[str, float]:
        """Act after the last batch; the figures returned go into the party's report."""
        return {}
