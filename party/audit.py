"""An audit of forgetting: attacks on each row with reference models. What models show of rows stays here; rates leave.

A row's signal is φ = log p − log(1 − p), p being the probability that a model gives the row's own class.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedora_vfl.errors import PartyError
from fedora_vfl.sampling.parts import rank
from party.predictions import Predictions
from party.rates import area_under_curve, true_positives
from protos.fedora.v1.control_pb2 import Assess

FORGET, UNSEEN, REMAINING = "forget", "unseen", "remaining"
OFFLINE = 0.3  # a in RMIA's estimate of p(x) from models without x alone: p_IN ≈ a·p_OUT + 1 − a
VULNERABLE = 0.1  # share of a group that counts as its most vulnerable rows
FEWEST_VULNERABLE = 10
ENOUGH_FOR_A_ROW = 16  # models without a row, from which on its own deviation is taken


@dataclass(frozen=True)
class Shown:
    """What one model shows of each row."""

    kind: str  # a name of Assess.Audit
    signals: dict[str, Tensor]  # by group
    part: dict[str, int] | None = None  # of the rows, which a reference model has learned from
    may_know_forgotten: bool = False  # whether it was trained before the rows to forget were dropped
    silence: str = ""  # why no figure of it may leave, if none may


@dataclass
class AuditNotes:
    """The rows that are looked at, the same for every model, and what models have shown of them."""

    rows: dict[str, Tensor] = field(default_factory=dict)  # by group
    classes: dict[str, Tensor] = field(default_factory=dict)
    shown: dict[str, Shown] = field(default_factory=dict)  # by model

    def state_dict(self) -> dict[str, Any]:
        """Return all of it as tensors and plain values."""
        models = {
            name: [one.kind, one.signals, one.part, one.may_know_forgotten, one.silence]
            for name, one in self.shown.items()
        }
        return {"rows": self.rows, "classes": self.classes, "shown": models}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> "AuditNotes":
        """Return what `state_dict` has returned."""
        return cls(state["rows"], state["classes"], {name: Shown(*one) for name, one in state["shown"].items()})

    def keep(self, model: str, shown: Shown, rows: Mapping[str, Tensor], classes: Mapping[str, Tensor]) -> None:
        """Keep what a model shows of the same rows as every other."""
        if not self.rows:
            self.rows, self.classes = dict(rows), dict(classes)
        if set(rows) != set(self.rows) or any(not torch.equal(rows[name], self.rows[name]) for name in rows):
            raise PartyError("coordinator", "asked for an audit of models over different rows")
        self.shown[model] = shown


def signal(predictions: Predictions) -> Tensor:
    """Return φ of each row, without the rounding of probabilities near 1."""
    logits = predictions.logits.double()
    own = predictions.classes.unsqueeze(1)
    others = logits.scatter(1, own, -torch.inf).logsumexp(dim=1)
    found: Tensor = logits.gather(1, own).squeeze(1) - others
    return found.clamp(-700, 700)  # beyond it e^φ is no number


def kolmogorov_smirnov(one: Tensor, other: Tensor) -> float:
    """Return the largest distance between two samples' distribution functions."""
    places = torch.cat([one, other]).sort().values
    shares = [torch.searchsorted(sample.sort().values, places, right=True) / len(sample) for sample in (one, other)]
    return float((shares[0] - shares[1]).abs().max())


