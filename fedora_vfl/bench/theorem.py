"""Theorem 1 of the paper by numbers: how far FedORA's model is from one trained from scratch, and the bound on that.

The theorem needs a strongly convex and smooth L_r. Bottom models under a top model that is trained too are a product of
parameters, which is not convex, however linear both are. So the case here is the one that is: every party's bottom
model is linear and as wide as there are classes, the top model is fixed and adds the embeddings up to logits, and
L_r = mean cross-entropy + μ/2·‖Θ‖². All parties stand side by side in one process; the equality of a distributed run
with such a one is promised, and tested, elsewhere.

    fedora bench theorem --out DIR
"""

import csv
import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedora_vfl.datasets.cutting import cut
from fedora_vfl.datasets.income.loading import IncomeData
from fedora_vfl.datasets.settings import ACTIVE
from fedora_vfl.sampling.seeds import derive
from fedora_vfl.settings.files import check
from party.data.encoding import LabelEncoding, learn
from party.data.reading import read
from party.data.records import Records
from party.data.settings import DataSettings
from party.losses import uncertainty

OMEGA = 1.0  # ω, the weight of the uncertainty loss
GAMMA = 0.9  # γ, in parts of the largest value that L_u can have
SIGMA = 0.01  # σ, the step of the dual ascent
SCALE = 1e-8  # another unit of the loss

PROOF, LARGEST, UNIT = "τ = μ/4L²", "τ = 1/L", "losses × 10⁻⁸"
DRAWN = {
    PROOF: "τ = μ/4L², the largest step that the proof allows",
    LARGEST: "τ = 1/L, a far longer step",
    UNIT: "The left run with losses × 10⁻⁸, steps × 10⁸",
}
RED, BLUE = "#b2182b", "#2166ac"


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows to keep and rows to forget, the parties' columns side by side, and μ.

    Θ = [θ_1 … θ_N] is classes × features and the rows are X = [X_1 … X_N], so that Θ·Xᵀ = Σ_i θ_i·X_iᵀ: the logits that
    the top model adds up, one column per row. (This layout is several times as fast as the other.)
    """

    remaining: Tensor  # D_r, rows × features, float64
    labels: Tensor  # of D_r, one-hot, classes × rows
    forgotten: Tensor  # D_u
    forgotten_labels: Tensor
    mu: float  # μ: the cross-entropy of a softmax is flat in some direction, so nothing else makes it strongly convex
    scale: float = 1.0  # a unit for losses: both are multiplied by it

    @cached_property
    def strong_convexity(self) -> float:
        """Return the μ of assumption 1."""
        return self.scale * self.mu

    @cached_property
    def smoothness(self) -> float:
        """Return the L of assumption 1: the Hessian of a softmax's cross-entropy is at most ½ in the logits."""
        gram = self.remaining.T @ self.remaining / len(self.remaining)
        return self.scale * (self.mu + 0.5 * float(torch.linalg.eigvalsh(gram)[-1]))

    def start(self, seed: int) -> Tensor:
        """Return a Θ that has seen no data."""
        draw = torch.Generator().manual_seed(derive(seed, "theorem", "start"))
        shape = len(self.labels), self.remaining.shape[1]
        return torch.randn(shape, generator=draw, dtype=torch.float64) / math.sqrt(shape[1])

    def remaining_gradient(self, parameters: Tensor, batch: Tensor | None = None) -> Tensor:
        """Return ∇L_r(Θ), of all of D_r or of a mini-batch."""
        rows, labels = (
            (self.remaining, self.labels) if batch is None else (self.remaining[batch], self.labels[:, batch])
        )
        return self._gradient(parameters, rows, _errors(parameters, rows, labels))

    def gradient_and_deviation(self, parameters: Tensor) -> tuple[Tensor, float]:
        """Return ∇L_r(Θ), and σ_r(Θ) of assumption 2: the root of the samples' mean squared distance from it."""
        errors = _errors(parameters, self.remaining, self.labels)
        gradient = self._gradient(parameters, self.remaining, errors)
        # A sample's gradient is the outer product of error and row; its regularisation is the same for all.
        mean = gradient / self.scale - self.mu * parameters
        squares = float((self._row_squares * errors.square().sum(dim=0)).mean() - mean.square().sum())
        return gradient, self.scale * math.sqrt(squares)

    def forgetting(self, parameters: Tensor) -> tuple[float, Tensor]:
        """Return L_u(Θ) and ∇L_u(Θ)."""
        logits = (parameters @ self.forgotten.T).requires_grad_()
        loss = self.scale * uncertainty(logits.T, OMEGA).mean()
        (towards_logits,) = torch.autograd.grad(loss, logits)
        return float(loss.detach()), towards_logits @ self.forgotten

    @cached_property
    def _row_squares(self) -> Tensor:
        return self.remaining.square().sum(dim=1)

    def _gradient(self, parameters: Tensor, rows: Tensor, errors: Tensor) -> Tensor:
        return self.scale * (errors @ rows / len(rows) + self.mu * parameters)


