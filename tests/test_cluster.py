"""A cluster that stays up: many jobs one after the other, models kept by name, parties that leave and come back."""

import asyncio
import csv
import io
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.cluster.runs import keep
from fedora_vfl.cluster.submission import submit
from fedora_vfl.errors import DataError, PartyError, SettingsError
from fedora_vfl.settings.federation import Deadlines
from fedora_vfl.wire.protocol import COORDINATOR
from protos.fedora.v1.control_pb2 import Event
from tests.conftest import Training, as_job, run, write_people, write_yaml


class Submit(Protocol):
    """Runs a job on the cluster."""

    async def __call__(self, content: dict[str, Any], follow: Callable[[Event], None] = ...) -> dict[str, Any]:
        """Return the job's result."""


def with_cluster(
    folder: Path,
    scenario: Callable[[LocalCluster, Submit], Awaitable[None]],
    rows: int = 400,
    deadlines: Deadlines | None = None,
) -> None:
    """Run a scenario with a cluster that is up."""
    out = folder / "run"
    data = {"source": "csv", "path": str(write_people(folder / "people.csv", rows=rows)), "id": "person"}
    federation = prepare(as_job({"data": data}), origin=out / "job.yaml", out=out, threads=1, deadlines=deadlines)

    async def play() -> None:
        async with LocalCluster(out, federation) as cluster:

            async def submit_job(
                content: dict[str, Any], follow: Callable[[Event], None] = lambda event: None
            ) -> dict[str, Any]:
                train = {**content.get("train", {}), "overwrite": True}  # jobs of one scenario save under one name
                result = await submit(
                    federation.coordinator.address,
                    yaml.safe_dump({**content, "train": train}),
                    origin="job.yaml",
                    follow=follow,
                    deadlines=federation.deadlines,
                )
                return keep(result, out)

            await scenario(cluster, submit_job)

    asyncio.run(play())


def test_jobs_follow_each_other_and_a_saved_model_is_the_same_model_again(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, submit: Submit) -> None:
        trained = await submit({"train": {"epochs": 3, "save": "first"}, "seed": 1})
        again = await submit({"train": {"from": "first", "save": "copy"}})
        assert again["original"]["test_accuracy"] == trained["original"]["test_accuracy"]
        assert again["original"]["test_loss"] == trained["original"]["test_loss"]
        assert again["original"]["bytes"]["tensor"] == 0
        for name, party in trained["parties"].items():
            assert again["parties"][name]["model_sha256"] == party["model_sha256"]

        further = await submit({"train": {"from": "first", "epochs": 1, "save": "second"}})
        assert further["parties"]["active"]["model_sha256"] != trained["parties"]["active"]["model_sha256"]

        with pytest.raises(DataError, match="there is no saved model of that name"):
            await submit({"train": {"from": "never"}})
        with pytest.raises(SettingsError, match="differs from the saved model"):
            await submit({"train": {"from": "first"}, "model": {"embedding": 7}})
        # None of these failures did any harm.
        assert (await submit({"train": {"from": "first"}}))["original"] == again["original"]

    with_cluster(tmp_path, scenario)


def test_a_model_is_not_loaded_by_parties_in_another_order_or_from_another_training(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, submit: Submit) -> None:
        await submit({"train": {"epochs": 1, "save": "spring"}, "seed": 1})
        await submit({"train": {"epochs": 1, "save": "autumn"}, "seed": 2})
        models = tmp_path / "run" / "models"
        shutil.copy(models / "passive-1" / "autumn.safetensors", models / "passive-1" / "spring.safetensors")
        with pytest.raises(DataError, match="come from different trainings"):
            await submit({"train": {"from": "spring"}})
        with pytest.raises(SettingsError, match=r"train\.from: '\.\./spring' is not a name"):
            await submit({"train": {"from": "../spring"}})

        federation = cluster.federation
        turned = federation.model_dump() | {"passive": list(reversed(federation.passive))}
        write_yaml(tmp_path / "run" / "federation.yaml", turned)
        await cluster.stop()
        for name in [COORDINATOR, *federation.parties]:
            await cluster.start(name)
        with pytest.raises(DataError, match="was trained with passive parties passive-1, passive-2, in this order"):
            await submit({"train": {"from": "autumn"}})

    with_cluster(tmp_path, scenario)


def test_impossible_settings_are_refused_in_one_sentence_and_change_nothing(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, submit: Submit) -> None:
        with pytest.raises(SettingsError, match=r"job\.yaml: train\.epoch: unknown setting; did you mean `epochs`\?"):
            await submit({"train": {"epoch": 3}})
        with pytest.raises(SettingsError, match="`cnn` needs images"):
            await submit({"model": {"bottom": "cnn"}})
        with pytest.raises(SettingsError, match="there is no bottom model 'resnet'"):
            await submit({"model": {"bottom": "resnet"}})
        with pytest.raises(PartyError, match="not finite"):
            await submit({"train": {"optimizer": "sgd", "lr": 1e11, "epochs": 5}})
        assert (await submit({"train": {"epochs": 1}}))["rows"]["train"] > 0

    with_cluster(tmp_path, scenario)


