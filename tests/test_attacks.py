"""What a member with a valid place in the federation cannot do to the others, try as it may."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor

from coordinator.job import Job
from fedora_vfl.certificates.verification import Evidence, examine
from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.cluster.runs import keep
from fedora_vfl.cluster.submission import submit
from fedora_vfl.errors import CertificateError, DataError, FedoraError, PartyError, SettingsError
from fedora_vfl.sampling.seeds import derive
from fedora_vfl.settings.federation import Federation, load_federation
from fedora_vfl.settings.files import parse
from fedora_vfl.settings.model import Model
from fedora_vfl.signing import SigningKey, canonical, parse_canonical
from fedora_vfl.wire.channels import path
from fedora_vfl.wire.protocol import COORDINATOR, PROTOCOL
from party import models
from party.data.encoding import from_json
from party.data.reading import read
from party.data.split import assign
from party.passive import OPEN as OPEN_STREAM
from party.policy import OPEN
from party.settings import load_party
from party.state import MODEL_FORMAT, assemble, reload
from party.tensor_files import read_tensors
from protos.fedora.v1.control_pb2 import DESCRIPTOR, Event
from protos.fedora.v1.control_pb2 import Job as JobMessage
from protos.fedora.v1.exchange_pb2 import Order
from protos.fedora.v1.failure_pb2 import Failure
from tests.conftest import Training, as_job, write_people, write_yaml
from tests.lying_coordinator import UNTRUE
from tests.rogue import LIES
from tests.stalls import STALL_SECONDS, stall
from tests.test_faults import DEADLINES, LONG

Submit = Callable[[dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]]
Content = dict[str, Any]
T = TypeVar("T")

SUBMIT = DESCRIPTOR.services_by_name["Jobs"].methods_by_name["Submit"]


def hole(reason: str) -> pytest.MarkDecorator:
    """Mark a promise that is not kept yet: it must be broken in the way that the test looks for, and in no other."""
    broken = (AssertionError, TimeoutError, pytest.fail.Exception)
    return pytest.mark.xfail(strict=True, raises=broken, reason=reason)


def lay_out(folder: Path, *, rows: int = 400, policy: object = OPEN, drops: str = "for-good") -> Federation:
    """Prepare members that do not trust each other: a party file has what it must have, all else is the default.

    Their policy is open, so that attacks come as far as they can, unless it is what a test is about.
    """
    out = folder / "run"
    data = {"source": "csv", "path": str(write_people(folder / "people.csv", rows=rows)), "id": "person"}
    federation = prepare(as_job({"data": data}), origin=out / "job.yaml", out=out, threads=1, deadlines=DEADLINES)
    for name in federation.parties:
        file = out / "parties" / f"{name}.yaml"
        written = yaml.safe_load(file.read_text())
        kept = {key: written[key] for key in ("name", "federation", "data", "models", "keys", "threads")}
        write_yaml(file, {**kept, "drops": drops} if policy is None else {**kept, "drops": drops, "policy": policy})
    return federation


def on_cluster(
    folder: Path,
    scenario: Callable[[LocalCluster, Submit], Awaitable[T]],
    *,
    programs: dict[str, list[str]] | None = None,
    rows: int = 400,
    policy: object = OPEN,
    drops: str = "for-good",
    follow: Callable[[Event], None] = lambda event: None,
) -> T:
    """Play a scenario on a cluster of such members, some of which run other programs."""
    federation = lay_out(folder, rows=rows, policy=policy, drops=drops)

    async def play() -> T:
        async with LocalCluster(folder / "run", federation, programs=programs) as cluster:

            async def run_job(content: dict[str, Any]) -> dict[str, Any]:
                result = await submit(
                    federation.coordinator.address,
                    yaml.safe_dump(content),
                    origin="job.yaml",
                    follow=follow,
                    deadlines=federation.deadlines,
                )
                return keep(result, folder / "run")

            return await scenario(cluster, run_job)

    return asyncio.run(play())


def failure(folder: Path, content: dict[str, Any], *, programs: dict[str, list[str]]) -> FedoraError:
    """Run one job that must fail, with some members that break rules, and return why it did."""

    async def scenario(cluster: LocalCluster, submit: Submit) -> FedoraError:
        with pytest.raises(FedoraError) as caught:
            await submit(content)
        return caught.value

    return on_cluster(folder, scenario, programs=programs)


def check_refusal(error: FedoraError) -> None:
    """Pass on what is a fault of the software, or of the attack itself, and no refusal."""
    if error.kind == Failure.INTERNAL:
        raise error


# Features


def recovered(embeddings: Tensor, model: Model, *, seed: int, place: int) -> Tensor | None:
    """Undo a linear bottom whose parameters follow from a seed: its width is the first that explains the embeddings."""
    sent = embeddings.double()
    for width in range(1, model.embedding):
        bottom = models.bottom(model.bottom, model.bottom_settings, origin="model")
        torch.manual_seed(derive(seed, "bottom", place))
        weight, bias = (one.detach().double() for one in bottom.build((width,), model.embedding).parameters())
        rows: Tensor = (sent - bias) @ torch.linalg.pinv(weight.T)
        if torch.allclose(rows @ weight.T + bias, sent, rtol=0, atol=1e-4):
            return rows
    return None


def encoded_features(folder: Path, party: str) -> Tensor:
    """Return a party's rows as its bottom model sees them."""
    settings, _ = load_party(folder / "run" / "parties" / f"{party}.yaml")
    file = settings.model_path("original")
    _, description = read_tensors(file, format=MODEL_FORMAT, what="a saved model")
    records = read(settings.data, with_labels=False)
    assert records.features is not None
    return from_json(description["encoding"]).apply(records.features).batch(torch.arange(len(records.ids)))


