"""Update rules: what a party does with its gradients. Each stands in one place and knows nothing of methods."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch.nn import Parameter

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

    @abstractmethod
    def step(self) -> None:
        """Act after one batch's gradients have been added to `parameter.grad`."""

    def finish(self) -> dict[str, float]:
        """Act after the last batch; the figures returned go into the party's report."""
        return {}


class Observe(Rule):
    """Look only."""

    needs_gradients = False
    standing = True

    def step(self) -> None:
        """Do nothing."""


class Descend(Rule):
    """A step of a torch optimizer after every batch; its state lives on to the next phase of the same kind."""

    def __init__(self, update: Update, parameters: Iterable[Parameter], memory: Memory) -> None:
        super().__init__(update, parameters, memory)
        name = update.WhichOneof("rule") or ""
        settings = self.settings(update)
        if update.fresh:
            memory.kept.pop(name, None)
        if name not in memory.kept and self.parameters:
            memory.kept[name] = self.optimizer(self.parameters, **settings)
        self._optimizer: torch.optim.Optimizer | None = memory.kept.get(name)
        if self._optimizer:
            self._optimizer.param_groups[0].update(settings)
            self._optimizer.zero_grad()

    @staticmethod
    @abstractmethod
    def settings(update: Update) -> dict[str, Any]:
        """Return the optimizer's settings for this phase."""

    optimizer: ClassVar[type[torch.optim.Optimizer]]

    def step(self) -> None:
        """Take one step and clear the gradients for the next batch."""
        if self._optimizer:
            self._optimizer.step()
            self._optimizer.zero_grad()


class Sgd(Descend):
    """Gradient descent with momentum."""

    optimizer = torch.optim.SGD

    @staticmethod
    def settings(update: Update) -> dict[str, Any]:
        """Return SGD's settings."""
        sgd = update.sgd
        decay, nesterov = sgd.weight_decay, sgd.nesterov
        return {"lr": sgd.lr, "momentum": sgd.momentum, "weight_decay": decay, "nesterov": nesterov}


class Adam(Descend):
    """Adam."""

    optimizer = torch.optim.Adam

    @staticmethod
    def settings(update: Update) -> dict[str, Any]:
        """Return Adam's settings."""
        adam = update.adam
        betas, decay = (adam.beta1, adam.beta2), adam.weight_decay
        return {"lr": adam.lr, "betas": betas, "eps": adam.epsilon, "weight_decay": decay}


RULES: dict[str, type[Rule]] = {"observe": Observe, "sgd": Sgd, "adam": Adam}

if set(RULES) != {one.name for one in Update.DESCRIPTOR.oneofs_by_name["rule"].fields}:
    raise ImportError("an update rule of the wire contract is not implemented")


def rule_for(update: Update, parameters: Iterable[Parameter], memory: Memory) -> Rule:
    """Return the rule that a phase asks for."""
    name = update.WhichOneof("rule")
    if name is None:
        raise SettingsError(f"the phase names no update rule; known are {', '.join(RULES)}")
    return RULES[name](update, parameters, memory)
