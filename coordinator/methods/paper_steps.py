"""FedORA with the paper's own step sizes: rounds of dual ascent and primal descent, and the rule ξ."""

import math

from coordinator.methods import Method, MethodResult
from coordinator.methods.primal_dual import Problem
from coordinator.methods.step_sizes import StepSizes


def paper(problem: Problem) -> Method[MethodResult]:
    """Run the paper's rounds, with its step-size rule ξ and nothing else."""
    settings = problem.settings
    steps, rounds = _first_steps(problem), settings.most_rounds(problem.task.train)
    δ = 1.0 if "asymmetric-batches" in settings.without else _given(settings.delta, 0.05)
    forgetting = "unlearning-loss" not in settings.without
    held, calm = False, 0
    for k in range(1, rounds + 1):
        size = math.inf
        if forgetting:
            ascent = yield problem.unlearning(k, steps.sigma, fresh=k == 1)
            held, size = problem.holds(ascent, problem.level), math.sqrt(ascent.total("parameters_squared"))
        descent = yield problem.descent(k, steps.tau, part=δ, push=forgetting, fresh=k == 1)
        if "adaptive-steps" not in settings.without:
            steps = steps.adapt(descent.change)
        calm = calm + 1 if held and descent.change <= settings.tolerance * size else 0
        if calm == settings.patience:
            return MethodResult(k, f"the constraint has held and the model has stood still for {calm} rounds", True)
    return MethodResult(rounds, f"all {rounds} rounds were run", held)


def _first_steps(problem: Problem) -> StepSizes:
    """Return τ⁰ and σ⁰ with their rule; what the job leaves open is ours, as the paper names no values."""
    settings = problem.settings
    # One round of a wholly certain model then raises Ω by about one.
    σ = _given(settings.sigma, 1 / (2 * problem.largest) if settings.dual == "scalar" else 1.0)
    return StepSizes(
        tau=_given(settings.tau, 0.01),
        sigma=σ,
        tau_max=settings.tau_max,
        sigma_max=settings.sigma_max,
        alpha=settings.alpha,
        beta=settings.beta,
        shrink=settings.shrink,
        grow=settings.grow,
    )


def _given(value: float | None, default: float) -> float:
    return default if value is None else value