@pytest.mark.parametrize("policy", [OPEN, None], ids=["open policy", "default policy"])
def test_an_active_party_cannot_recover_features_from_embeddings(policy: str | None, tmp_path: Path) -> None:
    model = {"bottom": "mlp", "hidden": [], "embedding": 32}
    job = {"model": model, "train": {"epochs": 1, "lr": 1e-12}, "seed": 5}

    async def scenario(cluster: LocalCluster, submit: Submit) -> bool:
        try:
            await submit(job)
        except FedoraError as error:
            check_refusal(error)
            return False  # a party that refuses such a job gives nothing away
        return True

    if on_cluster(tmp_path, scenario, programs={"active": ["tests.rogue", "record"]}, policy=policy):
        sent = load_file(tmp_path / "run" / "parties" / "recorded.safetensors")["embeddings"]
        truth = encoded_features(tmp_path, "passive-1").double()
        guess = recovered(sent, Model.model_validate(model), seed=5, place=0)
        if guess is not None and guess.shape[1] == truth.shape[1]:
            nearest = torch.cdist(truth, guess).min(dim=1).values
            assert float(nearest.median()) > 0.1, "of most rows all that the party knows was recovered"


# Labels


def test_an_operator_cannot_learn_a_person_s_label(tmp_path: Path) -> None:
    lines = write_people(tmp_path / "all.csv").read_text().splitlines()[1:]
    labels = {line.split(",")[0]: line.split(",")[-1] for line in lines}
    parts = dict(zip(labels, assign(list(labels), None, 0.2), strict=True))
    persons = [person for person, part in parts.items() if part == "train"][:4]

    async def scenario(cluster: LocalCluster, submit: Submit) -> dict[str, str]:
        # A model that has never seen a `no` says `yes` of everybody: being right about a person is being a `yes`.
        await submit(
            {
                "model": {"embedding": 2},
                "train": {"epochs": 1},
                "forget": {"classes": ["no"]},
                "unlearn": {"method": "retrain", "save": "oracle"},
                "certificate": False,
            }
        )
        learned = {}
        for person in persons:
            try:
                result = await submit(
                    {
                        "train": {"from": "oracle", "save": f"same-{person}"},
                        "forget": {"ids": [person]},
                        "unlearn": {"method": "none", "save": f"without-{person}"},
                        "certificate": False,
                    }
                )
            except FedoraError as error:
                check_refusal(error)
                continue  # a refusal tells nothing
            told = result["unlearned"]["forget_accuracy"]
            if told is not None:
                learned[person] = "yes" if told == 1 else "no"
        return learned

    # Rows are not dropped for good, which would end the attack too.
    learned = on_cluster(tmp_path, scenario, policy=None, drops="for-the-job")
    right = [person for person, label in learned.items() if label == labels[person]]
    assert not right, f"{len(right)} of {len(persons)} persons' labels were learned"


