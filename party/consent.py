"""A party's consent in one job: its policy, asked before anything is computed and before any figure leaves."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedora_vfl.errors import PartyError, SettingsError
from fedora_vfl.wire.learning_rates import learning_rate
from fedora_vfl.wire.protocol import COORDINATOR
from party.batches import SampleSets
from party.budget import Budget, Numbers
from party.context import PartyContext
from party.drawn_parts import DrawnParts, Level, Told, far_apart
from party.joint_groups import joint_groups, labelled_rows, learned_groups
from party.state import SETS, PartyState
from party.updates.primal_dual import unlearning_loss
from protos.fedora.v1.control_pb2 import Setup
from protos.fedora.v1.exchange_pb2 import Order
from protos.fedora.v1.phase_pb2 import Loss, Phase, PrimalDescent, Report, RoundReport, Samples

# Figures of update rules that say nothing of the rows of a phase.
OF_THE_MODEL = ("parameters_squared", "moved_squared")
# Figures that have their last digits cut off: norms of a whole model and of its gradient. Those of the dual variable
# must be the same at all parties.
ROUNDED = (*OF_THE_MODEL, "gradient_squared", "residual_squared")
# Figures of a comparison, about rows that are drawn for it.
OF_DRAWN = ("forgotten_level", "unseen_level", "tolerance", "unseen_rows", "held_out_accuracy")
# Update rules that keep a gradient, along which later phases move.
KEEP_A_GRADIENT = ("dual_ascent", "influence", "joint_rounds")
# Update rules that move parameters by the gradient of their own rows.
LEARN = ("sgd", "adam", "ascent", "primal_descent", "correction", "joint_rounds")
# Levels of L_u that a job may ask about where L_u itself is not told, and kinds of comparison: more would be a search
# for a value. A method of ours asks for one.
MOST_LEVELS = 2
# Stand in the place of a share, which is never negative, where a comparison is noted, or a level to soften to.
COMPARED, SOFTENED = -1.0, -2.0
# Rounds of a joint phase that are held against each other where so few rows are drawn from that two may resemble each
# other: a second of work.
MOST_HELD_AGAINST = 256
# Models that a job may save: some of its own, those it compares (16), references of an audit (64).
MOST_SAVED = 128
# Phases that may be begun again after losses, for each that the policy allows.
MOST_AGAIN = 1
ONLY_DRAWN = "it is about a part of the rows, drawn anew: only its size relative to guessing is told"


class Consent:
    """Asks the policy at every step of a job. An open policy, None, agrees to all and counts nothing."""

    def __init__(self, context: PartyContext, setup: Setup, *, active: bool) -> None:
        self._context, self._settings, self._setup, self._active = context, context.settings, setup, active
        self._policy = context.settings.policy
        self._budget = Budget(context.settings.keys, context.secret) if self._policy else None
        self._learned = 0.0  # learning rate × steps since parameters were fresh
        self._phases = 0
        self._numbers: Numbers | None = None  # of the common rows, in the budget
        self._kept: str | None = None  # why nothing is told of the gradient that update rules keep
        self._kept_labels = ""  # why nothing is told of a model that moves along it
        self._silent = ""  # why nothing is told of the model as it is now
        self._start = self._fresh(setup.seed)  # the fresh parameters that the model goes back to
        fresh = Told(DrawnParts(self._policy.smallest_group if self._policy else 0))
        self._told = told = context.told.setdefault(setup.job, fresh)
        self._parts, self._levels = told.parts, told.levels
        _check_same_job(told, setup)

    def begin(self) -> None:
        """Agree to a job, as far as one can before rows are joined."""
        if self._policy is None or self._budget is None:
            return
        privacy = self._settings.privacy
        _check(self._policy.about_operator(self._setup.submitted_by))
        _check(self._policy.about_noise(privacy.noise if privacy else 0.0, privacy.clip if privacy else None))
        if self._setup.load:
            self.load(self._setup.load)
        if self._setup.take_up_pending:
            self.request()  # before rows that were dropped are offered again
        if self._budget.enter_job(self._setup.job) > self._policy.jobs_per_day:
            raise SettingsError(f"policy.jobs_per_day: is {self._policy.jobs_per_day}, and as many were run today")
        if not self._setup.load:
            self._count_start()

    def _fresh(self, seed: int) -> str:
        """Name fresh parameters: with a seed in the party file those of two jobs are alike, else no others are."""
        job = self._setup.job if self._settings.seed is None else ""
        return f"fresh {job} {seed}"

    def _count_start(self) -> None:
        """Count fresh parameters: each of them shows the rows in another way."""
        if self._policy and self._budget and self._budget.enter_start() > self._policy.starts_per_day:
            most = self._policy.starts_per_day
            raise SettingsError(f"policy.starts_per_day: is {most}, and as many fresh models were begun today")

    def mask(self) -> None:
        """Agree that ids are masked once more: each time, a party that lies about its ids may learn of others."""
        if self._policy is None or self._budget is None:
            return
        most = self._policy.alignments_per_day
        if self._budget.enter_alignment() > most:
            raise SettingsError(f"policy.alignments_per_day: is {most}, and ids were masked as often today")

    def networks(self, state: PartyState, order: Order) -> None:
        """Agree to the networks, before any row goes through them."""
        if self._policy is None or self._budget is None:
            return
        self._numbers = self._number(order)
        # The active party's own embeddings go nowhere.
        if state.inputs is not None and not self._active:
            refused = self._policy.about_bottom(state.networks["bottom"], state.inputs.shape, state.model.embedding)
            _check(refused[0] if refused else None)

    def request(self) -> None:
        """Agree that rows are forgotten for whoever submitted the job."""
        if self._policy:
            _check(self._policy.about_forgetting(self._setup.submitted_by))

    def load(self, model: str) -> None:
        """Agree to start from a saved model; one that was saved here had learned enough."""
        if self._policy and self._budget:
            owner = self._budget.owner(model)
            _check(self._policy.about_loading(model, self._setup.submitted_by, owner))
            self._silent, self._kept_labels = self._budget.silent(model), ""
            self._start = self._budget.start(model)
        self._learned = math.inf

    def remember(self, model: str) -> None:
        """Agree to start from a model that remembers rows which were dropped for good."""
        if self._policy:
            _check(self._policy.about_remembering(model))

    def restart(self, seed: int = 0) -> None:
        """Note that parameters are fresh again, from a seed."""
        self._count_start()
        self._start = self._fresh(seed)
        self._learned = 0.0
        self._silent = self._kept_labels = ""

    def save(self, model: str, *, replaces: bool) -> None:
        """Agree to save the model as it is, under a name that another one may have."""
        self._told.saved.add(model)
        if len(self._told.saved) > MOST_SAVED:
            raise PartyError(COORDINATOR, f"asked to save more than {MOST_SAVED} models in one job")
        if self._policy and self._budget:
            _check(self._policy.about_learning(self._learned))
            if replaces:
                owner = self._budget.owner(model)
                _check(self._policy.about_replacing(model, self._setup.submitted_by, owner))

    def saved(self, model: str) -> None:
        """Remember for whom a model was saved."""
        if self._budget:
            self._budget.own(model, self._setup.submitted_by, silent=self._silent, start=self._start)

    def phase(self, phase: Phase, drawn: Sequence[Tensor], sets: SampleSets) -> None:
        """Agree to a phase over these batches of the job's sets, before any of them is sent."""
        if self._policy is None or self._budget is None:
            return
        rounds = phase.joint.rounds or 1
        self._phases += rounds
        self._told.phases += rounds
        _check(self._policy.about_phases(self._phases))
        if self._told.phases > (1 + MOST_AGAIN) * self._policy.most_phases:
            said = f"is {self._policy.most_phases}, and with those done again the job has {self._told.phases}"
            raise SettingsError(f"policy.most_phases: {said}")
        if phase.update.HasField("soften"):
            level = (phase.update.soften.level, phase.loss.uncertainty.omega, 0, SOFTENED, _digest(_rows_of(drawn)))
            self._note_level(level, "levels that predictions are softened to")
        lr = learning_rate(phase.update)
        if lr is not None:
            _check(self._policy.about_lr(lr))
        rows = self._numbered(drawn)
        if not len(rows):
            self._note_labels(phase, drawn, sets)
            return
        learned = self._learned + (lr or 0.0) * len(drawn)
        _check(self._policy.about_learning(learned))
        self._learned = learned
        if not self._budget.release(rows, most=self._policy.releases_per_day):
            most = self._policy.releases_per_day
            raise SettingsError(
                f"policy.releases_per_day: is {most}, and a row of phase {phase.name} was sent as often"
            )
        self._note_labels(phase, drawn, sets)

    def gradient(self, gradient: Tensor, phase: Phase, *, rows: int, sender: str) -> Tensor:
        """Take a batch's gradient for one of a model that learns, or blame its sender.

        Where it follows from the labels of a few rows it is shortened instead: a job that fails, or does not, would
        tell these labels.

        Args:
            gradient: As it came.
            phase: What it is for.
            rows: Of the whole phase.
            sender: Whom it came from.
        """
        if self._policy is None:
            return gradient
        # As if the loss were a sum over samples, without a weight: how rows are cut into batches does not matter then.
        shares = {Loss.BATCH_MEAN: len(gradient), Loss.SET_MEAN: rows}.get(phase.loss.reduction, 1)
        weight = max(1.0, phase.loss.uncertainty.omega)
        lengths, most = gradient.norm(dim=1, keepdim=True) * (shares / weight), self._policy.most_gradient
        if float(lengths.max()) <= most:
            return gradient
        if self._follows_from_few:
            shortened: Tensor = gradient * (most / lengths.clamp(min=most))
            return shortened
        said = f"sent too long a gradient for one row of phase {phase.name}"
        cause = "a learning rate that is too high, or what another party sent, may be the cause"
        raise PartyError(sender, f"{said}; policy.most_gradient is {most:g} here: {cause}")

    def embedding(self, embedding: Tensor, phase: Phase, *, sender: str) -> Tensor:
        """Take a batch's embedding for one of a model that learns, or blame its sender; see `gradient`."""
        if self._policy is None:
            return embedding
        most = self._policy.most_embedding
        if float(embedding.abs().max()) <= most:
            return embedding
        if self._follows_from_few:
            return embedding.clamp(-most, most)
        said = f"sent an embedding with too large a value in phase {phase.name}"
        raise PartyError(sender, f"{said}; policy.most_embedding is {most:g} here")

    def sendable(self, tensor: Tensor) -> Tensor:
        """Bring values that nobody would take into range, where failing would tell the labels of a few rows."""
        if self._policy is None or not self._follows_from_few:
            return tensor
        most = min(self._policy.most_embedding, self._policy.most_gradient)
        return tensor.nan_to_num(0.0).clamp(-most, most)

    @property
    def _follows_from_few(self) -> bool:
        return bool(self._silent or self._kept_labels)

    @property
    def may_fail(self) -> bool:
        """Whether a loss that is no number may end the job: not where the labels of a few rows have led to it."""
        return self._policy is None or not self._follows_from_few

    def _note_labels(self, phase: Phase, drawn: Sequence[Tensor], sets: SampleSets) -> None:
        """Note that the model will follow from the labels of a few rows: every figure of it would be about them."""
        assert self._policy and self._budget
        rule, rows, smallest = phase.update.WhichOneof("rule"), labelled_rows(phase, drawn), self._policy.smallest_group
        few = ""
        if 0 < rows < smallest:
            few = f"the model follows from the labels of {rows} rows, and policy.smallest_group is {smallest}"
        elif rows and self._resembles_another(phase, drawn, sets):
            few = f"differ by fewer than policy.smallest_group, {smallest}, from those of another model's"
            few = f"the model follows from the labels of rows that {few}"
        if rule in KEEP_A_GRADIENT:
            self._kept_labels = self._kept_labels or few
        if rule in LEARN:
            self._silent = self._silent or few
        if _moves_along(phase):
            self._silent = self._silent or self._kept_labels

    def _resembles_another(self, phase: Phase, drawn: Sequence[Tensor], sets: SampleSets) -> bool:
        """Tell whether the difference of two models, which figures show, would follow from the labels of a few rows.

        One of them may have forgotten other rows that the same operator has chosen. Or both begin alike, and one has
        learned from a few rows more; parts that are drawn anew in each of several rounds differ by chance.
        """
        assert self._policy and self._budget
        smallest, forgotten = self._policy.smallest_group, self._numbered([sets.rows[Samples.FORGET]])
        found = _over_forgotten(phase) and self._budget.resembles(forgotten, smallest=smallest)
        if phase.update.WhichOneof("rule") in LEARN:
            for one in learned_groups(phase, drawn):
                of, rows = len(sets.rows[one.of]), one.rounds[0]
                alike = len(rows) == of or (len(one.rounds) == 1 and not far_apart(of, len(rows), smallest))
                if alike and one.of != Samples.FORGET:
                    found = self._budget.learns(self._start, self._numbered([rows]), smallest=smallest) or found
        return found

    @property
    def smallest_group(self) -> int:
        """The fewest rows that a figure may be about; none at all where the policy is open."""
        return self._policy.smallest_group if self._policy else 0

    @property
    def silence(self) -> str:
        """Why nothing is told of the model as it is now; empty where figures may leave."""
        return self._silent

    @property
    def tells_progress(self) -> bool:
        """Whether the loss so far is told while a phase runs: it may be about a few rows."""
        return self._policy is None

    def screen(self, phase: Phase, drawn: Sequence[Tensor], report: Report, *, classes: int, sets: SampleSets) -> None:
        """Take out of a report what must not leave.

        Args:
            phase: What was run.
            drawn: Over which batches.
            report: What this party would say of it.
            classes: How many there are; known to the active party alone.
            sets: The sets that the batches were drawn from.
        """
        if self._policy is None:
            return
        kept = self._accuracy_kept(phase, drawn, report, sets)
        if reason := self._about_norms(phase, drawn, report, sets):
            report.left_out.update({"change": reason, "figures": reason})
            report.change_squared = 0.0
            for name in [name for name in report.figures if not self._of_the_model(name)]:
                del report.figures[name]
        report.figures.pop("accuracy_kept", None)
        report.figures.update(kept)
        for one in report.rounds:
            _screen_round(one, few="figures" in report.left_out)
        if self._active and report.rows:
            self._screen_losses(phase, drawn, report, classes)
        self._round(report)

    def _of_the_model(self, figure: str) -> bool:
        """Tell whether a figure says nothing of the rows of a phase, nor of few rows that the model was pushed by."""
        pushed = bool(self._kept) and figure == "moved_squared"
        return figure in OF_THE_MODEL and not self._silent and not pushed

    def _screen_losses(self, phase: Phase, drawn: Sequence[Tensor], report: Report, classes: int) -> None:
        if phase.HasField("joint"):
            self._screen_joint(report)
            return
        reason = self._silent or (ONLY_DRAWN if _passes(phase) else self._reason(torch.cat(list(drawn))))
        if reason:
            within = None if self._silent else self._within_bounds(phase, drawn, report, classes)
            report.left_out.update({"loss": reason, "accuracy": reason})
            report.loss_sum, report.correct = 0.0, 0
            if within is not None:
                report.within_bounds = within

    def _accuracy_kept(
        self, phase: Phase, drawn: Sequence[Tensor], report: Report, sets: SampleSets
    ) -> dict[str, float]:
        """Return the bit about held-out rows that a comparison has, if no label of a few rows decides it."""
        if phase.update.WhichOneof("rule") != "compare":
            return {}
        self._note_comparison(phase, drawn)
        held_out = [one for one in joint_groups(phase, drawn) if one.of == phase.joint.held_out_set]
        if self._silent or "accuracy_kept" not in report.figures or not held_out:
            return {}
        of = len(sets.rows[phase.joint.held_out_set])
        if any(self._about_drawn(rows, of=of) for rows in held_out[0].rounds):
            return {}
        return {"accuracy_kept": report.figures["accuracy_kept"]}

    def _note_comparison(self, phase: Phase, drawn: Sequence[Tensor]) -> None:
        """Refuse comparisons of too many kinds: a search for the value that decides their bits."""
        compare = phase.update.compare
        rows = _digest(torch.cat(list(drawn)), more=f"{compare.carried}")
        noted = (compare.ceiling, compare.errors, compare.loss_of_accuracy, COMPARED, rows)
        self._note_level(noted, "kinds of comparison")

    def _note_level(self, noted: Level, kind: str) -> None:
        """Refuse more than a few different questions of a kind."""
        self._levels.add(noted)
        if sum(min(one[3], 0.0) == min(noted[3], 0.0) for one in self._levels) > MOST_LEVELS:
            raise SettingsError(f"policy.smallest_group: at most {MOST_LEVELS} {kind} are asked about in a job")

    def _screen_joint(self, report: Report) -> None:
        """Take out of the report of a joint phase what is about the rows that it drew: it changes with every round."""
        reason = self._silent or ONLY_DRAWN
        report.left_out.update({"loss": reason, "accuracy": reason})
        for name in [name for name in report.figures if name in OF_DRAWN]:
            del report.figures[name]
        if "figures" in report.left_out:
            report.ClearField("within_bounds")  # which the labels of few rows would decide

    def _round(self, report: Report) -> None:
        """Cut figures to a few digits: their last ones would tell what single rows have changed in a model."""
        report.change_squared = self.rounded(report.change_squared)
        if report.rows and (report.loss_sum or report.correct):
            judged = report.rows
            report.loss_sum = self.rounded(report.loss_sum / judged) * judged
            report.correct = round(self.rounded(report.correct / judged) * judged)
        for name in [name for name in report.figures if name in ROUNDED]:
            report.figures[name] = self.rounded(report.figures[name])
        for one in report.rounds:
            one.change_squared = self.rounded(one.change_squared)

    def rounded(self, figure: float) -> float:
        """Return a figure with as many digits as the policy tells."""
        return figure if self._policy is None else float(f"{figure:.{self._policy.digits}g}")

    def keeps_back(self, figure: str, groups: Sequence[Tensor]) -> str | None:
        """Return why a figure of a model, which is about these groups of rows, must not leave; None if it may."""
        if self._policy is None:
            return None
        if self._policy.figures is not None and figure not in self._policy.figures:
            return f"policy.figures does not name {figure}"
        return self._silent or next((reason for rows in groups if (reason := self._reason(rows))), None)

    def state_dict(self) -> dict[str, Any]:
        """Return what this job has come to, as plain values; what all jobs have is in the budget's file."""
        return {
            "learned": self._learned,
            "phases": self._phases,
            "levels": [[*numbers, digest.hex()] for *numbers, digest in sorted(self._levels)],
            "parts": [torch.from_numpy(one) for one in self._parts.kept()],
            "start": self._start,
            "kept": self._kept,
            "kept_labels": self._kept_labels,
            "silent": self._silent,
        }

    def load_state_dict(self, state: Mapping[str, Any], order: Order) -> None:
        """Go on in a job over these rows."""
        self._learned, self._phases = float(state["learned"]), state["phases"]
        self._kept, self._kept_labels, self._silent = state["kept"], state["kept_labels"], state["silent"]
        self._start = state.get("start", self._start)  # which commits of earlier releases lack
        # Beside what this process has told: a job that is sent back again and again learns no more for that.
        self._levels.update((*numbers, bytes.fromhex(digest)) for *numbers, digest in state["levels"])
        self._parts.remember(one.numpy() for one in state["parts"])
        if self._budget:
            self._numbers = self._number(order)

    def close(self) -> None:
        """Let go of the budget's file."""
        if self._budget:
            self._budget.close()

    def _about_norms(self, phase: Phase, drawn: Sequence[Tensor], report: Report, sets: SampleSets) -> str | None:
        """Return why change, gradient and dual variable of a phase must not leave; None if they may."""
        assert self._policy and self._budget
        smallest, reason = self._policy.smallest_group, self._silent or None
        if phase.HasField("joint"):
            reason = reason or self._about_rounds(phase, drawn, sets)
        elif 0 < report.rows < smallest:
            reason = reason or f"it is about {report.rows} rows, and policy.smallest_group is {smallest}"
        elif report.rows and not reason and (_moves(phase, report) or set(report.figures) - set(OF_THE_MODEL)):
            rows = torch.cat(list(drawn))
            reason = self._about_part(phase, rows) if _passes(phase) else self._reason(rows)
        # What moves along a gradient that was kept is about the rows which that was taken of, too.
        if _moves_along(phase) or phase.update.WhichOneof("rule") == "residual":
            reason = reason or self._kept
        if report.rows and phase.update.WhichOneof("rule") in KEEP_A_GRADIENT:
            self._kept = reason
        return reason

    def _about_rounds(self, phase: Phase, drawn: Sequence[Tensor], sets: SampleSets) -> str | None:
        """Return why norms of a joint phase must not leave: each of its rounds tells of its own rows, set by set."""
        groups = joint_groups(phase, drawn)
        assert self._policy
        smallest = self._policy.smallest_group
        if len(drawn) > MOST_HELD_AGAINST and not all(
            far_apart(len(sets.rows[one.of]), len(one.rounds[0]), smallest) for one in groups
        ):
            return f"rounds of so few rows are told of up to {MOST_HELD_AGAINST} at a time"
        found = (self._about_drawn(rows, of=len(sets.rows[one.of])) for one in groups for rows in one.rounds)
        return next((reason for reason in found if reason), None)

    def _about_drawn(self, rows: Tensor, *, of: int) -> str | None:
        """Return why figures about rows that were drawn from so many must not leave."""
        assert self._policy
        smallest = self._policy.smallest_group
        if len(rows) < smallest:
            return f"it is about {len(rows)} rows, and policy.smallest_group is {smallest}"
        if len(rows) >= of:
            return self._reason(rows)
        return None if far_apart(of, len(rows), smallest) else self._about_some(rows, of=of)

    def _about_part(self, phase: Phase, rows: Tensor) -> str | None:
        """Return why norms about a part that was drawn must not leave: a few rows more or less were told of before."""
        return self._about_some(rows, of=round(len(rows) / phase.over.share))

    def _about_some(self, rows: Tensor, *, of: int) -> str | None:
        assert self._policy and self._budget
        group, smallest = self._numbered([rows]), self._policy.smallest_group
        if self._budget.resembles(group, smallest=smallest) or not self._parts.may_tell(group, of=of):
            return f"norms were told of rows that differ by fewer than policy.smallest_group, {smallest}"
        return None

    def _reason(self, rows: Tensor) -> str | None:
        assert self._policy and self._budget and self._numbers is not None
        group, policy = self._numbers[rows.numpy()], self._policy
        if self._parts.resembles(group):
            return f"norms were told of rows that differ by fewer than policy.smallest_group, {policy.smallest_group}"
        return self._budget.may_tell(group, smallest=policy.smallest_group, most=policy.groups_per_day)

    def _within_bounds(self, phase: Phase, drawn: Sequence[Tensor], report: Report, classes: int) -> bool | None:
        """Return the one bit that methods need in place of a loss; of few rows only one that no label decides."""
        uncertain = phase.loss.WhichOneof("form") == "uncertainty"
        if uncertain and phase.update.WhichOneof("rule") == "dual_ascent":
            level = phase.update.dual_ascent.level
            # Another weight, or other rows, would make another question of the same level. A part is drawn anew each
            # round, as FedORA's are; its size stands for it.
            rows = b"" if _passes(phase) else _rows_of(drawn).numpy().tobytes()
            asked = (level, phase.loss.uncertainty.omega, phase.loss.reduction, phase.over.share, rows)
            self._note_level(asked, "levels of L_u, which is not told of so few rows,")
            return unlearning_loss(phase, report) >= level
        return None if "figures" in report.left_out else report.loss_sum / report.rows < 2 * math.log(classes)

    def _number(self, order: Order) -> Numbers:
        assert self._budget
        return self._budget.numbers([one for name in SETS for one in getattr(order, name)])

    def _numbered(self, drawn: Sequence[Tensor]) -> Numbers:
        assert self._numbers is not None
        return self._numbers[torch.cat(list(drawn)).numpy()] if drawn else self._numbers[:0]


