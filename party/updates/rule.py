"""What every update rule has in common, and what rules remember from one phase to the next."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Parameter

from party.clock import Clock
from party.exchange import ExchangeLink
from party.given_gradient import gradients_given
from protos.fedora.v1.phase_pb2 import Phase, Report, Update


@dataclass
class RuleMemory:
    """What update rules keep from one phase to the next: tensors and plain values, each under its rule's own name."""

    kept: dict[str, dict[str, Any]] = field(default_factory=dict)
    # θ_init: the trained model's parameters, from the moment its rows to forget were dropped.
    initial: list[Tensor] | None = None
    statistics: list[Tensor] = field(default_factory=list)  # batch norm's running ones at the same moment

    def of(self, rule: str) -> dict[str, Any]:
        """Return what a rule keeps, for it to read and to change."""
        return self.kept.setdefault(rule, {})


@dataclass(frozen=True)
class PhaseEnd:
    """What a rule may need once the last batch of its phase is done."""

    phase: Phase
    report: Report  # rows; at the active party the loss too
    links: Sequence[ExchangeLink]  # at the active party to every passive one, else to the active one
    is_active: bool
    clock: Clock
    timeout: float  # seconds for each message


class Rule(ABC):
    """One update rule for the length of one phase."""

    # Whether the active party sends gradients at all.
    needs_gradients: ClassVar[bool] = True
    # Whether parameters stay as they are while the phase runs, so that batches may overtake each other's answers.
    parameters_frozen: ClassVar[bool] = False

    def __init__(self, update: Update, parameters: Iterable[Parameter], memory: RuleMemory) -> None:
        self.update, self.parameters, self.memory = update, list(parameters), memory
        self.clear_gradients()
        self._name = update.WhichOneof("rule") or ""
        if update.fresh:
            memory.kept.pop(self._name, None)

    @property
    def kept(self) -> dict[str, Any]:
        """What this rule remembers."""
        return self.memory.of(self._name)

    def go_on(self) -> None:  # noqa: B027 (most rules remember all in their memory and in gradients)
        """Take the place of the same rule in an earlier process, which has taken steps of the phase."""

    @abstractmethod
    def step(self) -> None:
        """Act after one batch's gradients have been added to `parameter.grad`."""

    def see(self, logits: Tensor) -> None:  # noqa: B027 (most rules go by gradients)
        """Look at one batch's predictions, at the active party, after `step`."""

    def with_gradients(self) -> tuple[list[int], list[Tensor], list[Tensor]]:
        """Return number, value and gradient of the parameters that the loss reached."""
        reached = [(index, one, one.grad) for index, one in enumerate(self.parameters) if one.grad is not None]
        return [index for index, _, _ in reached], [one for _, one, _ in reached], [grad for _, _, grad in reached]

    def clear_gradients(self) -> None:
        """Start gathering gradients from zero."""
        for parameter in self.parameters:
            parameter.grad = None

    async def exchange(self, end: PhaseEnd) -> None:  # noqa: B027 (not every rule has something to exchange)
        """Tell the other side what it must know after the last batch, and hear from it; most rules need nothing."""

    def finish(self) -> dict[str, float]:
        """Act at the end of the phase; the figures returned go into the party's report."""
        return {}

    def stated_dual(self) -> dict[str, Any] | None:
        """Return what a signed statement says of the dual variable, if this rule has changed it."""
        return None


def gradients_of(parameters: Sequence[Tensor], output: Tensor, gradient: Tensor | None = None) -> list[Tensor]:
    """Return the gradient of an output for every parameter, 0 where it does not reach; nothing for no rows."""
    if output.dim() and not len(output):
        return []
    found: Sequence[Tensor | None]
    if gradient is None:
        found = torch.autograd.grad(output, parameters, allow_unused=True, retain_graph=True)
    else:
        found = gradients_given(parameters, output, gradient)
    return [torch.zeros_like(θ) if one is None else one for θ, one in zip(parameters, found, strict=True)]
