"""Requests to forget: which training rows are meant. Only the active party knows labels, so it finds out."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from fedora_vfl.errors import PartyError, SettingsError
from fedora_vfl.sampling.rows import rows_drawn
from fedora_vfl.sampling.seeds import derive
from protos.fedora.v1.control_pb2 import Request
from protos.fedora.v1.exchange_pb2 import Order

ROW_BYTES = 5  # of a row's number on the wire, at most
SHOWN = 5  # so many names are spelt out in an error


def resolve(
    request: Request,
    order: Order,
    labels: Tensor,
    classes: Sequence[str],
    *,
    pending: Sequence[int] = (),
    handed: Sequence[int] = (),
) -> Tensor:
    """Return the places of the requested rows among the training rows, ascending.

    Args:
        request: Whom to forget.
        order: The rows that all parties have in common.
        labels: Those of the training rows.
        classes: The labels' names.
        pending: The rows of requests that are taken up, ascending.
        handed: The rows of a request that was handed in at a party, ascending.
    """
    match request.WhichOneof("which"):
        case "ids":
            rows = _by_id(list(request.ids.ids), order)
        case "classes":
            rows = _by_class(request, labels, classes)
        case "samples":
            rows = _draw(torch.arange(len(order.train)), request.samples, derive(request.seed, "request"))
        case "pending":
            rows = torch.tensor(pending, dtype=torch.int64)
        case "request":
            rows = torch.tensor(handed, dtype=torch.int64)
            if not handed:
                said = "no party has a request of this name, or nobody it names is a training row in common"
                raise SettingsError(f"forget.request: {request.request.name!r}: {said}")
        case _:
            raise PartyError("coordinator", "sent a request that names no rows")
    if not len(rows):
        raise SettingsError("forget: names no rows")
    if len(rows) >= len(order.train):
        raise SettingsError(f"forget: would leave nothing of the {len(order.train)} training rows; some must remain")
    return rows


def check_rows(rows: Sequence[int], training: int, *, sender: str) -> Tensor:
    """Return the rows that the active party has named, if they can be what it says."""
    ascending = all(one < other for one, other in pairwise(rows))
    if not rows or not ascending or rows[-1] >= training or len(rows) >= training:
        reason = f"asked to forget rows that are not an ascending part of the {training} training rows"
        raise PartyError(sender, reason)
    return torch.tensor(rows, dtype=torch.int64)


def _by_id(ids: list[str], order: Order) -> Tensor:
    twice = [one for one, count in Counter(ids).items() if count > 1]
    if twice:
        raise SettingsError(f"forget.ids: {_some(twice)} {_verb(twice, 'is', 'are')} named twice")
    places = {one: row for row, one in enumerate(order.train)}
    others = [one for one in ids if one not in places]
    if others:
        untrained = set(order.validation) | set(order.test) | set(order.probe)
        held = [one for one in others if one in untrained]
        if held:
            raise SettingsError(f"forget.ids: {_some(held)} {_verb(held, 'was', 'were')} never trained on")
        # The same sentence for rows that were forgotten: it must not tell who was in a class that was.
        raise SettingsError(f"forget.ids: {_some(others)} {_verb(others, 'is', 'are')} not among the rows in common")
    return torch.tensor(sorted(places[one] for one in ids), dtype=torch.int64)


def _by_class(request: Request, labels: Tensor, classes: Sequence[str]) -> Tensor:
    names, percent = list(request.classes.classes), request.classes.percent
    numbers = {name: number for number, name in enumerate(classes)}
    for name in names:
        if name not in numbers:
            raise SettingsError(f"forget.classes: there is no class {name!r}; the classes are {_some(classes, 20)}")
    if len(set(names)) < len(names):
        raise SettingsError(f"forget.classes: a class is named twice in {', '.join(map(repr, names))}")
    if not 0 < percent <= 100:
        raise SettingsError(f"forget.percent: is {percent:g}; allowed: above 0, up to 100")
    parts = []
    for name in names:
        rows = torch.nonzero(labels == numbers[name]).flatten()
        if not len(rows):
            raise SettingsError(f"forget.classes: class {name!r} has no training rows")
        parts.append(_draw(rows, rows_drawn(percent / 100, len(rows)), derive(request.seed, "request", name)))
    return torch.cat(parts).sort().values if parts else torch.arange(0)


def _draw(rows: Tensor, count: int, seed: int) -> Tensor:
    """Draw rows without replacement and put them in ascending order."""
    if count > len(rows):
        raise SettingsError(f"forget.samples: asks for {count} of {len(rows)} training rows")
    chosen = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:count]
    return rows[chosen].sort().values


def _some(names: Sequence[str], most: int = SHOWN) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def _verb(names: Sequence[str], one: str, many: str) -> str:
    return one if len(names) == 1 else many
