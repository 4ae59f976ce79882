"""Retrain as a distribution: several draws, gaps in their deviations, and words that say no more than they allow."""

import math
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]

from fedora_vfl.certificates.verification import Evidence, examine
from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.federation import load_federation
from fedora_vfl.verdicts.forgetting import verdict
from fedora_vfl.verdicts.retrains import STUDENT, Spread, gap_deviations, gaps, names, spreads
from tests.conftest import as_job, run, write_people


def test_the_points_of_student_s_t_are_those_of_the_books() -> None:
    for degrees, point in enumerate(STUDENT, start=1):
        assert point == pytest.approx(stats.t.ppf(0.975, degrees), abs=6e-4)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8), st.floats(0, 1))
def test_a_spread_is_what_a_statistician_finds(values: list[float], unlearned: float) -> None:
    models = ["retrain", *(f"retrain-{number}" for number in range(2, len(values) + 1))]
    metrics: dict[str, dict[str, float | None]] = {
        name: {"accuracy": value} for name, value in zip(models, values, strict=True)
    }
    metrics["unlearned"] = {"accuracy": unlearned}
    found = spreads(metrics)["accuracy"]
    assert names(metrics) == models
    assert found.mean == pytest.approx(mean(values), abs=1e-12)
    assert found.deviation == pytest.approx(stdev(values), abs=1e-12)
    assert (gaps(metrics) or {})["accuracy"] == pytest.approx(unlearned - mean(values), abs=1e-12)
    away = gap_deviations(metrics) or {}
    if found.deviation and found.deviation > 1e-9:
        assert away["accuracy"] == pytest.approx((unlearned - mean(values)) / stdev(values), rel=1e-6)


def test_one_retrain_in_twenty_is_called_far_away() -> None:
    draws = stats.norm.rvs(size=(4000, 4), random_state=0)
    called = 0
    for *others, one in draws.tolist():
        found = spreads({f"retrain{'' if not n else f'-{n + 1}'}": {"x": value} for n, value in enumerate(others)})["x"]
        called += bool(found.beyond(one))
    assert 0.04 < called / len(draws) < 0.06


def test_a_single_retrain_is_a_yardstick_without_a_spread() -> None:
    metrics: dict[str, dict[str, float | None]] = {"retrain": {"x": 0.25, "y": None}, "unlearned": {"x": 0.5}}
    assert gaps(metrics) == {"x": 0.25} and gap_deviations(metrics) is None
    assert spreads(metrics)["x"].beyond(9.0) is None
    assert gaps({"unlearned": {"x": 0.5}}) is None
    assert Spread(0.5, 0.0, 0.5, 0.5, 3).deviations(0.6) is None


def test_numbers_without_bounds_end_nowhere() -> None:
    metrics: dict[str, dict[str, float | None]] = {"retrain": {"x": 1e308}, "retrain-2": {"x": -1e308}}
    assert not math.isfinite(spreads(metrics)["x"].deviation or 0.0)


def test_a_job_names_every_retrain_and_unlearns_with_one() -> None:
    job = as_job({"forget": {"samples": 3}, "compare": [{"method": "retrain", "seeds": 3, "save": "anew"}, "ga"]})
    assert job.compared() == {"retrain": "anew", "retrain-2": "anew-2", "retrain-3": "anew-3", "ga": "ga"}
    assert job.new_names() == ["original", "unlearned", "anew", "anew-2", "anew-3", "ga"]
    with pytest.raises(SettingsError, match="`unlearn` makes one model"):
        as_job({"forget": {"samples": 3}, "unlearn": {"method": "retrain", "seeds": 2}})
    with pytest.raises(SettingsError, match="a name of its own"):
        as_job(
            {
                "forget": {"samples": 3},
                "unlearn": {"save": "anew-2"},
                "compare": [{"method": "retrain", "seeds": 2, "save": "anew"}],
            }
        )


def test_a_request_that_is_honoured_by_a_retrain_is_held_against_others(tmp_path: Path) -> None:
    people = write_people(tmp_path / "people.csv")
    job = {
        "data": {"source": "csv", "path": str(people), "id": "person"},
        "train": {"epochs": 1},
        "forget": {"samples": 40},
        "unlearn": {"method": "retrain"},
        "compare": [{"method": "retrain", "seeds": 2}],
        "certificate": False,
    }
    result = run(job, tmp_path / "out")
    assert len({result[name]["test_loss"] for name in ("unlearned", "retrain", "retrain-2")}) == 3, "seeds of their own"
    assert result["gap"]["bytes_share"] == 1.0
    assert not any("no yardstick" in sentence for sentence in result["verdict"])


def models(auc: float, *retrains: float, difference: float = 0.0) -> dict[str, dict[str, Any]]:
    """Return models with these AUC, as far as a verdict reads them."""

    def one(auc: float, difference: float = 0.0) -> dict[str, Any]:
        return {"test_accuracy": 0.8, "mia_auc": auc, "forget_minus_unseen_accuracy": difference, "seconds": 1.0}

    named = {f"retrain{'' if not n else f'-{n + 1}'}": one(value) for n, value in enumerate(retrains)}
    return {"original": one(0.7), "unlearned": one(auc, difference), **named}