# Certificates


@dataclass(frozen=True)
class Forgetting:
    """A finished run that has forgotten, with everybody's keys at hand."""

    folder: Path

    @property
    def certificate(self) -> Content:
        """The certificate, to be changed at will."""
        content: Content = parse_canonical((self.folder / "certificate.json").read_bytes())
        return content

    def key(self, member: str) -> SigningKey:
        """Return the key that a member signs with."""
        return SigningKey.load_or_make(self.folder / "keys" / member)

    def openings(self) -> list[Path]:
        """Return what shows the ids that each party committed to."""
        return sorted((self.folder / "keys").glob("*/requests/*.json"))


FORGET: dict[str, Any] = {"train": {"epochs": 1}, "forget": {"samples": 20}, "unlearn": {"rounds": 2, "delta": 0.2}}


@pytest.fixture(scope="module")
def forgetting(tmp_path_factory: pytest.TempPathFactory) -> Forgetting:
    """A small job that forgets."""
    folder = tmp_path_factory.mktemp("forgetting")

    async def scenario(cluster: LocalCluster, submit: Submit) -> None:
        await submit(FORGET)

    on_cluster(folder, scenario)
    return Forgetting(folder / "run")


def seal(content: Content, key: SigningKey) -> bytes:
    """Sign a certificate as its coordinator."""
    rest = {name: value for name, value in content.items() if name != COORDINATOR}
    return canonical(rest | {COORDINATOR: {"public_key": key.public, "signature": key.sign(canonical(rest))}})


def broken(data: bytes, evidence: Evidence) -> list[str]:
    """Return what does not hold of a certificate."""
    return [check.said for check in examine(data, evidence)[1] if check.holds is False]


def verify(*arguments: str | Path) -> int:
    """Return the exit code of `fedora verify`."""
    command = [sys.executable, "-m", "fedora_vfl.cli", "verify", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False).returncode


def forge(forgetting: Forgetting, folder: Path) -> dict[str, str]:
    """Write a certificate that strangers have signed in everybody's name; return their public keys by member."""
    content = forgetting.certificate
    keys = {
        name: SigningKey.load_or_make(folder / "strangers" / name) for name in (COORDINATOR, *content["statements"])
    }
    for name, signed in content["statements"].items():
        signature = keys[name].sign(canonical(signed["statement"]))
        content["statements"][name] = signed | {"public_key": keys[name].public, "signature": signature}
    (folder / "certificate.json").write_bytes(seal(content, keys[COORDINATOR]))
    return {name: key.public for name, key in keys.items()}


def test_a_certificate_holds_as_it_was_made(forgetting: Forgetting) -> None:
    federation = load_federation(forgetting.folder / "federation.yaml")
    evidence = Evidence(forgetting.folder / "models", federation, forgetting.openings())
    assert len(forgetting.openings()) == 3
    assert not broken((forgetting.folder / "certificate.json").read_bytes(), evidence)


