"""Forgetting on a real cluster: what a run leaves behind, and that it says what was done and no more."""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from coordinator.methods import UnlearningTask, self_scaling
from coordinator.methods.fedora_settings import Fedora
from coordinator.methods.primal_dual import Problem
from coordinator.result import FIGURES
from fedora_vfl.certificates.verification import Evidence, examine
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.errors import CertificateError, SettingsError
from fedora_vfl.sampling.seeds import derive
from fedora_vfl.settings.federation import load_federation
from party.state import PartyState
from party.updates import rule_for
from protos.fedora.v1.phase_pb2 import Retreat, Update
from tests import reference
from tests.conftest import as_job, pinned_keys, run, write_people
from tests.test_command_line import fedora
from tests.test_unlearning_equality import requested

PARTIES = ("passive-1", "passive-2", "active")
PEOPLE = {"source": "csv", "id": "person", "parties": 2}
EMBEDDING = 64  # the usual width


@dataclass(frozen=True)
class Run:
    """A job that has ended well."""

    job: dict[str, Any]
    folder: Path
    result: dict[str, Any]

    @property
    def certificate(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / "certificate.json").read_text())
        return content

    def statements(self) -> Iterator[dict[str, Any]]:
        """Yield every party's signed statement."""
        for name in PARTIES:
            yield self.certificate["statements"][name]["statement"]

    def ledger(self, **wanted: str) -> list[dict[str, str]]:
        """Return the lines of the ledger that have these values."""
        with (self.folder / "ledger.csv").open() as file:
            return [line for line in csv.DictReader(file) if all(line[name] == wanted[name] for name in wanted)]

    def holds(self) -> bool:
        """Check the certificate as `fedora verify` does."""
        evidence = Evidence(self.folder / "models", load_federation(self.folder / "federation.yaml"))
        _, checks = examine((self.folder / "certificate.json").read_bytes(), evidence)
        return all(check.holds is not False for check in checks)


def done(folder: Path, **job: Any) -> Run:
    """Run a job; one without data is about people."""
    if "data" not in job:
        job["data"] = {**PEOPLE, "path": str(write_people(folder / "people.csv"))}
    return Run(job, folder / "run", run(job, folder / "run"))


# A whole class, scalar dual variable, with Retrain beside it, and noise at one party


