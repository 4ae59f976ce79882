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

TURNS = 16  # partners of a row, over which chance in the choice of one is gone
FEWEST = 4  # rows of which anything can be said


def partners(labels: Tensor, others: Tensor, *, turn: int = 0) -> tuple[Tensor, Tensor]:
    """Return which rows have a partner, and which one: in turn, the others whose label is another one.

    In each of `TURNS` turns rows have other partners, if there are as many.
    """
    places = torch.full_like(labels, -1)
    for label in torch.unique(labels):
        mine, fit = (labels == label).nonzero()[:, 0], (others != label).nonzero()[:, 0]
        if len(fit):
            first = turn * len(fit) // TURNS
            places[mine] = fit[(first + torch.arange(len(mine), device=fit.device)) % len(fit)]
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


@dataclass(frozen=True)
class Carrier:
    """Who carries the labels of D_u."""

    place: int | None  # among the parties; None for nobody
    times: float  # how many times the usual the odds are by the columns that tell most; 0 where nothing can be said


def carrier(
    top: Top,
    forget: tuple[Sequence[Tensor], Tensor],
    held_out: tuple[Sequence[Tensor], Tensor],
    *,
    least: float,
    errors: float,
) -> Carrier:
    """Find the party whose columns alone D_u's labels hang on, if there is one.

    Args:
        top: Turns embeddings, party by party, into logits.
        forget: Embeddings and labels of rows of D_u.
        held_out: Those of rows never seen; what is usual, and the partners, are theirs.
        least: How many times the usual their odds must be by its columns alone.
        errors: By how many standard errors their mean probability must be more than usual, too; rows differ by as much
            as the usual ones do.
    """
    mine, others = _Rows(*forget), _Rows(*held_out)
    usual = others.of(mine.labels)
    if len(mine.blocks) < 2 or len(mine.labels) < FEWEST or len(usual.labels) < FEWEST:
        return Carrier(None, 0.0)
    found: list[tuple[float, int, bool]] = []
    for place in range(len(mine.blocks)):
        ours, theirs = (_by_columns(top, rows, others, place) for rows in (mine, usual))
        if len(ours) and len(theirs):
            error = float(theirs.std()) * math.sqrt(1 / len(ours) + 1 / len(theirs))
            sure = float(ours.mean() - theirs.mean()) > errors * error
            found.append((_log_odds(ours) - _log_odds(theirs), place, sure))
    difference, place, sure = max(found, default=(0.0, 0, False))
    times = math.exp(difference) if found else 0.0
    return Carrier(place if sure and times > least else None, times)


def _by_columns(top: Top, rows: _Rows, others: _Rows, place: int) -> Tensor:
    """Return how likely rows' labels are by one party's columns alone: means over partners; nothing without any."""
    found = []
    for turn in range(TURNS):
        chosen, partner = partners(rows.labels, others.labels, turn=turn)
        if len(chosen):
            p = top(mixed(rows.blocks, others.blocks, (chosen, partner), place)).double().softmax(dim=1)
            found.append(p.gather(1, rows.labels[chosen, None])[:, 0])
    return torch.stack(found).mean(dim=0) if found else torch.zeros(0)


def _log_odds(likely: Tensor) -> float:
    """Return the log-odds of a mean of probabilities."""
    yes, no = (
        float(likely.sum()) + 0.5,
        len(likely) - float(likely.sum()) + 0.5,
    )  # half a row more of each: none is certain
    return math.log(yes / no)
