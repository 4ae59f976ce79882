"""What a party remembers of its part in an unlearning, to sign it in the end."""

from dataclasses import dataclass, field
from typing import Any

from party.updates import Rule
from party.updates.primal_dual import unlearning_loss
from protos.fedora.v1.phase_pb2 import Loss, Phase, Report


@dataclass
class Account:
    """Kept from the moment rows are dropped; plain values only."""

    commitment: str
    dropped: int  # rows
    remaining: int
    phases: dict[str, int] = field(default_factory=dict)  # run since then, by name
    dual: dict[str, Any] | None = None
    uncertainty: dict[str, Any] | None = None  # active party: L_u and what it is made of
    residual_squared: float | None = None
    residual_rows: int | None = None
    moved_squared: float = 0.0

    def add(self, phase: Phase, rule: Rule, report: Report, *, classes: int) -> None:
        """Enter a phase that has run; `classes` are known to the active party alone, and are 0 at others.

        What the report leaves out is not signed for either.
        """
        self.phases[phase.name] = self.phases.get(phase.name, 0) + 1
        if "figures" in report.left_out:
            return
        told = "loss" not in report.left_out
        if dual := rule.stated_dual():
            self.dual = dual if told else None
        if "residual_squared" in report.figures:
            self.residual_squared, self.residual_rows = report.figures["residual_squared"], report.rows
            self.moved_squared = report.figures["moved_squared"]
        if classes and phase.loss.WhichOneof("form") == "uncertainty":
            self.uncertainty = (
                None
                if not told
                else {
                    "loss": unlearning_loss(phase, report),
                    "weight": phase.loss.uncertainty.omega,
                    "classes": classes,
                    "gamma": phase.update.dual_ascent.gamma if self.dual and self.dual["form"] == "scalar" else None,
                    "reduction": "sum" if phase.loss.reduction == Loss.SUM else "mean",
                }
            )
