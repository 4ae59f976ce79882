"""Forgetting over a line that leaves most out: every byte is as predicted, and the certificate says how it was."""

import json
from pathlib import Path

import pytest

from coordinator.methods import phases_in
from coordinator.methods.training import training
from coordinator.train import Train
from fedora_vfl.bench.to_accuracy.ways import TIGHT
from fedora_vfl.errors import PartyError
from party.schedule import Schedule
from protos.fedora.v1.phase_pb2 import Phase
from tests.conftest import run

JOB = {
    "data": {"source": "digits", "limit": 900},
    "model": {"bottom": "mlp", "embedding": 32},
    "train": {"epochs": 8, "batch_size": 64, "lr": 0.003, "overlap": 2},
    "forget": {"classes": ["3"], "percent": 50},
    "wire": TIGHT,
    "evaluate": {"every": 4},
}
ROW = {"int4": 2 + 16, "int2": 2 + 8, "int8": 2 + 32}


def test_forgetting_with_few_bits_accounts_for_every_byte_and_says_so(tmp_path: Path) -> None:
    result = run(JOB, tmp_path / "run")
    rows, trained = result["rows"]["train"], result["original"]["bytes"]
    assert trained["tensor"] == trained["predicted"] == 8 * rows * 2 * (ROW["int4"] + ROW["int2"])
    looked = result["bytes"]["phases"]["progress"]
    assert looked["tensor"] == 2 * result["rows"]["test"] * 2 * ROW["int8"]
    assert result["bytes"]["tensor"] == result["bytes"]["predicted"]
    assert result["original"]["test_accuracy"] > 0.85
    assert result["unlearned"]["test_accuracy"] > 0.8
    progress = [one for one in result["rounds"] if one["phase"] == "progress"]
    assert [one["round"] for one in progress] == [4, 8]
    certificate = json.loads((tmp_path / "run" / "certificate.json").read_text())
    link = {"embeddings": "int4", "gradients": "int2", "evaluation": "int8", "error_feedback": True}
    assert certificate["method"]["settings"]["wire"] == {"passive-1": link, "passive-2": link}


def test_the_exact_step_has_no_schedule_and_no_look_in_between() -> None:
    (step,) = training(Train(epochs=2), seed=1)
    assert not any(phase.HasField("schedule") for phase in phases_in(step))
    assert [phase.name for phase in phases_in(step)] == ["train", "train"]
    assert Schedule.of(Phase()) == Schedule(0, 1)
    (step,) = training(Train(epochs=2, overlap=3, local_steps=2), seed=1)
    told = [Schedule.of(phase) for phase in phases_in(step)]
    assert told == [Schedule(3, 2, goes_on=True), Schedule(3, 2)]


def test_a_schedule_beyond_what_a_party_can_hold_is_refused() -> None:
    phase = Phase()
    phase.schedule.overlap = 33
    with pytest.raises(PartyError, match="33 batches under way"):
        Schedule.of(phase)