@pytest.mark.parametrize("fault", ["other-rows", "other-secret", "other-order"])
def test_parties_that_would_forget_different_rows_are_named_before_the_first_round(fault: str, tmp_path: Path) -> None:
    phases: list[str] = []

    async def scenario(cluster: LocalCluster, submit: Submit) -> FedoraError:
        with pytest.raises(FedoraError) as caught:
            await submit(FORGET)
        return caught.value

    def follow(event: Event) -> None:
        if event.WhichOneof("content") == "started":
            phases.append(event.started.name)

    error = on_cluster(tmp_path, scenario, programs={"active": ["tests.rogue", fault]}, follow=follow)
    assert isinstance(error, CertificateError) and not phases
    assert str(error).startswith("active and passive-1 have not committed to the same rows to forget")
    # What each was told is kept, for the two to compare.
    kept = {file.parts[-3]: json.loads(file.read_text()) for file in Forgetting(tmp_path / "run").openings()}
    assert kept["active"]["commitment"] == kept["passive-2"]["commitment"] != kept["passive-1"]["commitment"]
    assert (kept["active"]["ids"] == kept["passive-1"]["ids"]) == (fault == "other-secret")


def test_parties_sign_nothing_that_they_know_to_be_untrue(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, submit: Submit) -> dict[str, str]:
        said = {}
        for number, lie in enumerate(UNTRUE):
            with pytest.raises(FedoraError) as caught:
                save = {"train": {"epochs": 1, "save": f"before-{number}"}}
                unlearn = {**FORGET["unlearn"], "save": f"after-{number}"}
                await submit({**FORGET, **save, "unlearn": unlearn, "seed": number})
            assert isinstance(caught.value, PartyError)
            said[lie] = str(caught.value)
        return said

    said = on_cluster(tmp_path, scenario, programs={COORDINATOR: ["tests.lying_coordinator"]})
    assert set(said) == set(UNTRUE) and not (tmp_path / "run" / "certificate.json").exists()
    for sentence in said.values():
        assert sentence.startswith("coordinator sent a joint statement that is not true here: it")


@pytest.mark.parametrize(
    ("section", "changes"),
    [
        ("method", {"name": "retrain"}),
        ("method", {"settings": {"rounds": 1000}}),
        ("method", {"rounds": 1000}),
        ("method", {"stopped": "the constraint has held for 3 rounds"}),
        ("request", {"kind": "classes", "classes": ["no"], "percent": 50.0}),
        (None, {"time": "2020-02-02T02:02:02Z"}),
    ],
    ids=["method", "settings", "rounds", "ending", "request", "time"],
)
def test_a_coordinator_cannot_change_what_was_done(
    section: str | None, changes: Content, forgetting: Forgetting
) -> None:
    content = forgetting.certificate
    part = content[section] if section else content
    assert any(part[name] != value for name, value in changes.items())
    part.update(changes)
    evidence = Evidence(federation=load_federation(forgetting.folder / "federation.yaml"))
    assert broken(seal(content, forgetting.key(COORDINATOR)), evidence)


def test_a_certificate_that_strangers_have_signed_anew_does_not_pass(forgetting: Forgetting, tmp_path: Path) -> None:
    forge(forgetting, tmp_path)
    assert verify(tmp_path / "certificate.json") != 0


def test_a_forged_folder_with_a_federation_file_of_its_own_does_not_pass(
    forgetting: Forgetting, tmp_path: Path
) -> None:
    keys = forge(forgetting, tmp_path)
    federation = yaml.safe_load((forgetting.folder / "federation.yaml").read_text())
    write_yaml(tmp_path / "federation.yaml", federation | {"keys": keys})
    assert verify(tmp_path) != 0


# Messages


async def longest_stall(cluster: LocalCluster, member: str, work: Coroutine[Any, Any, None]) -> float:
    """Ask a member again and again how it is while some work lasts; return the longest that it kept others waiting."""
    federation, longest = cluster.federation, 0.0
    address = (federation.coordinator if member == COORDINATOR else federation.active).address
    async with grpc.aio.insecure_channel(address) as channel:
        await channel.channel_ready()
        task = asyncio.create_task(work)
        try:
            while not task.done() and longest < STALL_SECONDS:
                _, stalled = await stall(channel, cluster.processes[member].pid)
                longest = max(longest, stalled)
        finally:
            task.cancel()
    return longest