def _screen_round(one: RoundReport, *, few: bool) -> None:
    """Take out of what is said of a round the losses, and of one about few rows all else."""
    one.loss_sum, one.correct = 0.0, 0
    one.ClearField("unlearning_loss")
    if few:
        one.change_squared = 0.0
        one.ClearField("omega")


def _rows_of(drawn: Sequence[Tensor]) -> Tensor:
    """Return the rows of all batches, in order."""
    return torch.cat(list(drawn)).sort().values


def _digest(rows: Tensor, *, more: str = "") -> bytes:
    return hashlib.sha256(rows.numpy().tobytes() + more.encode()).digest()


def _moves(phase: Phase, report: Report) -> bool:
    """Tell whether a phase changes a model; where it may have left it as it is, that is not to be told apart."""
    return bool(report.change_squared) or phase.update.HasField("soften")


def _over_forgotten(phase: Phase) -> bool:
    """Tell whether a phase is over rows to forget, whom the operator has chosen."""
    return bool(phase.joint.forget) or (not phase.HasField("joint") and phase.over.set == Samples.FORGET)


def _check_same_job(told: Told, setup: Setup) -> None:
    """Refuse a job that begins again as another, or after its end: what it may be told is counted by job."""
    job = (setup.seed, setup.load, setup.submitted_by, setup.take_up_pending)  # which all releases say alike
    told.job = told.job or job
    if told.ended or told.job != job:
        how = "again after its end" if told.ended else "again with other settings"
        raise PartyError(COORDINATOR, f"sent a job {how}")


def _passes(phase: Phase) -> bool:
    """Tell whether a phase is over a part that changes with every round; one drawn for a look is a group like any."""
    return phase.over.share < 1 and not phase.update.observe.record


def _moves_along(phase: Phase) -> bool:
    """Tell whether a phase moves parameters along a gradient that an earlier one has kept."""
    rule = phase.update.WhichOneof("rule")
    pushed = phase.update.primal_descent.push != PrimalDescent.NONE
    return rule in ("shift", "correction", "retreat") or (rule == "primal_descent" and pushed)


def _check(refused: str | None) -> None:
    if refused:
        raise SettingsError(refused)
