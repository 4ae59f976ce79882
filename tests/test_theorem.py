"""Theorem 1 where it applies: what is measured is what the assumptions name, and bounds are judged by it."""

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from typer.testing import CliRunner

from fedora_vfl.bench.theorem import (
    OMEGA,
    PROOF,
    UNIT,
    Problem,
    Steps,
    Walk,
    cases,
    judge,
    load,
    printed_bound,
    sharper_bound,
    train,
    walk,
)
from fedora_vfl.cli.__main__ import app
from party.losses import uncertainty

CLASSES, FEATURES = 3, 4


def problem(*, mu: float = 0.1, rows: int = 60) -> Problem:
    draw = torch.Generator().manual_seed(5)
    inputs = 2 * torch.randn(rows + 20, FEATURES, generator=draw, dtype=torch.float64)
    classes = inputs[:, :CLASSES].argmax(dim=1)
    labels = functional.one_hot(classes, CLASSES).double().T.contiguous()
    return Problem(inputs[:rows], labels[:, :rows], inputs[rows:], labels[:, rows:], mu)


def remaining_loss(given: Problem, theta: Tensor, rows: slice = slice(None)) -> Tensor:
    """Write L_r down once more, from logits that parties' embeddings add up to."""
    parties = torch.split(given.remaining[rows], [1, 3], dim=1)
    bottoms = torch.split(theta, [1, 3], dim=1)
    logits = torch.stack([x @ one.T for x, one in zip(parties, bottoms, strict=True)]).sum(dim=0)
    classes = given.labels[:, rows].argmax(dim=0)
    return given.scale * (functional.cross_entropy(logits, classes) + given.mu / 2 * theta.square().sum())


