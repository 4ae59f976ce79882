"""Private alignment on real clusters: the same model to the bit, bytes as predicted, kept, and no id seen."""

import asyncio
import hashlib
import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from fedora_vfl.cli.__main__ import app
from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.cluster.runs import run_on
from fedora_vfl.errors import FedoraError, SettingsError
from fedora_vfl.settings.federation import Deadlines, Federation, load_federation
from fedora_vfl.wire.masking import alignment_bytes
from fedora_vfl.wire.protocol import COORDINATOR
from party.kept_alignment import KEPT_FILE
from party.masking import as_bytes, hashed
from tests.conftest import as_job
from tests.process_memory import found_in
from tests.recording import recorded_cluster
from tests.test_recovery import striking, wait_for

PARTIES = ("passive-1", "passive-2", "active")
COMMON = {"train": {"epochs": 2}, "seed": 1}
FROM_UNLEARNED = {
    "train": {"from": "unlearned", "epochs": 0, "save": "x", "overwrite": True},
    "unlearn": {"save": "y"},
    "seed": 1,
}
SHARED = [f"person-{number:04d}-whom-all-know" for number in range(240)]
TWO = [f"person-{number:04d}-whom-two-know" for number in range(10)]  # passive-1 and the active party


def known_to(party: str) -> list[str]:
    """Return whom a party alone knows."""
    return [f"person-{number:04d}-whom-{party}-knows" for number in range(20)]


def data(folder: Path) -> dict[str, Any]:
    """Write a file for every party: most people are in all of them, some in two, some in one."""
    folder.mkdir(parents=True, exist_ok=True)
    files, draw = {}, np.random.default_rng(3)
    for party in PARTIES:
        ids = [*SHARED, *known_to(party), *(TWO if party != "passive-2" else [])]
        draw.shuffle(ids)
        labelled = party == "active"
        lines = [f"id,{party[-1]}x,{party[-1]}y{',label' if labelled else ''}"]
        for one in ids:
            x, y = draw.normal(size=2)
            lines.append(f"{one},{x:.5f},{y:.5f}{',yes' * labelled if x + y > 0 else ',no' * labelled}")
        files[party] = folder / f"{party}.csv"
        files[party].write_text("\n".join(lines) + "\n")
    return {"source": "files", "files": {party: str(path) for party, path in files.items()}, "label": "label"}


