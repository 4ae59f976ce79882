"""What parties say of themselves, held against what can be true: a violation is one sentence that names the party."""

import math
import re
from collections.abc import Iterable, Mapping

from coordinator.agreement import agreed
from fedora_vfl.errors import PartyError, in_one_line
from fedora_vfl.sampling.rows import rows_and_steps
from fedora_vfl.wire.meter import UNCOUNTED
from fedora_vfl.wire.protocol import COORDINATOR
from protos.fedora.v1.control_pb2 import Privacy, Ready, Saved
from protos.fedora.v1.meter_pb2 import Kind, Reading
from protos.fedora.v1.phase_pb2 import DualAscent, Phase, Progress, Report

SLACK_SECONDS = 1.0  # clocks of two machines do not run alike
LARGEST = 1e150  # of a square: sums of a few such are finite
MOST_FIGURES = 32  # of one model; there are some twenty, and ten of an audit
MOST_CLASSES = 1_000_000  # more than anybody has labels for
MOST_ROWS = 2**40  # of any one count: sums and squares of such are exact enough, and nobody has as many
MOST_WIDTH = 16_384  # of an embedding, as in settings
LONGEST_ROUND_TRIP = 3_600_000  # milliseconds: nobody waits so long
MOST_LAYERS = 1_000  # of a network: the more there are, the shorter are the steps by which all forget
LOOKS = {"observe", "dual_ascent", "residual", "influence"}  # rules that leave parameters as they are
OWN = {"change", "figures"}  # what any party may keep back of a phase; the active one also loss and accuracy
_KEPT_BACK = {"change": ["change_squared"], "loss": ["loss_sum"], "accuracy": ["correct"]}
SECTIONS = {"join", "setup", "between", "closing", UNCOUNTED}  # what the books call the time outside phases