def test_a_message_of_many_small_fields_does_not_hold_up_the_active_party(tmp_path: Path) -> None:
    tiny = b"\x08\x01" * (8 * 1024 * 1024)  # field 1, over and over: 16 MB

    async def scenario(cluster: LocalCluster, submit: Submit) -> float:
        address = cluster.federation.active.address
        async with grpc.aio.insecure_channel(address, options=[("grpc.max_send_message_length", -1)]) as channel:
            await channel.channel_ready()
            call: Any = channel.stream_stream(path(OPEN_STREAM))()

            async def send() -> None:
                try:
                    await call.write(tiny)
                    await call.read()
                except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    pass  # refused before it was read

            return await longest_stall(cluster, "active", send())

    programs: dict[str, list[str]] = {COORDINATOR: [], "passive-1": [], "passive-2": []}
    assert on_cluster(tmp_path, scenario, programs=programs) < STALL_SECONDS


def test_a_party_that_tells_of_progress_for_ever_is_named_within_the_step_deadline(tmp_path: Path) -> None:
    trained = Training()

    async def scenario(cluster: LocalCluster, submit: Submit) -> FedoraError:
        work = asyncio.create_task(submit({"train": LONG}))
        try:
            await trained.begun.wait()
            with pytest.raises(FedoraError) as caught:
                async with asyncio.timeout(2 * DEADLINES.step):
                    await asyncio.shield(work)
            return caught.value
        finally:
            work.cancel()

    programs = {"passive-1": ["tests.rogue", "progress"]}
    error = on_cluster(tmp_path, scenario, programs=programs, follow=trained)
    assert isinstance(error, PartyError) and error.culprit == "passive-1"


@pytest.mark.parametrize("culprit", ["passive-1", "active"])
def test_a_party_whose_report_cannot_be_true_is_named(culprit: str, tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, submit: Submit) -> dict[str, str]:
        believed = {}
        for number, lie in enumerate(LIES):
            try:
                await submit({"train": {"epochs": 1, "save": f"lie-{number}"}, "seed": number})
                believed[str(lie)] = "the job went well"
            except FedoraError as error:
                if not isinstance(error, PartyError) or error.culprit != culprit:
                    believed[str(lie)] = str(error)
        return believed

    assert not on_cluster(tmp_path, scenario, programs={culprit: ["tests.rogue", "lies"]})


def test_a_party_s_words_cannot_steer_the_terminal_or_forge_a_line(tmp_path: Path) -> None:
    job = write_yaml(tmp_path / "job.yaml", {"train": {"epochs": 1}})

    async def scenario(cluster: LocalCluster, submit: Submit) -> str:
        address = cluster.federation.coordinator.address
        words = ("fedora_vfl.cli", "submit", str(job), "--coordinator", address, "--out", str(tmp_path / "result"))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *words), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await process.communicate()
        return said.decode()

    said = on_cluster(tmp_path, scenario, programs={"passive-1": ["tests.rogue", "terminal"]})
    assert "is well" in said
    assert all(one.isprintable() for one in said.replace("\n", ""))
    assert len([line for line in said.splitlines() if line.startswith("error: ")]) == 1


def test_a_party_cannot_blame_one_that_it_has_no_connection_to(tmp_path: Path) -> None:
    error = failure(tmp_path, {"train": {"epochs": 1}}, programs={"passive-1": ["tests.rogue", "accuse"]})
    assert isinstance(error, PartyError) and error.culprit == "passive-1"


# Jobs and files


def saved_models(folder: Path, name: str) -> dict[Path, bytes]:
    """Return what every party has saved under a name."""
    return {file: file.read_bytes() for file in folder.rglob(f"{name}.safetensors")}


