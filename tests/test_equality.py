"""A distributed run equals the same network trained in one process, to the bit."""

from pathlib import Path
from typing import Any

import pytest

from fedora_vfl.cluster.preparation import prepare
from tests import reference, wired_reference
from tests.conftest import as_job, run, write_people

SGD = {"epochs": 3, "batch_size": 48, "optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.001}
ADAM = {"epochs": 3, "batch_size": 64, "optimizer": "adam", "schedule": "cosine", "warmup": 1}
DIGITS = {"source": "digits", "limit": 400}
CNN = {"bottom": "cnn", "channels": [4, 8], "embedding": 8, "top": [16]}

CASES: dict[str, dict[str, Any]] = {
    "one passive party, labels only at the active one, CNN, Adam": {
        "data": {**DIGITS, "parties": 1},
        "model": CNN,
        "train": ADAM,
    },
    "two passive parties, features at the active one, MLP, SGD": {
        "data": {"source": "csv", "id": "person", "parties": 2, "active_features": True, "drop": 0.1, "shuffle": True},
        "train": SGD,
    },
    # So large a top model that gradients leave before its own are computed.
    "five passive parties, features and a large top model at the active one, CNN, SGD": {
        "data": {**DIGITS, "parties": 5, "active_features": True},
        "model": {**CNN, "top": [300, 300]},
        "train": {**SGD, "nesterov": True, "schedule": "step", "decay_every": 1, "decay": 0.5},
    },
    "two passive parties, labels only at the active one, MLP, Adam": {
        "data": {**DIGITS, "parties": 2, "drop": 0.05, "shuffle": True},
        "model": {"bottom": "mlp", "hidden": [32, 16], "embedding": 12, "top": []},
        "train": {**ADAM, "weight_decay": 0.01},
    },
}


@pytest.mark.parametrize("name", CASES)
def test_distributed_training_equals_one_process(name: str, tmp_path: Path) -> None:
    content = {**CASES[name], "seed": 7}
    if content["data"]["source"] == "csv":
        content["data"] = {**content["data"], "path": str(write_people(tmp_path / "people.csv"))}
    result = run(content, tmp_path / "run")

    job = as_job(content)
    joint = reference.join(tmp_path / "run", job)
    reference.train(joint, job)

    joint.assert_saved(tmp_path / "run", "original")
    assert result["original"]["test_accuracy"] == pytest.approx(joint.accuracy())


WIRES: dict[str, dict[str, Any]] = {
    "few bits, rounded at random": {"embeddings": "int8", "gradients": "int4"},
    "fewer bits one way, rounded at random": {"embeddings": "int4", "gradients": "int3"},
    "few bits with error feedback, another choice for one party": {
        "embeddings": "int4",
        "gradients": "int2",
        "error_feedback": True,
        "parties": {"passive-2": {"encoding": "float16", "error_feedback": False}},
    },
    "the largest values, with error feedback": {"encoding": "topk-25%", "error_feedback": True},
    "some of the largest values": {"encoding": "randtopk-30%"},
}


@pytest.mark.parametrize("name", WIRES)
def test_a_run_whose_encoding_leaves_something_out_equals_one_process(name: str, tmp_path: Path) -> None:
    content = {
        "data": {**DIGITS, "parties": 2, "active_features": True},
        "model": CNN,
        "train": {**SGD, "lr": 0.05, "batch_size": 50},
        "wire": WIRES[name],
        "seed": 7,
    }
    result = run(content, tmp_path / "run")
    job = as_job(content)
    joint = reference.join(tmp_path / "run", job)
    wired_reference.train(joint, job)
    joint.assert_saved(tmp_path / "run", "original")
    assert result["bytes"]["tensor"] == result["bytes"]["predicted"]


SCHEDULES: dict[str, dict[str, Any]] = {
    "three batches under way beside the one that is due, Adam": {"train": {**ADAM, "overlap": 3, "batch_size": 32}},
    "three steps for one exchange, SGD with momentum": {"train": {**SGD, "lr": 0.02, "local_steps": 3}},
    "both, over a line that leaves something out": {
        "train": {**ADAM, "overlap": 2, "local_steps": 2, "batch_size": 50},
        "wire": {"embeddings": "int4", "gradients": "int2", "error_feedback": True},
    },
    "more batches under way than an epoch has": {"train": {**ADAM, "overlap": 20, "epochs": 2, "warmup": 0}},
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_run_with_a_schedule_equals_one_process_that_follows_it(name: str, tmp_path: Path) -> None:
    content = {"data": {**DIGITS, "parties": 2, "active_features": True}, "model": CNN, "seed": 7, **SCHEDULES[name]}
    run(content, tmp_path / "run")
    job = as_job(content)
    joint = reference.join(tmp_path / "run", job)
    wired_reference.train(joint, job)
    joint.assert_saved(tmp_path / "run", "original")


def test_the_reference_of_schedules_is_the_exact_one_where_there_is_none(tmp_path: Path) -> None:
    content = {"data": {**DIGITS, "parties": 2, "active_features": True}, "model": CNN, "train": SGD, "seed": 7}
    job = as_job(content)
    prepare(job, origin=tmp_path / "job.yaml", out=tmp_path / "run", threads=1)
    one, other = (reference.join(tmp_path / "run", job) for _ in range(2))
    reference.train(one, job)
    wired_reference.train(other, job)
    for party, expected in one.state().items():
        for name, value in other.state()[party].items():
            assert value.equal(expected[name])


def test_the_same_seed_gives_the_same_model_and_another_seed_another(tmp_path: Path, people: Path) -> None:
    content = {"data": {"source": "csv", "path": str(people), "id": "person"}, "train": {"epochs": 2}}
    digests = [
        [party["model_sha256"] for party in run({**content, "seed": seed}, tmp_path / name)["parties"].values()]
        for name, seed in (("first", 3), ("again", 3), ("other", 4))
    ]
    assert digests[0] == digests[1]
    assert not set(digests[0]) & set(digests[2])