def gradient(loss: Tensor, theta: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(loss, theta)
    return found


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_gradients_are_those_of_the_losses(scale: float) -> None:
    given = replace(problem(), scale=scale)
    theta = given.start(1).requires_grad_()
    batch = slice(10, 30)
    wanted = gradient(remaining_loss(given, theta, batch), theta)
    torch.testing.assert_close(given.remaining_gradient(theta.detach(), torch.arange(60)[batch]), wanted)
    forget = scale * uncertainty(given.forgotten @ theta.T, OMEGA).mean()
    loss, found = given.forgetting(theta.detach())
    assert loss == pytest.approx(float(forget.detach()))
    torch.testing.assert_close(found, gradient(forget, theta))


def test_sigma_r_is_the_deviation_of_single_samples_from_the_whole_gradient() -> None:
    given = problem()
    theta = given.start(1)
    whole, deviation = given.gradient_and_deviation(theta)
    torch.testing.assert_close(whole, given.remaining_gradient(theta))
    single = torch.stack([given.remaining_gradient(theta, torch.tensor([row])) for row in range(60)])
    assert deviation == pytest.approx(math.sqrt(float((single - whole).square().sum(dim=(1, 2)).mean())))


def test_every_hessian_lies_between_mu_and_smoothness() -> None:
    given = problem(mu=0.2)
    for size in (0.0, 1.0, 10.0):
        theta = size * given.start(2)
        hessian = torch.autograd.functional.hessian(  # type: ignore[no-untyped-call]
            lambda one: remaining_loss(given, one), theta
        )
        values = torch.linalg.eigvalsh(hessian.reshape(CLASSES * FEATURES, CLASSES * FEATURES))
        assert float(values[0]) == pytest.approx(given.strong_convexity)
        assert float(values[-1]) <= given.smoothness


def test_both_bounds_hold_for_a_usual_loss_and_ours_is_the_lower_one() -> None:
    given = problem()
    fresh, trained = given.start(0), train(given, given.start(1))
    for case, (scaled, steps) in cases(given, batch=16, rounds=120).items():
        one = walk(scaled, steps, trained, fresh, seed=3)
        assert judge(one, sharper_bound(one)).broken == 0
        if case != UNIT:
            assert one.dual.max() > 0
            assert judge(one, printed_bound(one)).broken == 0
            assert (sharper_bound(one) <= printed_bound(one)).all()


def test_another_unit_of_the_loss_gives_the_same_models_and_another_printed_bound() -> None:
    given = problem()
    chosen = cases(given, batch=16, rounds=60)
    first, other = (walk(*chosen[case], given.start(1), given.start(0), seed=3) for case in (PROOF, UNIT))
    np.testing.assert_allclose(other.distance, first.distance, rtol=1e-6)
    np.testing.assert_allclose(sharper_bound(other), sharper_bound(first), rtol=1e-6)
    assert printed_bound(other)[-1] < 0.5 * printed_bound(first)[-1]


def test_the_counterexample_of_the_docs_breaks_the_printed_bound_and_not_ours() -> None:
    # L_r = μ/2·Θ², and L_u with gradient 1 and Ω = 1: the distance goes to 1/μ. τ is the largest the proof allows.
    mu, rounds = 0.01, 5000
    tau, distance = mu / (4 * mu**2), [0.0]
    for _ in range(rounds):
        distance.append(distance[-1] - tau * (mu * distance[-1] - 1))
    one, zero = np.ones(rounds), np.zeros(rounds)
    walked = Walk(_parabola(mu), Steps(tau, 0, 0, 1, rounds), np.array(distance), zero, zero, one, zero, one)
    assert walked.distance[-1] == pytest.approx(100)
    assert printed_bound(walked)[-1] == pytest.approx(37.3, abs=0.05)
    assert (walked.distance <= sharper_bound(walked) * (1 + 1e-12)).all()


def _parabola(mu: float) -> Problem:
    """Return a problem whose μ and L are both `mu`."""
    nothing = torch.zeros(1, 1, dtype=torch.float64)
    flat = Problem(nothing, nothing, nothing, nothing, mu)
    assert flat.smoothness == flat.strong_convexity == mu
    return flat


def test_a_bound_is_judged_in_every_round() -> None:
    one = walk(problem(), Steps(0.1, 0.01, 1.0, 60, 3), problem().start(1), problem().start(0), seed=0)
    assert judge(one, 2 * one.distance).broken == 0
    bound = one.distance * np.array([1.0, 0.9, 3.0, 1.0])
    verdict = judge(one, bound)
    assert verdict.broken == 1
    assert (verdict.tightest, verdict.loosest) == pytest.approx((0.9, 3.0))


def test_without_mini_batches_there_is_no_error() -> None:
    one = walk(problem(), Steps(0.1, 0.01, 1.0, 60, 3), problem().start(1), problem().start(0), seed=0)
    assert one.error.max() < 1e-12
    assert one.excess == 0


def test_income_is_read_as_the_parties_hold_it() -> None:
    given = load(300, mu=0.5, seed=0)
    assert len(given.remaining) + len(given.forgotten) == 300
    assert given.forgotten_labels.sum(dim=1).count_nonzero() == 1  # one class only
    assert given.labels.sum(dim=0).eq(1).all()
    assert (given.remaining == 1).all(dim=0).sum() >= 3  # a bias for each of the three parties


def test_the_command_writes_a_plot_every_round_and_a_plain_sentence(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    options = ["--out", str(tmp_path / "out"), "--rows", "200", "--rounds", "5", "--batch", "16"]
    ran = CliRunner().invoke(app, ["bench", "theorem", *options])
    assert ran.exit_code == 0, ran.output
    assert "With losses as they are, Theorem 1's bound holds in every round" in ran.output
    assert (tmp_path / "out" / "theorem.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "out" / "theorem.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 6 * (5 + 1)
    assert all(float(line["distance"]) <= float(line["sharper_bound"]) * (1 + 1e-9) for line in lines)
    with (tmp_path / "out" / "theorem-cases.csv").open() as file:
        assert [line["sharper_broken"] for line in csv.DictReader(file)] == ["0"] * 6


def test_the_command_names_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "file").touch()
    ran = CliRunner().invoke(
        app, ["bench", "theorem", "--out", str(tmp_path / "file"), "--rows", "200", "--rounds", "1"]
    )
    assert ran.exit_code == 3
    assert f"error: {tmp_path / 'file'}: cannot be written to: File exists" in ran.output
