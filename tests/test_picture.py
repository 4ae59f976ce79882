"""The picture of an unlearning: what it reads from a result, and that every kind of run can be drawn."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.methods.fedora_settings import Fedora
from coordinator.train import Train
from fedora_vfl.cli.picture import NAME, draw, read, spread

FORGET = 200


def entry(phase: str, round: int, **more: Any) -> dict[str, Any]:
    """Return one entry of result.json's rounds."""
    return {"phase": phase, "round": round, "loss": 0.5, "accuracy": 0.8, "step_size": 0.01, "figures": {}, **more}


def made(*, pushes: int = 4, recoveries: int = 2, undone: tuple[int, ...] = (), **unlearn: Any) -> dict[str, Any]:
    """Return a result as far as the picture reads it."""
    rounds = [entry("train", 1)]
    for round in range(1, pushes + 1):
        back = {"rolled_back": True} if round in undone else {}
        figures = {party: {"dual_norm": 3.0, "dual_largest": 2.0} for party in ("passive-1", "active")}
        rounds.append(entry("unlearning", round, loss=0.1 * round, step_size=0.36, figures=figures, **back))
        rounds.append(entry("remaining", round, **back))
    rounds += [entry("recovery", round) for round in range(1, recoveries + 1)]
    rounds += [entry("certificate", 1, loss=-0.3, step_size=None), entry("certificate", 2, step_size=None)]
    model = {"test_accuracy": 0.85, "forget_accuracy": 0.9, "backdoor_asr": None}
    return {
        **dict.fromkeys(("original", "unlearned", "retrain"), model),
        "forget": {"rows": FORGET, "remaining": 800},
        "classes": 4,
        "rounds": rounds,
        "job": {
            "unlearn": Fedora(**unlearn).model_dump(mode="json"),
            "train": Train().model_dump(mode="json", by_alias=True),
        },
    }


def test_recovery_rounds_follow_the_rounds_that_push() -> None:
    story = read(made(pushes=4, recoveries=2, undone=(3,)))
    assert story
    assert (story.push_rounds, story.rounds, story.rolled_back) == (4, 6, [3])
    assert story.uncertainty.rounds == [1, 2, 3, 4] and story.accuracy.rounds == [1, 2, 3, 4, 5, 6]
    assert story.tau.rounds == story.accuracy.rounds and story.sigma.rounds == story.uncertainty.rounds
    assert story.dual.values == [2.0] * 4 + [0.0] * 2, "nothing pushes in recovery"
    assert story.final_uncertainty == -0.3


def test_the_level_is_the_one_that_the_run_had_to_reach() -> None:
    def level(**unlearn: Any) -> float:
        story = read(made(**unlearn))
        assert story
        return story.problem.level

    assert level() == pytest.approx(0.9 * 2 * math.log(4))
    assert level(omega=3.0) == pytest.approx(0.9 * 3 * math.log(4))
    assert level(goal="uncertain", gamma=1.5) == 1.5
    assert level(steps="paper", reduction="sum") == pytest.approx(FORGET * 0.9 * 2 * math.log(4))


def test_a_sum_over_rows_is_drawn_as_a_sum() -> None:
    story = read(made(steps="paper", reduction="sum"))
    assert story
    assert story.uncertainty.values == pytest.approx([FORGET * 0.1 * round for round in range(1, 5)])


def test_a_dual_variable_of_many_parts_is_drawn_by_its_norm() -> None:
    story = read(made(dual="parameterwise", recoveries=0))
    assert story
    assert story.dual.values == pytest.approx([math.sqrt(18)] * 4)


@pytest.mark.parametrize(
    "result",
    [
        made(),
        made(undone=(1, 2)),
        made(recoveries=0, goal="uncertain"),
        made(pushes=0),
        made(pushes=1, recoveries=0, dual="parameterwise"),
        made(pushes=30, steps="paper", recoveries=0),
        {name: value for name, value in made().items() if name != "retrain"},
        made() | {model: {"test_accuracy": 0.8, "backdoor_asr": 0.1} for model in ("original", "unlearned", "retrain")},
    ],
)
def test_every_kind_of_run_is_drawn_the_same_each_time(result: dict[str, Any], tmp_path: Path) -> None:
    assert draw(result, tmp_path) == NAME
    first = (tmp_path / NAME).read_bytes()
    assert first.startswith(b"\x89PNG") and int.from_bytes(first[16:20], "big") == 1200
    draw(result, tmp_path)
    assert (tmp_path / NAME).read_bytes() == first


def test_a_run_of_an_earlier_release_is_drawn_though_its_settings_are_others() -> None:
    result = made()
    result["job"]["unlearn"]["scales"]["early_stop"] = True
    result["job"]["train"]["warm_restarts"] = 3
    assert read(result) == read(made())


def test_without_rounds_there_is_no_picture_not_even_an_old_one(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"of an earlier job")
    trained = {name: value for name, value in made(pushes=0, recoveries=0).items() if name != "unlearned"}
    assert draw(trained, tmp_path) is None
    assert not (tmp_path / NAME).exists()
    retrained = made(pushes=0, recoveries=0)
    retrained["job"]["unlearn"] = {"method": "retrain"}
    assert draw(retrained, tmp_path) is None


@given(st.lists(st.floats(0, 1), max_size=6))
def test_names_of_lines_never_overlap_and_keep_their_order(heights: list[float]) -> None:
    placed = spread(heights, least=0.15)
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    for lower, upper in pairwise(order):
        assert placed[upper] - placed[lower] >= 0.15 - 1e-6
    if len(heights) == 1:
        assert placed == pytest.approx(heights)
