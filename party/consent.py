"""A party's consent in one job: its policy, asked before anything is computed and before any figure leaves."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedora_vfl.errors import PartyError, SettingsError
from fedora_vfl.wire.learning_rates import learning_rate
from party.budget import Budget, Numbers
from party.context import PartyContext
from party.drawn_parts import DrawnParts, Told
from party.state import SETS, PartyState
from party.updates.primal_dual import unlearning_loss
from protos.fedora.v1.control_pb2 import Setup
from protos.fedora.v1.exchange_pb2 import Order
from protos.fedora.v1.phase_pb2 import Loss, Phase, PrimalDescent, Report, RoundReport

# Figures of update rules that say nothing of the rows of a phase.
OF_THE_MODEL = ("parameters_squared", "moved_squared")
# Figures of a comparison, about rows that are drawn for it.
OF_DRAWN = ("forgotten_level", "unseen_level", "tolerance", "unseen_rows", "held_out_accuracy")
# Update rules that keep a gradient, along which later phases move.
KEEP_A_GRADIENT = ("dual_ascent", "influence", "joint_rounds")
# Update rules that move parameters by the gradient of their own rows.
LEARN = ("sgd", "adam", "ascent", "primal_descent", "correction", "joint_rounds")
# Levels of L_u that a job may ask about where L_u itself is not told: more would be a search for its value.
MOST_LEVELS = 2
ONLY_DRAWN = "it is about a part of the rows, drawn anew: only its size relative to guessing is told"


class Consent:
    """Asks the policy at every step of a job. An open policy, None, agrees to all and counts nothing."""

    def __init__(self, context: PartyContext, setup: Setup, *, active: bool) -> None:
        self._settings, self._setup, self._active = context.settings, setup, active
        self._policy = context.settings.policy
        self._budget = Budget(context.settings.keys, context.secret) if self._policy else None
        self._learned = 0.0  # learning rate × steps since parameters were fresh
        self._phases = 0
        self._numbers: Numbers | None = None  # of the common rows, in the budget
        self._kept: str | None = None  # why nothing is told of the gradient that update rules keep
        self._kept_labels = ""  # why nothing is told of a model that moves along it
        self._silent = ""  # why nothing is told of the model as it is now
        fresh = Told(DrawnParts(self._policy.smallest_group if self._policy else 0))
        told = context.told.setdefault(setup.job, fresh)
        self._parts, self._levels = told.parts, told.levels

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
        self._learned = math.inf

    def remember(self, model: str) -> None:
        """Agree to start from a model that remembers rows which were dropped for good."""
        if self._policy:
            _check(self._policy.about_remembering(model))

    def restart(self) -> None:
        """Note that parameters are fresh again."""
        self._learned = 0.0
        self._silent = self._kept_labels = ""

    def save(self, model: str, *, replaces: bool) -> None:
        """Agree to save the model as it is, under a name that another one may have."""
        if self._policy and self._budget:
            _check(self._policy.about_learning(self._learned))
            if replaces:
                owner = self._budget.owner(model)
                _check(self._policy.about_replacing(model, self._setup.submitted_by, owner))

    def saved(self, model: str) -> None:
        """Remember for whom a model was saved."""
        if self._budget:
            self._budget.own(model, self._setup.submitted_by, silent=self._silent)

    def phase(self, phase: Phase, drawn: Sequence[Tensor]) -> None:
        """Agree to a phase over these batches, before any of them is sent."""
        if self._policy is None or self._budget is None:
            return
        self._phases += 1
        _check(self._policy.about_phases(self._phases))
        lr = learning_rate(phase.update)
        if lr is not None:
            _check(self._policy.about_lr(lr))
        rows = self._numbered(drawn)
        if not len(rows):
            self._note_labels(phase, 0)
            return
        learned = self._learned + (lr or 0.0) * len(drawn)
        _check(self._policy.about_learning(learned))
        self._learned = learned
        if not self._budget.release(rows, most=self._policy.releases_per_day):
            most = self._policy.releases_per_day
            raise SettingsError(
                f"policy.releases_per_day: is {most}, and a row of phase {phase.name} was sent as often"
            )

        self._note_labels(phase, phase.joint.forget or len(rows))

    def gradient(self, gradient: Tensor, phase: Phase, *, rows: int, sender: str) -> None:
        """Take a batch's gradient for one of a model that learns, or blame its sender.

        Args:
            gradient: As it came.
            phase: What it is for.
            rows: Of the whole phase.
            sender: Whom it came from.
        """
        if self._policy is None:
            return
        # As if the loss were a sum over samples, without a weight: how rows are cut into batches does not matter then.
        shares = {Loss.BATCH_MEAN: len(gradient), Loss.SET_MEAN: rows}.get(phase.loss.reduction, 1)
        weight = max(1.0, phase.loss.uncertainty.omega)
        longest = float(gradient.norm(dim=1).max()) * shares / weight
        if longest > self._policy.most_gradient:
            said = f"sent a gradient of length {longest:g} for one row of phase {phase.name}"
            cause = "a learning rate that is too high, or what another party sent, may be the cause"
            raise PartyError(sender, f"{said}; policy.most_gradient is {self._policy.most_gradient:g} here: {cause}")

    def embedding(self, embedding: Tensor, phase: Phase, *, sender: str) -> None:
        """Take a batch's embedding for one of a model that learns, or blame its sender."""
        if self._policy is None:
            return
        largest = float(embedding.abs().max())
        if largest > self._policy.most_embedding:
            said = f"sent an embedding with a value of {largest:g} in phase {phase.name}"
            raise PartyError(sender, f"{said}; policy.most_embedding is {self._policy.most_embedding:g} here")

    def _note_labels(self, phase: Phase, rows: int) -> None:
        """Note that the model will follow from the labels of a few rows: every figure of it would be about them."""
        assert self._policy
        rule, labelled = phase.update.WhichOneof("rule"), phase.loss.WhichOneof("form") != "uncertainty"
        few = ""
        if labelled and 0 < rows < self._policy.smallest_group:
            few = f"the model follows from the labels of {rows} rows, and policy.smallest_group is"
            few = f"{few} {self._policy.smallest_group}"
        if rule in KEEP_A_GRADIENT:
            self._kept_labels = self._kept_labels or few
        if rule in LEARN:
            self._silent = self._silent or few
        if _moves_along(phase):
            self._silent = self._silent or self._kept_labels

    @property
    def silence(self) -> str:
        """Why nothing is told of the model as it is now; empty where figures may leave."""
        return self._silent

    @property
    def tells_progress(self) -> bool:
        """Whether the loss so far is told while a phase runs: it may be about a few rows."""
        return self._policy is None

    def screen(self, phase: Phase, drawn: Sequence[Tensor], report: Report, *, classes: int) -> None:
        """Take out of a report what must not leave; `classes` are known to the active party alone."""
        if self._policy is None:
            return
        bits = {name: number for name, number in report.figures.items() if name == "accuracy_kept"}
        if reason := self._about_norms(phase, drawn, report):
            report.left_out.update({"change": reason, "figures": reason})
            report.change_squared = 0.0
            for name in [name for name in report.figures if name not in OF_THE_MODEL]:
                del report.figures[name]
            report.figures.update(bits)  # of many held-out rows
        for one in report.rounds:
            _screen_round(one, few="figures" in report.left_out)
        if not self._active or not report.rows:
            return
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

    def _screen_joint(self, report: Report) -> None:
        """Take out of the report of a joint phase what is about the rows that it drew: it changes with every round."""
        reason = self._silent or ONLY_DRAWN
        report.left_out.update({"loss": reason, "accuracy": reason})
        for name in [name for name in report.figures if name in OF_DRAWN]:
            del report.figures[name]
        if "figures" in report.left_out:
            report.ClearField("within_bounds")  # which the labels of few rows would decide

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
            "kept": self._kept,
            "kept_labels": self._kept_labels,
            "silent": self._silent,
        }

    def load_state_dict(self, state: Mapping[str, Any], order: Order) -> None:
        """Go on in a job over these rows."""
        self._learned, self._phases = float(state["learned"]), state["phases"]
        self._kept, self._kept_labels, self._silent = state["kept"], state["kept_labels"], state["silent"]
        # Beside what this process has told: a job that is sent back again and again learns no more for that.
        self._levels.update((*numbers, bytes.fromhex(digest)) for *numbers, digest in state["levels"])
        self._parts.remember(one.numpy() for one in state["parts"])
        if self._budget:
            self._numbers = self._number(order)

    def close(self) -> None:
        """Let go of the budget's file."""
        if self._budget:
            self._budget.close()

    def _about_norms(self, phase: Phase, drawn: Sequence[Tensor], report: Report) -> str | None:
        """Return why change, gradient and dual variable of a phase must not leave; None if they may."""
        assert self._policy and self._budget
        smallest, reason = self._policy.smallest_group, self._silent or None
        about = phase.joint.forget or report.rows
        if 0 < about < smallest:
            reason = reason or f"it is about {about} rows, and policy.smallest_group is {smallest}"
        elif phase.HasField("joint"):
            pass  # of so many rows, drawn anew in every round
        elif report.rows and not reason and (report.change_squared or set(report.figures) - set(OF_THE_MODEL)):
            rows = torch.cat(list(drawn))
            reason = self._about_part(phase, rows) if _passes(phase) else self._reason(rows)
        # What moves along a gradient that was kept is about the rows which that was taken of, too.
        if _moves_along(phase) or phase.update.WhichOneof("rule") == "residual":
            reason = reason or self._kept
        if report.rows and phase.update.WhichOneof("rule") in KEEP_A_GRADIENT:
            self._kept = reason
        return reason

    def _about_part(self, phase: Phase, rows: Tensor) -> str | None:
        """Return why norms about a part that was drawn must not leave: a few rows more or less were told of before."""
        assert self._policy and self._budget
        group, smallest = self._numbered([rows]), self._policy.smallest_group
        of = round(len(rows) / phase.over.share)
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
            rows = b"" if _passes(phase) else torch.cat(list(drawn)).sort().values.numpy().tobytes()
            asked = (level, phase.loss.uncertainty.omega, phase.loss.reduction, phase.over.share, rows)
            self._levels.add(asked)
            if len(self._levels) > MOST_LEVELS:
                most = f"at most {MOST_LEVELS} levels of it are asked about in a job"
                raise SettingsError(f"policy.smallest_group: L_u of so few rows is not told, and {most}")
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
