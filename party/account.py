"""What a party remembers of its part in an unlearning, to sign it in the end."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from party.updates import DualAscent, Rule
from protos.fedora.v1.control_pb2 import Dropped
from protos.fedora.v1.phase_pb2 import Loss, Phase, Report


@dataclass
class Account:
    """Kept from the moment rows are dropped."""

    dropped: Dropped
    commitment: str
    phases: Counter[str] = field(default_factory=Counter)  # run since then, by name
    dual: dict[str, Any] | None = None
    uncertainty: dict[str, Any] | None = None  # active party: L_u and what it is made of
    residual_squared: float | None = None
    residual_rows: int | None = None
    moved_squared: float = 0.0

    def add(self, phase: Phase, rule: Rule, report: Report) -> None:
        """Enter a phase that has run."""
        self.phases[phase.name] += 1
        if isinstance(rule, DualAscent):
            self.dual = rule.account()
        if "residual_squared" in report.figures:
            self.residual_squared, self.residual_rows = report.figures["residual_squared"], report.rows
            self.moved_squared = report.figures["moved_squared"]

    def add_uncertainty(self, phase: Phase, rule: DualAscent, report: Report, classes: int) -> None:
        """Enter L_u, at the party that computes it."""
        self.uncertainty = {
            "loss": unlearning_loss(phase, report),
            "weight": phase.loss.uncertainty.omega,
            "classes": classes,
            "gamma": phase.update.dual_ascent.gamma if rule.scalar else None,
            "reduction": "sum" if phase.loss.reduction == Loss.SUM else "mean",
        }


def unlearning_loss(phase: Phase, report: Report) -> float:
    """Return L_u over the rows of a phase, as its reduction says."""
    return report.loss_sum / (1 if phase.loss.reduction == Loss.SUM else report.rows)
