"""Losses, computed where the labels are: at the active party."""

import torch
from torch import Tensor
from torch.nn import functional

from fedora_vfl.errors import PartyError
from protos.fedora.v1.phase_pb2 import Loss


def per_sample(loss: Loss, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the loss of each sample; for a stale one, `logits` are those of the confidence matrix."""
    match loss.WhichOneof("form"):
        case "cross_entropy" | "stale_cross_entropy":
            return functional.cross_entropy(logits, labels, reduction="none")
        case "uncertainty":
            return uncertainty(logits, loss.uncertainty.omega)
        case other:
            raise PartyError("coordinator", f"asked for a loss that is not known here: {other}")


def of_labels(loss: Loss) -> bool:
    """Tell whether a loss goes by labels."""
    return bool(loss.WhichOneof("form") != "uncertainty")


def uncertainty(logits: Tensor, omega: float) -> Tensor:
    """ω·(H(P) − KL(P‖U)) = ω·(2H − log C): largest, ω·log C, where the prediction is uniform."""
    log_p = functional.log_softmax(logits, dim=1)
    entropy = -(log_p.exp() * log_p).sum(dim=1)
    return omega * (2 * entropy - torch.log(torch.tensor(float(logits.shape[1]))))


def log_odds(logits: Tensor, labels: Tensor) -> Tensor:
    """Return log P/(1 − P) of each sample's label: as −log P, but its gradient does not vanish where P nears 1."""
    own = functional.one_hot(labels, logits.shape[1]).bool()
    return logits[own] - logits.masked_fill(own, -torch.inf).logsumexp(dim=1)


def of_batch(loss: Loss, logits: Tensor, labels: Tensor, set_size: int) -> tuple[Tensor, Tensor]:
    """Return the sum over the samples, for a report, and the loss that the phase asks for, to go back from.

    The mean that training asks for is torch's own: the same to the bit, with fewer steps on the way back.
    """
    if loss.WhichOneof("form") == "cross_entropy" and loss.reduction == Loss.BATCH_MEAN:
        log_p = functional.log_softmax(logits, dim=1)
        each = functional.nll_loss(log_p.detach(), labels, reduction="none")
        return each.sum(), functional.nll_loss(log_p, labels)
    each = per_sample(loss, logits, labels)
    return each.detach().sum(), reduce(loss, each, set_size)


def reduce(loss: Loss, losses: Tensor, set_size: int) -> Tensor:
    """Combine the samples' losses of one batch as the phase asks; see Loss.Reduction in the wire contract."""
    match loss.reduction:
        case Loss.BATCH_MEAN:
            return losses.mean()
        case Loss.SET_MEAN:
            return losses.sum() / set_size
        case Loss.SUM:
            return losses.sum()
        case other:
            raise PartyError("coordinator", f"asked for a reduction that is not known here: {other}")
