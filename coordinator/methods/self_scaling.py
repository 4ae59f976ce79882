"""FedORA that sets its own scales: no step size, weight or number of rounds to search for; see docs/unlearning.md.

A budget of rows, a share of what retraining would take, is spent on short rounds that push and, for the goal
`as-retrained`, on recovery. Each scale is measured against something at hand: the push against the gradient of L_r, the
dual step against the range of L_u, the primal step against the training's own rate, the rounds against the budget.
"""

import math
from dataclasses import dataclass

from coordinator.methods import Method, TakeBack
from coordinator.methods.fedora import RECOVERY, Ending, Problem
from protos.phase_pb2 import Adam, PrimalDescent

PUSH_ROUNDS = 64  # K, at most: g must be taken anew often, as it changes fast once a saturated softmax gives way
PUSH_SHARE = 0.6  # of the budget goes to rounds that push; the rest to recovery
LEAST_ROWS = 16  # in any draw
DUAL_STEP = 0.5  # σ, in units of L_u's largest value
OMEGA_MAX = 2.0  # the push is at most twice as long as the gradient of L_r
RATE = 4.0  # τ, in units of the training's own rate
ADAM_RATE = 0.001  # ... or of this one, where the training used no Adam
WARM_UP = 8  # rounds over which τ grows to its full size
ROUNDS_AFTER = 24  # so long the constraint is watched, and pushed again when it gives way
RECOVERY_ROUNDS = 8
RECOVERY_STEPS = 64  # at least
MARGIN = 0.05  # of L_u's largest value: for `uncertain` the push aims so much above γ, as later rounds take some back
FADE = 0.1  # see PrimalDescent in the wire contract
DEFAULT_EPOCHS = 10  # of a model that was loaded, not trained here


@dataclass(frozen=True)
class Pace:
    """How many rows each round takes of D_u and D_r."""

    budget: float  # rows in all
    for_push: float  # rows
    rounds: int  # K, at most
    forget: int  # rows of D_u a round
    remaining: int  # rows of D_r a round
    batch_size: int

    @classmethod
    def of(cls, problem: Problem) -> "Pace":
        """Divide the budget among rounds."""
        settings = problem.settings
        epochs = problem.train.rounds or DEFAULT_EPOCHS
        budget = settings.budget * epochs * problem.remaining
        for_push = budget * (1.0 if settings.goal == "uncertain" else PUSH_SHARE)
        rounds = settings.rounds or PUSH_ROUNDS
        a_round = max(for_push / rounds, 2 * LEAST_ROWS)
        forget = min(problem.forget, max(int(a_round / 2), LEAST_ROWS))
        δ = 1.0 if "asymmetric-batches" in settings.without else settings.delta
        rest = a_round - forget if δ is None else δ * problem.remaining
        remaining = min(problem.remaining, max(LEAST_ROWS, round(rest)))
        batches = max(1, round(remaining / problem.batch_size))
        batch_size = min(problem.batch_size, math.ceil(remaining / batches)) if batches == 1 else problem.batch_size
        return cls(budget, for_push, rounds, forget, remaining, batch_size)


def auto(problem: Problem) -> Method[Ending]:
    """Push in short rounds until D_u is forgotten, then recover, within the budget."""
    settings, pace = problem.settings, Pace.of(problem)
    uncertain = settings.goal == "uncertain"
    spent, k, held_at = 0, 0, 0
    if "unlearning-loss" not in settings.without:
        spent, k, held_at = yield from _push(problem, pace)
    held = held_at > 0
    if uncertain:
        return Ending(k, "the budget was used up", held, pushed=True)
    left = pace.budget - spent
    rounds = yield from _recover(problem, pace, left)
    why = "the constraint had held, and" if held else "the budget for pushing was used up;"
    return Ending(k + rounds, f"{why} {rounds} rounds of recovery followed", held, pushed=False)


def _push(problem: Problem, pace: Pace) -> Method[tuple[int, int, int]]:
    """Run rounds of ascent and descent; return rows spent, rounds run, and the first that met the constraint."""
    settings = problem.settings
    uncertain, adaptive = settings.goal == "uncertain", "adaptive-steps" not in settings.without
    σ, η = DUAL_STEP / problem.largest, RATE * _training_rate(problem)
    aim = min(problem.largest, problem.level + (MARGIN * problem.largest if uncertain else 0.0))
    γ = aim if settings.dual == "scalar" else problem.gamma
    part_of_forget, part_of_remaining = pace.forget / problem.forget, pace.remaining / problem.remaining
    spent = k = held_at = 0
    cut, start, rest = 1.0, math.inf, True
    while (k < pace.rounds and spent + pace.forget + pace.remaining <= pace.for_push + 1) or k == 0:
        k += 1
        ascent = yield problem.unlearning(
            k, σ, part=part_of_forget, gamma=γ, omega_max=OMEGA_MAX, fresh=rest, mark=True
        )
        # Where the constraint holds its dual variable is 0: complementary slackness.
        rest = problem.loss(ascent.loss) >= aim
        held_at = held_at or (k if rest else 0)
        if held_at and k - held_at >= ROUNDS_AFTER and not uncertain:
            spent += ascent.rows
            break
        warm = min(1.0, k / WARM_UP) if adaptive else 1.0
        calm = min(1.0, 2 * (1 - spent / pace.budget)) if uncertain and adaptive else 1.0
        push = PrimalDescent.NONE if rest else PrimalDescent.BALANCED
        step = _adam(problem, η * cut * warm * calm)
        descent = yield problem.descent(
            k, step, push, part=part_of_remaining, batch_size=pace.batch_size, fresh=k == 1 or start == math.inf
        )
        spent += ascent.rows + descent.rows
        start = min(start, descent.loss) if k == 1 else start
        if adaptive and descent.loss > start + math.log(problem.classes):
            # Worse than at the start by as much as guessing costs: what the last round did was too much.
            yield TakeBack(marks=min(k, 2))
            cut /= 2
    return spent, k, held_at


def _recover(problem: Problem, pace: Pace, left: float) -> Method[int]:
    """Spend what is left of the budget on D_r alone, the rate falling to 0, while what D_r does not support fades."""
    rows = min(problem.remaining, max(LEAST_ROWS, int(left / RECOVERY_ROUNDS)))
    batch_size = min(problem.batch_size, max(LEAST_ROWS, int(left / RECOVERY_STEPS)))
    for round in range(1, RECOVERY_ROUNDS + 1):
        falling = 1 - (round - 0.5) / RECOVERY_ROUNDS if "adaptive-steps" not in problem.settings.without else 1.0
        yield problem.descent(
            round,
            _adam(problem, RATE * _training_rate(problem) * falling),
            PrimalDescent.NONE,
            part=rows / problem.remaining,
            batch_size=batch_size,
            name=RECOVERY,
            fade=FADE,
            fresh=round == 1,
        )
    return RECOVERY_ROUNDS


def _training_rate(problem: Problem) -> float:
    return problem.train.rate if problem.train.optimizer == "adam" else ADAM_RATE


def _adam(problem: Problem, rate: float) -> Adam:
    beta1, beta2 = problem.train.betas
    return Adam(lr=rate, beta1=beta1, beta2=beta2, epsilon=problem.train.epsilon)