class Auditor:
    """Finds the figures of models that were kept."""

    def __init__(self, notes: AuditNotes, ids: Sequence[str]) -> None:
        """`ids` are those of all rows, in the common order."""
        self._notes, self._ids = notes, ids

    def figures(self, model: str) -> dict[str, float]:
        """Return all that can be said of one model."""
        if model not in self._notes.shown:
            raise PartyError("coordinator", f"asked for an audit of {model!r}, which was not kept")
        found: dict[str, float] = {}
        for group in (FORGET, REMAINING):
            found |= self._of_group(model, group)
        signals = self._signals(model, FORGET)
        distances = [kolmogorov_smirnov(signals, self._signals(other, FORGET)) for other in self._retrains(model)]
        if distances:
            found["audit_ks_to_retrains"] = sum(distances) / len(distances)
        return found

    def about(self, figure: str, model: str) -> list[Tensor]:
        """Return the groups of rows that a figure of a model is about.

        Rows that every reference has learned from are in no figure. Whoever chooses references chooses them thereby:
        beside a figure of the whole group, one without a single row would tell of that row.
        """
        rows = self._notes.rows
        if figure == "audit_ks_to_retrains":
            return [rows[FORGET]]
        group = REMAINING if "_remaining_" in figure else FORGET
        without = self._without(model, group)
        if "vulnerable" in figure:
            vulnerable, unseen = self._vulnerable(group)
            return [rows[group][vulnerable], rows[UNSEEN][unseen]]
        judged, unseen_judged = (
            self._outside(which, without, beside=beside).any(dim=0) for which, beside in ((group, ""), (UNSEEN, group))
        )
        return [rows[group][judged], rows[UNSEEN][self._alike(group) & unseen_judged]]

    def _of_group(self, model: str, group: str) -> dict[str, float]:
        """Return how well attacks with reference models find a group's rows among unseen ones of the same classes."""
        without = self._without(model, group)
        alike = self._alike(group)
        if not without or not bool(alike.any()) or not len(self._notes.rows.get(group, ())):
            return {}
        members, others = self._ratios(model, group, without), self._ratios(model, UNSEEN, without, beside=group)
        found = _rates(f"audit_{group}", members, others[alike])
        vulnerable, unseen = self._vulnerable(group)
        if bool(vulnerable.any()):
            found[f"audit_{group}_vulnerable_auc"] = area_under_curve(members[vulnerable], others[unseen])
        likely = self._likelihoods(model, group, without)
        unlikely = self._likelihoods(model, UNSEEN, without, beside=group)[alike]
        found[f"audit_{group}_lira_auc"] = area_under_curve(_known(likely), _known(unlikely))
        return found

    def _signals(self, model: str, group: str) -> Tensor:
        return self._notes.shown[model].signals[group]

    def _of_kind(self, kind: "Assess.Audit") -> list[str]:
        name = Assess.Audit.Name(kind)
        return [model for model, one in self._notes.shown.items() if one.kind == name]

    def _retrains(self, but: str) -> list[str]:
        return [name for name in self._of_kind(Assess.RETRAINED) if name != but]

    def _without(self, model: str, group: str) -> list[str]:
        """Return the models to compare with: the references, or else the other Retrains, which know all that stays."""
        references = self._of_kind(Assess.REFERENCE)
        return references or (self._retrains(model) if group == FORGET else [])

    def _alike(self, group: str) -> Tensor:
        """Return which unseen rows are of a class that the group has."""
        classes = self._notes.classes
        return torch.isin(classes[UNSEEN], classes[group])

    def _vulnerable(self, group: str) -> tuple[Tensor, Tensor]:
        """Return which rows of a group, and which unseen ones, are hardest for models without them; none of few.

        Only memory gets such rows right, and no model that is judged has a say in the choice. Rows that the original
        gives away most are harder than the unseen rows that it accuses most: beside these, a model that knows nothing
        of any row would seem to remember.
        """
        without = self._without("", group)
        none = tuple(torch.zeros(len(self._notes.rows[one]), dtype=torch.bool) for one in (group, UNSEEN))
        if not without:
            return none[0], none[1]
        unseen = self._average(UNSEEN, without, beside=group).where(self._alike(group), torch.nan)
        sure = self._average(group, without), unseen
        fewest = min(len(_known(one)) for one in sure)
        if fewest < 2 * FEWEST_VULNERABLE:
            return none[0], none[1]
        share = max(VULNERABLE, FEWEST_VULNERABLE / fewest)  # the same of both, or else one would be the harder
        return _lowest(sure[0], share), _lowest(sure[1], share)

    def _ratios(self, model: str, group: str, without: Sequence[str], *, beside: str = "") -> Tensor:
        """Return RMIA's p(x|θ)/p(x) of each row, p(x) from models without it; not a number where there is none.

        Counting the unseen rows that a row's ratio exceeds, as RMIA does, keeps the order of the ratios.
        """
        average = self._average(group, without, beside=beside)
        return self._signals(model, group).sigmoid() / (((1 + OFFLINE) * average + 1 - OFFLINE) / 2)

    def _average(self, group: str, without: Sequence[str], *, beside: str = "") -> Tensor:
        """Return p_OUT of each row: the mean probability of its class over models without it."""
        probabilities = torch.stack([self._signals(one, group).sigmoid() for one in without])
        return _mean(probabilities, self._outside(group, without, beside=beside))

    def _likelihoods(self, model: str, group: str, without: Sequence[str], *, beside: str = "") -> Tensor:
        """Return LiRA's score of each row: how far above models without it φ is, in their deviations."""
        outside = self._outside(group, without, beside=beside)
        signals = torch.stack([self._signals(one, group) for one in without])
        average, counts = _mean(signals, outside), outside.sum(dim=0)
        distance = self._signals(model, group) - average
        if not bool((counts >= ENOUGH_FOR_A_ROW).all()):
            return distance  # in units of one deviation for all rows, which does not change their order
        squares = ((signals - average) ** 2 * outside).sum(dim=0) / (counts - 1)
        return distance / squares.sqrt().clamp_min(1e-9)

    def _outside(self, group: str, without: Sequence[str], *, beside: str) -> Tensor:
        """Return which models count as being without which rows, a line per model.

        Rows that stay were learned from by about half of the references. Unseen rows beside them are left to as few
        models, by the same rule, as the mean of more models would tell them from the others.
        """
        by_rule = REMAINING in (group, beside) or any(self._notes.shown[one].may_know_forgotten for one in without)
        lines = []
        for one in without:
            part = self._notes.shown[one].part
            if part is None or not by_rule:
                lines.append(torch.ones(len(self._notes.rows[group]), dtype=torch.bool))
            else:
                ranks = [rank(part["seed"], self._ids[row]) for row in self._notes.rows[group].tolist()]
                lines.append(torch.tensor(ranks) > part["below"])
        return torch.stack(lines)


def _mean(values: Tensor, chosen: Tensor) -> Tensor:
    """Return the mean over the chosen lines; not a number where none is."""
    return (values * chosen).sum(dim=0) / chosen.sum(dim=0)


def _known(values: Tensor) -> Tensor:
    return values[~values.isnan()]


def _lowest(values: Tensor, share: float) -> Tensor:
    """Return which values are the lowest share of those that are numbers."""
    chosen = torch.zeros(len(values), dtype=torch.bool)
    count = round(share * len(_known(values)))
    chosen[values.nan_to_num(torch.inf).topk(count, largest=False).indices] = True
    return chosen


def _rates(name: str, members: Tensor, others: Tensor) -> dict[str, float]:
    members, others = _known(members), _known(others)
    return {
        f"{name}_auc": area_under_curve(members, others),
        f"{name}_tpr_at_1_fpr": true_positives(members, others),
        f"{name}_tpr_at_1_fpr_reversed": true_positives(-members, -others),
    }
