"""Rules that learn from a loss as any training does, and the one that only looks."""

from collections.abc import MutableMapping
from typing import Any

import torch
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from fedora_vfl.errors import PartyError
from party.updates.rule import Rule
from protos.fedora.v1 import phase_pb2


class Observe(Rule):
    """Look only."""

    needs_gradients = False
    parameters_frozen = True

    def step(self) -> None:
        """Do nothing."""


class Sgd(Rule):
    """Gradient descent with momentum; the momentum lives on to the next phase with this rule."""

    def step(self) -> None:
        """Take one step and clear the gradients for the next batch."""
        sgd_step(self, self.update.sgd, self.memory.kept)
        self.clear_gradients()


class Adam(Rule):
    """Adam; its moments live on to the next phase with this rule."""

    def step(self) -> None:
        """Take one step and clear the gradients for the next batch."""
        adam_step(self, self.update.adam, self.memory.kept)
        self.clear_gradients()


def chosen_step(
    rule: Rule, settings: phase_pb2.PrimalDescent | phase_pb2.Correction, kept: MutableMapping[str, Any]
) -> None:
    """Take the step that a rule's settings name."""
    match settings.WhichOneof("step"):
        case "sgd":
            sgd_step(rule, settings.sgd, kept)
        case "adam":
            adam_step(rule, settings.adam, kept)
        case _:
            raise PartyError("coordinator", "asked for a descent without saying by which step")


def sgd_step(rule: Rule, settings: phase_pb2.Sgd, kept: MutableMapping[str, Any]) -> None:
    """Take one step of gradient descent; the momenta are kept as `sgd`."""
    all_momenta = kept.setdefault("sgd", [None] * len(rule.parameters))
    chosen, parameters, gradients = rule.with_gradients()
    momenta = [all_momenta[index] for index in chosen]
    # torch's own function, to the bit what torch.optim.SGD does. The class around it imports torch's compiler on first
    # use, which takes seconds in every process.
    with torch.no_grad():
        sgd(
            parameters,
            gradients,
            momenta,
            lr=settings.lr,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            nesterov=settings.nesterov,
            dampening=0,
            maximize=False,
        )
    for index, momentum in zip(chosen, momenta, strict=True):
        all_momenta[index] = momentum


def adam_step(rule: Rule, settings: phase_pb2.Adam, kept: MutableMapping[str, Any]) -> None:
    """Take one step of Adam; the moments are kept as `adam`."""
    if "adam" not in kept:
        kept["adam"] = (
            [torch.zeros_like(parameter) for parameter in rule.parameters],
            [torch.zeros_like(parameter) for parameter in rule.parameters],
            [torch.zeros(()) for _ in rule.parameters],
        )
    chosen, parameters, gradients = rule.with_gradients()
    means, squares, steps = ([values[index] for index in chosen] for values in kept["adam"])
    with torch.no_grad():  # torch's own function: see sgd_step
        adam(
            parameters,
            gradients,
            means,
            squares,
            [],
            steps,
            lr=settings.lr,
            beta1=settings.beta1,
            beta2=settings.beta2,
            eps=settings.epsilon,
            weight_decay=settings.weight_decay,
            amsgrad=False,
            maximize=False,
        )