# What update rules report, by rule; others report nothing.
_DUAL = {"dual_norm", "dual_largest", "dual_positive_share"}
_NORMS = {"gradient_squared", "parameters_squared"}
FIGURES: dict[str, set[str]] = {
    "dual_ascent": _DUAL | _NORMS,
    "influence": _NORMS,
    "residual": {"residual_squared", "moved_squared"},
    "joint_rounds": _DUAL | _NORMS,
    "compare": {
        "forgotten_level",
        "unseen_level",
        "tolerance",
        "unseen_rows",
        "held_out_accuracy",
        "accuracy_kept",
        "all_classes",
        "carried",
    },
}
_FIGURE_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")
_JOB = re.compile(r"[\w.:-]{1,100}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_DIFFERENCES = ("_minus_unseen_accuracy",)  # of two rates
_NOT_RATES = ("_loss", "_entropy")  # how the names of figures end that are no share of rows


def check_reports(phase: Phase, reports: Mapping[str, Report], *, set_rows: int, active: str, seconds: float) -> None:
    """Refuse reports that cannot be true.

    Args:
        phase: What the parties ran.
        reports: By party.
        set_rows: The size of the sample set that the phase ran over.
        active: The active party's name.
        seconds: How long the phase took from here.
    """
    rows, steps = rows_and_steps(phase, set_rows)
    known = FIGURES.get(phase.update.WhichOneof("rule") or "", set())
    for name, report in reports.items():
        where = f"of {phase.name} round {phase.round}"
        due = {"phase": phase.number, "rows": rows, "steps": steps}
        for field, value in due.items():
            if getattr(report, field) != value:
                raise PartyError(name, f"reports {getattr(report, field)} as {field} {where}; the plan says {value}")
        _check_square(name, f"change_squared {where}", report.change_squared)
        if report.change_squared and phase.update.WhichOneof("rule") in LOOKS:
            raise PartyError(name, f"reports that its parameters changed {where}, in which they stand still")
        for field in ("compute_seconds", "wait_seconds"):
            _check_number(name, f"{field} {where}", getattr(report, field), least=0)
        if report.compute_seconds + report.wait_seconds > 1.01 * seconds + SLACK_SECONDS:
            raise PartyError(name, f"reports that its part {where} took longer than the {seconds:.1f} s that all took")
        if name != active and (report.loss_sum or report.correct or report.HasField("within_bounds")):
            raise PartyError(name, f"reports a loss {where}, which only the active party can know")
        _check_loss(name, phase, report, where)
        if report.correct > rows:
            raise PartyError(name, f"reports {report.correct} right predictions of {rows} rows {where}")
        _check_rounds(name, phase, report, active=name == active, where=where)
        check_left_out(name, report.left_out, of=OWN | ({"loss", "accuracy"} if name == active else set()))
        for figure, number in report.figures.items():
            if figure not in known:
                raise PartyError(name, f"reports a figure {where} that the phase's update rule does not have")
            _check_square(name, f"{figure} {where}", number)
            if figure.endswith(("_share", "_accuracy", "_kept")) and number > 1:
                raise PartyError(name, f"reports {number} as {figure} {where}; it should be at most 1")
        _check_dual(name, report, where)
        kept_back = {one for figure in report.left_out for one in _KEPT_BACK.get(figure, ()) if getattr(report, one)}
        if kept_back:
            raise PartyError(name, f"reports {min(kept_back)} {where}, and that its policy keeps it back")
    _check_alike(phase, reports)


def _check_loss(party: str, phase: Phase, report: Report, where: str) -> None:
    """Refuse a loss that none of the phase's rows can add up to."""
    least, most = -1e-3 * (1 + report.rows), LARGEST  # rounding takes a cross-entropy a little below 0
    if phase.loss.WhichOneof("form") == "uncertainty":
        most = phase.loss.uncertainty.omega * report.rows * math.log(MOST_CLASSES) + 1e-3
        least = -most
    _check_number(party, f"loss_sum {where}", report.loss_sum, least=least, most=most)


def _check_dual(party: str, report: Report, where: str) -> None:
    """Refuse a summary of a dual variable whose numbers do not fit together."""
    norm, largest, share = (report.figures.get(name) for name in ("dual_norm", "dual_largest", "dual_positive_share"))
    if norm is None or largest is None or share is None:
        return
    if largest > norm * (1 + 1e-6) or (largest > 0) != (share > 0):
        raise PartyError(party, f"reports a dual variable {where} whose norm, largest value and share do not fit")


def _check_alike(phase: Phase, reports: Mapping[str, Report]) -> None:
    """Refuse reports that differ in what all parties have alike: the dual variable of the scalar form."""
    if phase.update.WhichOneof("rule") != "dual_ascent" or phase.update.dual_ascent.form != DualAscent.SCALAR:
        return
    told = {name: one.figures["dual_norm"] for name, one in reports.items() if "dual_norm" in one.figures}
    if told:
        agreed(told, what=f"the dual variable of {phase.name} round {phase.round}")


def _check_rounds(name: str, phase: Phase, report: Report, *, active: bool, where: str) -> None:
    """Refuse what cannot be said of the rounds of a joint phase, or is said of other phases."""
    learns = phase.update.WhichOneof("rule") == "joint_rounds"
    if len(report.rounds) != (phase.joint.rounds if learns else 0):
        raise PartyError(name, f"reports on {len(report.rounds)} rounds {where}; there were {phase.joint.rounds}")
    for one in report.rounds:
        _check_square(name, f"change_squared {where}", one.change_squared)
        _check_square(name, f"loss_sum {where}", one.loss_sum)
        _check_number(name, f"unlearning_loss {where}", one.unlearning_loss)
        _check_square(name, f"omega {where}", one.omega)
        if one.correct > phase.joint.remaining:
            raise PartyError(name, f"reports {one.correct} right predictions of {phase.joint.remaining} rows {where}")
        if not active and (one.loss_sum or one.correct or one.HasField("unlearning_loss")):
            raise PartyError(name, f"reports a loss {where}, which only the active party can know")


def check_left_out(party: str, left_out: Mapping[str, str], *, of: Iterable[str] | None = None) -> None:
    """Refuse names and reasons of figures that are kept back if they cannot be such; `of` are the possible names."""
    for figure, reason in left_out.items():
        if (of is not None and figure not in of) or not _FIGURE_NAME.fullmatch(figure) or in_one_line(reason) != reason:
            raise PartyError(party, "keeps back a figure that there is not, or for a reason that is no line of text")


class PhaseProgress:
    """The steps that the active party has told of in one phase: each word must be of more steps than the last."""

    def __init__(self, phase: Phase, *, set_rows: int, active: str) -> None:
        self._phase, self._active, self._steps = phase, active, 0
        _, self._of_steps = rows_and_steps(phase, set_rows)

    def check(self, party: str, told: Progress) -> None:
        """Refuse what is no progress."""
        if party != self._active:
            raise PartyError(party, "told of progress, which only the active party does")
        if told.phase != self._phase.number or told.of_steps != self._of_steps:
            raise PartyError(party, f"told of progress in another phase than {self._phase.name}, or of other steps")
        if not self._steps < told.steps <= self._of_steps:
            raise PartyError(
                party, f"told of step {told.steps} after step {self._steps} of {self._of_steps}, which is no progress"
            )
        _check_number(party, "loss", told.loss)
        self._steps = told.steps


class SetupProgress:
    """How far the parties are with masking ids: each word of a party must be of more than its last."""

    def __init__(self) -> None:
        self._told: dict[str, int] = {}

    def check(self, party: str, told: Progress) -> None:
        """Refuse what is no progress."""
        if told.phase or not self._told.get(party, 0) < told.steps <= told.of_steps or told.of_steps > MOST_ROWS:
            raise PartyError(party, "told of progress before the first phase that is none")
        self._told[party] = told.steps


def check_ready(ready: Mapping[str, Ready], *, active: str) -> None:
    """Refuse parties that cannot have what they say, or that do not agree on the rows they have in common."""
    common = ready[active]
    for field in ("train", "validation", "test", "probe"):
        agreed({name: getattr(one, field) for name, one in ready.items()}, what=f"the number of {field} rows in common")
    agreed({name: one.embedding for name, one in ready.items()}, what="the width of embeddings")
    for name, one in ready.items():
        shared = one.train + one.validation + one.test + one.probe
        rows = shared + one.forgotten_rows
        if not one.train or not one.test or rows > one.own_rows or max(one.own_rows, one.parameters) > MOST_ROWS:
            raise PartyError(name, "is ready with numbers of rows or parameters that cannot be")
        if one.round_trip > (LONGEST_ROUND_TRIP if name != active else 0):
            raise PartyError(name, f"is ready with a round trip of {one.round_trip} ms, which cannot be")
        if max(one.bottom_layers, one.top_layers) > MOST_LAYERS:
            raise PartyError(name, "is ready with a network of more layers than there can be")
        if one.aligned.masked > MOST_ROWS or one.aligned.told not in (0, shared):
            raise PartyError(name, "is ready with numbers of aligned rows that cannot be")
        if one.HasField("aligned") != common.HasField("aligned") or one.aligned.kept != common.aligned.kept:
            raise PartyError(name, f"says of the alignment otherwise than {active}")
        if not 1 <= one.embedding <= MOST_WIDTH:
            raise PartyError(name, f"is ready with embeddings of width {one.embedding}, which cannot be")
        if in_one_line(one.training) != one.training or not all(_JOB.fullmatch(job) for job in one.pending):
            raise PartyError(name, "is ready with a training or requests whose names are none")
        if one.identity:
            check_digest(name, one.identity, what="the name of a training")
    if not 1 <= common.classes <= min(common.own_rows, MOST_CLASSES):
        raise PartyError(active, f"is ready with {common.classes} classes in {common.own_rows} rows")


def check_saved(party: str, saved: Saved, *, name: str) -> None:
    """Refuse an answer about another model than the one to save."""
    if saved.name != name:
        raise PartyError(party, f"saved another model than {name!r}")
    check_digest(party, saved.sha256, what="a model's digest")


def check_digest(party: str, digest: str, *, what: str) -> None:
    """Refuse what is no SHA-256."""
    if not _DIGEST.fullmatch(digest):
        raise PartyError(party, f"sent {what} that is no SHA-256")


def check_figures(party: str, figures: Mapping[str, float]) -> None:
    """Refuse figures of a model that cannot be: rates lie from 0 to 1, losses are finite."""
    if len(figures) > MOST_FIGURES:
        raise PartyError(party, f"sent {len(figures)} figures of one model; there are {MOST_FIGURES} at most")
    for figure, number in figures.items():
        if not _FIGURE_NAME.fullmatch(figure):
            raise PartyError(party, "sent a figure whose name is none")
        if figure.endswith(_NOT_RATES):
            _check_number(party, figure, number, least=0)
        elif figure.endswith(_DIFFERENCES):
            _check_number(party, figure, number, least=-1, most=1)
        else:
            _check_number(party, figure, number, least=0, most=1)


def check_privacy(party: str, told: Privacy) -> None:
    """Refuse what cannot be an (ε, δ); an ε may be infinite."""
    _check_number(party, "delta", told.delta, least=0, most=1)
    if told.releases > told.rows_sent or told.rows_sent > MOST_ROWS**2 or (told.rows_sent and not told.releases):
        raise PartyError(party, "reports releases of its rows that do not add up")
    if not told.epsilon >= 0 or not told.epsilon_whole >= 0:
        raise PartyError(party, "reports an ε of its noise that is negative or no number")


def check_readings(party: str, readings: Iterable[Reading], *, members: Iterable[str], phases: Iterable[str]) -> None:
    """Refuse books with lines about members, phases or kinds of message that there are not."""
    known, named = {COORDINATOR, *members}, SECTIONS | set(phases)
    for one in readings:
        if party not in (one.sender, one.receiver):
            raise PartyError(party, "keeps books on a link that it is no end of")
        if not {one.sender, one.receiver} <= known or one.phase not in named or one.kind not in Kind.values():
            raise PartyError(party, "keeps books on members, phases or kinds of message that this job does not have")


def _check_square(party: str, what: str, number: float) -> None:
    _check_number(party, what, number, least=0, most=LARGEST)


def _check_number(party: str, what: str, number: float, *, least: float = -LARGEST, most: float = LARGEST) -> None:
    if not math.isfinite(number) or not least <= number <= most:
        raise PartyError(party, f"reports {number:g} as {what}; it should be from {least:g} to {most:g}")
