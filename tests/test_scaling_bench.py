"""What the measurement of forgetting promises: gaps to Retrains, bars, and a run that goes on where it was."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from coordinator.job import Forget, Job
from coordinator.methods.fedora_settings import Fedora
from coordinator.methods.self_scaling import SOFTENED
from fedora_vfl.bench.leaning import requests
from fedora_vfl.bench.one_process.course import CONFIDENCE, LEANING, UNSURE, Course
from fedora_vfl.bench.scaling import __main__ as command
from fedora_vfl.bench.scaling.cells import TRAININGS, Group
from fedora_vfl.bench.scaling.measuring import Cell, read_cells
from fedora_vfl.bench.scaling.table import BARS, beyond, gap, lines
from fedora_vfl.bench.sequence import Sequence, slope
from fedora_vfl.bench.single import Single, line, measure, opened
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.files import check
from protos.fedora.v1.phase_pb2 import Samples

DIGITS = Group("digits", "50", "as it is", 0)


def cell(test: float, retrains: list[float], *, share: float = 0.01, group: Group = DIGITS) -> Cell:
    anew = [{"test_accuracy": one, "bytes": 1000.0, CONFIDENCE: 0.5} for one in retrains]
    found = {"test_accuracy": test, "bytes": 1000 * share, CONFIDENCE: 0.6}
    return Cell(group, "full", {"test_accuracy": 0.95, CONFIDENCE: 0.9}, found, anew)


def test_a_figure_misses_where_it_is_beyond_the_bar_and_beyond_one_deviation_of_the_retrains() -> None:
    test = BARS[0]
    for unlearned, retrains, misses in [
        (0.90, [0.90, 0.90, 0.90], 0),
        (0.885, [0.90, 0.90, 0.90], 1),
        (0.885, [0.88, 0.90, 0.92], 0),  # Retrain itself scatters by two points
        (0.97, [0.90, 0.90, 0.90], 0),  # better is no harm
    ]:
        found = gap([cell(unlearned, retrains)], test)
        assert found and found.misses == misses
    both = gap([cell(0.885, [0.90] * 3), cell(0.91, [0.90] * 3)], test)
    assert both and both.misses == 1 and both.unlearned == pytest.approx(89.75)
    assert gap([cell(0.9, [0.9])], BARS[1]) is None, "no backdoor, no figure"


def test_retrains_are_held_against_each_other_by_the_same_bars() -> None:
    cells = [cell(0.90, [0.90, 0.90, 0.90]), cell(0.80, [0.90, 0.90, 0.70])]
    (said,) = beyond(cells)
    # 70 is far below two that agree; two that do not agree allow for more than one of them is away.
    assert said == "test_accuracy: 0 of 2 runs are beyond the bar, and 1 of 6 Retrains beside the others"
    (alone,) = beyond([cell(0.80, [0.90])])
    assert alone == "test_accuracy: 1 of 1 runs are beyond the bar"


def test_a_line_says_where_more_bytes_were_used_than_a_request_of_its_size_may_cost() -> None:
    (cheap,) = lines([cell(0.9, [0.9])])
    (dear,) = lines([cell(0.9, [0.9], share=0.02)])
    assert cheap[-1] == "1.0 %" and dear[-1] == "2.0 % **too many**"
    assert cheap[-4] == "90 → 60 (50 to 50)"
    assert cheap[-3:-1] == ["", ""], "cells of earlier releases do not have all that later ones do"


def test_every_way_of_training_is_a_job() -> None:
    for training in TRAININGS:
        for name in ("digits", "income"):
            group = Group(name, "backdoor", training, 3)
            assert not group.sensible or group.job(limit=300, epochs=None).forget
    assert Group("mislabelled", "tenth", "as it is", 0).job(limit=None, epochs=1).forget


@pytest.mark.parametrize("classes", [2, 3, 5, 9])
def test_a_set_of_few_classes_has_requests_that_fit_it(tmp_path: Path, classes: int) -> None:
    file = tmp_path / "images.npz"
    np.savez(file, train_labels=np.arange(4 * classes).reshape(-1, 1) % classes)
    for seed in range(2 * classes):
        job = Group(str(file), "backdoor", "as it is", seed).job(limit=None, epochs=1)
        assert job.forget and job.forget.classes and job.backdoor
        assert len({*job.forget.classes, job.backdoor["target"]}) == min(3, classes)
        assert {*job.forget.classes, job.backdoor["target"]} <= {str(one) for one in range(classes)}
        assert Group(str(file), "label", "as it is", seed).sensible == (classes > 3)


def test_requests_whose_leaning_is_measured_are_clean_ones_of_their_kind(tmp_path: Path) -> None:
    job = Group("digits", "50", "as it is", 0).job(limit=200, epochs=1)
    prepare(job, origin=tmp_path / "job.yaml", out=tmp_path, threads=1)
    course, draw = Course(tmp_path), torch.Generator().manual_seed(0)
    course.train()
    for of, classes in (("any class", 10), ("one class", 1)):
        drawn = list(requests(course, 6, of, 4, draw))
        assert [len(torch.unique(rows)) for rows in drawn] == [6] * 4
        assert all(1 <= len(torch.unique(course.process.labels[rows])) <= classes for rows in drawn)
        assert not torch.isin(torch.cat(drawn), course.forget).any(), "rows that are gone are not asked for again"


def test_rows_are_forgotten_one_by_one_beside_retrains_that_saw_none_of_them(tmp_path: Path) -> None:
    course = opened("mislabelled", 3, 0, tmp_path / "run", limit=200)
    asked = course.forget.tolist()
    found = measure(course, 3, 2)
    assert len(found) == 3 and all(len(one.retrains) == 2 for one in found)
    assert all(one.original > one.retrain for one in found), "a wrong label is learned by heart or not at all"
    assert not set(asked) & set(course.process.active.sets.rows[Samples.TRAIN].tolist())
    surer = Single(0.9, 0.4, [0.2, 0.3])
    assert surer.above and not surer.below and not Single(0.9, 0.34, [0.2, 0.3]).above
    assert line("a/b.npz", 1, [surer, Single(0.9, 0.0, [0.2, 0.3])]) == "| b | 1 | 90 | 20 | 25 | 20 | 1 | 1 | 2 |"


def test_what_is_no_set_and_no_request_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nor a file in MedMNIST's layout"):
        Group(str(tmp_path / "none.npz"), "backdoor", "as it is", 0).job(limit=None, epochs=1)
    with pytest.raises(SettingsError, match="--request most: is none of"):
        Group("digits", "most", "as it is", 0).job(limit=None, epochs=1)


def test_cells_are_kept_as_they_are_done_and_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: dict[str, Any] = {
        "sets": ["mislabelled"],
        "request": ["tenth", "wrong"],
        "retrains": 1,
        "limit": 200,
        "epochs": 1,
        "out": tmp_path,
    }
    command.main(**wanted, part=["full", "no push"])
    cells = read_cells(tmp_path / "cells.jsonl")
    assert [(one.group.request, one.part) for one in cells] == [
        (request, part) for request in ("tenth", "wrong") for part in ("full", "no push")
    ]
    assert all(one.unlearned["bytes"] > 0 and one.stopped for one in cells)
    assert cells[0].unlearned[LEANING] > 0 == cells[2].unlearned[LEANING], "of one row nothing can be said"
    assert all(-1 <= one.unlearned[UNSURE] <= 1 for one in cells)
    table = (tmp_path / "table.md").read_text()
    assert table.count("|\n") == 6 and "test_accuracy: " in table
    monkeypatch.setattr(command, "measure", None)  # nothing is left to measure
    command.main(**wanted, part=["full", "no push"])
    assert read_cells(tmp_path / "cells.jsonl") == cells


def test_an_uncertain_model_is_as_unsure_as_it_should_be_and_no_more_whatever_weight_its_loss_has(
    tmp_path: Path,
) -> None:
    job = Group("digits", "100", "as it is", 0).job(limit=800, epochs=20)
    prepare(job, origin=tmp_path / "job.yaml", out=tmp_path, threads=1)
    course = Course(tmp_path)
    original = course.train()
    found = {omega: course.unlearn(Fedora(goal="uncertain", omega=omega)) for omega in (2.0, 0.2)}
    for ending, figures in found.values():
        assert ending.constraint_held and SOFTENED in ending.stopped
        assert 0.9 <= figures[UNSURE] < 0.91
        assert figures["test_accuracy"] > original["test_accuracy"] - 0.05
    assert found[2.0][1][UNSURE] == pytest.approx(found[0.2][1][UNSURE], abs=1e-4)
    left, pushed = course.unlearn(Fedora(goal="uncertain", without=["unlearning-loss"]))
    assert not left.constraint_held and SOFTENED not in left.stopped
    assert pushed[UNSURE] < 0.5


def test_draws_differ_in_the_rows_of_their_rounds_alone(tmp_path: Path) -> None:
    wanted: dict[str, Any] = {"sets": ["digits"], "request": ["50"], "retrains": 1, "limit": 200, "epochs": 1}
    command.main(**wanted, out=tmp_path)
    command.main(**wanted, out=tmp_path, draws=2)
    first, other = read_cells(tmp_path / "cells.jsonl")
    assert (first.draw, other.draw) == (0, 1) and first.part == other.part == "full"
    assert (first.original, first.retrains) == (other.original, other.retrains)
    assert first.unlearned["bytes"] == other.unlearned["bytes"] and first.unlearned != other.unlearned


def test_requests_in_a_row_never_name_a_row_twice_and_go_on_from_the_last_model(tmp_path: Path) -> None:
    content = {"data": {"source": "digits", "limit": 200}, "train": {"epochs": 1}, "forget": {"samples": 60}, "seed": 1}
    prepare(check(content, Job, origin="test"), origin=tmp_path / "job.yaml", out=tmp_path / "run", threads=1)
    course = Course(tmp_path / "run")
    course.train()
    named: list[int] = []
    for number in range(3):
        if number:
            before = course.process.active.snapshot()
            course.go_on(Forget(samples=60), seed=number)
            assert course.process.active.change_squared(before) == 0
        named += course.forget.tolist()
        course.unlearn(course.job.unlearn)
    assert len(set(named)) == len(named) == 180
    remaining = course.process.active.sets.rows[Samples.REMAINING].tolist()
    assert len(remaining) == 20 and not set(remaining) & set(named)


def test_growth_is_the_slope_of_the_distance_to_retrain_after_the_first_request() -> None:
    sequence: Sequence = [({"test_accuracy": 0.9 + 0.02 * one}, [{"test_accuracy": 0.9}]) for one in range(5)]
    growth, error = slope([sequence], "test_accuracy")
    assert growth == pytest.approx(2.0) and error == pytest.approx(0.0, abs=1e-6)
