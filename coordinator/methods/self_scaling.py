"""FedORA that sets its own scales: no step size, weight or number of rounds to search for; see docs/unlearning.md.

A comparison, rounds that push, rounds of recovery, and comparisons again. Each scale is measured on the model at hand:
the push against the gradient of L_r, the step against the size of each tensor, γ against rows that were never seen, the
rounds against what was asked for.
"""

import math
from dataclasses import dataclass

from coordinator.methods import Method, MethodResult, PhaseOutcome
from coordinator.methods.fedora_settings import Scales
from coordinator.methods.primal_dual import FORMS, RECOVERY, UNLEARNING, Problem
from coordinator.phases import FORGET, REMAINING, look, share
from fedora_vfl.sampling.seeds import derive
from protos.fedora.v1.phase_pb2 import (
    Compare,
    CrossEntropy,
    Joint,
    JointRounds,
    Loss,
    Phase,
    Plan,
    Retreat,
    Samples,
    Uncertainty,
    Update,
)

COMPARISON, RETREAT = "comparison", "retreat"

# What the rounds may exchange, as shares of what retraining takes: up to FEW rows, and from a tenth of all rows on.
FEW, LEAST_SHARE, MOST_SHARE, MANY = 50, 0.01, 0.08, 0.1
UNCERTAIN_SHARE = 0.16
LEAST_STEP = 0.25  # of the step: few rows need, and few rows of D_r bear, only a small change
# Retraining to convergence takes at least so many epochs, whatever the model at hand was given.
LEAST_EPOCHS = 10
LEAST_ROUNDS = 8
LEAST_ROWS = 24  # of a round: fewer are noise
COMPARED = 0.1  # of the budget, for each of two or three comparisons
FIRST_RECOVERY = 1 / 3  # of the recovery, before the comparison that may end it
ERRORS = 2.0  # standard errors: what 95 of 100 samples keep within
LOSS_OF_ACCURACY = 0.02
RETREAT_SHARE, MOST_RETREATS = 0.5, 2

GOALS = {
    # Recovery follows, which brings back what D_r supports.
    "as-retrained": {"push_share": 0.5, "passes": 4.0, "omega_max": 1.0, "ceiling": 0.5},
    # Nothing follows, and rows that look like all others need a long push.
    "uncertain": {"push_share": 1.0, "passes": math.inf, "omega_max": 4.0, "ceiling": 0.97},
}


@dataclass(frozen=True)
class Pace:
    """How many rounds there are, and the rows that each takes."""

    push: int  # rounds
    recovery: int  # rounds
    forget: int  # rows of D_u in a round that pushes
    remaining: int  # rows of D_r in a round that pushes; recovery has those of D_u too
    compared: int  # rows of D_u in a comparison
    held_out: int  # held-out rows in a comparison
    step: float  # η


def auto(problem: Problem) -> Method[MethodResult]:
    """Push, recover, and stop when D_u looks like rows never seen, within the budget."""
    settings = problem.settings
    scales = settings.scales.filled(GOALS[settings.goal])
    if "adaptive-steps" in settings.without:
        scales = scales.model_copy(update={"decay": False, "guard": False})
    return _Rule(problem, scales, pace(problem, scales)).run()


