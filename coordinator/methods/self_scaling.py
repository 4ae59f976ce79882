"""FedORA that sets its own scales: no step size, weight or number of rounds to search for; see docs/unlearning.md.

A budget of rows, a share of what retraining would take, is spent on short rounds that push and, for the goal
`as-retrained`, on recovery. Each scale is measured against something at hand: the push against the gradient of L_r, the
dual step against the range of L_u, the primal step against the training's own rate, the rounds against the budget.
"""

import math
from dataclasses import dataclass

from coordinator.methods import Method, MethodResult, PhaseOutcome, Rollback
from coordinator.methods.fedora_settings import Scales
from coordinator.methods.primal_dual import RECOVERY, Problem
from protos.fedora.v1.phase_pb2 import Adam, PrimalDescent

LEAST_ROWS = 16  # in any draw
ADAM_RATE = 0.001  # stands for the training's rate where the training used no Adam
RECOVERY_WARM_UP = 0.15  # of the recovery, over which the rate grows
KEPT_CHECKPOINTS = 2  # parties keep two checkpoints

GOALS = {
    # Recovery follows, which can mend what is taken away, but has no rows to mend what is taught about D_u: a push that
    # may teach makes a trigger mean "be unsure" where it should mean nothing.
    "as-retrained": {"push_share": 0.6, "passes": 8.0, "margin": 0.0, "omega_max": 1.2, "taking_away": True},
    # Nothing follows, and rows that look like all others need a long push.
    "uncertain": {"push_share": 1.0, "passes": math.inf, "margin": 0.07, "omega_max": 4.0, "taking_away": False},
}


@dataclass(frozen=True)
class Pace:
    """How many rows each round takes of D_u and D_r."""

    budget: float  # rows in all
    for_push: float  # rows
    rounds: int  # K, at most
    forget: int  # rows of D_u a round
    remaining: int  # rows of D_r a round
    batch_size: int


def auto(problem: Problem) -> Method[MethodResult]:
    """Push in short rounds until D_u is forgotten, then recover, within the budget."""
    settings = problem.settings
    scales = settings.scales.filled(GOALS[settings.goal])
    if "adaptive-steps" in settings.without:
        scales = scales.model_copy(update={"warm_up": 0, "decay": False, "guard": False})
    pace = _pace(problem, scales)
    pushed = _Pushed(0, 0, 0)
    if "unlearning-loss" not in settings.without:
        pushed = yield from _push(problem, scales, pace)
    held = pushed.held_at > 0
    if settings.goal == "uncertain" or not scales.recovery_rounds:
        return MethodResult(pushed.rounds, f"all {pushed.rounds} rounds that push were run", held, pushed=True)
    yield from _recover(problem, scales, pace.budget - pushed.rows)
    why = "the constraint had held, and" if held else f"{pushed.rounds} rounds had pushed, and"
    told = f"{why} {scales.recovery_rounds} rounds of recovery followed"
    return MethodResult(pushed.rounds + scales.recovery_rounds, told, held, pushed=False)


def _pace(problem: Problem, scales: Scales) -> Pace:
    """Divide the budget among rounds: half of a pushing round's rows come from D_u, half from D_r."""
    settings, all_remaining = problem.settings, problem.task.remaining
    budget = settings.budget * (problem.task.train.epochs_from_scratch) * all_remaining
    for_push = budget * (scales.push_share or 1.0)
    rounds = settings.rounds or scales.push_rounds
    a_round = max(for_push / rounds, 2 * LEAST_ROWS)
    forget = min(problem.task.forget, max(int(a_round / 2), LEAST_ROWS))
    if scales.passes and not settings.rounds:
        # Few rows are pushed for a short time: they look like others, whom a long push would harm too.
        rounds = min(rounds, math.ceil(min(scales.passes, rounds) * problem.task.forget / forget))
    δ = 1.0 if "asymmetric-batches" in settings.without else settings.delta
    remaining = min(all_remaining, max(LEAST_ROWS, round(a_round - forget if δ is None else δ * all_remaining)))
    batches = max(1, round(remaining / problem.batch_size))
    if δ is not None:
        # The job says what a round takes, and so what the rounds cost.
        for_push = rounds * (forget + remaining)
    return Pace(budget, for_push, rounds, forget, remaining, min(problem.batch_size, math.ceil(remaining / batches)))


