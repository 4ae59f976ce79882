"""Batch plans: every party derives the same batches from a phase, so that none are sent."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fedora_vfl.errors import PartyError
from fedora_vfl.sampling.parts import lowest, rank
from fedora_vfl.sampling.rows import rows_drawn
from fedora_vfl.sampling.seeds import derive
from protos.fedora.v1.phase_pb2 import Joint, Part, Phase, Plan, Samples

PARTS = ("forget", "remaining", "held-out")  # of a round's rows, in this order


@dataclass(frozen=True)
class SampleSets:
    """Row numbers, in the common order, of every named set."""

    rows: dict["Samples.Set", torch.Tensor]

    @classmethod
    def consecutive(cls, train: int, validation: int, test: int, probe: int = 0) -> "SampleSets":
        """Make the sets of an aligned table: training rows first, then validation, then test, then probe."""
        counts = [train, validation, test, probe]
        parts = torch.split(torch.arange(sum(counts)), counts)
        sets = dict(zip((Samples.TRAIN, Samples.VALIDATION, Samples.TEST, Samples.PROBE), parts, strict=True))
        # Nobody has asked to be forgotten yet.
        return cls({**sets, Samples.FORGET: torch.arange(0), Samples.REMAINING: parts[0]})

    def forgetting(self, rows: torch.Tensor) -> "SampleSets":
        """Return the sets once these training rows, in ascending order, are asked to be forgotten."""
        train = self.rows[Samples.TRAIN]
        remaining = train[~torch.isin(train, rows)]
        return SampleSets({**self.rows, Samples.FORGET: rows, Samples.REMAINING: remaining})

    def dropping(self) -> "SampleSets":
        """Return the sets once the rows to forget are no training rows any more."""
        return SampleSets({**self.rows, Samples.TRAIN: self.rows[Samples.REMAINING]})


def part_of(rows: torch.Tensor, part: Part, ids: Sequence[str]) -> tuple[torch.Tensor, int]:
    """Return the rows of a set that belong to a part of it, in their order, and the highest rank that does."""
    if not 0 < part.share <= 1:
        raise PartyError("coordinator", f"asked for a part of {part.share} of some rows")
    ranks = [rank(part.seed, ids[row]) for row in rows.tolist()]
    below = lowest(ranks, rows_drawn(part.share, len(ranks)))
    return rows[torch.tensor(ranks) <= below], below


def part(phase: Phase, drawn: Sequence[torch.Tensor]) -> list[tuple[int, torch.Tensor]]:
    """Return the batches of a part of a phase, each with its number in the phase."""
    first, last = phase.first_step, end_of_part(phase, len(drawn))
    return list(enumerate(drawn))[first:last]


def end_of_part(phase: Phase, steps: int) -> int:
    """Return the number of the batch before which a part of a phase of so many steps ends."""
    return min(steps, phase.first_step + phase.steps) if phase.steps else steps


def draw(sets: SampleSets, over: Samples, plan: Plan, ids: Sequence[str] = ()) -> list[torch.Tensor]:
    """Cut a sample set, or the part of it that is asked for, into batches by a plan; the last one may be smaller.

    `ids` are those of all rows, in the common order; only parts go by them.
    """
    rows = sets.rows.get(over.set)
    if rows is None or not len(rows):
        name = Samples.Set.Name(over.set) if over.set in Samples.Set.values() else f"unknown set {over.set}"
        raise PartyError("coordinator", f"asked for a phase over {name}, which has no rows")
    if over.HasField("part"):
        rows, _ = part_of(rows, over.part, ids)
    if over.share == 0:
        return []
    if not 0 < over.share <= 1 or plan.batch_size < 1:
        raise PartyError("coordinator", f"asked for a share of {over.share} in batches of {plan.batch_size}")
    if plan.shuffle or over.share < 1:
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(derive(plan.seed, "batches")))
        rows = rows[order[: rows_drawn(over.share, len(rows))]]
    return list(torch.split(rows, plan.batch_size))


def draw_joint(sets: SampleSets, joint: Joint, seed: int) -> list[torch.Tensor]:
    """Draw the rows of every round of a joint phase: of D_u, of D_r, then held-out ones.

    No row comes again before all others of its set have come that fill a round.
    """
    if joint.held_out and joint.held_out_set not in (Samples.VALIDATION, Samples.TEST):
        raise PartyError("coordinator", "asked for held-out rows of a set that is not held out")
    wanted = (
        (Samples.FORGET, joint.forget),
        (Samples.REMAINING, joint.remaining),
        (joint.held_out_set, joint.held_out),
    )
    for which, count in wanted:
        if count > len(sets.rows.get(which, ())):
            raise PartyError(
                "coordinator", f"asked for {count} rows of a set that has fewer, in every round of a phase"
            )
    return [
        torch.cat([_of_round(k, sets.rows[which], count, (seed, which)) for which, count in wanted if count])
        for k in range(joint.rounds)
    ]


def _of_round(k: int, rows: torch.Tensor, count: int, seed: tuple[int, int]) -> torch.Tensor:
    """Return a round's rows of a set that is gone through again and again, each time in another order."""
    times, place = divmod(k, len(rows) // count)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(derive(*seed, times)))
    return rows[order[place * count : (place + 1) * count]]


def parts_of(rows: torch.Tensor, joint: Joint) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Cut what is about the rows of a round into what is about D_u, D_r and held-out rows."""
    forget, remaining, held_out = torch.split(
        rows, [joint.forget, joint.remaining, len(rows) - joint.forget - joint.remaining]
    )
    return forget, remaining, held_out