def pace(problem: Problem, scales: Scales) -> Pace:
    """Divide the budget among comparisons and rounds; half of a pushing round's rows come from D_u."""
    settings, task = problem.settings, problem.task
    part = settings.budget or budget(task.forget, task.remaining, settings.goal)
    rows = part * max(LEAST_EPOCHS, task.train.epochs_from_scratch) * task.remaining
    compared = min(task.forget, max(8, int(COMPARED * rows)))
    held_out = min(task.validation or task.test, max(16, int(COMPARED * rows)))
    # A round of half a training batch: then rounds wait for each other at most twice as often, for their rows, as
    # training does.
    rounds = settings.rounds or min(scales.rounds, LEAST_ROUNDS + int(2 * rows / problem.batch_size))
    looks = 1.5 * (compared + held_out)  # three, whose rows go one way only
    a_round = max(LEAST_ROWS, int((rows - looks) / rounds))
    forget = max(1, min(task.forget, a_round // 2))
    δ = 1.0 if "asymmetric-batches" in settings.without else settings.delta
    remaining = min(task.remaining, a_round - forget if δ is None else max(1, round(δ * task.remaining)))
    push = 0 if "unlearning-loss" in settings.without else math.ceil(rounds * (scales.push_share or 1.0))
    if push and not settings.rounds and task.forget <= FEW:
        push = min(push, max(2, math.ceil(min(scales.passes or 1.0, rounds) * task.forget / forget)))
    step = scales.step * _between(LEAST_STEP, 1.0, (part - LEAST_SHARE) / (MOST_SHARE - LEAST_SHARE))
    return Pace(push, rounds - push, forget, remaining, compared, held_out, step)


def budget(forget: int, remaining: int, goal: str) -> float:
    """Return the share of retraining's rows that suits a request, from LEAST_SHARE to MOST_SHARE."""
    if goal == "uncertain":
        return UNCERTAIN_SHARE
    return _between(LEAST_SHARE, MOST_SHARE, (forget - FEW) / max(1.0, MANY * (forget + remaining) - FEW))


def _between(least: float, most: float, part: float) -> float:
    return least + (most - least) * min(1.0, max(0.0, part))


@dataclass(frozen=True)
class _Rule:
    problem: Problem
    scales: Scales
    pace: Pace

    def run(self) -> Method[MethodResult]:
        """Run all of it."""
        if self.problem.settings.goal == "uncertain":
            return (yield from self._uncertain())
        yield self._comparison(1)
        if self.pace.push:
            yield self._rounds(UNLEARNING, 1, self.pace.push, pushing=True)
        found, done, looks = None, 0, 1
        first = max(1, round(FIRST_RECOVERY * self.pace.recovery))
        for rounds in (first, self.pace.recovery - first):
            if rounds < 1:
                continue
            yield self._rounds(RECOVERY, done + 1, rounds, pushing=False)
            done, looks = done + rounds, looks + 1
            found = yield self._comparison(looks)
            if found.within_bounds and self.scales.early_stop:
                break
        retreats = 0
        while found and self._harmed(found) and retreats < MOST_RETREATS:
            retreats, looks = retreats + 1, looks + 1
            yield look(RETREAT, retreats, over=share(REMAINING, 0), batch_size=1, update=_retreat())
            found = yield self._comparison(looks)
        held = bool(found.within_bounds) if found else False
        rounds = self.pace.push + done
        return MethodResult(rounds, self._why(held, retreats, done < self.pace.recovery), held, pushed=False)

    def _uncertain(self) -> Method[MethodResult]:
        """Push all the way, and look whether the constraint holds."""
        if self.pace.push:
            yield self._rounds(UNLEARNING, 1, self.pace.push, pushing=True)
        found = yield look(COMPARISON, 1, over=FORGET, batch_size=self.problem.settings.micro_batch, loss=self._loss)
        held = found.loss >= self.problem.level
        return MethodResult(self.pace.push, f"all {self.pace.push} rounds that push were run", held, pushed=True)

    def _why(self, held: bool, retreats: int, early: bool) -> str:
        which = "validation" if self.problem.task.validation else "test"
        if retreats:
            back = 1 - RETREAT_SHARE**retreats
            return f"accuracy on {which} rows had fallen, and the model was taken back {back:.0%} of the way"
        if held:
            when = "before the last rounds of recovery" if early else "after all rounds of recovery"
            return f"the rows looked like {which} rows of their classes, neither surer nor less sure, {when}"
        return f"all {self.pace.push + self.pace.recovery} rounds were run; the rows do not look like {which} rows"

    def _harmed(self, found: PhaseOutcome) -> bool:
        kept = [one["accuracy_kept"] for one in found.figures.values() if "accuracy_kept" in one]
        return self.scales.guard and kept == [0.0]

    def _rounds(self, name: str, round: int, rounds: int, *, pushing: bool) -> Phase:
        """Return a phase of joint rounds; without a push all their rows are of D_r."""
        problem, pace, scales = self.problem, self.pace, self.scales
        forget = pace.forget if pushing else 0
        remaining = min(problem.task.remaining, pace.remaining + (0 if pushing else pace.forget))
        rule = JointRounds(
            form=FORMS[problem.settings.dual],
            sigma=scales.dual_step,
            ceiling=self._ceiling,
            omega_max=scales.omega_max or 0.0,
            gamma=problem.settings.gamma if problem.settings.gamma and problem.settings.dual != "scalar" else 1.0,
            step=pace.step,
            falling=scales.decay and not pushing,
            rho=problem.settings.rho,
            fade=0.0 if pushing else scales.fade,
            audit=problem.settings.audit,
            projected=scales.projected,
        )
        return Phase(
            name=name,
            round=round,
            over=REMAINING,
            joint=Joint(rounds=rounds, forget=forget, remaining=remaining),
            plan=Plan(seed=derive(problem.task.seed, name, round), batch_size=forget + remaining),
            update=Update(joint_rounds=rule, fresh=round == 1 and (pushing or not pace.push)),
            loss=self._loss,
            train_mode=True,
        )

    def _comparison(self, number: int) -> Phase:
        """Return a comparison of D_u with held-out rows; the same rows every time, so that only the model differs."""
        task, pace = self.problem.task, self.pace
        held_out = Samples.VALIDATION if task.validation else Samples.TEST
        rule = Compare(ceiling=self._ceiling, errors=ERRORS, loss_of_accuracy=LOSS_OF_ACCURACY)
        return Phase(
            name=COMPARISON,
            round=number,
            over=REMAINING,
            joint=Joint(rounds=1, forget=pace.compared, held_out=pace.held_out, held_out_set=held_out),
            plan=Plan(seed=derive(task.seed, COMPARISON), batch_size=pace.compared + pace.held_out),
            update=Update(compare=rule, fresh=number == 1),
            loss=self._loss,
            forward_only=True,
        )

    @property
    def _loss(self) -> Loss:
        """L_u of a row: how little the model expects its label, or how unsure it is."""
        if self.problem.settings.goal == "uncertain":
            return Loss(uncertainty=Uncertainty(omega=self.problem.settings.omega))
        return Loss(cross_entropy=CrossEntropy())

    @property
    def _ceiling(self) -> float:
        """λ."""
        largest = math.log(self.problem.task.classes)
        weight = self.problem.settings.omega if self.problem.settings.goal == "uncertain" else 1.0
        return (self.scales.ceiling or 1.0) * weight * largest


def _retreat() -> Update:
    return Update(retreat=Retreat(share=RETREAT_SHARE))
