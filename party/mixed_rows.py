"""Mixed rows: one party's columns of a row, and all other parties' of another row with another label.

A backdoor lies in the columns of one party, and a model that has learned it goes by them alone. Mixed rows show that,
and rounds that forget take it back on them: in a row to forget the trigger stands beside what it was trained with, in
mixed rows beside anything.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Top = Callable[[Sequence[Tensor]], Tensor]


def partners(labels: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Return which rows have a partner, and which one: in turn, the others whose label is another one."""
    places = torch.full_like(labels, -1)
    for label in torch.unique(labels):
        mine, fit = (labels == label).nonzero()[:, 0], (others != label).nonzero()[:, 0]
        if len(fit):
            places[mine] = fit[torch.arange(len(mine), device=fit.device) % len(fit)]
    chosen = (places >= 0).nonzero()[:, 0]
    return chosen, places[chosen]


def mixed(
    blocks: Sequence[Tensor], others: Sequence[Tensor], rows: tuple[Tensor, Tensor], carrier: int
) -> list[Tensor]:
    """Return the embeddings of mixed rows, party by party; through the others' no gradient flows."""
    chosen, partner = rows
    return [
        mine[chosen] if place == carrier else other[partner].detach()
        for place, (mine, other) in enumerate(zip(blocks, others, strict=True))
    ]


@dataclass(frozen=True)
class _Rows:
    """Some rows: their embeddings, party by party, and their labels."""

    blocks: Sequence[Tensor]
    labels: Tensor

    def of(self, labels: Tensor) -> "_Rows":
        """Return the rows that have one of these labels."""
        alike = torch.isin(self.labels, labels)
        return _Rows([one[alike] for one in self.blocks], self.labels[alike])


def carrier(
    top: Top,
    forget: tuple[Sequence[Tensor], Tensor],
    held_out: tuple[Sequence[Tensor], Tensor],
    *,
    least: float,
    errors: float,
) -> int | None:
    """Return the place of the party whose columns alone D_u's labels hang on, if there is one.

    Args:
        top: Turns embeddings, party by party, into logits.
        forget: Embeddings and labels of rows of D_u.
        held_out: Those of rows never seen; what is usual, and the partners, are theirs.
        least: How many times the usual their odds must be by its columns alone.
        errors: By how many standard errors they must be more than usual, too.
    """
    mine, others = _Rows(*forget), _Rows(*held_out)
    usual = others.of(mine.labels)
    found: list[tuple[float, float, int]] = []
    for place in range(len(mine.blocks)):
        ours, theirs = (_log_odds(top, rows, others, place) for rows in (mine, usual))
        if ours and theirs:
            found.append((ours[0] - theirs[0], math.hypot(ours[1], theirs[1]), place))
    if len(mine.blocks) < 2 or not found:
        return None
    difference, error, place = max(found)
    return place if difference > max(math.log(least), errors * error) else None


def _log_odds(top: Top, rows: _Rows, others: _Rows, place: int) -> tuple[float, float] | None:
    """Return the log-odds of labels by one party's columns alone, and their standard error; None without mixed rows."""
    chosen, partner = partners(rows.labels, others.labels)
    if not len(chosen):
        return None
    p = top(mixed(rows.blocks, others.blocks, (chosen, partner), place)).double().softmax(dim=1)
    expected = float(p.gather(1, rows.labels[chosen, None]).sum())
    yes, no = expected + 0.5, len(chosen) - expected + 0.5  # half a row more of each, so that none is certain
    return math.log(yes / no), math.sqrt(1 / yes + 1 / no)
