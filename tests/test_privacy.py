"""Noise on what a party sends: rows are clipped, noise is Gaussian, and the (ε, δ) stated is neither more nor less."""

import math
from pathlib import Path

import pytest
import torch

from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.files import check
from party.privacy import Noise, PrivacyLoss, clip_rows, epsilon
from party.settings import PrivacySettings

DOCS = Path(__file__).parent.parent / "docs"
ROWS = torch.arange(50)


def tensor(rows: int = 50, width: int = 8, *, size: float = 1.0) -> torch.Tensor:
    return size * torch.randn(rows, width, generator=torch.Generator().manual_seed(1))


def noise(**settings: float | int | None) -> Noise:
    return Noise(check({"seed": 7, **settings}, PrivacySettings, origin="party.yaml: privacy"), party="passive-1")


# What is sent


def test_without_settings_the_very_tensor_is_sent_and_nothing_is_stated() -> None:
    off, batch = Noise(None, party="passive-1"), tensor()
    assert off.apply(batch, ROWS, 1, 0) is batch
    assert off.loss() is None


def test_neither_noise_nor_clipping_leaves_every_bit() -> None:
    assert torch.equal(noise(noise=0, clip=None).apply(tensor(), ROWS, 1, 0), tensor())


def test_rows_longer_than_clip_are_shortened_to_it_and_keep_their_direction() -> None:
    batch = tensor(size=10)
    sent = clip_rows(batch, 1.0)
    torch.testing.assert_close(sent.norm(dim=1), torch.ones(50))
    torch.testing.assert_close(torch.cosine_similarity(sent, batch), torch.ones(50))


def test_rows_within_clip_leave_every_bit() -> None:
    batch = torch.cat([tensor(), torch.zeros(1, 8)])
    assert torch.equal(clip_rows(batch, 100.0), batch)


def test_gradients_flow_through_the_clipping_and_stay_finite_for_a_row_of_zeros() -> None:
    batch = torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    torch.autograd.backward(noise(noise=0.1, clip=1.0).apply(batch, torch.arange(2), 1, 0)[:, 0].sum())
    # The derivative of x/√(x²+y²) at (3, 4) is (y², −xy)/5³.
    torch.testing.assert_close(batch.grad, torch.tensor([[16 / 125, -12 / 125], [1.0, 0.0]]))


def test_the_noise_is_gaussian_with_the_deviation_asked_for() -> None:
    zeros = torch.zeros(1000, 200)
    sent = noise(noise=0.25).apply(zeros, torch.arange(1000), 1, 0) / 0.25
    assert sent.dtype == torch.float32
    count = sent.numel()
    assert abs(sent.mean()) < 5 / math.sqrt(count)
    assert abs(sent.std() - 1) < 5 / math.sqrt(2 * count)
    for bound, share in ((1.0, 0.682689), (2.0, 0.954500), (3.0, 0.997300)):
        spread = math.sqrt(share * (1 - share) / count)
        assert abs(float((sent.abs() < bound).double().mean()) - share) < 5 * spread


def test_a_seed_gives_the_same_noise_for_the_same_moment_and_other_noise_for_every_other() -> None:
    zeros, rows = torch.zeros(4, 4), torch.arange(4)
    settings = PrivacySettings(noise=1, seed=3)
    once = Noise(settings, party="passive-1").apply(zeros, rows, 2, 5)
    assert torch.equal(once, Noise(settings, party="passive-1").apply(zeros, rows, 2, 5))
    assert not torch.equal(once, Noise(settings, party="passive-2").apply(zeros, rows, 2, 5))
    for moment in ((2, 6), (3, 5), (2, 5, "passive-1")):
        assert not torch.equal(once, Noise(settings, party="passive-1").apply(zeros, rows, *moment))


def test_without_a_seed_no_noise_comes_twice_but_on_the_same_values_at_the_same_moment() -> None:
    fresh = Noise(PrivacySettings(noise=1), party="passive-1")
    zeros = torch.zeros(50, 8)
    first = fresh.apply(zeros, ROWS, 1, 0)
    assert torch.equal(first, fresh.apply(zeros, ROWS, 1, 0)), "what is sent again after a loss tells nothing new"
    assert not torch.equal(first, fresh.apply(zeros, ROWS, 1, 1))
    assert not torch.equal(first, Noise(PrivacySettings(noise=1), party="passive-1").apply(zeros, ROWS, 1, 0))
    # Whoever has a phase done again with other rows must not get their difference without noise.
    assert (fresh.apply(zeros + 1, ROWS, 1, 0) - first - 1).abs().max() > 0.1


def test_an_empty_batch_is_sent_as_it_is() -> None:
    assert noise(noise=1).apply(torch.zeros(0, 8), torch.arange(0), 1, 0).shape == (0, 8)


# What it amounts to


def test_the_row_sent_most_often_counts() -> None:
    blurred = noise(noise=5.0, clip=1.0, delta=1e-5)
    blurred.apply(tensor(3), torch.tensor([0, 1, 2]), 1, 0)
    blurred.apply(tensor(2), torch.tensor([9, 1]), 1, 1)
    blurred.apply(tensor(1), torch.tensor([1]), 2, 0)
    assert blurred.releases.counts.tolist() == [1, 3, 1, 0, 0, 0, 0, 0, 0, 1]
    terms = {"clip": 1.0, "noise": 5.0, "delta": 1e-5}
    assert blurred.loss() == PrivacyLoss(
        1e-5, 3, epsilon(**terms, releases=3), 6, epsilon(**terms, releases=6), repeatable=True
    )


