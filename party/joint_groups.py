"""Whom a phase is about: the rows that each round of a joint one takes, set by set, and whose labels it goes by."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from party.batches import parts_of
from party.losses import of_labels
from protos.fedora.v1.phase_pb2 import Phase, Samples


@dataclass(frozen=True)
class JointGroup:
    """The rows of one set in a joint phase."""

    of: "Samples.Set"
    rounds: list[Tensor]

    @property
    def all_rows(self) -> Tensor:
        """The different rows of all rounds."""
        found: Tensor = torch.unique(torch.cat(self.rounds)) if self.rounds else torch.arange(0)
        return found

    @property
    def rows(self) -> int:
        """How many they are."""
        return len(self.all_rows)


def joint_groups(phase: Phase, drawn: Sequence[Tensor]) -> list[JointGroup]:
    """Return the groups of a joint phase, those without rows left out."""
    sets = (Samples.FORGET, Samples.REMAINING, phase.joint.held_out_set)
    counts = (phase.joint.forget, phase.joint.remaining, phase.joint.held_out)
    parts = [parts_of(rows, phase.joint) for rows in drawn]
    return [
        JointGroup(which, [one[place] for one in parts])
        for place, (which, count) in enumerate(zip(sets, counts, strict=True))
        if count
    ]


def labelled_rows(phase: Phase, drawn: Sequence[Tensor]) -> int:
    """Count the rows of the smallest group whose labels decide where a phase moves; 0 if no labels do."""
    if not phase.HasField("joint"):
        return sum(len(rows) for rows in drawn) if of_labels(phase.loss) else 0
    return min((one.rows for one in joint_groups(phase, drawn) if one.of in _labelled_sets(phase)), default=0)


def learned_groups(phase: Phase, drawn: Sequence[Tensor]) -> list[JointGroup]:
    """Return the groups of rows whose labels decide where a phase moves."""
    if phase.HasField("joint"):
        return [one for one in joint_groups(phase, drawn) if one.of in _labelled_sets(phase)]
    return [JointGroup(phase.over.set, [torch.cat(list(drawn))])] if labelled_rows(phase, drawn) else []


def _labelled_sets(phase: Phase) -> set[int]:
    """Return the sets whose labels a joint phase goes by; held-out rows get no gradients."""
    # Of D_r the loss is always cross-entropy.
    return {Samples.FORGET, Samples.REMAINING} if of_labels(phase.loss) else {Samples.REMAINING}
