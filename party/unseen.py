"""Whether the rows to forget look like rows that were never seen: what the active party finds in a comparison."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from protos.fedora.v1.phase_pb2 import Compare

ALL_CLASSES = 0.9  # of the held-out rows: where so many are of the classes that D_u has, it has all that matter


@dataclass(frozen=True)
class Standing:
    """D_u beside held-out rows."""

    forgotten_level: float  # L_u: the mean of min(−log P of the row's label, λ) over the rows of D_u
    unseen_level: float | None  # γ: the same over held-out rows of the classes that D_u has; None if there are none
    tolerance: float  # differences below it are none
    unseen_rows: int  # that γ comes from
    mean_loss: float  # of these, not cut off
    right: Tensor  # of held-out rows of classes that remain: which the model gets right
    all_classes: bool  # whether D_u has rows of all classes, as any sample has

    @property
    def holds(self) -> bool:
        """Whether D_u is neither surer than rows never seen nor less sure."""
        return self.unseen_level is not None and abs(self.forgotten_level - self.unseen_level) <= self.tolerance

    def keeps(self, first: Tensor, compare: Compare) -> bool:
        """Tell whether as many rows are right as at the first comparison, but for what is allowed and for chance.

        The rows are the same: only those whose answer has changed can differ by chance, and their number is what
        McNemar's test goes by.
        """
        lost, won = int((first & ~self.right).sum()), int((~first & self.right).sum())
        return lost - won <= compare.loss_of_accuracy * len(first) + compare.errors * math.sqrt(lost + won)

    def levels(self) -> dict[str, float]:
        """Return what is told of D_u."""
        known = {} if self.unseen_level is None else {"unseen_level": self.unseen_level, "tolerance": self.tolerance}
        return {"forgotten_level": self.forgotten_level, **known, "all_classes": float(self.all_classes)}

    def accuracy(self, first: Tensor, compare: Compare) -> dict[str, float]:
        """Return what is told of held-out rows alone."""
        return {
            "unseen_rows": float(self.unseen_rows),
            "held_out_accuracy": float(self.right.double().mean()) if len(self.right) else 0.0,
            "accuracy_kept": float(self.keeps(first, compare)),
        }


def stand(
    forget: Tensor, forget_labels: Tensor, held_out: Tensor, held_out_labels: Tensor, gone: Tensor, compare: Compare
) -> Standing:
    """Compare the logits of rows to forget with those of held-out rows; `gone` are classes of which no row remains."""
    each = functional.cross_entropy(forget, forget_labels, reduction="none").double()
    unseen = functional.cross_entropy(held_out, held_out_labels, reduction="none").double()
    alike = unseen[torch.isin(held_out_labels, forget_labels)]
    mean_loss = float(alike.mean()) if len(alike) else 0.0
    λ = max(compare.ceiling, mean_loss)
    each, alike = each.clamp(max=λ), alike.clamp(max=λ)
    spread = sum(float(one.var(unbiased=False)) / len(one) for one in (each, alike) if len(one))
    kept = ~torch.isin(held_out_labels, gone)
    return Standing(
        forgotten_level=float(each.mean()),
        unseen_level=float(alike.mean()) if len(alike) else None,
        tolerance=compare.errors * math.sqrt(spread),
        unseen_rows=len(alike),
        mean_loss=mean_loss,
        all_classes=len(alike) >= ALL_CLASSES * len(held_out_labels),
        right=(held_out.argmax(dim=1) == held_out_labels)[kept],
    )
