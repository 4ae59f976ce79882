"""What a party computes in one joint round, or in a comparison; messages are its role's to send."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedora_vfl.errors import PartyError
from fedora_vfl.wire.protocol import COORDINATOR
from party import losses
from party.batches import PARTS, parts_of
from party.mixed_rows import carrier, mixed, partners
from party.state import PartyState
from party.unseen import stand
from party.updates import JointRounds
from party.updates.rule import gradients_of
from protos.fedora.v1.phase_pb2 import CrossEntropy, Loss, Phase, Report, RoundReport, Samples

FORGET, REMAINING, HELD_OUT = range(len(PARTS))  # the places of D_u, D_r and held-out rows among the parts of a round
CROSS_ENTROPY = Loss(cross_entropy=CrossEntropy())
OF_PARTNER = 0.5  # what the label of a mixed row's partner weighs, beside that of its row of D_u


def embed_parts(state: PartyState, rows: Tensor, phase: Phase, step: int) -> list[Tensor]:
    """Return h_i of the rows of a round: of D_u, of D_r in train mode, and of held-out ones without a gradient."""
    # D_r comes first: in train mode it moves running statistics, which a gradient in eval mode still needs as they
    # were when it went forward.
    parts = parts_of(rows, phase.joint)
    found = [torch.zeros(0, state.model.embedding)] * len(parts)
    for place in (REMAINING, FORGET, HELD_OUT):
        if len(parts[place]):
            state.networks.train(place == REMAINING)
            with torch.set_grad_enabled(torch.is_grad_enabled() and place != HELD_OUT):
                found[place] = state.embed(parts[place], phase, step)
    state.networks.eval()
    return found


def descend(
    state: PartyState, rule: JointRounds, g: Sequence[Tensor], gradients: Sequence[Tensor], omega: float
) -> float:
    """Take one round's step; return ‖θ_after − θ_before‖²."""
    before = state.snapshot()
    rule.descend(g, gradients, omega)
    return state.change_squared(before)


@dataclass(frozen=True)
class Judged:
    """What the active party finds in a round."""

    omega: float
    answers: list[Tensor]  # by passive party: ∂L_u/∂h_i of the rows of D_u, then ∂L_r/∂h_i of those of D_r
    g: list[Tensor]  # ∂L_u/∂θ of its own parameters; empty without rows of D_u
    gradients: list[Tensor]  # ∂L_r/∂θ of the same


def judge(
    state: PartyState,
    phase: Phase,
    rule: JointRounds,
    rows: Tensor,
    embeddings: Sequence[Tensor],
    own: Sequence[Tensor] | None,
    told: RoundReport,
    finite: Callable[[float], object],
) -> Judged:
    """Take L_u and L_r at the same parameters, let Ω ascend, and differentiate both.

    Args:
        state: The active party's.
        phase: That the round belongs to.
        rule: The active party's.
        rows: Of the round.
        embeddings: By passive party, of the same rows.
        own: The active party's own embeddings of each part, if it has features.
        told: Where losses and Ω are entered.
        finite: Is handed every loss, to refuse one that nothing can be learned from.
    """
    assert state.labels is not None
    leaves = [
        [one.detach().requires_grad_() for one in parts_of(party, phase.joint)[:HELD_OUT]] for party in embeddings
    ]
    labels = [state.labels[one].to(state.device) for one in parts_of(rows, phase.joint)]
    # Of the parties' embeddings, then of own parameters.
    found = [[torch.zeros_like(party[place]) for party in leaves] for place in (FORGET, REMAINING)]
    omega = rest = 0.0
    for place, loss in ((REMAINING, CROSS_ENTROPY), (FORGET, phase.loss)):
        if not len(labels[place]):
            continue
        state.networks.train(place == REMAINING)
        logits = top(state, place, leaves, own)
        each = losses.per_sample(loss, logits, labels[place])
        finite(float(each.detach().sum()))
        aim = each.mean()
        if place == REMAINING:
            told.loss_sum = float(each.detach().sum())
            rest = told.loss_sum / len(each)
            told.correct = int((logits.detach().argmax(dim=1) == labels[place]).sum())
        else:
            known = each.detach().clamp(max=rule.ceiling)
            told.unlearning_loss = float(known.mean())
            aim, least = _aim(loss, each, logits, labels[FORGET], rule), 0.0
            if rule.carrier is not None:
                blocks = _blocks(leaves, own, FORGET, state), _blocks(leaves, own, REMAINING, state)
                more = _aim_of_mixed(state, blocks, labels, known, rule)
                aim, known, least = aim + more.aim, more.known, more.omega
                finite(float(aim.detach()))
            omega = told.omega = rule.yielding(max(least, rule.ascend(float(known.mean()))), rest)
        found[place] = gradients_of([*(party[place] for party in leaves), *rule.parameters], aim)
    answers = [torch.cat([of_part[place] for of_part in found]).cpu() for place in range(len(leaves))]
    of_u, of_r = (of_part[len(leaves) :] for of_part in found)
    return Judged(omega, answers, of_u, of_r)