def test_a_party_that_died_in_a_job_that_was_cancelled_can_come_back_for_the_next_one(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, submit: Submit) -> None:
        first = await submit({"train": {"epochs": 1}})
        training = Training()
        work = asyncio.create_task(submit({"train": {"epochs": 100_000}}, training))
        await training.begun.wait()
        cluster.processes["passive-1"].kill()
        await cluster.processes["passive-1"].wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        await cluster.start("passive-1")
        again = await submit({"train": {"epochs": 1}})
        assert again["parties"] == first["parties"]

    with_cluster(tmp_path, scenario)


def test_parties_come_back_to_a_coordinator_that_was_restarted(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, submit: Submit) -> None:
        first = await submit({"train": {"epochs": 1}})
        cluster.processes[COORDINATOR].kill()
        await cluster.processes[COORDINATOR].wait()
        await cluster.start(COORDINATOR)
        assert (await submit({"train": {"epochs": 1}}))["parties"] == first["parties"]

    with_cluster(tmp_path, scenario)


def test_a_second_process_of_one_name_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, submit: Submit) -> None:
        await submit({"train": {"epochs": 1}})
        first = cluster.processes["passive-1"]
        await cluster.start("passive-1")
        assert await cluster.processes["passive-1"].wait() == PartyError.exit_code
        log = cluster.log_path("passive-1").read_text()
        assert "error: passive-1 has joined already; a second process uses its name" in log
        cluster.processes["passive-1"] = first
        assert (await submit({"train": {"epochs": 1}}))["rows"]["train"] > 0

    # So long it could be the same process, whose old connection nobody knows to be dead.
    with_cluster(tmp_path, scenario, deadlines=Deadlines(join=60, silence=4))


def test_the_ledger_adds_up_to_the_prediction_in_every_encoding(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, submit: Submit) -> None:
        sizes = {}
        # Bytes of a row of 16 values.
        rows_of = {"float32": 64, "float16": 32, "bfloat16": 32, "int8": 18, "int4": 10, "topk-25%": 2 + 8}
        for encoding, size in rows_of.items():
            train = {"epochs": 2, "batch_size": 16, "lr": 0.01}
            result = await submit({"train": train, "model": {"embedding": 16}, "wire": {"encoding": encoding}})
            rows = result["rows"]
            original, whole = result["original"]["bytes"], result["bytes"]
            assert original["tensor"] == original["predicted"] == rows["train"] * 2 * size * 2 * 2
            assert whole["tensor"] == whole["predicted"] == original["tensor"] + rows["test"] * size * 2
            sizes[encoding] = original["tensor"]
            assert result["original"]["test_accuracy"] > 0.8
        assert sizes["float32"] == 2 * sizes["float16"] == 2 * sizes["bfloat16"]

        with io.StringIO((tmp_path / "run" / "ledger.csv").read_text()) as text:
            lines = list(csv.DictReader(text))
        assert sum(int(line["tensor_bytes"]) for line in lines) == whole["tensor"]
        counted = [line for line in lines if line["kind"] in ("embedding", "gradient")]
        assert sum(int(line["protobuf_bytes"]) for line in counted) == whole["protobuf"]
        assert {line["direction"] for line in lines if line["kind"] == "gradient"} == {
            "active->passive-1",
            "active->passive-2",
        }
        assert {line["kind"] for line in lines} == {"control", "alignment", "embedding", "gradient"}

    with_cluster(tmp_path, scenario)


def test_protobuf_adds_at_most_one_percent_at_batch_256_and_embedding_64(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, submit: Submit) -> None:
        result = await submit({"train": {"epochs": 1, "batch_size": 256}, "model": {"embedding": 64}})
        counted = result["original"]["bytes"]
        assert counted["tensor"] < counted["protobuf"] <= 1.01 * counted["tensor"]

    with_cluster(tmp_path, scenario, rows=1600)


def test_a_run_takes_its_model_from_an_earlier_run_s_folder(tmp_path: Path, people: Path) -> None:
    data = {"source": "csv", "path": str(people), "id": "person"}
    first = run({"data": data, "train": {"epochs": 2}}, tmp_path / "first")
    second = run({"data": data, "train": {"from": str(tmp_path / "first")}}, tmp_path / "second")
    assert second["original"]["test_loss"] == first["original"]["test_loss"]
    assert (tmp_path / "second" / "models" / "active" / "original.safetensors").exists()


def test_three_ends_of_a_table_in_three_orders_give_the_result_of_one_order(tmp_path: Path, people: Path) -> None:
    data = {"source": "csv", "path": str(people), "id": "person"}
    plain = run({"data": data, "train": {"epochs": 2}}, tmp_path / "plain")
    mixed = run({"data": {**data, "shuffle": True}, "train": {"epochs": 2}}, tmp_path / "mixed")
    assert mixed["parties"] == plain["parties"]