@dataclass
class Running:
    """A cluster that is up, and its folder."""

    out: Path
    federation: Federation
    cluster: LocalCluster
    notes: list[str] = field(default_factory=list)

    async def run(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Run a job on it."""
        (self.out / "job.yaml").write_text(yaml.safe_dump(dict(job)))
        return await run_on(self.cluster, self.out, lambda event: None)

    def holds(self, member: str, values: Sequence[bytes]) -> set[bytes]:
        """Return which values a member has in its memory."""
        return found_in(self.cluster.processes[member].pid, values)

    def command(self, *words: str) -> str:
        """Run a command where the first passive party is."""
        told = CliRunner().invoke(app, [words[0], str(self.out / "parties" / "passive-1.yaml"), *words[1:]])
        return told.output if told.exit_code == 0 else f"exit code {told.exit_code}: {told.output}"


def prepared(folder: Path, alignment: str, deadlines: Deadlines | None = None) -> tuple[Path, Federation]:
    first, out = as_job({"data": data(folder), **COMMON}), folder / "out"
    made = prepare(first, origin=folder / "job.yaml", out=out, threads=1, alignment=alignment, deadlines=deadlines)
    return out, made


def aligned_bytes(result: dict[str, Any]) -> int:
    return sum(one["tensor"] for one in result["bytes"]["links"] if one["kind"] == "alignment")


def bytes_of(result: dict[str, Any], party: str) -> int:
    """Return what a passive party sent of its alignment and of requests."""
    lines = result["bytes"]["links"]
    told = [one for one in lines if one["kind"] == "alignment" and one["direction"] == f"{party}->active"]
    return sum(one["protobuf"] for one in told)


def models(result: dict[str, Any]) -> dict[str, str]:
    return {name: one["model_sha256"] for name, one in result["parties"].items()}


def hashes_of(one: str) -> list[bytes]:
    """Return what somebody could test a guess by who has no secret: hashes of an id, and its point of the curve."""
    written = as_bytes(one)
    digests = [hashlib.new(name, written).digest()[:16] for name in ("sha256", "sha512", "blake2b")]
    return [*digests, hashlib.sha256(written).hexdigest()[:32].encode(), *hashed([one])]


def foreign_to(member: str) -> list[bytes]:
    """Return what a party must not hold: people whom others alone know, as ids or hashes."""
    others = [party for party in PARTIES if party != member]
    told = [f"-whom-{party}-knows".encode() for party in others] + [b"-whom-two-know"] * (member == "passive-2")
    return [*told, *(form for party in others for form in hashes_of(known_to(party)[0]))]


EVERYBODY = [b"-whom-", *(form for one in (SHARED[0], TWO[0], known_to("active")[0]) for form in hashes_of(one))]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of a job whose ids were compared in the open; the active party's memory tells."""
    out, federation = prepared(tmp_path_factory.mktemp("plain"), "plain")

    async def work() -> dict[str, Any]:
        async with recorded_cluster(out, federation) as (cluster, recorder):
            running = Running(out, federation, cluster)
            result = await running.run(COMMON)
            # What both searches must find where there is something to find.
            told = [b"-whom-passive-1-knows", b"-whom-passive-2-knows"]
            assert running.holds("active", told) and all(recorder.holds(one) for one in told)
            return result

    return asyncio.run(work())


def test_private_alignment_on_a_cluster_from_the_first_job_to_a_request(plain: dict[str, Any], tmp_path: Path) -> None:
    out, federation = prepared(tmp_path, "private")
    forget = {"train": {"from": "original", "epochs": 0, "save": "again"}, "forget": {"request": "leaving"}, "seed": 1}

    async def work() -> None:
        async with recorded_cluster(out, federation) as (cluster, recorder):
            running = Running(out, federation, cluster)
            first = await running.run(COMMON)
            # The same model to the bit as after a comparison in the open, and bytes as predicted.
            assert models(first) == models(plain) and first["rows"] == plain["rows"]
            counts = {name: one["own_rows"] for name, one in first["parties"].items()}
            passive = [count for name, count in counts.items() if name != "active"]
            assert aligned_bytes(first) == alignment_bytes(counts["active"], passive, told=len(SHARED), masking=True)
            # Nobody's memory holds anybody whom it does not know, nor a hash of one; the coordinator's nobody at all.
            for member in PARTIES:
                assert not running.holds(member, foreign_to(member)), member
            assert not running.holds(COORDINATOR, EVERYBODY)
            # Nothing is masked again while nobody's ids change.
            kept = await running.run({**COMMON, "train": {"epochs": 1, "save": "second"}})
            assert aligned_bytes(kept) == 0 and kept["rows"] == first["rows"]
            orders = {name: json.loads((out / "keys" / name / KEPT_FILE).read_text())["order"] for name in PARTIES}
            assert orders["active"] == orders["passive-1"] == orders["passive-2"]
            # A request that is handed in at a party: of its ids three are training rows, two nobody else knows.
            training = orders["passive-1"]["train"]
            wanted = [*training[3:6], *known_to("passive-1")[:2]]
            (tmp_path / "leaving.txt").write_text("\n".join(wanted))
            told = running.command("request", "--ids", str(tmp_path / "leaving.txt"), "--name", "leaving")
            assert "3 of them are training rows" in told
            after = await running.run(forget)
            assert after["forget"]["rows"] == 3
            assert len({bytes_of(after, party) for party in ("passive-1", "passive-2")}) == 1  # no size says where
            assert not running.holds(COORDINATOR, EVERYBODY)
            await nobody_in_common(running, tmp_path)
            await used_twice(running, forget)
            # No id has passed any line, in no job: not even a common one, nor a hash.
            assert len(recorder.recordings) >= 2 * (3 + 2) and recorder.holds(b"leaving")
            assert not [form for form in EVERYBODY if recorder.holds(form)]

    asyncio.run(work())
    requests = [json.loads(path.read_text()) for path in (out / "keys").glob("*/requests/*.json")]
    assert len(requests) == 3 and all(len(one["ids"]) == 3 for one in requests)
    # Nothing but the parties' own folders has an id: no log, no journal, no result, no certificate, no ledger.
    own = [out / name / party for name in ("keys", "models") for party in PARTIES] + [out / "data"]
    public = [path for path in out.rglob("*") if path.is_file() and not any(path.is_relative_to(one) for one in own)]
    assert {"certificate.json", "result.json", "coordinator.log", "jobs.sqlite"} <= {path.name for path in public}
    for path in public:
        content = path.read_bytes()
        assert not [one for one in (b"-whom-all-know", b"-whom-two-know", b"-knows") if one in content], path
    assert json.loads((out / "certificate.json").read_text())["request"]["kind"] == "request"


async def nobody_in_common(running: Running, folder: Path) -> None:
    """A request about somebody whom the others do not know changes nothing, and tells nobody."""
    alone = known_to("passive-1")[7]
    (folder / "alone.txt").write_text(alone)
    told = running.command("request", "--ids", str(folder / "alone.txt"), "--name", "alone")
    assert "0 of them are training rows" in told
    models_before = sorted(path.name for path in (running.out / "models" / "active").iterdir())
    job = {**FROM_UNLEARNED, "forget": {"request": "alone"}}
    with pytest.raises(FedoraError, match="no party has a request of this name, or nobody it names is a training row"):
        await running.run(job)
    with pytest.raises(FedoraError, match="no party has a request of this name, or nobody it names is a training row"):
        await running.run({**job, "forget": {"request": "of-no-party"}})  # the same sentence
    left = sorted(path.name for path in (running.out / "models" / "active").iterdir())
    assert [one for one in left if not one.startswith("x.")] == models_before
    for member in (COORDINATOR, "passive-2", "active"):
        assert not running.holds(member, [b"-whom-passive-1-knows"]), member


async def used_twice(running: Running, forget: Mapping[str, Any]) -> None:
    """A request that was honoured names nobody any more: its rows are gone."""
    with pytest.raises(FedoraError, match="nobody it names is a training row in common"):
        await running.run({**FROM_UNLEARNED, "forget": forget["forget"]})


def test_members_killed_in_the_middle_of_the_alignment_change_no_bit(plain: dict[str, Any], tmp_path: Path) -> None:
    """Both kinds of party and the coordinator are killed before any alignment can be done."""
    out, federation = prepared(tmp_path, "private", Deadlines(join=60, step=20, silence=10))
    # A passive party greets, calls, announces its table, sends it, and masks what it gets: before that no alignment is
    # done, and before the active party has heard eight times from two of them.
    programs = {
        "passive-1": striking(tmp_path, "passive-1", {"exchange.send": 4}),
        "active": striking(tmp_path, "active", {"exchange.receive": 6}),
        "passive-2": striking(tmp_path, "passive-2", {"exchange.send": 5}, "stop"),
    }
    done: list[bool] = []

    async def work() -> dict[str, Any]:
        async with LocalCluster(out, federation, programs=programs) as cluster:

            async def kill_coordinator() -> None:
                await asyncio.to_thread(wait_for, (tmp_path / "passive-2" / "exchange.send").exists)
                coordinator, stopped = cluster.processes[COORDINATOR], cluster.processes["passive-2"]
                done.append((out / "keys" / "passive-2" / KEPT_FILE).exists())
                os.kill(coordinator.pid, signal.SIGKILL)
                await coordinator.wait()
                os.kill(stopped.pid, signal.SIGCONT)

            killing = asyncio.create_task(kill_coordinator())
            result = await Running(out, federation, cluster).run(COMMON)
            await killing
            return result

    result = asyncio.run(work())
    assert done == [False]
    assert {path.parent.name for path in tmp_path.glob("*/exchange.*")} == set(PARTIES)
    assert models(result) == models(plain) and result["rows"] == plain["rows"]
    assert result["bytes"]["repeated"]["protobuf"] > 0
    logs = b"".join(path.read_bytes() for path in (out / "logs").glob("*.log"))
    assert b"-know" not in logs


def test_rows_that_were_dropped_leave_the_kept_alignment_too(tmp_path: Path) -> None:
    out, federation = prepared(tmp_path, "private")

    async def work() -> None:
        async with LocalCluster(out, federation) as cluster:
            running = Running(out, federation, cluster)
            first = await running.run({**COMMON, "forget": {"samples": 5}, "certificate": False})
            second = await running.run({**COMMON, "train": {"epochs": 1, "save": "second"}})
            assert second["rows"]["train"] == first["rows"]["train"] - 5
            assert aligned_bytes(second) == 0

    asyncio.run(work())
    logs = b"".join(path.read_bytes() for path in (out / "logs").glob("*.log"))
    assert logs and b"-know" not in logs


def test_comparing_ids_in_the_open_beyond_one_machine_is_asked_for_by_name(tmp_path: Path) -> None:
    path = tmp_path / "federation.yaml"
    content: dict[str, Any] = {
        "coordinator": {"address": "10.0.0.1:7000"},
        "active": {"address": "10.0.0.2:7000"},
        "passive": ["hospital"],
    }
    path.write_text(yaml.safe_dump(content))
    assert load_federation(path).alignment == "private"
    path.write_text(yaml.safe_dump({**content, "alignment": "plain"}))
    with pytest.raises(SettingsError, match="`plain` shows every id to the active party"):
        load_federation(path)
    path.write_text(yaml.safe_dump({**content, "alignment": "plain", "open_ids": True}))
    assert load_federation(path).alignment == "plain"
