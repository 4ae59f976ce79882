"""Forgotten stays forgotten: dropped rows take part in no later job, and models know what they have honoured."""

import asyncio
import json
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from coordinator.methods import UnlearningTask, self_scaling
from coordinator.methods.fedora_settings import Fedora
from coordinator.methods.primal_dual import Problem
from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.cluster.runs import claimed, perform, replacing
from fedora_vfl.errors import DataError, PartyError, SettingsError
from fedora_vfl.sampling.seeds import derive
from party.dropped import bring_list, drop_for_good, read_list, readmit
from party.lineage import Lineage, check_lineage
from party.pending import pending_rows
from party.state import _read_model
from protos.fedora.v1.control_pb2 import Event
from tests import reference
from tests.conftest import as_job, run, write_people
from tests.test_cluster import Submit, with_cluster
from tests.test_command_line import fedora
from tests.test_unlearning_equality import requested

PARTIES = ("passive-1", "passive-2", "active")
LONG = {"unlearn": {"steps": "paper", "rounds": 500}, "certificate": False}  # it can be broken off
QUICK = {"unlearn": {"budget": 0.1}, "certificate": False}
AGAIN = {"unlearn": {"budget": 0.1, "overwrite": True}, "certificate": False}  # in place of the model it starts from


def lineage(run: Path, model: str, party: str = "active") -> Lineage:
    """Return what a saved model says of its past."""
    return Lineage.from_json(_read_model(run / "models" / party / f"{model}.safetensors")[1]["lineage"])


# The list


def test_the_list_names_nobody_and_is_its_owner_s_alone(tmp_path: Path) -> None:
    drop_for_good(tmp_path, job="one", ids=["ann", "bob"])
    drop_for_good(tmp_path, job="two", ids=["cleo"])
    text = (tmp_path / "dropped.json").read_text()
    assert not any(name in text for name in ("ann", "bob", "cleo"))
    known = read_list(tmp_path)
    assert [(one.job, one.rows) for one in known.requests] == [("one", 2), ("two", 1)]
    assert "ann" in known and "cleo" in known and "dora" not in known
    for name in ("dropped.json", "dropped.key"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    other = tmp_path / "other"
    other.mkdir()
    drop_for_good(other, job="one", ids=["ann", "bob"])
    assert not set(read_list(other).requests[0].marks) & set(known.requests[0].marks), "each party has its own key"


def test_a_job_that_drops_twice_stands_on_the_list_once(tmp_path: Path) -> None:
    drop_for_good(tmp_path, job="one", ids=["ann"])
    before = (tmp_path / "dropped.json").read_bytes()
    drop_for_good(tmp_path, job="one", ids=["ann"])
    assert (tmp_path / "dropped.json").read_bytes() == before


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda keys: (keys / "dropped.json").unlink(), "the list of dropped rows is missing"),
        (lambda keys: (keys / "dropped.key").unlink(), "its key .* is missing"),
        (lambda keys: (keys / "dropped.key").write_text("00"), "is no key of a list"),
        (lambda keys: (keys / "dropped.json").write_text("{}\n"), "is damaged, or is no list of dropped rows"),
        (lambda keys: (keys / "dropped.json").write_text(""), "is damaged, or is no list of dropped rows"),
    ],
)
def test_a_list_that_is_lost_or_damaged_is_never_taken_for_an_empty_one(
    damage: Callable[[Path], object], said: str, tmp_path: Path
) -> None:
    drop_for_good(tmp_path, job="one", ids=["ann"])
    damage(tmp_path)
    with pytest.raises(DataError, match=said):
        read_list(tmp_path)


def test_a_person_who_comes_back_is_readmitted_by_hand_with_a_reason(tmp_path: Path) -> None:
    drop_for_good(tmp_path, job="one", ids=["ann", "bob"])
    with pytest.raises(SettingsError, match="say why"):
        readmit(tmp_path, "ann", reason=" ")
    with pytest.raises(SettingsError, match="'dora' is not on the list"):
        readmit(tmp_path, "dora", reason="new contract")
    readmit(tmp_path, "ann", reason="new contract")
    known = read_list(tmp_path)
    assert "ann" not in known and "bob" in known
    assert [one.reason for one in known.readmitted] == ["new contract"]
    assert known.jobs == ["one"], "bob is still forgotten, so that models that remember him stay refused"