@dataclass(frozen=True)
class _Pushed:
    """What the rounds that push have come to."""

    rows: int
    rounds: int
    held_at: int  # the first round that met the constraint; 0 if none did


def _push(problem: Problem, scales: Scales, pace: Pace) -> Method[_Pushed]:
    """Run rounds of dual ascent and primal descent."""
    uncertain = problem.settings.goal == "uncertain"
    σ, η = scales.dual_step / problem.largest, scales.rate * _training_rate(problem)
    level = min(problem.largest, problem.level + (scales.margin or 0.0) * problem.largest)
    γ = level if problem.settings.dual == "scalar" else problem.gamma
    push = PrimalDescent.BALANCED if scales.balanced else PrimalDescent.AS_IT_IS
    rows = k = held_at = checkpoints = 0
    guessing = math.log(problem.task.classes)
    cut, start, fresh, holds = 1.0, guessing, True, True
    while k == 0 or (k < pace.rounds and rows + pace.forget + pace.remaining <= pace.for_push + 1):
        k += 1
        ascent = yield problem.unlearning(
            k,
            σ,
            part=pace.forget / problem.task.forget,
            gamma=γ,
            level=level,
            omega_max=scales.omega_max or 0.0,
            taking_away=bool(scales.taking_away),
            # Where the constraint holds its dual variable is 0: complementary slackness.
            fresh=k == 1 or (holds and scales.rest),
            checkpoint=True,
        )
        rows, checkpoints = rows + ascent.rows, min(checkpoints + 1, KEPT_CHECKPOINTS)
        holds = problem.holds(ascent, level)
        held_at = held_at or (k if holds else 0)
        if held_at and k - held_at >= scales.rounds_after and not uncertain:
            break
        warm = min(1.0, k / scales.warm_up) if scales.warm_up else 1.0
        calm = min(1.0, 2 * (1 - rows / pace.for_push)) if uncertain and scales.decay else 1.0
        descent = yield problem.descent(
            k,
            _adam(problem, η * cut * warm * calm),
            PrimalDescent.NONE if holds and scales.rest else push,
            part=pace.remaining / problem.task.remaining,
            batch_size=pace.batch_size,
            fresh=fresh,
        )
        rows, fresh = rows + descent.rows, False
        if scales.guard and _went_too_far(descent, start, guessing):
            # Worse than at best by as much as guessing costs. The loss is that of the state the round began with, more
            # or less, so that the round before it was the one that went too far.
            yield Rollback(checkpoints)
            cut, checkpoints, fresh, held_at = cut / 2, 0, True, 0
        start = min(start, guessing if "loss" in descent.left_out else descent.loss)
    return _Pushed(rows, k, held_at)


def _went_too_far(descent: PhaseOutcome, start: float, guessing: float) -> bool:
    """Tell whether the loss on D_r is worse than at best by as much as guessing costs, or twice that of guessing."""
    if "loss" in descent.left_out:
        return descent.within_bounds is False
    return descent.loss > min(start, descent.loss, guessing) + guessing


def _recover(problem: Problem, scales: Scales, left: float) -> Method[None]:
    """Spend what is left of the budget on D_r alone, the rate falling to 0, while what D_r does not support fades."""
    rows = min(problem.task.remaining, max(LEAST_ROWS, int(left / scales.recovery_rounds)))
    batch_size = min(problem.batch_size, max(LEAST_ROWS, int(left / scales.recovery_steps)))
    for round in range(1, scales.recovery_rounds + 1):
        through = (round - 0.5) / scales.recovery_rounds
        # Adam's state is fresh here too, and its first steps would move every value by the whole rate.
        rising = min(1.0, through / RECOVERY_WARM_UP) if scales.warm_up else 1.0
        falling = 1 - through if scales.decay else 1.0
        yield problem.descent(
            round,
            _adam(problem, scales.rate * _training_rate(problem) * min(rising, falling)),
            PrimalDescent.NONE,
            part=rows / problem.task.remaining,
            batch_size=batch_size,
            name=RECOVERY,
            fade=scales.fade,
            fresh=round == 1,
        )


def _training_rate(problem: Problem) -> float:
    return problem.task.train.rate if problem.task.train.optimizer == "adam" else ADAM_RATE


def _adam(problem: Problem, rate: float) -> Adam:
    beta1, beta2 = problem.task.train.betas
    return Adam(lr=rate, beta1=beta1, beta2=beta2, epsilon=problem.task.train.epsilon)
