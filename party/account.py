"""What a party remembers of its part in an unlearning, to sign it in the end."""

import math
from dataclasses import dataclass, field
from typing import Any

from fedora_vfl.wire.joint import names_of
from party.losses import of_labels
from party.updates import Rule
from party.updates.primal_dual import unlearning_loss
from protos.fedora.v1.phase_pb2 import Loss, Phase, Report


@dataclass
class Account:
    """Kept from the moment a request names rows; plain values only."""

    commitment: str
    dropped: int  # rows
    remaining: int
    requests: dict[str, list[int]] = field(default_factory=dict)  # the rows, by the job that brought the request
    asked: dict[str, Any] | None = None  # active party: what the rows have in common, as the request said
    model: dict[str, str] | None = None  # name and digest of the file that holds the model as it is now
    # From the moment the rows are dropped
    began: str = ""
    closed: bool = False  # whether another method has its turn, for a comparison
    fresh: bool = False  # whether the method began with fresh parameters
    before: dict[str, str] | None = None  # the model file that has forgotten nothing
    after: dict[str, str] | None = None  # the one that has forgotten
    phases: dict[str, int] = field(default_factory=dict)  # run since then, by name
    rules: dict[str, int] = field(default_factory=dict)  # the same by update rule; dual ascents with a step only
    dual: dict[str, Any] | None = None
    dual_told: bool = True  # whether it may be signed for
    uncertainty: dict[str, Any] | None = None  # active party: L_u and what it is made of
    unseen: dict[str, Any] | None = None  # active party: the last comparison with rows never seen
    residual_squared: float | None = None
    residual_rows: int | None = None
    moved_squared: float | None = None  # None where it is not told

    def begin(self, time: str) -> None:
        """Enter that the rows are dropped."""
        self.began, self.before = time, self.model

    def save(self, name: str, sha256: str) -> None:
        """Enter that the model as it is now was saved."""
        self.model = {"name": name, "sha256": sha256}

    def restart(self, *, fresh: bool) -> None:
        """Enter that the party goes on from another model: a method that does so begins with it, or else is done."""
        if self.phases:
            self.close()
        elif self.began:
            self.fresh = fresh
        self.model = None

    def close(self) -> None:
        """Enter that the method is done, and what it has come to."""
        if not self.closed:
            self.closed, self.after = True, self.model

    def add(self, phase: Phase, rule: Rule, report: Report, *, classes: int) -> None:
        """Enter a phase that has run; `classes` are known to the active party alone, and are 0 at others.

        What the report leaves out is not signed for either.
        """
        if not rule.parameters_frozen:
            self.model = None
        if not self.began or self.closed:
            return
        for name in names_of(phase):
            self.phases[name] = self.phases.get(name, 0) + (phase.joint.rounds or 1)
        if phase.update.WhichOneof("rule") != "dual_ascent" or phase.update.dual_ascent.sigma:
            name = phase.update.WhichOneof("rule") or ""
            self.rules[name] = self.rules.get(name, 0) + 1
        told = not {"loss", "figures"} & set(report.left_out)
        if dual := rule.stated_dual():
            self.dual, self.dual_told = dual, told
        if phase.update.WhichOneof("rule") == "compare":
            self.unseen = _unseen(phase, report) if of_labels(phase.loss) and classes else None
        if "moved_squared" in report.figures:
            self.moved_squared = report.figures["moved_squared"]
        if "figures" in report.left_out:
            return
        if "residual_squared" in report.figures:
            self.residual_squared, self.residual_rows = report.figures["residual_squared"], report.rows
        if classes and phase.loss.WhichOneof("form") == "uncertainty":
            self.uncertainty = self._uncertainty(phase, report, classes) if told else None

    def _uncertainty(self, phase: Phase, report: Report, classes: int) -> dict[str, Any]:
        """Return L_u and what it is made of."""
        weight = phase.loss.uncertainty.omega * (report.rows if phase.loss.reduction == Loss.SUM else 1)
        largest = weight * math.log(classes)
        return {
            # Rounded to a policy's digits, it may be beyond what it can be.
            "loss": min(largest, max(-largest, unlearning_loss(phase, report))),
            "weight": phase.loss.uncertainty.omega,
            "classes": classes,
            # Where γ was measured on rows never seen, L_u and γ are the comparison's.
            "gamma": phase.update.dual_ascent.gamma
            if self.dual and self.dual["form"] == "scalar" and not self.unseen
            else None,
            "reduction": "sum" if phase.loss.reduction == Loss.SUM else "mean",
        }


def _unseen(phase: Phase, report: Report) -> dict[str, Any] | None:
    """Return what a comparison has found, as far as it may be told; None where there was nothing to compare with."""
    found = report.figures
    told = "forgotten_level" in found
    if told and "unseen_level" not in found:
        return None
    levels = {name: found[name] if told else None for name in ("forgotten_level", "unseen_level", "tolerance")}
    return {
        **levels,
        "alike": report.within_bounds if report.HasField("within_bounds") else None,
        "forgotten_rows": phase.joint.forget,
        "unseen_rows": int(found["unseen_rows"]) if told else None,
    }
