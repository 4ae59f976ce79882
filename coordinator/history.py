"""What has happened in a job, phase by phase."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from coordinator.methods import PhaseOutcome
from fedora_vfl.wire.joint import REMAINING_HALF
from fedora_vfl.wire.learning_rates import learning_rate
from protos.fedora.v1.phase_pb2 import Phase, Report, Update


@dataclass(frozen=True)
class PhaseRecord:
    """A phase that all parties have run. The names are those of `rounds` in result.json."""

    phase: str
    round: int
    rows: int
    loss: float | None  # none over no rows
    accuracy: float | None
    change: float | None  # ‖Θ_after − Θ_before‖
    step_size: float | None
    seconds: float
    compute_seconds: dict[str, float]  # by party
    wait_seconds: dict[str, float]
    figures: dict[str, dict[str, float]]  # by party: what its update rule reports
    left_out: dict[str, str]  # what a party's policy keeps back, with the reason; null above
    rolled_back: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the record as result.json has it: what was rolled back or left out is said only where it was."""
        content = asdict(self)
        return {name: value for name, value in content.items() if value or name not in ("rolled_back", "left_out")}

    def undone(self) -> "PhaseRecord":
        """Return the record of the same phase once it was rolled back."""
        return replace(self, rolled_back=True)


def outcome_of(phase: Phase, reports: dict[str, Report], *, active: str, seconds: float) -> PhaseOutcome:
    """Combine what all parties report of a phase."""
    top = reports[active]
    left_out = {figure: reason for report in reports.values() for figure, reason in report.left_out.items()}
    judged = 0 if phase.HasField("joint") else top.rows
    told = judged and "loss" not in left_out
    return PhaseOutcome(
        rows=top.rows,
        loss=top.loss_sum / judged if told else math.nan,
        accuracy=top.correct / judged if told else math.nan,
        change=math.nan if "change" in left_out else math.sqrt(sum(one.change_squared for one in reports.values())),
        seconds=seconds,
        figures={name: dict(report.figures) for name, report in reports.items() if report.figures},
        left_out=left_out,
        within_bounds=top.within_bounds if top.HasField("within_bounds") else None,
    )


def records(phase: Phase, outcome: PhaseOutcome, reports: dict[str, Report], *, active: str) -> list[PhaseRecord]:
    """Return what there is to say of a phase that has run: of a joint one that learns, round by round."""
    whole = _whole(phase, outcome, reports)
    return _rounds(phase, whole, reports, active) if reports[active].rounds else [whole]


def _rounds(phase: Phase, whole: PhaseRecord, reports: dict[str, Report], active: str) -> list[PhaseRecord]:
    """Return every round of a joint phase; one that pushes is told as the two halves of a round that it is at once."""
    found, count = [], phase.joint.rounds
    for place, one in enumerate(reports[active].rounds):
        change = math.sqrt(sum(report.rounds[place].change_squared for report in reports.values()))
        told = bool(phase.joint.remaining) and "loss" not in whole.left_out
        descent = replace(
            whole,
            round=phase.round + place,
            rows=phase.joint.remaining,
            loss=one.loss_sum / phase.joint.remaining if told else None,
            accuracy=one.correct / phase.joint.remaining if told else None,
            change=None if "change" in whole.left_out else change,
            step_size=phase.update.joint_rounds.step * (1 - place / count if phase.update.joint_rounds.falling else 1),
            seconds=whole.seconds / count,
            compute_seconds={name: spent / count for name, spent in whole.compute_seconds.items()},
            wait_seconds={name: spent / count for name, spent in whole.wait_seconds.items()},
            figures={},
        )
        if not phase.joint.forget:
            found.append(descent)
            continue
        ascent = replace(
            descent,
            rows=phase.joint.forget,
            loss=one.unlearning_loss if one.HasField("unlearning_loss") else None,
            accuracy=None,
            change=None,
            step_size=phase.update.joint_rounds.sigma,
            figures={active: {"dual_norm": one.omega, "dual_largest": one.omega}} if one.HasField("omega") else {},
        )
        nothing = dict.fromkeys(reports, 0.0)
        half = replace(descent, phase=REMAINING_HALF, seconds=0.0, compute_seconds=nothing, wait_seconds=nothing)
        found += [ascent, half]
    return found


def _whole(phase: Phase, outcome: PhaseOutcome, reports: dict[str, Report]) -> PhaseRecord:
    return PhaseRecord(
        phase=phase.name,
        round=phase.round,
        rows=outcome.rows,
        loss=outcome.loss if math.isfinite(outcome.loss) else None,
        accuracy=outcome.accuracy if math.isfinite(outcome.accuracy) else None,
        change=outcome.change if "change" not in outcome.left_out else None,
        step_size=_step_size(phase.update),
        seconds=outcome.seconds,
        compute_seconds={name: report.compute_seconds for name, report in reports.items()},
        wait_seconds={name: report.wait_seconds for name, report in reports.items()},
        figures=outcome.figures,
        left_out=outcome.left_out,
    )


def _step_size(update: Update) -> float | None:
    """Return the rate of a phase's steps: a learning rate, σ of a dual ascent, τ of a primal descent."""
    match update.WhichOneof("rule"):
        case "shift":
            return update.shift.by
        case "dual_ascent":
            return update.dual_ascent.sigma
        case _:
            return learning_rate(update)
