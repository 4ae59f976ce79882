"""Update rules: what a party does with its gradients. Each stands in one place and knows nothing of methods."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from protos.phase_pb2 import Update
from wire.errors import SettingsError


@dataclass
class Memory:
    """What update rules keep from one phase to the next, by the rule's own name."""

    kept: dict[str, Any] = field(default_factory=dict)


class Rule(ABC):
    """One update rule for the length of one phase."""

    # Whether the active party sends gradients at all.
    needs_gradients: ClassVar[bool] = True
    # Whether parameters stand still while the phase runs, so that batches may overtake each other's answers.
    standing: ClassVar[bool] = False

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


class Observe(Rule):
    """Look only."""

    needs_gradients = False
    standing = True

    def step(self) -> None:
        """Do nothing."""


class Sgd(Rule):
    """Gradient descent with momentum; the momentum lives on to the next phase with this rule."""

    def step(self) -> None:
        """Take one step and clear the gradients for the next batch."""
        rule = self.update.sgd
        kept = self.memory.kept.setdefault("sgd", [None] * len(self.parameters))
        chosen, parameters, gradients = self.with_gradients()
        momenta = [kept[index] for index in chosen]
        # torch's own function, to the bit what torch.optim.SGD does. The class around it imports torch's compiler on
        # first use, which takes seconds in every process.
        with torch.no_grad():
            sgd(
                parameters,
                gradients,
                momenta,
                lr=rule.lr,
                momentum=rule.momentum,
                weight_decay=rule.weight_decay,
                nesterov=rule.nesterov,
                dampening=0,
                maximize=False,
            )
        for index, momentum in zip(chosen, momenta, strict=True):
            kept[index] = momentum
        self.clear_gradients()


class Adam(Rule):
    """Adam; its moments live on to the next phase with this rule."""

    def step(self) -> None:
        """Take one step and clear the gradients for the next batch."""
        rule = self.update.adam
        if "adam" not in self.memory.kept:
            self.memory.kept["adam"] = (
                [torch.zeros_like(parameter) for parameter in self.parameters],
                [torch.zeros_like(parameter) for parameter in self.parameters],
                [torch.zeros(()) for _ in self.parameters],
            )
        chosen, parameters, gradients = self.with_gradients()
        means, squares, steps = ([kept[index] for index in chosen] for kept in self.memory.kept["adam"])
        with torch.no_grad():  # torch's own function: see Sgd
            adam(
                parameters,
                gradients,
                means,
                squares,
                [],
                steps,
                lr=rule.lr,
                beta1=rule.beta1,
                beta2=rule.beta2,
                eps=rule.epsilon,
                weight_decay=rule.weight_decay,
                amsgrad=False,
                maximize=False,
            )
        self.clear_gradients()


RULES: dict[str, type[Rule]] = {"observe": Observe, "sgd": Sgd, "adam": Adam}

if set(RULES) != {one.name for one in Update.DESCRIPTOR.oneofs_by_name["rule"].fields}:
    raise ImportError("an update rule of the wire contract is not implemented")


def rule_for(update: Update, parameters: Iterable[Parameter], memory: Memory) -> Rule:
    """Return the rule that a phase asks for."""
    name = update.WhichOneof("rule")
    if name is None:
        raise SettingsError(f"the phase names no update rule; known are {', '.join(RULES)}")
    return RULES[name](update, parameters, memory)
