"""Every way of forgetting equals the same arithmetic done in one process, to the bit."""

from pathlib import Path
from typing import Any

import pytest
import torch

from coordinator.methods import UnlearningTask, paper_steps, self_scaling
from coordinator.methods.fedora_settings import Fedora
from coordinator.methods.primal_dual import Problem
from fedora_vfl.sampling.seeds import derive
from party.request import resolve
from protos.fedora.v1.control_pb2 import Request
from protos.fedora.v1.exchange_pb2 import Order
from tests import reference
from tests.conftest import as_job, run, write_people

DIGITS = {"source": "digits", "limit": 300}
CNN = {"bottom": "cnn", "channels": [4, 8], "embedding": 8, "top": [16]}
PEOPLE = {"source": "csv", "id": "person", "parties": 2, "active_features": True, "shuffle": True}
PARAMETERWISE = {"steps": "paper", "dual": "parameterwise", "gamma": 1.0, "sigma": 0.1, "tau": 0.001, "audit": True}

CASES: dict[str, dict[str, Any]] = {
    "the paper's steps, scalar dual variable, micro-batches": {
        "data": {**DIGITS, "parties": 2},
        "model": CNN,
        "forget": {"classes": [0, 1], "percent": 50},
        "unlearn": {"steps": "paper", "rounds": 4, "delta": 0.3, "tau": 0.001, "sigma": 0.5, "micro_batch": 7},
    },
    "the paper's steps, parameterwise dual variable, no remaining rows, pull towards the trained model": {
        "data": PEOPLE,
        "forget": {"samples": 40},
        "unlearn": {
            **PARAMETERWISE,
            "rounds": 5,
            "delta": 0,
            "rho": 0.1,
            "reduction": "sum",
        },
    },
    "the paper's steps, all remaining rows, step sizes fixed": {
        "data": PEOPLE,
        "forget": {"classes": ["yes"], "percent": 30},
        "unlearn": {"steps": "paper", "rounds": 3, "without": ["asymmetric-batches", "adaptive-steps"]},
    },
    "own scales, as retrained": {
        "data": {**DIGITS, "parties": 2},
        "model": CNN,
        "forget": {"samples": 20},
        "unlearn": {},
    },
    "own scales, uncertain, parameterwise dual variable": {
        "data": PEOPLE,
        "forget": {"samples": 40},
        "unlearn": {"goal": "uncertain", "dual": "parameterwise"},
    },
    "own scales, without the unlearning loss": {
        "data": PEOPLE,
        "forget": {"samples": 1},
        "unlearn": {"without": ["unlearning-loss"]},
    },
}


@pytest.mark.parametrize("name", CASES)
def test_distributed_unlearning_equals_one_process(name: str, tmp_path: Path) -> None:
    content = {"train": {"epochs": 2, "batch_size": 64}, "seed": 5, **CASES[name]}
    if content["data"]["source"] == "csv":
        content["data"] = {**content["data"], "path": str(write_people(tmp_path / "people.csv"))}
    result = run(content, tmp_path / "run")

    job = as_job(content)
    joint = reference.join(tmp_path / "run", job)
    reference.train(joint, job)
    unlearning = reference.Unlearning(joint, requested(content["forget"], joint, job.seed))
    assert isinstance(job.unlearn, Fedora)
    case = UnlearningTask(
        job.train,
        classes=len(joint.classes),
        forget=len(unlearning.forget),
        remaining=joint.train - len(unlearning.forget),
        seed=derive(job.seed, "unlearn"),
        test=len(joint.labels) - joint.train,
        rows_for_one=reference.rows_for_one(job),
    )
    problem = Problem(job.unlearn, case)
    method = paper_steps.paper if job.unlearn.steps == "paper" else self_scaling.auto
    ending = unlearning.perform(method(problem))

    assert result["unlearning"] == {
        "rounds": ending.rounds,
        "stopped": ending.stopped,
        "constraint_held": ending.constraint_held,
        "pushed": ending.pushed,
    }
    count = len(unlearning.forget) if job.unlearn.reduction == "sum" else 1
    told = [phase["loss"] * count for phase in result["rounds"] if phase["phase"] == "unlearning"]
    assert told == pytest.approx(unlearning.losses, rel=1e-12)
    joint.assert_saved(tmp_path / "run", "unlearned")


def requested(forget: dict[str, Any], joint: reference.Joint, seed: int) -> torch.Tensor:
    """Find the rows to forget as the active party does."""
    request = Request(seed=seed)
    if "samples" in forget:
        request.samples = forget["samples"]
    else:
        request.classes.classes.extend(str(name) for name in forget["classes"])
        request.classes.percent = forget["percent"]
    order = Order(train=[str(row) for row in range(joint.train)])
    return resolve(request, order, joint.labels[: joint.train], joint.classes)
