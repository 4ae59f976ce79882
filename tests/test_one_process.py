"""A job in one process, which benchmarks measure with, is the job on a cluster: models to the bit, figures, bytes."""

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from fedora_vfl.bench.one_process.course import CONFIDENCE, LEANING, UNSURE, Course, Figures
from tests.conftest import run

DIGITS: dict[str, Any] = {
    "data": {"source": "digits", "parties": 2},
    "model": {"bottom": "cnn", "channels": [4, 8], "embedding": 8, "top": [8, 8, 8]},  # deep: steps are shorter
    "train": {"epochs": 2, "batch_size": 128},
    "wire": {"encoding": "bfloat16"},
    "forget": {"classes": ["0", "1"], "percent": 50},
    "backdoor": {"target": "2"},
    "seed": 3,
}
INCOME: dict[str, Any] = {
    "data": {"source": "income", "limit": 600},
    "model": {"embedding": 8},
    "train": {"epochs": 1, "batch_size": 128},
    "forget": {"samples": 60},
    "unlearn": {"method": "fedora", "steps": "paper", "rounds": 2},
    "seed": 3,
}


@pytest.mark.parametrize("content", [DIGITS, INCOME], ids=["joint rounds", "the paper's steps"])
def test_a_job_in_one_process_equals_a_cluster_s_to_the_bit(content: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = run({**content, "compare": ["retrain"]}, out)
    course = Course(out)
    assert_equal(course, course.train(), result, out, "original")
    leaning = course.leaning(course.forget)
    _, found = course.unlearn(course.job.unlearn)
    assert found[LEANING] in (leaning, 0.0), "a look leaves no trace; the paper's steps compare nothing"
    assert_equal(course, found, result, out, "unlearned")
    again = course.retrain()
    assert_equal(course, again, result, out, "retrain")
    assert found["bytes"] / again["bytes"] == pytest.approx(result["gap"]["bytes_share"], rel=0.02)


def assert_equal(course: Course, found: Figures, result: dict[str, Any], out: Path, model: str) -> None:
    for party, state in course.process.states.items():
        saved = load_file(out / "models" / party / f"{model}.safetensors")
        for name, value in state.networks.state_dict().items():
            assert saved[name].equal(value), f"{model}: {party} {name}"
    measured = {name: value for name, value in found.items() if name not in ("bytes", CONFIDENCE, LEANING, UNSURE)}
    assert measured == {name: result[model][name] for name in measured}
    assert "test_accuracy" in measured and "forget_accuracy" in measured