@pytest.fixture(scope="module")
def whole_class(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that forgets a class."""
    return done(
        tmp_path_factory.mktemp("class"),
        train={"epochs": 2, "batch_size": 64},
        forget={"classes": ["yes"], "percent": 100},
        compare=["retrain"],
        privacy={"passive-1": {"noise": 0.5}},
        seed=4,
    )


def test_a_result_has_the_figures_of_every_model_and_what_they_mean(whole_class: Run) -> None:
    result = whole_class.result
    for model in ("original", "unlearned", "retrain"):
        figures = result[model]
        assert set(FIGURES) | {"bytes", "seconds"} <= set(figures)
        rates = {name for name in figures if name.endswith("accuracy") or name.startswith("mia_")}
        assert all(0 <= figures[name] <= 1 for name in rates - {"validation_accuracy"})
        assert figures["validation_accuracy"] is None, "these people have no validation rows"
        assert figures["backdoor_asr"] is None
        assert figures["bytes"]["predicted"] == figures["bytes"]["tensor"] > 0
        assert figures["seconds"] > 0
        assert "forgotten_classes_accuracy" in figures, "a class that is gone counts apart"
    assert result["retrain"]["forgotten_classes_accuracy"] == 0.0, "what was never seen is never predicted"
    assert result["verdict"] and all(sentence.endswith(".") for sentence in result["verdict"])
    assert result["unlearning"]["rounds"] > 0 and result["unlearning"]["stopped"]


def test_the_gap_is_the_difference_to_retrain_figure_by_figure(whole_class: Run) -> None:
    result = whole_class.result
    for name in ("test_accuracy", "forget_accuracy", "remaining_accuracy", "forgotten_classes_accuracy"):
        assert result["gap"][name] == pytest.approx(result["unlearned"][name] - result["retrain"][name])
    unlearned, retrain = (result[name]["bytes"]["tensor"] for name in ("unlearned", "retrain"))
    assert result["gap"]["bytes_share"] == pytest.approx(unlearned / retrain)


def test_every_party_drops_the_rows_and_nothing_is_trained_on_them_any_more(whole_class: Run) -> None:
    result = whole_class.result
    forget, train = result["forget"], result["rows"]["train"]
    assert forget["rows"] + forget["remaining"] == train
    for statement in whole_class.statements():
        assert statement["rows"] == {"dropped": forget["rows"], "remaining": forget["remaining"]}
    both_ways = 2 * 2 * EMBEDDING * 4  # directions, passive parties, width, bytes
    assert result["original"]["bytes"]["tensor"] == 2 * train * both_ways
    assert result["retrain"]["bytes"]["tensor"] == 2 * forget["remaining"] * both_ways
    for entry in result["rounds"]:
        if entry["phase"] in ("remaining", "recovery", "retrain"):
            assert entry["rows"] <= forget["remaining"]


def test_the_scalar_dual_variable_travels_from_the_active_party_to_each_passive_one(whole_class: Run) -> None:
    lines = whole_class.ledger(kind="dual", phase="unlearning")
    assert {line["direction"] for line in lines} == {"active->passive-1", "active->passive-2"}
    rounds = [entry for entry in whole_class.result["rounds"] if entry["phase"] == "unlearning"]
    assert [int(line["messages"]) for line in lines] == [len(rounds)] * 2, "behind the gradients of every round"
    assert all(line["tensor_bytes"] == "0" for line in lines)


def test_a_round_waits_for_one_exchange_and_a_group_of_rounds_for_one_report(whole_class: Run) -> None:
    rounds = whole_class.result["rounds"]
    for phase, name in (("unlearning", "unlearning"), ("recovery", "recovery")):
        count = sum(entry["phase"] == name for entry in rounds)
        for kind, to_active in (("embedding", True), ("gradient", False)):
            direction = "passive-1->active" if to_active else "active->passive-1"
            lines = whole_class.ledger(kind=kind, phase=phase, direction=direction)
            assert sum(int(line["messages"]) for line in lines) == count
    groups = {
        line["round"] for line in whole_class.ledger(kind="control") if line["phase"] in ("unlearning", "recovery")
    }
    assert len(groups) <= 2, "one of rounds that push, one of recovery"


def test_the_steps_that_a_result_has_of_recovery_fall_as_those_that_were_taken(whole_class: Run) -> None:
    rounds = whole_class.result["rounds"]
    (pushing,) = {one["step_size"] for one in rounds if one["phase"] == "remaining"}
    falling = [one["step_size"] for one in rounds if one["phase"] == "recovery"]
    count = len(falling)
    assert falling == pytest.approx([pushing * (count - place) / count for place in range(count)])


def test_all_parties_keep_the_same_three_models(whole_class: Run) -> None:
    for name in PARTIES:
        kept = {path.stem for path in (whole_class.folder / "models" / name).glob("*.safetensors")}
        assert kept == {"original", "unlearned", "retrain"}
        digests = whole_class.result["parties"][name]["models"]
        assert len(set(digests.values())) == 3


def test_noise_at_a_party_shows_in_the_result_under_its_name(whole_class: Run) -> None:
    told = whole_class.result["privacy"]
    assert set(told) == {"passive-1"}
    assert told["passive-1"]["epsilon"] > 0 and told["passive-1"]["delta"] == 1e-5
    assert told["passive-1"]["releases"] > 0 and told["passive-1"]["repeatable"] is True


def test_the_command_accepts_the_certificate_and_the_request_that_a_party_kept(whole_class: Run) -> None:
    job = whole_class.certificate["job"]
    kept = [path for path in whole_class.folder.rglob(f"{job}.json") if path.parent.name == "requests"]
    assert len(kept) == len(PARTIES)
    requests = [word for path in kept for word in ("--request", str(path))]
    folder = whole_class.folder
    checked = fedora("verify", folder, *requests, *pinned_keys(folder), cwd=folder)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    ids = {tuple(json.loads(path.read_text())["ids"]) for path in kept}
    assert len(ids) == 1 and len(ids.pop()) == whole_class.result["forget"]["rows"], "all keep the same request"


def test_one_changed_byte_ends_the_command_with_its_own_exit_code(whole_class: Run, tmp_path: Path) -> None:
    text = (whole_class.folder / "certificate.json").read_bytes()
    place = text.index(b'"dropped":') + len(b'"dropped":')
    digit = b"8" if text[place : place + 1] != b"8" else b"7"
    changed = tmp_path / "certificate.json"
    changed.write_bytes(text[:place] + digit + text[place + 1 :])
    checked = fedora("verify", changed, cwd=tmp_path)
    assert checked.returncode == CertificateError.exit_code
    assert "does not hold" in checked.stderr


# A backdoor, parameterwise dual variable, the whole of it shown to an audit


@pytest.fixture(scope="module")
def backdoor(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that forgets poisoned rows."""
    return done(
        tmp_path_factory.mktemp("backdoor"),
        data={"source": "digits", "limit": 300, "parties": 2},
        train={"epochs": 2, "batch_size": 64},
        forget={"samples": 25},
        backdoor={"target": 9},
        unlearn={"steps": "paper", "dual": "parameterwise", "rounds": 2, "audit": True, "tau": 0.001},
        seed=4,
    )


def test_a_backdoor_is_measured_and_membership_is_not(backdoor: Run) -> None:
    assert backdoor.result["forget"]["rows"] == 25
    for model in ("original", "unlearned"):
        figures = backdoor.result[model]
        assert 0 <= figures["backdoor_asr"] <= 1 and 0 <= figures["forget_poisoned_accuracy"] <= 1
        assert all(figures[name] is None for name in figures if name.startswith("mia_"))
    assert any("backdoor" in sentence for sentence in backdoor.result["verdict"])


def test_the_parameterwise_dual_variable_is_shown_to_the_active_party_and_its_bytes_are_counted(backdoor: Run) -> None:
    for name in PARTIES[:2]:
        lines = backdoor.ledger(kind="dual", phase="unlearning", direction=f"{name}->active")
        size = backdoor.result["parties"][name]["parameters"] * 4
        assert [line["round"] for line in lines] == ["1", "2"]
        assert all(line["messages"] == "1" and int(line["tensor_bytes"]) == size for line in lines)
    told = {line["direction"] for line in backdoor.ledger(kind="dual")}
    assert told == {"passive-1->active", "passive-2->active"}, "each party has its own"


def test_a_certificate_of_the_parameterwise_form_holds_and_claims_no_feasibility(backdoor: Run) -> None:
    assert backdoor.holds()
    assert backdoor.certificate["method"]["dual"] == "parameterwise"
    assert backdoor.certificate["final"]["complementary_slackness"] is None
    for statement in backdoor.statements():
        assert statement["dual"]["form"] == "parameterwise"


# Retraining as the method


@pytest.fixture(scope="module")
def retrained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that forgets by training anew."""
    return done(
        tmp_path_factory.mktemp("retrained"),
        train={"epochs": 2, "batch_size": 64},
        forget={"classes": ["yes"], "percent": 30},
        unlearn={"method": "retrain"},
        seed=4,
    )


def test_retraining_is_training_on_the_remaining_rows_from_fresh_parameters(retrained: Run) -> None:
    job = as_job(retrained.job)
    anew = job.model_copy(update={"seed": derive(job.seed, "retrain")})
    joint = reference.join(retrained.folder, anew)
    forget = requested(retrained.job["forget"], joint, job.seed)
    everyone = torch.arange(joint.train)
    remaining = everyone[~torch.isin(everyone, forget)]
    joint.inputs, joint.labels = [one[remaining] for one in joint.inputs], joint.labels[remaining]
    joint.train = len(remaining)
    reference.train(joint, anew, name="retrain")
    joint.assert_saved(retrained.folder, "unlearned")


def test_a_certificate_of_retraining_holds_and_knows_no_dual_variable(retrained: Run) -> None:
    assert retrained.holds()
    assert retrained.certificate["method"]["dual"] is None
    moved = 0.0
    for statement in retrained.statements():
        assert statement["dual"] is None and statement["uncertainty"] is None
        before, after = (
            load_file(retrained.folder / "models" / statement["party"] / f"{name}.safetensors")
            for name in ("original", "unlearned")
        )
        moved += sum(float((after[name].double() - before[name].double()).square().sum()) for name in before)
    assert retrained.certificate["final"]["change"] == pytest.approx(moved**0.5, rel=1e-5), "from the trained model"


# A model that lost accuracy


def test_a_model_that_lost_accuracy_is_taken_back_part_of_the_way_at_every_party(tmp_path: Path) -> None:
    train = {"epochs": 10, "batch_size": 64, "lr": 0.01}
    # A hundred times every value in a step is absurd, and so large a budget pays for many held-out rows.
    unlearn = {"budget": 0.5, "scales": {"step": 100.0}}
    taken = done(tmp_path, train=train, forget={"samples": 40}, unlearn=unlearn, seed=1)
    assert any(entry["phase"] == "retreat" for entry in taken.result["rounds"])
    assert "the model was taken back" in taken.result["unlearning"]["stopped"]
    assert taken.holds()

    job = as_job(taken.job)
    joint = reference.join(taken.folder, job)
    reference.train(joint, job)
    unlearning = reference.Unlearning(joint, requested(taken.job["forget"], joint, job.seed))
    assert isinstance(job.unlearn, Fedora)
    task = UnlearningTask(
        job.train,
        classes=2,
        forget=taken.result["forget"]["rows"],
        remaining=taken.result["forget"]["remaining"],
        seed=derive(job.seed, "unlearn"),
        test=len(joint.labels) - joint.train,
        rows_for_one=reference.rows_for_one(job),
    )
    unlearning.perform(self_scaling.auto(Problem(job.unlearn, task)))
    joint.assert_saved(taken.folder, "unlearned")


def test_batch_norm_s_statistics_are_taken_back_as_far_as_the_parameters() -> None:
    norm = torch.nn.BatchNorm1d(2)
    state = object.__new__(PartyState)
    state.networks = torch.nn.ModuleDict({"bottom": norm})
    state.begin()
    norm(torch.tensor([[4.0, -2.0], [8.0, 2.0]]))
    moved = [one.clone() for one in state.statistics()]
    state.finish(rule_for(Update(retreat=Retreat(share=0.5)), state.networks.parameters(), state.memory))
    for now, far, then in zip(state.statistics(), moved, (torch.zeros(2), torch.ones(2)), strict=True):
        torch.testing.assert_close(now, (far + then) / 2)


# Mistakes in a job


def test_noise_for_a_party_that_there_is_not_is_refused_before_any_process_starts(tmp_path: Path) -> None:
    data = {**PEOPLE, "path": str(write_people(tmp_path / "people.csv"))}
    job = as_job({"data": data, "privacy": {"pasive-1": {"noise": 1}}})
    with pytest.raises(SettingsError) as caught:
        prepare(job, origin=tmp_path / "job.yaml", out=tmp_path / "run")
    said = "privacy.pasive-1: there is no such party; allowed: passive, passive-1, passive-2, active"
    assert str(caught.value).endswith(said)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ({"unlearn": {}}, "`unlearn`, `compare` and `audit` need a `forget` section, which says whom to forget"),
        ({"compare": ["retrain"]}, "`compare` and `audit` need a `forget` section, which says whom to forget"),
        (
            {"forget": {"samples": 1}, "unlearn": {"method": "ga"}, "compare": ["ga"]},
            "`compare` names the method that `unlearn` uses already",
        ),
        (
            {"forget": {"samples": 1}, "unlearn": {"save": "original"}},
            "each model of a job is saved under a name of its own, and these are original, original",
        ),
        (
            {"forget": {"samples": 1}, "train": {"save": "retrain"}, "compare": ["retrain"]},
            "each model of a job is saved under a name of its own, and these are retrain, unlearned, retrain",
        ),
        ({"forget": {"samples": 1}, "unlearn": {"steps": "paper", "beta": 2.0}}, "`beta` is 2; it should be below"),
        ({"forget": {"samples": 1}, "unlearn": {"tau": 0.1}}, "`tau` has no effect with `steps: auto`"),
        ({"forget": {"samples": 1}, "unlearn": {"steps": "paper", "budget": 0.1}}, "`budget` has no effect with"),
        ({"forget": {"samples": 1}, "unlearn": {"gamma": float("nan")}}, "unlearn.gamma"),
        ({"forget": {"samples": 1}, "unlearn": {"without": ["adaptive-steps"] * 2}}, "`without` names a part twice"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused_when_it_is_read(job: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        as_job(job)
    assert said in str(caught.value)
