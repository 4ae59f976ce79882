"""FedORA that sets its own scales: no step size, weight or number of rounds to search for; see docs/unlearning.md.

A comparison, rounds that push, rounds of recovery, and a comparison again. Each scale is measured on the model at hand:
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
    Soften,
    Uncertainty,
    Update,
)

COMPARISON, RETREAT, SOFTENING = "comparison", "retreat", "softening"
CARRIED = "; one party's columns alone made the model sure of their labels, as a backdoor does"
RECOVERED = "; more rounds of recovery followed, as accuracy had fallen"
UNGUARDED = "; it is not told whether accuracy was kept, so that nothing could be taken back"
SOFTENED = "; all predictions were then made less sure, so that those of the rows to forget are unsure enough"

# What a run may exchange, as shares of what retraining takes: up to FEW rows, and from a tenth of all rows on, where
# D_u has rows of all classes, as any sample has, or only of some. Where one party's columns alone carry their labels,
# it is THIN_SHARE at least: a backdoor takes the longest steps, and D_r has to make up for them. Up to FEW rows
# CARRIED_ROWS are enough, in all.
FEW, LEAST_SHARE, THIN_SHARE, MOST_SHARE, MANY = 50, 0.01, 0.05, 0.08, 0.1
CARRIED_ROWS = 1200
UNCERTAIN_SHARE = 0.16
# Of the step: few rows need, and few rows of D_r bear, only a small change, a tenth of all rows a whole one; more rows
# than few that are of some classes only, twice as much; and a backdoor, which one party's columns carry, all of it.
LEAST_STEP, OF_SOME_CLASSES = 0.2, 2.0
# Retraining to convergence takes at least so many epochs, whatever the model at hand was given.
LEAST_EPOCHS = 10
LEAST_ROUNDS, FEW_ROUNDS = 8, 6  # of more, and of few rows, which are to be done in two seconds on a line of 100 ms
# On a long line: so many seconds beyond the share of retraining's, in which a round takes about so many round trips,
# and the comparisons together one. With fewer rounds than the fewest hardly anything is forgotten.
SPARE_SECONDS, TRIPS_OF_ROUND, FEWEST_ROUNDS = 1.0, 1.5, 4
LEAST_ROWS = 24  # of a round: fewer are noise
# Rounds that push, while the others are for recovery: so many are enough for a sample, or for a backdoor. Half a class
# has taught more than its rows, what rows of its class look like, and takes more.
PUSH_ROUNDS, PUSH_SHARE, PUSH_SHARE_OF_CLASSES = 20, 0.45, 0.6
# How often a row is pushed, at most: of few rows, or of a sample of all classes, which look like rows that remain. Rows
# of some classes only may need more, and poisoned ones do.
PASSES = 2.0
OF_FORGET = 0.25  # of the rows of a round that pushes: of D_u; the more there are of D_r, the less accuracy it costs
STEP_ROWS = 48  # of a round, for which the step is meant: the noise of a mean falls with the root of the rows ...
MOST_STEP_ROWS = 160  # ... but longer steps cost accuracy where there are few of them, as with large batches
# A step of the same share in every layer changes what a network computes the more, the more layers there are.
STEP_LAYERS = 12  # of weights, from inputs to logits, up to which the step is as it is
# Where joint rounds travel in fewer bytes than training does, the same bytes pay for more rows; but for no more than
# take twice the budget's share of retraining's time, and about a second.
TIMES, SPARE = 2, 2000
# Of the budget: rows of D_u, and as many held-out ones, in each of two comparisons; so many tell percents from chance.
COMPARED, MOST_COMPARED = 0.2, 1500
ERRORS = 2.0  # standard errors: what 95 of 100 samples keep within
LOSS_OF_ACCURACY = 0.02
SPARE_LEVEL = 0.02  # of what is left above γ, so that rounding takes L_u below it nowhere
RETREAT_SHARE, MOST_RETREATS = 0.5, 4

GOALS = {
    # Recovery follows, which brings back what D_r supports.
    "as-retrained": {"omega_max": 1.0, "ceiling": 1.0, "allowance": 0.4},
    # Nothing brings anything back, and rows that look like all others need a long push.
    "uncertain": {"push_share": 1.0, "omega_max": 4.0, "ceiling": 0.97, "allowance": 0.8},
}


@dataclass(frozen=True)
class Looks:
    """The rows of a comparison."""

    forget: int
    held_out: int


@dataclass(frozen=True)
class Pace:
    """How many rounds there are, and the rows that each takes."""

    push: int  # rounds
    recovery: int  # rounds
    forget: int  # rows of D_u in a round that pushes
    remaining: int  # rows of D_r in a round that pushes; recovery has those of D_u too
    step: float  # η
    spare: int  # rounds of recovery that the budget's bytes leave, should accuracy have fallen


def auto(problem: Problem) -> Method[MethodResult]:
    """Push, recover, and see whether D_u looks like rows never seen, within the budget."""
    settings = problem.settings
    scales = settings.scales.filled(GOALS[settings.goal])
    if "adaptive-steps" in settings.without:
        scales = scales.model_copy(update={"decay": False, "guard": False})
    return _Rule(problem, scales, looks(problem)).run()


def looks(problem: Problem) -> Looks:
    """Return how many rows comparisons take, of the smallest budget that a request of this size may have."""
    task, rows = problem.task, min(MOST_COMPARED, COMPARED * rows_in(problem, all_classes=True))
    return Looks(min(task.forget, max(8, int(rows))), min(task.validation or task.test, max(32, int(rows))))


def rows_in(problem: Problem, *, all_classes: bool, carried: bool = False) -> float:
    """Return how many rows a run may exchange."""
    return part_of(problem, all_classes=all_classes, carried=carried) * _retraining(problem)


def part_of(problem: Problem, *, all_classes: bool, carried: bool = False) -> float:
    """Return the share of retraining's rows that a run may exchange: as the job says, or as suits the request."""
    settings, task = problem.settings, problem.task
    if settings.budget:
        return settings.budget
    least = 0.0
    if carried:
        least = THIN_SHARE if task.forget > FEW else min(THIN_SHARE, CARRIED_ROWS / _retraining(problem))
    return max(least, budget(task.forget, task.remaining, settings.goal, all_classes=all_classes))