def test_a_list_that_is_brought_along_says_the_same(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    drop_for_good(tmp_path / "old", job="one", ids=["ann"])
    bring_list(tmp_path / "old", tmp_path / "new")
    assert read_list(tmp_path / "new") == read_list(tmp_path / "old")


# Lineage


def test_a_model_that_lacks_a_request_is_refused_and_so_is_a_list_that_lacks_one(tmp_path: Path) -> None:
    known = drop_for_good(tmp_path, job="one", ids=["ann", "bob"])
    check_lineage(Lineage(("one",)), known, model="new", honouring=["two"])
    check_lineage(Lineage(), known, model="old", honouring=["one"])
    with pytest.raises(SettingsError, match=r"'old' still remembers .*2 rows by job one at .*allow_remembering"):
        check_lineage(Lineage(), known, model="old", honouring=["two"])
    with pytest.raises(SettingsError, match=r"has honoured requests that .* lacks \(jobs zero\).*bring back"):
        check_lineage(Lineage(("zero", "one")), known, model="new", honouring=["two"])


def test_allow_remembering_is_about_a_model_that_is_loaded() -> None:
    with pytest.raises(SettingsError, match="`allow_remembering` is about the model named with `from`"):
        as_job({"train": {"allow_remembering": True}})


# On a cluster that stays up


def test_dropped_rows_take_part_in_no_later_job_and_older_models_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    async def scenario(cluster: LocalCluster, submit: Submit) -> None:
        told: list[str] = []

        def follow(event: Event) -> None:
            told.append(event.note)

        trained = await submit({"train": {"epochs": 2, "save": "spring"}})
        assert trained["rows"]["forgotten"] == 0
        everyone = trained["rows"]["train"]
        first = await submit({"train": {"from": "spring"}, "forget": {"samples": 30}, **QUICK})
        assert first["forget"] == {"rows": 30, "remaining": everyone - 30}

        assert lineage(folder, "spring") == Lineage()
        (job,) = lineage(folder, "unlearned").honoured
        assert all(lineage(folder, "unlearned", party).honoured == (job,) for party in PARTIES)
        identity = _read_model(folder / "models" / "active" / "spring.safetensors")[1]["identity"]
        assert lineage(folder, "unlearned").parent == identity

        # Fresh training never sees them, and says so.
        anew = await submit({"train": {"epochs": 1, "save": "autumn"}}, follow)
        assert anew["rows"] == {**trained["rows"], "train": everyone - 30, "forgotten": 30}
        assert {one["forgotten_rows"] for one in anew["parties"].values()} == {30}
        assert "30 rows were forgotten in earlier jobs, and are left out" in told
        assert lineage(folder, "autumn") == Lineage((job,))

        # An older model is refused, and taken when told; the rows stay away all the same.
        with pytest.raises(SettingsError, match=f"'spring' still remembers .* 30 rows by job {job}|'spring' still"):
            await submit({"train": {"from": "spring"}})
        again = await submit({"train": {"from": "spring", "allow_remembering": True, "save": "copy"}})
        assert again["rows"]["train"] == everyone - 30
        assert lineage(folder, "copy") == Lineage()

        # Whoever is forgotten cannot be asked for again, and a renamed file brings nobody back.
        opening = json.loads((folder / "keys" / "active" / "requests" / f"{job}.json").read_text())
        for one in (opening["ids"][0], "nobody"):  # in the same words: they do not tell who was forgotten
            with pytest.raises(SettingsError, match=f"forget.ids: '{one}' is not among the rows in common"):
                train = {"from": "unlearned", "overwrite": True}
                await submit({"train": train, "forget": {"ids": [one]}, **AGAIN})
        await cluster.stop()
        for path in (folder / "parties").glob("*.yaml"):
            settings = yaml.safe_load(path.read_text())
            data = folder / "parties" / settings["data"]["path"]
            renamed = data.with_name(f"renamed-{data.name}")
            data.rename(renamed)
            settings["data"]["path"] = str(renamed)
            path.write_text(yaml.safe_dump(settings))
        for name in ("coordinator", *PARTIES):
            await cluster.start(name)
        second = await submit(
            {
                "train": {"from": "unlearned", "overwrite": True},
                "forget": {"samples": 20},
                "compare": ["retrain"],
                **AGAIN,
            }
        )
        assert second["forget"] == {"rows": 20, "remaining": everyone - 50}
        assert all(entry["rows"] <= everyone - 50 for entry in second["rounds"] if entry["phase"] == "retrain")
        both = lineage(folder, "unlearned").honoured
        assert both[0] == job and len(both) == 2 and set(lineage(folder, "retrain").honoured) == set(both)

    with_cluster(tmp_path, scenario)


def test_a_model_left_as_it_is_has_honoured_nothing(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, submit: Submit) -> None:
        await submit(
            {"train": {"epochs": 1}, "forget": {"samples": 5}, "unlearn": {"method": "none"}, "certificate": False}
        )
        assert lineage(tmp_path / "run", "unlearned") == Lineage()
        with pytest.raises(SettingsError, match="'unlearned' still remembers"):
            await submit({"train": {"from": "unlearned"}})

    with_cluster(tmp_path, scenario)


def test_a_job_that_fails_after_the_drop_says_that_the_rows_are_dropped_all_the_same(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, submit: Submit) -> None:
        told: list[str] = []
        wild = {"unlearn": {"method": "ga", "lr": 1e11, "rounds": 3}, "certificate": False}
        with pytest.raises(PartyError, match="not finite"):
            await submit(
                {"train": {"epochs": 1}, "forget": {"samples": 5}, **wild}, lambda event: told.append(event.note)
            )
        assert any("dropped for good all the same" in note and "train anew" in note for note in told)
        with pytest.raises(SettingsError, match="'original' still remembers"):
            await submit({"train": {"from": "original"}})
        assert (await submit({"train": {"epochs": 1, "save": "anew"}}))["rows"]["forgotten"] == 5

    with_cluster(tmp_path, scenario)


async def give_up(submit: Submit, content: dict[str, Any], cluster: LocalCluster, party: str) -> None:
    """Submit a job, kill a party when the first round of unlearning begins, and cancel the job, which would go on."""
    killed = asyncio.Event()

    def follow(event: Event) -> None:
        if event.started.name == "unlearning" and not killed.is_set():
            cluster.processes[party].kill()
            killed.set()

    work = asyncio.create_task(submit(content, follow))
    await killed.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await cluster.processes[party].wait()
    await cluster.start(party)


def test_a_pending_request_is_taken_up_by_a_later_job_whoever_crashed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    take_up = {"train": {"from": "original"}, "forget": {"pending": True}, **QUICK, "certificate": True}
    lists = {party: folder / "keys" / party / "dropped.json" for party in PARTIES}

    def shown() -> str:
        return fedora("dropped", folder / "parties" / "active.yaml", cwd=tmp_path).stdout

    async def scenario(cluster: LocalCluster, submit: Submit) -> None:
        everyone = (await submit({"train": {"epochs": 1}}))["rows"]["train"]
        with pytest.raises(SettingsError, match="'original' has honoured all requests"):
            await submit(take_up)
        empty = {party: path.read_bytes() for party, path in lists.items()}
        asked = {"train": {"from": "original"}, "forget": {"samples": 15}, **LONG}
        await give_up(submit, asked, cluster, "passive-2")
        (job,) = read_list(lists["passive-2"].parent).jobs
        assert f"job {job}  15 rows, pending: the newest saved model, original, has not honoured it" in shown()

        # As if two parties had crashed before they wrote; a job that takes it up, and fails too, mends the lists.
        for party in ("passive-1", "active"):
            lists[party].write_bytes(empty[party])
        await give_up(submit, {**take_up, **LONG}, cluster, "passive-1")
        for path in lists.values():
            assert [(one.job, one.rows) for one in read_list(path.parent).requests] == [(job, 15)]

        honoured = await submit({**take_up, "compare": ["retrain"]})
        assert honoured["forget"] == {"rows": 15, "remaining": everyone - 15}
        for model in ("unlearned", "retrain"):
            assert {lineage(folder, model, party).honoured for party in PARTIES} == {(job,)}
        assert "pending" not in shown()
        assert (await submit({"train": {"from": "unlearned", "save": "copy"}}))["rows"]["forgotten"] == 15

    with_cluster(tmp_path, scenario)


def test_a_pending_request_with_rows_that_are_gone_is_refused(tmp_path: Path) -> None:
    known = drop_for_good(tmp_path, job="one", ids=["ann", "bob"])
    assert pending_rows(["one"], known, keys=tmp_path, training=["ann", "bea", "bob"]) == {"one": [0, 2]}
    with pytest.raises(SettingsError, match=r"of the 2 rows of job one 1 are among .*train anew"):
        pending_rows(["one"], known, keys=tmp_path, training=["ann", "bea"])
    with pytest.raises(SettingsError, match="of the 0 rows of job two"):
        pending_rows(["two"], known, keys=tmp_path, training=["ann", "bea"])
    with pytest.raises(PartyError, match="not a name for a file"):
        pending_rows(["../one"], known, keys=tmp_path, training=["ann"])


@pytest.mark.parametrize("train", [{"epochs": 1}, {"from": "original", "epochs": 1}])
def test_pending_requests_are_taken_up_from_a_saved_model_as_it_is(train: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"needs `train: \{from: …\}`"):
        as_job({"train": train, "forget": {"pending": True}})


def test_a_party_s_policy_has_a_say_on_models_that_remember(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, submit: Submit) -> None:
        await submit({"train": {"epochs": 1, "save": "spring"}})
        older: dict[str, Any] = {"train": {"from": "spring", "allow_remembering": True}}
        await submit({"train": {"from": "spring"}, "forget": {"samples": 20}, **QUICK})
        await submit({**older, "evaluate": {"batch_size": 512}})
        await cluster.stop()
        path = tmp_path / "run" / "parties" / "passive-1.yaml"
        settings = yaml.safe_load(path.read_text())
        path.write_text(yaml.safe_dump({**settings, "policy": {"load": "any", "linear_bottom": True}}))
        for name in ("coordinator", *PARTIES):
            await cluster.start(name)
        with pytest.raises(SettingsError, match=r"policy.remembering: is false, and the model 'spring' still remem"):
            await submit(older)

    with_cluster(tmp_path, scenario)


# Requests in a row


def on_backdoored_digits(
    folder: Path, scenario: Callable[[Submit, dict[str, Any], Callable[[], Awaitable[None]]], Awaitable[None]]
) -> None:
    """Run a scenario with a cluster whose data has a backdoor.

    It is handed the request of the poisoned rows, and a function that restarts the parties without their lists.
    """
    content = {
        "data": {"source": "digits", "parties": 2},
        "forget": {"classes": ["0", "1"], "percent": 50},
        "backdoor": {"target": "2"},
    }
    federation = prepare(as_job(content), origin=folder / "job.yaml", out=folder, threads=1)
    forget = yaml.safe_load((folder / "job.yaml").read_text())["forget"]

    async def play() -> None:
        async with LocalCluster(folder, federation) as cluster:

            async def submit(
                content: dict[str, Any], follow: Callable[[Event], None] = lambda event: None
            ) -> dict[str, Any]:
                done = await perform(cluster, yaml.safe_dump(content), origin="job.yaml", follow=follow)
                result: dict[str, Any] = json.loads(done.result_json)
                return result

            async def without_lists() -> None:
                await cluster.stop()
                for path in (folder / "parties").glob("*.yaml"):
                    settings = yaml.safe_load(path.read_text())
                    path.write_text(yaml.safe_dump({**settings, "drops": "for-the-job"}))
                for name in ("coordinator", *PARTIES):
                    await cluster.start(name)

            await scenario(submit, forget, without_lists)

    asyncio.run(play())


def test_a_forgotten_backdoor_does_not_come_back_with_later_requests(tmp_path: Path) -> None:
    async def scenario(submit: Submit, poisoned: dict[str, Any], without_lists: Callable[[], Awaitable[None]]) -> None:
        model = {"bottom": "cnn", "channels": [16, 32], "embedding": 32, "top": [64]}
        train: dict[str, Any] = {"epochs": 15, "batch_size": 128}
        first = await submit({"model": model, "train": train, "forget": poisoned, "certificate": False})
        poisoned_model, after = (first[one]["backdoor_asr"] for one in ("original", "unlearned"))
        # So large a budget trains on remaining rows for long enough to learn the backdoor anew, if it is among them.
        unlearn = {"overwrite": True, "budget": 0.2}
        request: dict[str, Any] = {"forget": {"samples": 50}, "unlearn": unlearn, "certificate": False}
        train = {"from": "unlearned", "save": "first"}
        later = await submit({**request, "train": train, "compare": ["retrain"], "seed": 1})
        # Three quarters of the way from the poisoned model to one that never saw the poisoned rows.
        retrained = later["retrain"]["backdoor_asr"]
        gone = retrained + (poisoned_model - retrained) / 4
        assert after < gone < poisoned_model / 2
        for seed in (1, 2):
            if seed == 2:
                train = {"from": "unlearned", "save": "second"}
                later = await submit({**request, "train": train, "seed": 2})
            assert later["rows"]["forgotten"] == first["forget"]["rows"] + 50 * (seed - 1)
            assert later["original"]["backdoor_asr"] == pytest.approx(after, abs=1e-9)
            after = later["unlearned"]["backdoor_asr"]
            assert after < gone, "the rounds on remaining rows have brought it back"
            if seed == 1:
                assert later["unlearned"]["test_accuracy"] > later["retrain"]["test_accuracy"] - 0.06
        await without_lists()
        train = {"from": "first", "save": "again"}
        again = await submit({**request, "train": train, "seed": 1})
        assert again["unlearned"]["backdoor_asr"] > gone, "without the lists the same request brings it back"

    on_backdoored_digits(tmp_path / "run", scenario)


def test_a_second_request_equals_one_process_that_never_had_the_rows_of_the_first(tmp_path: Path) -> None:
    data = {"source": "csv", "path": str(write_people(tmp_path / "people.csv")), "id": "person", "parties": 2}
    train = {"epochs": 2, "batch_size": 64}
    first = {"data": data, "train": train, "forget": {"samples": 40}, "unlearn": {"method": "retrain"}, "seed": 5}
    run(first, tmp_path / "first")
    second = {
        "data": data,
        "train": {"from": str(tmp_path / "first")},
        "forget": {"samples": 30},
        "unlearn": {"budget": 0.3},
        "seed": 6,
    }
    result = run(second, tmp_path / "second")
    assert result["rows"]["forgotten"] == 40

    job = as_job(first)
    anew = job.model_copy(update={"seed": derive(job.seed, "retrain")})
    joint = reference.join(tmp_path / "first", anew)
    keep = torch.ones(len(joint.labels), dtype=torch.bool)
    keep[requested(first["forget"], joint, job.seed)] = False  # type: ignore[arg-type]
    joint.inputs, joint.labels = [one[keep] for one in joint.inputs], joint.labels[keep]
    joint.train -= 40
    reference.train(joint, anew, name="retrain")
    joint.assert_saved(tmp_path / "second", "original")

    later = as_job(second)
    assert isinstance(later.unlearn, Fedora)
    unlearning = reference.Unlearning(joint, requested({"samples": 30}, joint, later.seed))
    task = UnlearningTask(
        job.train,
        classes=2,
        forget=30,
        remaining=joint.train - 30,
        seed=derive(later.seed, "unlearn"),
        test=len(joint.labels) - joint.train,
        rows_for_one=reference.rows_for_one(job),
    )
    unlearning.perform(self_scaling.auto(Problem(later.unlearn, task)))
    joint.assert_saved(tmp_path / "second", "unlearned")


# Runs that go on from earlier ones


def test_a_run_goes_on_from_the_newest_model_and_must_be_told_to_take_an_older_one(tmp_path: Path) -> None:
    data = {"source": "csv", "path": str(write_people(tmp_path / "people.csv")), "id": "person"}
    first = run({"data": data, "train": {"epochs": 1}, "forget": {"samples": 25}, **QUICK}, tmp_path / "first")
    newest = run({"data": data, "train": {"from": str(tmp_path / "first")}}, tmp_path / "newest")
    assert newest["original"]["test_loss"] == pytest.approx(first["unlearned"]["test_loss"], rel=1e-6)
    assert newest["rows"]["forgotten"] == 25

    older = f"{tmp_path / 'first'}#original"
    with pytest.raises(SettingsError, match="still remembers"):
        run({"data": data, "train": {"from": older}}, tmp_path / "refused")
    taken = run({"data": data, "train": {"from": older, "allow_remembering": True}}, tmp_path / "older")
    assert taken["original"]["test_loss"] == pytest.approx(first["original"]["test_loss"], rel=1e-6)
    assert taken["rows"]["forgotten"] == 25, "the model is the older one; the rows stay away"
    with pytest.raises(DataError, match="holds no model 'spring' of passive-1; its saved models are: original, unl"):
        run({"data": data, "train": {"from": f"{tmp_path / 'first'}#spring"}}, tmp_path / "none")

    party = tmp_path / "newest" / "parties" / "active.yaml"
    (opening,) = (tmp_path / "first" / "keys" / "active" / "requests").glob("*.json")
    person = json.loads(opening.read_text())["ids"][0]
    shown = fedora("dropped", party, cwd=tmp_path)
    assert f"job {opening.stem}  25 rows" in shown.stdout and person not in shown.stdout
    assert fedora("dropped", party, "--check", person, cwd=tmp_path).stdout == f"{person} is on the list\n"
    assert fedora("dropped", party, "--readmit", person, cwd=tmp_path).returncode == SettingsError.exit_code
    done = fedora("dropped", party, "--readmit", person, "--reason", "came back", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert fedora("dropped", party, "--check", person, cwd=tmp_path).stdout == f"{person} is not on the list\n"
    assert "1 row readmitted: came back" in fedora("dropped", party, cwd=tmp_path).stdout


# One folder, one run


def test_a_folder_that_another_process_writes_to_is_refused_until_that_one_is_dead(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "federation.yaml").touch()
    holding = "import sys, pathlib; from fedora_vfl.cluster.runs import claimed\n"
    holding += (
        "with claimed(pathlib.Path(sys.argv[1]), overwrite=True, marker='federation.yaml'): print(flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holding, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout
        other.stdout.readline()
        with (
            pytest.raises(SettingsError, match="another run is writing there"),
            claimed(out, overwrite=True, marker="federation.yaml"),
        ):
            pass
        other.kill()
    assert (out / ".lock").exists(), "it had no time to clean up"
    with claimed(out, overwrite=True, marker="federation.yaml"):
        pass
    assert not (out / ".lock").exists()


def test_the_command_refuses_a_folder_that_is_taken_also_with_overwrite(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("data: {source: digits}\n")
    with claimed(tmp_path / "out", overwrite=False, marker="federation.yaml"):
        refused = fedora("run", "job.yaml", "--out", "out", "--overwrite", cwd=tmp_path)
    assert refused.returncode == SettingsError.exit_code and "another run is writing there" in refused.stderr


def test_a_run_that_is_replaced_comes_back_whole_if_the_new_one_cannot_be_prepared(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "models").mkdir(parents=True)
    (out / "federation.yaml").write_text("old")
    with pytest.raises(DataError), replacing(out):
        (out / "federation.yaml").write_text("new")
        raise DataError("no such file")
    assert (out / "federation.yaml").read_text() == "old" and (out / "models").is_dir()
    assert {path.name for path in out.iterdir()} == {"federation.yaml", "models"}


def test_a_run_that_was_killed_while_it_replaced_another_can_be_replaced_in_turn(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / ".earlier").mkdir(parents=True)
    (out / ".earlier" / "federation.yaml").touch()
    (out / "data").mkdir()
    with claimed(out, overwrite=True, marker="federation.yaml"), replacing(out):
        assert {path.name for path in out.iterdir()} == {".earlier", ".lock"}
        (out / "federation.yaml").touch()
    assert {path.name for path in out.iterdir()} == {"federation.yaml"}