def test_a_party_that_has_sent_nothing_has_given_nothing_away() -> None:
    loss = noise(noise=1.0).loss()
    assert loss is not None
    assert (loss.epsilon, loss.epsilon_whole) == (0, 0)


def test_clipping_without_noise_gives_no_protection() -> None:
    only_clipped = noise(noise=0)
    only_clipped.apply(tensor(), ROWS, 1, 0)
    loss = only_clipped.loss()
    assert loss is not None
    assert loss.epsilon == math.inf


def test_without_clipping_nothing_is_stated() -> None:
    unclipped = noise(noise=1, clip=None)
    unclipped.apply(tensor(), ROWS, 1, 0)
    assert unclipped.loss() is None


def test_epsilon_falls_with_noise_and_delta_and_grows_with_releases_and_clip() -> None:
    def spent(clip: float = 1.0, noise: float = 4.0, delta: float = 1e-5, releases: int = 10) -> float:
        return epsilon(clip=clip, noise=noise, delta=delta, releases=releases)

    for falling in (
        [spent(noise=value) for value in (1e-5, 5e-4, 0.1, 1, 10, 100)],
        [spent(delta=value) for value in (1e-9, 1e-7, 1e-5, 1e-3)],
        [spent(releases=value) for value in (1000, 100, 10, 1)],
        [spent(clip=value) for value in (10, 1, 0.1)],
    ):
        assert falling == sorted(falling, reverse=True)
        assert len(set(falling)) == len(falling)


@pytest.mark.parametrize("releases", [1, 7, 60])
@pytest.mark.parametrize("delta", [1e-7, 1e-5, 1e-3])
@pytest.mark.parametrize("wanted", [0.05, 0.3, 0.9])
def test_epsilon_is_below_the_classical_bound_of_the_gaussian_mechanism(
    wanted: float, delta: float, releases: int
) -> None:
    # Dwork and Roth, theorem A.1: for ε < 1, σ = √(2 ln(1.25/δ))·Δ/ε suffices.
    sensitivity = 2 * 0.5 * math.sqrt(releases)
    deviation = math.sqrt(2 * math.log(1.25 / delta)) * sensitivity / wanted
    assert 0 < epsilon(clip=0.5, noise=deviation, delta=delta, releases=releases) <= wanted


@pytest.mark.parametrize("deviation", [5e-4, 0.1, 1.0, 10.0])
def test_epsilon_is_below_the_bound_by_renyi_divergence_and_solves_the_exact_equation(deviation: float) -> None:
    # With μ = Δ/σ: Rényi's bound is μ²/2 + μ√(2 ln(1/δ)); the exact δ(ε) is Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ).
    mu, delta = 2 * math.sqrt(30) / deviation, 1e-5
    spent = epsilon(clip=1.0, noise=deviation, delta=delta, releases=30)
    assert spent <= mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    first, second = (torch.tensor(sign * mu / 2 - spent / mu, dtype=torch.float64) for sign in (1, -1))
    reached = torch.special.log_ndtr(first).exp() - (spent + torch.special.log_ndtr(second)).exp()
    assert float(reached) == pytest.approx(delta, rel=0.02)


@pytest.mark.parametrize(
    "wrong", [{"clip": 0.0}, {"noise": -1.0}, {"delta": 0.0}, {"delta": 1.0}, {"releases": -1}, {"noise": math.nan}]
)
def test_epsilon_of_impossible_terms_is_refused(wrong: dict[str, float]) -> None:
    terms = {"clip": 1.0, "noise": 1.0, "delta": 1e-5, "releases": 1} | wrong
    with pytest.raises(ValueError, match="clip should be positive"):
        epsilon(**terms)  # type: ignore[arg-type]


def test_row_numbers_that_do_not_fit_the_tensor_are_refused_before_anything_is_counted() -> None:
    blurred = noise(noise=1)
    with pytest.raises(ValueError, match="3 row numbers were given for a tensor of 50 rows"):
        blurred.apply(tensor(), torch.arange(3), 1, 0)
    assert not len(blurred.releases.counts)


# Settings


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({}, "noise: is missing"),
        ({"noise": -0.1}, "noise: should be greater than or equal to 0 (got -0.1)"),
        ({"noise": 1, "clip": 0}, "clip: should be greater than 0 (got 0)"),
        ({"noise": 1, "delta": 1}, "delta: should be less than 1 (got 1)"),
        ({"noise": 1, "delta": 0}, "delta: should be greater than 0 (got 0)"),
        (
            {"noise": 1, "clipp": 1},
            "clipp: unknown setting; did you mean `clip`? allowed here: clip, delta, noise, seed",
        ),
    ],
)
def test_impossible_settings_are_refused_in_one_sentence(content: dict[str, float], sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        check(content, PrivacySettings, origin="party.yaml")
    assert str(caught.value) == f"party.yaml: {sentence}"


def test_the_table_in_the_docs_is_what_the_code_computes() -> None:
    lines = (DOCS / "privacy.md").read_text().splitlines()
    header = next(line for line in lines if line.startswith("| noise |"))
    releases = [int(cell.split()[0].replace(",", "")) for cell in header.strip("| ").split("|")[1:]]
    start = lines.index(header) + 2
    table = [line.strip("| ").split("|") for line in lines[start:] if line.startswith("| ")][:7]
    for deviation, *cells in table:
        for count, cell in zip(releases, cells, strict=True):
            spent = epsilon(clip=1.0, noise=float(deviation), delta=1e-5, releases=count)
            assert f"{spent:,.2g}" == cell.strip() or float(cell.replace(",", "")) == pytest.approx(spent, rel=0.05)