def said(measured: dict[str, dict[str, Any]]) -> str:
    """Return what the verdict says of membership."""
    return verdict(measured, uncertain=False, rows=100, moved=None)[-1]


def test_words_say_no_more_than_the_retrains_allow() -> None:
    assert said(models(0.6, 0.5)).startswith("Something is remembered")
    near = said(models(0.6, 0.45, 0.5, 0.62))
    assert (
        near.startswith("Forgotten rows look like rows never seen") and "no more than one more Retrain may be" in near
    )
    doubtful = said(models(0.6, 0.45, 0.5, 0.58))
    assert doubtful.startswith("Whether the rows are forgotten is unclear, more Retrains would tell")
    assert "no more than one more Retrain may be" in doubtful
    far = said(models(0.6, 0.5, 0.501, 0.499))
    assert far.startswith("Something is remembered") and "more than one more Retrain would be" in far
    assert said(models(0.4, 0.5, 0.501, 0.499)).startswith("Over-forgetting")
    assert "right on forgotten minus unseen rows +12.0 points, Retrain +0.0 points" in said(
        models(0.5, 0.5, difference=0.12)
    )


def test_a_loss_of_accuracy_that_retrains_have_too_is_not_blamed_on_forgetting() -> None:
    measured = models(0.5, 0.5, 0.5, 0.5)
    for name, accuracy in (("unlearned", 0.76), ("retrain", 0.75), ("retrain-2", 0.80), ("retrain-3", 0.85)):
        measured[name]["test_accuracy"] = accuracy
    told = verdict(measured, uncertain=False, rows=100, moved=None)[0]
    assert told.startswith("Whether forgetting cost accuracy is unclear: test accuracy is 4.0 points below the mean of")
    measured["unlearned"]["test_accuracy"] = 0.4
    assert verdict(measured, uncertain=False, rows=100, moved=None)[0].startswith("Forgetting cost accuracy")


def test_without_a_retrain_there_is_no_yardstick_and_chance_is_none() -> None:
    told = said(models(0.5))
    assert (
        told.startswith("Whether the rows are forgotten has no yardstick")
        and "0.5 " not in told
        and "chance" not in told
    )


@pytest.fixture(scope="module")
def thrice(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any], Path]:
    """Forget once with one Retrain, once with three; return both results and the folder of the second run."""
    folder = tmp_path_factory.mktemp("retrains")
    people = write_people(folder / "people.csv")
    job = {
        "data": {"source": "csv", "path": str(people), "id": "person"},
        "train": {"epochs": 2},
        "forget": {"samples": 40},
        "unlearn": {"method": "ga", "rounds": 2},
    }
    once = run({**job, "compare": ["retrain"]}, folder / "once")
    several = run({**job, "compare": [{"method": "retrain", "seeds": 3}, "none"]}, folder / "several")
    return once, several, folder / "several"


def test_the_first_of_several_retrains_is_the_only_one_of_a_single(thrice: tuple[Any, Any, Path]) -> None:
    once, several, _ = thrice
    measured = ("test_loss", "test_accuracy", "forget_accuracy", "mia_auc", "held_out_loss")
    first, second = ([result["retrain"][name] for name in measured] for result in (once, several))
    assert first == second
    assert len({several[name]["test_loss"] for name in ("retrain", "retrain-2", "retrain-3")}) == 3
    assert "retrains" not in once
    assert once["gap"]["test_accuracy"] == once["unlearned"]["test_accuracy"] - once["retrain"]["test_accuracy"]


def test_gaps_of_a_run_are_told_in_deviations_too(thrice: tuple[Any, Any, Path]) -> None:
    _, several, folder = thrice
    drawn = [several[name]["forget_accuracy"] for name in ("retrain", "retrain-2", "retrain-3")]
    spread = several["retrains"]["figures"]["forget_accuracy"]
    assert spread["mean"] == pytest.approx(mean(drawn)) and spread["deviation"] == pytest.approx(stdev(drawn))
    gap = several["unlearned"]["forget_accuracy"] - mean(drawn)
    assert several["gap"]["forget_accuracy"] == pytest.approx(gap)
    assert set(several["gaps"]) == {"none"}, "a Retrain has no gap to Retrain"
    if stdev(drawn):
        away = several["retrains"]["deviations"]["unlearned"]["forget_accuracy"]
        assert away == pytest.approx(gap / stdev(drawn))
    for name in ("original", "unlearned", "retrain-2", "none"):
        one = several[name]
        difference = one["forget_accuracy"] - one["unseen_accuracy"]
        assert one["forget_minus_unseen_accuracy"] == pytest.approx(difference)
    trusted = load_federation(folder / "federation.yaml").keys
    made, checks = examine((folder / "certificate.json").read_bytes(), Evidence(trusted=trusted))
    assert made and not [check for check in checks if check.holds is False]
    assert made.gap_deviations == several["retrains"]["deviations"]["unlearned"]
    assert made.gaps and set(made.gaps) <= set(several["gap"])
    assert (
        made.metrics["retrain-3"]["forget_minus_unseen_accuracy"]
        == several["retrain-3"]["forget_minus_unseen_accuracy"]
    )
    costs = {name: several[name]["bytes"]["tensor"] for name in ("retrain", "retrain-2", "retrain-3")}
    assert len({*costs.values()}) == 1 and costs["retrain"] > 0