def _errors(parameters: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
    """Return the derivative of each sample's cross-entropy in its logits; see Problem for the layout."""
    return functional.softmax(parameters @ rows.T, dim=0) - labels


@dataclass(frozen=True)
class Steps:
    """The settings of FedORA's rounds, in the paper's letters."""

    tau: float  # τ, the same for train-from-scratch
    sigma: float  # σ, of the dual ascent
    gamma: float  # γ, of the constraint L_u ≥ γ
    batch: int  # |B_r|
    rounds: int  # K; one primal step each

    def scaled(self, scale: float) -> "Steps":
        """Return the settings that walk the same path when losses are multiplied by `scale`."""
        return replace(self, tau=self.tau / scale, sigma=self.sigma / scale, gamma=self.gamma * scale)


@dataclass(frozen=True, eq=False)
class Walk:
    """What was measured: one value per round; of the distance and the models one more, for the start."""

    problem: Problem
    steps: Steps
    distance: np.ndarray  # ‖Θ^k − Θ̄^k‖
    error: np.ndarray  # ‖ε_r^k‖, how far the mini-batch's gradient was from ∇L_r(Θ^k)
    deviation: np.ndarray  # σ_r(Θ^k)
    forget_gradient: np.ndarray  # ‖∇L_u(Θ^k)‖
    forget_loss: np.ndarray  # L_u(Θ^k)
    dual: np.ndarray  # Ω^{k+1}

    @property
    def push(self) -> float:
        """Return σ_r/√|B_r| + G·Ω_max, with the largest values of the whole walk."""
        batch = self.deviation.max() / math.sqrt(self.steps.batch)
        return float(batch + self.forget_gradient.max() * self.dual.max())

    @property
    def excess(self) -> float:
        """Return the share of rounds in which assumption 2 did not hold."""
        return float((self.error > self.deviation / math.sqrt(self.steps.batch)).mean())


def walk(problem: Problem, steps: Steps, trained: Tensor, fresh: Tensor, *, seed: int) -> Walk:
    """Run FedORA from the trained model and train-from-scratch from a fresh one, step by step side by side."""
    draw = torch.Generator().manual_seed(derive(seed, "theorem", "batches"))
    theta, scratch, dual = trained, fresh, 0.0
    distance, rounds = [float((theta - scratch).norm())], []
    for _ in range(steps.rounds):
        batch = torch.randperm(len(problem.remaining), generator=draw)[: steps.batch]
        forget_loss, forget_gradient = problem.forgetting(theta)
        batch_gradient = problem.remaining_gradient(theta, batch)
        whole_gradient, deviation = problem.gradient_and_deviation(theta)
        dual = max(0.0, dual + steps.sigma * (steps.gamma - forget_loss))
        error = float((batch_gradient - whole_gradient).norm())
        rounds.append((error, deviation, float(forget_gradient.norm()), forget_loss, dual))
        # The primal update with ρ = 0, as the proof has it, and the step of train-from-scratch.
        theta = theta - steps.tau * (batch_gradient - dual * forget_gradient)
        scratch = scratch - steps.tau * problem.remaining_gradient(scratch)
        distance.append(float((theta - scratch).norm()))
    return Walk(problem, steps, np.array(distance), *np.array(rounds).T)


def printed_bound(walked: Walk) -> np.ndarray:
    """Return the right-hand side of theorem 1 as the paper prints it, for k = 0 … K."""
    tau, mu = walked.steps.tau, walked.problem.strong_convexity
    contraction = math.sqrt(1 - tau * mu)
    start = contraction ** np.arange(len(walked.distance)) * walked.distance[0]
    return np.asarray(start + math.sqrt(tau) / (1 - contraction) * walked.push)


def sharper_bound(walked: Walk) -> np.ndarray:
    """Return our bound, (1−τμ)^k·‖Θ^0 − Θ̄^0‖ + (1 − (1−τμ)^k)/μ·(σ_r/√|B_r| + G·Ω_max), for τ ≤ 1/L."""
    mu = walked.problem.strong_convexity
    decay = (1 - walked.steps.tau * mu) ** np.arange(len(walked.distance))
    return np.asarray(decay * walked.distance[0] + (1 - decay) / mu * walked.push)


def train(problem: Problem, start: Tensor, *, steps: int = 500) -> Tensor:
    """Return the original model, trained on D_r and D_u."""
    rows = torch.cat([problem.remaining, problem.forgotten])
    labels = torch.cat([problem.labels, problem.forgotten_labels], dim=1)
    both = replace(problem, remaining=rows, labels=labels)
    for _ in range(steps):
        start = start - both.remaining_gradient(start) / both.smoothness
    return start


def cases(problem: Problem, *, batch: int, rounds: int) -> dict[str, tuple[Problem, Steps]]:
    """Return what is compared: step sizes, mini-batches, and the first of them in another unit of the loss."""
    mu, smooth = problem.strong_convexity, problem.smoothness
    gamma = GAMMA * OMEGA * math.log(len(problem.labels))
    first = Steps(min(1 / (2 * smooth), mu / (4 * smooth**2)), SIGMA, gamma, batch, rounds)
    return {
        PROOF: (problem, first),
        "τ = 1/2L": (problem, replace(first, tau=1 / (2 * smooth))),
        LARGEST: (problem, replace(first, tau=1 / smooth)),
        "small batches": (problem, replace(first, batch=max(1, batch // 8))),
        "no mini-batches": (problem, replace(first, batch=len(problem.remaining))),
        UNIT: (replace(problem, scale=SCALE), first.scaled(SCALE)),
    }


@dataclass(frozen=True)
class Verdict:
    """What a walk says about a bound."""

    broken: int  # rounds in which the distance was above it, the start included
    tightest: float  # smallest and …
    loosest: float  # … largest quotient of bound and distance


def judge(walked: Walk, bound: np.ndarray) -> Verdict:
    """Compare the measured distance with a bound, round by round; rounding errors break nothing."""
    quotient = bound / walked.distance
    return Verdict(int((quotient < 1 - 1e-9).sum()), float(quotient.min()), float(quotient.max()))


def write_rounds(walks: Mapping[str, Walk], path: Path) -> None:
    """Write every round of every case as CSV; what only a step has is empty at the end."""
    names = ("dual", "forget_loss", "forget_gradient", "batch_error", "sample_deviation")
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["case", "round", "distance", "printed_bound", "sharper_bound", *names])
        for case, one in walks.items():
            steps = zip(one.dual, one.forget_loss, one.forget_gradient, one.error, one.deviation, strict=True)
            columns = zip(one.distance, printed_bound(one), sharper_bound(one), [*steps, ("",) * 5], strict=True)
            for number, (distance, printed, sharper, step) in enumerate(columns):
                writer.writerow([case, number, distance, printed, sharper, *step])


def write_cases(walks: Mapping[str, Walk], path: Path) -> None:
    """Write the constants of every case and how the bounds fared, as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        header = ["case", "tau", "mu", "L", "batch", "sigma_r", "G", "omega_max", "assumption_2_broken", "start", "end"]
        writer.writerow([*header, "printed_end", "printed_broken", "sharper_end", "sharper_broken"])
        for case, one in walks.items():
            problem, printed, sharper = one.problem, printed_bound(one), sharper_bound(one)
            constants = [one.steps.tau, problem.strong_convexity, problem.smoothness, one.steps.batch]
            measured = [one.deviation.max(), one.forget_gradient.max(), one.dual.max(), one.excess]
            bounds = [printed[-1], judge(one, printed).broken, sharper[-1], judge(one, sharper).broken]
            writer.writerow([case, *constants, *measured, one.distance[0], one.distance[-1], *bounds])


def plot(walks: Mapping[str, Walk], path: Path) -> None:
    """Draw the measured distance and both bounds, for the cases that tell most."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 5.4), layout="constrained")
    axes = figure.subplots(1, len(DRAWN), sharey=True)
    for axis, (case, title) in zip(axes, DRAWN.items(), strict=True):
        one = walks[case]
        rounds, printed = np.arange(len(one.distance)), printed_bound(one)
        axis.semilogy(rounds, printed, "--", color=RED, linewidth=2, label="bound of Theorem 1, as the paper prints it")
        axis.semilogy(
            rounds, sharper_bound(one), "-.", color=BLUE, linewidth=2, label="bound derived in docs/theorem.md"
        )
        axis.semilogy(rounds, one.distance, color="black", label=r"measured distance $\|\Theta^k - \bar\Theta^k\|$")
        broken = one.distance > printed
        axis.fill_between(
            rounds, printed, one.distance, where=broken, color=RED, alpha=0.25, label="Theorem 1 does not hold"
        )
        axis.set_title(f"{title}\n{_told(judge(one, printed))}", fontsize=11)
        axis.set_xlabel("round k")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("distance (log scale)")
    figure.suptitle(
        "FedORA's distance from a model trained from scratch without the forgotten rows (linear models, Income data)",
        fontsize=13,
    )
    figure.legend(*axes[-1].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=10)
    figure.savefig(path, dpi=150)


def _told(verdict: Verdict) -> str:
    if verdict.broken:
        return f"Theorem 1 fails in {verdict.broken:,} rounds"
    return f"Theorem 1 holds: {verdict.tightest:.0f} to {verdict.loosest:.0f} times the distance"


def load(rows: int, *, mu: float, seed: int) -> Problem:
    """Read Income as the parties do, and ask for half of the rarer class to be forgotten."""
    features, labels = [], torch.zeros(0)
    with tempfile.TemporaryDirectory() as folder:
        for party, file in cut(IncomeData(source="income", limit=rows), Path(folder), seed=seed).files.items():
            records = read(check(file.reading, DataSettings, origin=party), with_labels=party == ACTIVE)
            training = records.select(np.array([row for row, one in enumerate(records.ids) if one.startswith("train")]))
            features.append(_encoded(training))
            if training.labels is not None:
                numbers = LabelEncoding.learn(training.labels).apply(training.labels)
                labels = functional.one_hot(torch.from_numpy(numbers)).double().T.contiguous()
    rarest = torch.nonzero(labels[labels.sum(dim=1).argmin()]).flatten()
    forget = torch.zeros(labels.shape[1], dtype=torch.bool)
    forget[rarest[: len(rarest) // 2]] = True
    inputs = torch.cat(features, dim=1)
    return Problem(inputs[~forget], labels[:, ~forget], inputs[forget], labels[:, forget], mu)


def _encoded(records: Records) -> Tensor:
    """Return a party's rows as its linear bottom model sees them, with a column of ones for its bias."""
    assert records.features is not None
    every = np.arange(len(records))
    rows = learn(records.features, every).apply(records.features).batch(torch.from_numpy(every)).double()
    return torch.cat([rows, torch.ones(len(rows), 1, dtype=torch.float64)], dim=1)
