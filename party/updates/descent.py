"""Rules that learn from a loss as any training does, and the one that only looks."""

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
        sgd_step(self, self.update.sgd)
        self.clear_gradients()


class Adam(Rule):
    """Adam; its moments live on to the next phase with this rule."""

    def step(self) -> None:
        """Take one step and clear the gradients for the next batch."""
        adam_step(self, self.update.adam)
        self.clear_gradients()


def chosen_step(rule: Rule, settings: phase_pb2.Correction) -> None:
    """Take the step that a rule's settings name."""
    match settings.WhichOneof("step"):
        case "sgd":
            sgd_step(rule, settings.sgd)
        case "adam":
            adam_step(rule, settings.adam)
        case _:
            raise PartyError("coordinator", "asked for a descent without saying by which step")


def sgd_step(rule: Rule, settings: phase_pb2.Sgd) -> None:
    """Take one step of gradient descent; the rule keeps the momenta."""
    all_momenta = rule.kept.setdefault("momenta", [None] * len(rule.parameters))
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


def adam_step(rule: Rule, settings: phase_pb2.Adam) -> None:
    """Take one step of Adam; the rule keeps the moments."""
    kept = rule.kept
    if "means" not in kept:
        kept["means"] = [torch.zeros_like(parameter) for parameter in rule.parameters]
        kept["squares"] = [torch.zeros_like(parameter) for parameter in rule.parameters]
        kept["steps"] = [torch.zeros(()) for _ in rule.parameters]
    chosen, parameters, gradients = rule.with_gradients()
    means, squares, steps = ([kept[name][index] for index in chosen] for name in ("means", "squares", "steps"))
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