def test_a_saved_model_is_never_overwritten_by_a_later_job(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, submit: Submit) -> None:
        await submit({"train": {"epochs": 1, "save": "ours"}, "seed": 1})
        kept = saved_models(tmp_path, "ours")
        assert len(kept) == 3
        with pytest.raises(FedoraError, match="ours"):
            await submit({"train": {"epochs": 1, "save": "ours"}, "seed": 2})
        assert saved_models(tmp_path, "ours") == kept

    on_cluster(tmp_path, scenario)


def test_a_job_of_impossible_size_is_refused_by_its_setting(tmp_path: Path) -> None:
    jobs: dict[str, dict[str, Any]] = {
        "epochs": {"train": {"epochs": 10**12}},
        "batch_size": {"train": {"epochs": 1, "batch_size": 10**15}},
        "hidden": {"model": {"hidden": [200_000, 10**12]}, "train": {"epochs": 1}},
    }

    async def scenario(cluster: LocalCluster, submit: Submit) -> dict[str, str]:
        unexpected = {}
        for setting, job in jobs.items():
            with pytest.raises(FedoraError) as caught:
                await submit(job)
            if not isinstance(caught.value, SettingsError) or setting not in str(caught.value):
                unexpected[setting] = str(caught.value)
        return unexpected

    assert not on_cluster(tmp_path, scenario)


def test_a_job_file_of_many_names_is_read_in_a_time_that_grows_with_its_length() -> None:
    text = "data:\n" + "".join(f"  name{number}: 1\n" for number in range(15_000))
    began = time.process_time()
    yaml.safe_load(text)
    plainly = time.process_time() - began
    began = time.process_time()
    parse(text, Job, origin="job.yaml")
    assert time.process_time() - began < 2 * plainly


def test_a_job_that_names_many_people_does_not_hold_up_the_coordinator(tmp_path: Path) -> None:
    text = yaml.safe_dump({"forget": {"ids": [f"p{number}" for number in range(50_000)]}})
    message = JobMessage(protocol=PROTOCOL, settings=text, origin="job.yaml", token=bytes(16))

    async def scenario(cluster: LocalCluster, submit: Submit) -> float:
        address = cluster.federation.coordinator.address
        async with grpc.aio.insecure_channel(address) as channel:
            await channel.channel_ready()
            submit_job: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path(SUBMIT))

            async def send() -> None:
                await submit_job(message.SerializeToString())

            return await longest_stall(cluster, COORDINATOR, send())

    programs: dict[str, list[str]] = {"active": [], "passive-1": [], "passive-2": []}
    assert on_cluster(tmp_path, scenario, programs=programs) < STALL_SECONDS


@pytest.mark.parametrize("place", ["header", "parameters"])
def test_a_damaged_model_file_is_never_loaded(place: str, tmp_path: Path) -> None:
    lay_out(tmp_path, rows=60)
    settings, _ = load_party(tmp_path / "run" / "parties" / "active.yaml")
    records = read(settings.data, with_labels=True)
    order = Order(train=records.ids[:50], test=records.ids[50:])
    model, passive = Model(embedding=4, top=[8]), ["passive-1", "passive-2"]
    state = assemble(records, order, party="active", place=2, seed=0, model=model, own_bottom=None, passive=passive)
    file = tmp_path / "model.safetensors"
    state.save_model(file, "identity", "")
    whole = file.read_bytes()
    reload(records, order, file, wanted=None, passive=passive)

    header = 8 + int.from_bytes(whole[:8], "little")
    places = range(header) if place == "header" else range(header, len(whole))
    draw = np.random.default_rng(0)
    unnoticed, unforeseen = [], []
    for at, by in zip(draw.choice(places, 200), draw.integers(1, 256, 200), strict=True):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ by]) + whole[at + 1 :])
        try:
            reload(records, order, file, wanted=None, passive=passive)
            unnoticed.append(at)
        except DataError:
            pass
        except Exception as error:
            unforeseen.append(error)
    assert not unforeseen, f"{len(unforeseen)} of 200 files gave an error such as {unforeseen[0]!r}"
    assert not unnoticed, f"{len(unnoticed)} of 200 files were loaded"
