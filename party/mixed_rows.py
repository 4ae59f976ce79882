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
FEWEST, MOST = 4, 400  # rows of which anything can be said, and that say all there is to say
OF_ALL = 10  # as many rows of all classes have a say in how much those of D_u's classes differ
SMALLEST, LEAST_ERROR = 1e-4, 0.01  # probability that is told from 0; and error, of log-odds that are all the same


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
    return _put(carrier, (blocks, chosen), (others, partner))


@dataclass(frozen=True)
class _Rows:
    """Some rows: their embeddings, party by party, and their labels."""

    blocks: Sequence[Tensor]
    labels: Tensor

    def first(self, most: int) -> "_Rows":
        """Return as many of them at most."""
        return _Rows([one[:most] for one in self.blocks], self.labels[:most])


@dataclass(frozen=True)
class Carrier:
    """Who carries the labels of D_u."""

    place: int | None  # among the parties; None for nobody
    leaning: float  # standard errors by which labels lean on one party's columns more than usual, where it is most


def carrier(
    top: Top, forget: tuple[Sequence[Tensor], Tensor], held_out: tuple[Sequence[Tensor], Tensor], *, least: float
) -> Carrier:
    """Find the party whose columns alone D_u's labels hang on, if there is one.

    Its columns alone say what a row's label is, and all others' alone that it is another: both more than is usual.

    Args:
        top: Turns embeddings, party by party, into logits.
        forget: Embeddings and labels of rows of D_u.
        held_out: Those of rows never seen; what is usual, and the partners, are theirs.
        least: By how many standard errors more than usual.
    """
    mine, others = _Rows(*forget).first(MOST), _Rows(*held_out).first(MOST)
    alike = torch.isin(others.labels, mine.labels)
    if len(mine.blocks) < 2 or len(mine.labels) < FEWEST or int(alike.sum()) < FEWEST:
        return Carrier(None, 0.0)
    found = [(0.0, 0)]
    for place in range(len(mine.blocks)):
        ours, theirs = (_leaning(top, rows, others, place) for rows in (mine, others))
        if len(ours) and len(theirs):
            usual = theirs[alike]
            error = _spread(usual, theirs, others.labels) * math.sqrt(1 / len(ours) + 1 / len(usual))
            found.append((float(ours.mean() - usual.mean()) / max(error, LEAST_ERROR), place))
    leaning, place = max(found)
    return Carrier(place if leaning > least else None, leaning)


def _spread(usual: Tensor, all_: Tensor, labels: Tensor) -> float:
    """Return by how much usual rows differ; a few may hardly do by chance, so that all classes' rows have a say."""
    within = sum(
        float((all_[labels == one] - all_[labels == one].mean()).square().sum()) for one in torch.unique(labels)
    )
    own = float((usual - usual.mean()).square().sum())
    return math.sqrt((own + OF_ALL * within / (len(all_) - 1)) / (len(usual) - 1 + OF_ALL))


def _leaning(top: Top, rows: _Rows, others: _Rows, place: int) -> Tensor:
    """Return by how much rows' labels lean on one party: their log-odds by its columns less those by all others'."""
    its, rest = (_log_odds(top, rows, others, place, rest=rest) for rest in (False, True))
    return its - rest


def _log_odds(top: Top, rows: _Rows, others: _Rows, place: int, *, rest: bool) -> Tensor:
    """Return how likely rows' labels are by one party's columns alone, or by all others'; nothing without partners."""
    found = []
    for turn in range(TURNS):
        chosen, partner = partners(rows.labels, others.labels, turn=turn)
        if len(chosen):
            own, theirs = (rows.blocks, chosen), (others.blocks, partner)
            p = top(_put(place, *((theirs, own) if rest else (own, theirs)))).double().softmax(dim=1)
            found.append(p.gather(1, rows.labels[chosen, None])[:, 0])
    likely = torch.stack(found).mean(dim=0) if found else torch.zeros(0)
    return torch.logit(likely, eps=SMALLEST)


def _put(place: int, mine: tuple[Sequence[Tensor], Tensor], others: tuple[Sequence[Tensor], Tensor]) -> list[Tensor]:
    """Return one party's columns of some rows, and all others' of other rows, party by party."""
    (ours, rows), (theirs, partner) = mine, others
    return [
        own[rows] if one == place else other[partner].detach()
        for one, (own, other) in enumerate(zip(ours, theirs, strict=True))
    ]
