"""GA, ICO, CVFU and Retrain on a real cluster equal the same method written anew in one process, to the bit."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

from fedora_vfl.certificates.verification import Evidence, examine
from fedora_vfl.errors import SettingsError
from tests import baselines, reference
from tests.baselines import Baseline
from tests.conftest import as_job, run, write_people
from tests.test_unlearning_equality import CNN, DIGITS, PEOPLE, requested

ADAM = {"epochs": 2, "batch_size": 64}
SGD = {"epochs": 2, "batch_size": 64, "optimizer": "sgd", "lr": 0.05, "weight_decay": 1e-4}


def content(tmp_path: Path, data: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a job over digits, or over a table of people."""
    if data["source"] == "csv":
        data = {**data, "path": str(write_people(tmp_path / "people.csv"))}
    return {"data": data, "train": ADAM, "seed": 5, **({"model": CNN} if data["source"] == "digits" else {}), **more}


def trained(job: dict[str, Any], folder: Path) -> Baseline:
    """Train the same network in one process."""
    checked = as_job(job)
    joint = reference.join(folder, checked)
    reference.train(joint, checked)
    return Baseline(joint, requested(job["forget"], joint, checked.seed), checked)


CLASSES = {"classes": [0, 1], "percent": 50}


@pytest.mark.parametrize(
    ("data", "forget", "unlearn"),
    [
        (DIGITS, CLASSES, {"method": "ga", "rounds": 3}),
        (PEOPLE, {"samples": 40}, {"method": "ga", "rounds": 2, "lr": 0.1, "clip": 0.01, "batch_size": 16}),
    ],
)
def test_gradient_ascent(data: dict[str, Any], forget: dict[str, Any], unlearn: dict[str, Any], tmp_path: Path) -> None:
    job = content(tmp_path, data, forget=forget, unlearn=unlearn)
    result = run(job, tmp_path / "run")
    this = trained(job, tmp_path / "run")
    baselines.gradient_ascent(this)
    this.joint.assert_saved(tmp_path / "run", "unlearned")
    ascents = [entry for entry in result["rounds"] if entry["phase"] == "ascent"]
    assert len(ascents) == unlearn["rounds"] == result["unlearned"]["rounds"]
    assert {entry["rows"] for entry in ascents} == {len(this.forget)}


@pytest.mark.parametrize(
    ("data", "forget", "train", "unlearn"),
    [
        (DIGITS, CLASSES, ADAM, {"method": "ico", "rounds": 2}),
        (DIGITS, {"classes": [3], "percent": 100}, SGD, {"method": "ico", "rounds": 2, "part": 0.3, "micro_batch": 7}),
        (PEOPLE, {"samples": 40}, SGD, {"method": "ico", "rounds": 3, "most": 0.015}),
    ],
)
def test_inverse_contribution(
    data: dict[str, Any], forget: dict[str, Any], train: dict[str, Any], unlearn: dict[str, Any], tmp_path: Path
) -> None:
    job = content(tmp_path, data, forget=forget, unlearn=unlearn, train=train)
    result = run(job, tmp_path / "run")
    this = trained(job, tmp_path / "run")
    target = math.log(len(this.joint.classes)) if forget.get("percent") == 100 else held_out_loss(this)
    tried = baselines.inverse_contribution(this, target)
    this.joint.assert_saved(tmp_path / "run", "unlearned")
    looks = [entry for entry in result["rounds"] if entry["phase"] == "subtraction" and entry["rows"]]
    assert len(looks) == 1 + tried, "the pass for the gradient, and one for every length tried, are in the bytes"


def held_out_loss(this: Baseline) -> float:
    """Return the loss of test rows of the classes that the rows to forget have."""
    joint = this.joint
    test = torch.arange(joint.train, len(joint.labels))
    test = test[torch.isin(joint.labels[test], joint.labels[this.forget])]
    this.learning(False)
    with torch.no_grad():
        return float(functional.cross_entropy(joint.logits(test), joint.labels[test]))


