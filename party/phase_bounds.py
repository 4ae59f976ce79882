"""What a phase may ask for, whatever a party's policy says: numbers that can be meant, batches that can be sent."""

import math
from collections.abc import Iterable, Iterator

from fedora_vfl.errors import PartyError
from fedora_vfl.settings.bounds import MOST_BATCH_VALUES
from fedora_vfl.wire.learning_rates import learning_rate
from fedora_vfl.wire.protocol import COORDINATOR
from protos.fedora.v1.phase_pb2 import Adam, DualAscent, JointRounds, Loss, Phase, PrimalDescent, Samples, Sgd, Update

LARGEST = 1e12  # of any weight or rate: nothing that learns comes near it
FARTHEST = 1e30  # along a kept gradient, which may be as short as rounding makes it
MOST_LETTERS = 60  # of a phase's name, which is a label of books, logs and metrics
MOST_SHIFT = 1024  # pixels; images of that size are the largest that anybody cuts into stripes
JOINT = ("joint_rounds", "compare")  # update rules of joint phases
MOST_ROUNDS = 100_000  # of a joint phase, as in settings/bounds.py
MOST_DRAWN_ROWS = 128 * 1024 * 1024  # of a joint phase, drawn before its first round: a gigabyte of row numbers

Numbers = Iterator[tuple[str, float, float, float]]  # what it is, its value, the least and the most that it may be


def check_phase(phase: Phase, *, passive: Iterable[str]) -> None:
    """Refuse a phase that no method asks for: one with steps backwards or weights without end.

    Args:
        phase: As the coordinator sent it.
        passive: The passive parties of the job.
    """
    for what, value, least, most in (*_of_loss(phase.loss), *_of_update(phase.update)):
        if not least <= value <= most:  # not so for NaN either
            said = f"{value:g} as {what} of phase {_name(phase)}"
            raise PartyError(COORDINATOR, f"asked for {said}; it should be from {least:g} to {most:g}")
    if not phase.name or _name(phase) != phase.name:
        raise PartyError(COORDINATOR, f"sent a phase whose name is not one of 1 to {MOST_LETTERS} letters")
    if phase.HasField("joint") != (phase.update.WhichOneof("rule") in JOINT) or phase.joint.rounds > MOST_ROUNDS:
        raise PartyError(COORDINATOR, f"sent a joint phase {_name(phase)} whose rule or rounds no method asks for")
    if phase.update.HasField("soften") and not (phase.over.set == Samples.FORGET and phase.over.share == 1):
        said = f"predictions less sure in phase {_name(phase)} by other rows than all those to forget"
        raise PartyError(COORDINATOR, f"asked to make {said}")
    a_round = phase.joint.forget + phase.joint.remaining + phase.joint.held_out
    if phase.joint.rounds * a_round > MOST_DRAWN_ROWS:
        said = f"{phase.joint.rounds} rounds of {a_round} rows in phase {_name(phase)}"
        raise PartyError(COORDINATOR, f"asked for {said}; at most {MOST_DRAWN_ROWS} rows are drawn for a phase")
    if phase.loss.reduction not in Loss.Reduction.values():
        raise PartyError(COORDINATOR, f"asked for a reduction that is not known here: {phase.loss.reduction}")
    if phase.augmentation.shift > MOST_SHIFT:
        raise PartyError(COORDINATOR, f"asked for shifts of {phase.augmentation.shift} pixels; at most {MOST_SHIFT}")
    if unknown := {*phase.offline, *phase.update.observe.cache} - set(passive):
        said = f"{len(unknown)} parties in phase {_name(phase)} that the job does not have"
        raise PartyError(COORDINATOR, f"named {said}")


def check_batches(phase: Phase, largest: int, *, embedding: int) -> None:
    """Refuse batches that do not fit into one message."""
    if largest * embedding > MOST_BATCH_VALUES:
        said = f"batches of {largest} rows with embeddings of width {embedding} in phase {_name(phase)}"
        raise PartyError(COORDINATOR, f"asked for {said}, which is more than a message may hold")


def _of_loss(loss: Loss) -> Numbers:
    if loss.WhichOneof("form") == "uncertainty":
        yield "omega", loss.uncertainty.omega, 0, LARGEST


def _of_update(update: Update) -> Numbers:
    if (rate := learning_rate(update)) is not None:
        yield "learning rate", rate, 0, LARGEST
    match update.WhichOneof("rule"):
        case "sgd":
            yield from _of_sgd(update.sgd)
        case "adam":
            yield from _of_adam(update.adam)
        case "dual_ascent":
            yield from _of_dual_ascent(update.dual_ascent)
        case "primal_descent":
            descent = update.primal_descent
            yield "rho", descent.rho, 0, LARGEST
            yield "push", descent.push, 0, max(PrimalDescent.Push.values())
        case "joint_rounds":
            yield from _of_joint_rounds(update.joint_rounds)
        case "retreat":
            yield "share", update.retreat.share, 0, 1
        case "soften":
            yield "level", update.soften.level, -LARGEST, LARGEST
        case "compare":
            yield "ceiling", update.compare.ceiling, 0, LARGEST
            yield "errors", update.compare.errors, 0, LARGEST
            yield "loss of accuracy", update.compare.loss_of_accuracy, 0, 1
            yield "carried", update.compare.carried, 0, LARGEST
        case "residual":
            yield "rho", update.residual.rho, 0, LARGEST
        case "ascent":
            yield "clip", update.ascent.clip, 0, math.inf
        case "shift":
            yield "shift", update.shift.by, -FARTHEST, FARTHEST
        case "correction":
            rule = update.correction
            yield from _of_adam(rule.adam) if rule.HasField("adam") else _of_sgd(rule.sgd)


def _of_joint_rounds(rounds: JointRounds) -> Numbers:
    yield "form", rounds.form, 0, max(DualAscent.Form.values())
    yield "sigma", rounds.sigma, 0, LARGEST
    yield "ceiling", rounds.ceiling, math.nextafter(0, 1), LARGEST
    yield "omega_max", rounds.omega_max, 0, LARGEST
    yield "gamma", rounds.gamma, -LARGEST, LARGEST
    yield "rho", rounds.rho, 0, LARGEST
    yield "allowance", rounds.allowance, math.nextafter(0, 1), LARGEST


def _of_sgd(sgd: Sgd) -> Numbers:
    yield "momentum", sgd.momentum, 0, math.nextafter(1, 0)
    yield "weight decay", sgd.weight_decay, 0, LARGEST


def _of_adam(adam: Adam) -> Numbers:
    yield "first beta", adam.beta1, 0, math.nextafter(1, 0)
    yield "second beta", adam.beta2, 0, math.nextafter(1, 0)
    yield "epsilon", adam.epsilon, 0, LARGEST
    yield "weight decay", adam.weight_decay, 0, LARGEST


def _of_dual_ascent(ascent: DualAscent) -> Numbers:
    yield "form", ascent.form, 0, max(DualAscent.Form.values())
    yield "sigma", ascent.sigma, 0, LARGEST
    yield "gamma", ascent.gamma, -LARGEST, LARGEST
    yield "level", ascent.level, -LARGEST, LARGEST


def _name(phase: Phase) -> str:
    """Return the name of a phase as it may be repeated."""
    return "".join(one for one in phase.name[:MOST_LETTERS] if one.isprintable())