def _retraining(problem: Problem) -> int:
    """Return how many rows retraining to convergence takes."""
    return max(LEAST_EPOCHS, problem.task.train.epochs_from_scratch) * problem.task.remaining


def budget(forget: int, remaining: int, goal: str, *, all_classes: bool = False) -> float:
    """Return the share of retraining's rows that suits a request by its size."""
    if goal == "uncertain":
        return UNCERTAIN_SHARE
    return _between(LEAST_SHARE, THIN_SHARE if all_classes else MOST_SHARE, _size(forget, remaining))


def _size(forget: int, remaining: int) -> float:
    """Return how large a request is: 0 up to few rows, 1 from a tenth of all rows on."""
    return min(1.0, max(0.0, (forget - FEW) / max(1.0, MANY * (forget + remaining) - FEW)))


def pace(problem: Problem, scales: Scales, looks: Looks, *, all_classes: bool, carried: bool = False) -> Pace:
    """Divide among rounds what comparisons leave of the budget."""
    settings, task = problem.settings, problem.task
    budgeted = rows_in(problem, all_classes=all_classes, carried=carried)
    compared = looks.forget + looks.held_out  # in two comparisons, whose rows go one way
    rows = budgeted - compared / task.rows_for_one
    paid = max(rows, min(rows * task.rows_for_one, TIMES * budgeted + SPARE - compared))
    # A round of half a training batch: then rounds wait for each other at most twice as often, for their rows, as
    # training does.
    trip = task.round_trip if scales.round_trip is None else scales.round_trip
    fewest = min(LEAST_ROUNDS if task.forget > FEW else FEW_ROUNDS, _fitting(trip))
    most = max(fewest, int(rows / LEAST_ROWS))  # very few rows in all are not worth a budget
    rounds = settings.rounds or min(scales.rounds, most, fewest + int(max(0.0, 2 * rows) / problem.batch_size))
    a_round = max(LEAST_ROWS, int(paid / rounds))
    classes = task.forget > FEW and not (all_classes or carried)
    push = 0 if "unlearning-loss" in settings.without else _pushes(rounds, scales, of_classes=classes)
    # A model that follows from the labels of very few rows is one that a careful party says nothing of.
    least = math.ceil(FEW / max(1, push)) if task.forget > FEW else 1
    forget = max(1, min(task.forget, a_round // 2, max(least, int(OF_FORGET * a_round))))
    δ = 1.0 if "asymmetric-batches" in settings.without else settings.delta
    remaining = min(task.remaining, a_round - forget if δ is None else max(1, round(δ * task.remaining)))
    told = settings.rounds or scales.push_share
    if push and not told and not carried and (all_classes or task.forget <= FEW):
        push = min(push, max(2, math.ceil((scales.passes or PASSES) * task.forget / forget)))
    step = scales.step * (1.0 if carried else _reach(problem, of_classes=classes))
    step *= math.sqrt(min(a_round, MOST_STEP_ROWS) / STEP_ROWS)
    step *= min(1.0, STEP_LAYERS / task.layers)
    spare = int(max(0.0, rows * task.rows_for_one - rounds * a_round - compared / 2) / a_round)
    return Pace(push, rounds - push, forget, remaining, step, min(spare, rounds - push))


def _reach(problem: Problem, *, of_classes: bool) -> float:
    """Return how much of a step a request takes, by its size; or by the budget that a job says."""
    settings, task = problem.settings, problem.task
    size = _size(task.forget, task.remaining)
    if settings.budget or settings.goal == "uncertain":
        share = part_of(problem, all_classes=True)
        size = min(1.0, max(0.0, (share - LEAST_SHARE) / (MOST_SHARE - LEAST_SHARE)))
    return min(1.0, _between(LEAST_STEP, 1.0, size) * (OF_SOME_CLASSES if of_classes else 1.0))


def _fitting(round_trip: float) -> int:
    """Return how many rounds fit into the seconds to spare on a line of this length."""
    trips = SPARE_SECONDS / max(round_trip, 0.001)
    return max(FEWEST_ROUNDS, int((trips - 1) / TRIPS_OF_ROUND))


def _pushes(rounds: int, scales: Scales, *, of_classes: bool) -> int:
    """Return how many rounds push; `of_classes` are clean rows of some classes only, and not few."""
    if scales.push_share or of_classes:
        return math.ceil((scales.push_share or PUSH_SHARE_OF_CLASSES) * rounds)
    return min(PUSH_ROUNDS, math.ceil(PUSH_SHARE * rounds))


def _between(least: float, most: float, part: float) -> float:
    return least + (most - least) * part


@dataclass(frozen=True)
class _Rule:
    problem: Problem
    scales: Scales
    looks: Looks

    def run(self) -> Method[MethodResult]:
        """Run all of it."""
        found = yield self._comparison(1)
        carried = _bit(found, "carried") is True
        all_classes = _bit(found, "all_classes") is True
        paced = pace(self.problem, self.scales, self.looks, all_classes=all_classes, carried=carried)
        phases = [self._pushing(paced)] * bool(paced.push) + [self._recovering(paced)] * bool(paced.recovery)
        found = yield [*phases, self._comparison(2)]
        looked, retreats, more = 2, 0, ""
        if self._harmed(found) and paced.spare:
            looked, more = 3, RECOVERED
            found = yield [self._recovering(paced, again=True), self._comparison(looked)]
        while self._harmed(found) and retreats < MOST_RETREATS:
            retreats += 1
            retreat = look(RETREAT, retreats, over=share(REMAINING, 0), batch_size=1, update=_retreat())
            found = yield [retreat, self._comparison(looked + retreats)]
        back = self._taken_back(retreats, harmed=self._harmed(found)) if retreats else ""
        if self._uncertain:
            held, softened = yield from self._softened()
            why = (back or "all rounds were run") + (SOFTENED if softened else "")
        else:
            held = found.within_bounds
            why = (back or self._standing(held) + more) + (CARRIED if carried else "")
        if self.scales.guard and _bit(found, "accuracy_kept") is None:
            why += UNGUARDED
        rounds = paced.push + paced.recovery + (paced.spare if more else 0)
        return MethodResult(rounds, why, held, pushed=not paced.recovery)

    def _softened(self) -> Method[tuple[bool | None, bool]]:
        """Make all predictions less sure where D_u is not unsure enough; tell whether it is then, and was not before.

        Neither is known where it is not told.
        """
        settings, largest = self.problem.settings, self.problem.largest
        level = self.problem.level + SPARE_LEVEL * (largest - self.problem.level)
        softening = look(SOFTENING, 1, over=FORGET, batch_size=settings.micro_batch, loss=self._loss)
        after = look(SOFTENING, 2, over=FORGET, batch_size=settings.micro_batch, loss=self._loss)
        softening.update.CopyFrom(Update(soften=Soften(level=level / settings.omega), fresh=True))
        soften = self.scales.soften and "unlearning-loss" not in settings.without
        found = yield [softening, after] if soften else [after]
        if "loss" in found.left_out:
            return None, False
        return found.loss >= self.problem.level, any(one.loss < level for one in found.earlier)

    def _taken_back(self, retreats: int, *, harmed: bool) -> str:
        back = f"the model was taken back {1 - RETREAT_SHARE**retreats:.0%} of the way"
        still = "; it is still lower than before: retrain instead" if harmed else ""
        return f"accuracy on {self._held_out} rows had fallen, and {back}{still}"

    def _standing(self, held: bool | None) -> str:
        if held is None:
            return f"all rounds were run; it is not told whether the rows look like {self._held_out} rows"
        if held:
            return f"the rows look like {self._held_out} rows of their classes, neither surer nor less sure"
        return f"all rounds were run; the rows do not look like {self._held_out} rows of their classes"

    @property
    def _held_out(self) -> str:
        return "validation" if self.problem.task.validation else "test"

    def _harmed(self, found: PhaseOutcome) -> bool:
        return self.scales.guard and _bit(found, "accuracy_kept") is False

    def _pushing(self, pace: Pace) -> Phase:
        """Return the rounds that push L_u up to the ceiling; the last of all take steps that fall to 0."""
        rule = self._rule(pace, falling=not pace.recovery)
        return self._phase(UNLEARNING, 1, pace.push, pace.forget, pace.remaining, Update(joint_rounds=rule, fresh=True))

    def _recovering(self, pace: Pace, *, again: bool = False) -> Phase:
        """Return the rounds on D_r alone; those `again` are what is left of the budget."""
        update = Update(joint_rounds=self._rule(pace, falling=True), fresh=not (pace.push or again))
        rounds = pace.spare if again else pace.recovery
        return self._phase(RECOVERY, 1 + again, rounds, 0, pace.forget + pace.remaining, update)

    def _rule(self, pace: Pace, *, falling: bool) -> JointRounds:
        """Return what the rounds of a phase do."""
        settings, scales = self.problem.settings, self.scales
        return JointRounds(
            form=FORMS[settings.dual],
            sigma=scales.dual_step,
            ceiling=self._ceiling,
            omega_max=scales.omega_max or 0.0,
            gamma=settings.gamma if settings.gamma is not None and settings.dual != "scalar" else 1.0,
            step=pace.step,
            falling=scales.decay and falling,
            rho=settings.rho,
            audit=settings.audit,
            allowance=(scales.allowance or 0.0) / self._weight,  # L_r has none
        )

    def _phase(self, name: str, first: int, rounds: int, forget: int, remaining: int, update: Update) -> Phase:
        """Return a phase of joint rounds."""
        task = self.problem.task
        forget, remaining = min(task.forget, forget), min(task.remaining, remaining)
        return Phase(
            name=name,
            round=first,
            over=REMAINING,
            joint=Joint(rounds=rounds, forget=forget, remaining=remaining),
            plan=Plan(seed=derive(task.seed, name, first), batch_size=forget + remaining),
            update=update,
            loss=self._loss,
            train_mode=True,
        )

    def _comparison(self, number: int) -> Phase:
        """Return a comparison of D_u with held-out rows; the same rows every time, so that only the model differs."""
        task, looks = self.problem.task, self.looks
        held_out = Samples.VALIDATION if task.validation else Samples.TEST
        rule = Compare(
            ceiling=self._ceiling, errors=ERRORS, loss_of_accuracy=LOSS_OF_ACCURACY, carried=self.scales.carried
        )
        return Phase(
            name=COMPARISON,
            round=number,
            over=REMAINING,
            joint=Joint(rounds=1, forget=looks.forget, held_out=looks.held_out, held_out_set=held_out),
            plan=Plan(seed=derive(task.seed, COMPARISON), batch_size=looks.forget + looks.held_out),
            update=Update(compare=rule, fresh=number == 1),
            loss=self._loss,
            forward_only=True,
        )

    @property
    def _uncertain(self) -> bool:
        return self.problem.settings.goal == "uncertain"

    @property
    def _loss(self) -> Loss:
        """L_u of a row: how little the model expects its label, or how unsure it is."""
        if self._uncertain:
            return Loss(uncertainty=Uncertainty(omega=self.problem.settings.omega))
        return Loss(cross_entropy=CrossEntropy())

    @property
    def _ceiling(self) -> float:
        """λ."""
        return (self.scales.ceiling or 1.0) * self._weight * math.log(self.problem.task.classes)

    @property
    def _weight(self) -> float:
        """Of L_u."""
        return self.problem.settings.omega if self._uncertain else 1.0


def _bit(found: PhaseOutcome, name: str) -> bool | None:
    """Return what the active party has told of a comparison, if it has."""
    told = [one[name] for one in found.figures.values() if name in one]
    return bool(told[0]) if told else None


def _retreat() -> Update:
    return Update(retreat=Retreat(share=RETREAT_SHARE))