@pytest.mark.parametrize(
    ("data", "forget", "train", "unlearn"),
    [
        (DIGITS, CLASSES, ADAM, {"method": "cvfu", "rounds": 3}),
        (PEOPLE, {"samples": 40}, SGD, {"method": "cvfu", "rounds": 2, "offline": "passive-2", "micro_batch": 50}),
    ],
)
def test_confidence_matrix(
    data: dict[str, Any], forget: dict[str, Any], train: dict[str, Any], unlearn: dict[str, Any], tmp_path: Path
) -> None:
    job = content(tmp_path, data, forget=forget, unlearn=unlearn, train=train)
    result = run(job, tmp_path / "run")
    this = trained(job, tmp_path / "run")
    offline = (unlearn["offline"],) if "offline" in unlearn else ()
    baselines.confidence_matrix(this, offline)
    this.joint.assert_saved(tmp_path / "run", "unlearned")
    refreshed = [line for line in result["bytes"]["links"] if line["phase"] == "refresh"]
    passive = {name for line in refreshed for name in line["direction"].split("->") if name.startswith("passive")}
    assert passive == {"passive-1", "passive-2"} - set(offline), "an offline party exchanges nothing in the rounds"
    # Its statement shows fewer phases than the others', and the certificate is sound all the same.
    text = (tmp_path / "run" / "certificate.json").read_bytes()
    _, checks = examine(text, Evidence(tmp_path / "run" / "models"))
    assert all(check.holds is not False for check in checks), checks


def test_all_methods_of_a_job_begin_with_the_same_original_model(tmp_path: Path) -> None:
    others = ["ga", {"method": "ico", "rounds": 1}, {"method": "cvfu", "rounds": 1}, "retrain"]
    job = content(tmp_path, DIGITS, forget=CLASSES, unlearn={"method": "none"}, compare=others)
    result = run(job, tmp_path / "all")
    assert result["unlearned"]["test_accuracy"] == result["original"]["test_accuracy"], "none changes nothing"
    assert set(result["gaps"]) == {"ga", "ico", "cvfu"}
    for name in ("ga", "cvfu"):
        alone = content(
            tmp_path,
            DIGITS,
            forget=CLASSES,
            unlearn=next(one for one in ({"method": "ga"}, {"method": "cvfu", "rounds": 1}) if one["method"] == name),
        )
        run(alone, tmp_path / name)
        for party in ("passive-1", "passive-2", "active"):
            one = load_file(tmp_path / "all" / "models" / party / f"{name}.safetensors")
            other = load_file(tmp_path / name / "models" / party / "unlearned.safetensors")
            assert all(one[key].equal(other[key]) for key in other)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"unlearn": {"method": "gaa"}}, "there is no method 'gaa'; allowed: "),
        ({"unlearn": {"method": "ga", "omega": 2}}, "unlearn.omega: unknown setting; "),
        ({"unlearn": {"method": "ga", "roundz": 2}}, "unlearn.roundz: unknown setting; did you mean `rounds`? "),
        ({"unlearn": {"method": "ico", "part": 0}}, "unlearn.part: should be greater than 0"),
        ({"compare": ["retrain", {"method": "cvfu", "lrr": 1}]}, "compare.1.lrr: unknown setting; did you mean `lr`?"),
        ({"compare": ["ga", "ga"]}, "`compare` names a method twice"),
        ({"compare": [{"method": "ga", "save": "original"}]}, "each model of a job is saved under a name of its own"),
        ({"compare": [3]}, "compare.0: should be a method's name or its settings"),
    ],
)
def test_settings_of_a_method_are_checked_by_its_own_list(more: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        as_job({"data": DIGITS, "forget": {"samples": 1}, **more})
    assert said in str(caught.value)


def test_a_party_that_does_not_exist_cannot_be_offline(tmp_path: Path) -> None:
    job = content(tmp_path, DIGITS, forget=CLASSES, unlearn={"method": "cvfu", "offline": ["passive-9"]})
    with pytest.raises(SettingsError) as caught:
        run(job, tmp_path / "run")
    assert "'passive-9' is not a passive party of this federation: passive-1, passive-2" in str(caught.value)