def _aim(loss: Loss, each: Tensor, logits: Tensor, labels: Tensor, rule: JointRounds) -> Tensor:
    """Return what a push raises: the mean of L_u, of which `each` is the rows', over rows that are below λ."""
    below = each.detach() < rule.ceiling
    if losses.of_labels(loss):
        each = -losses.log_odds(logits, labels)  # so that a row counts however sure the model is of it
    return (each * below).mean()


@dataclass(frozen=True)
class _OfMixed:
    """What mixed rows add to a push."""

    aim: Tensor
    known: Tensor  # L_u, row by row: the less of a row's own and of its mixed row's
    omega: float  # at least


def _aim_of_mixed(
    state: PartyState, blocks: Sequence[Sequence[Tensor]], labels: Sequence[Tensor], known: Tensor, rule: JointRounds
) -> _OfMixed:
    """Push mixed rows away from the labels of D_u, as D_u itself, and towards those of their partners."""
    assert rule.carrier is not None
    rows = partners(labels[FORGET], labels[REMAINING])
    chosen, partner = rows
    if not len(chosen):
        return _OfMixed(known.new_zeros(()), known, 0.0)
    logits = state.networks["top"](torch.cat(mixed(blocks[0], blocks[1], rows, rule.carrier), dim=1))
    share = len(chosen) / len(known)  # so that a mixed row weighs what a row of D_u does
    own = losses.per_sample(CROSS_ENTROPY, logits, labels[FORGET][chosen])
    away = _aim(CROSS_ENTROPY, own, logits, labels[FORGET][chosen], rule)
    wrong = functional.cross_entropy(logits, labels[REMAINING][partner])
    known = known.index_copy(0, chosen, torch.minimum(known[chosen], own.detach()))
    # Its own push ends where mixed rows have their partners' labels, whatever L_u is.
    omega = OF_PARTNER * min(1.0, share * float(wrong.detach()) / rule.ceiling)
    return _OfMixed(share * (away - OF_PARTNER * wrong), known, omega)


def compare(
    state: PartyState,
    phase: Phase,
    rows: Tensor,
    embeddings: Sequence[Tensor],
    own: Sequence[Tensor] | None,
    report: Report,
) -> None:
    """Hold D_u against held-out rows, at the active party, and keep what later rounds go by."""
    rule, kept = phase.update.compare, state.memory.of("compare")
    assert state.labels is not None
    parts = [parts_of(one.detach(), phase.joint) for one in embeddings]
    logits = [top(state, place, parts, own).cpu() for place in (FORGET, HELD_OUT)]
    forget, _, held_out = (state.labels[one] for one in parts_of(rows, phase.joint))
    gone = forget[~torch.isin(forget, state.labels[state.sets.rows[Samples.REMAINING]])]
    found = stand(logits[0], forget, logits[1], held_out, gone, rule)
    first: Tensor = kept.setdefault("right", found.right).cpu()
    if len(first) != len(found.right):
        raise PartyError(COORDINATOR, "asked for comparisons with different held-out rows")
    report.figures.update(found.accuracy(first, rule))
    if not losses.of_labels(phase.loss):  # where D_u is to be unsure, its labels have no part
        return
    kept.setdefault("mean_loss", found.mean_loss)
    if "carrier" not in kept:
        carried = carrier(
            lambda mix: state.networks["top"](torch.cat(list(mix), dim=1)).cpu(),
            (_blocks(parts, own, FORGET, state), forget),
            (_blocks(parts, own, HELD_OUT, state), held_out),
            least=rule.carried,
        )
        kept["carrier"], kept["leaning"] = carried.place, carried.leaning
    report.figures.update(found.levels())
    report.figures["carried"] = float(kept["carrier"] is not None)
    report.within_bounds = found.holds


def _blocks(
    parts: Sequence[Sequence[Tensor]], own: Sequence[Tensor] | None, place: int, state: PartyState
) -> list[Tensor]:
    """Return the embeddings of one part of a round's rows, party by party."""
    return [party[place].to(state.device) for party in parts] + ([own[place]] if own else [])


def top(state: PartyState, place: int, parts: Sequence[Sequence[Tensor]], own: Sequence[Tensor] | None) -> Tensor:
    """Return the logits of one part of a round's rows."""
    blocks = _blocks(parts, own, place, state)
    if not len(blocks[0]):
        return torch.zeros(0, state.classes)
    logits: Tensor = state.networks["top"](torch.cat(blocks, dim=1))
    return logits
