"""Private alignment on real clusters: the same model to the bit, bytes as predicted, kept, and no id seen."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from fedora_vfl.cli.__main__ import app
from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.cluster.runs import run_on
from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.federation import load_federation
from fedora_vfl.wire.masking import alignment_bytes
from party.kept_alignment import KEPT_FILE
from tests.conftest import as_job, write_people

COMMON = {"train": {"epochs": 2}, "seed": 1}


def data(folder: Path) -> dict[str, Any]:
    path = str(write_people(folder / "people.csv"))
    return {"source": "csv", "path": path, "id": "person", "parties": 2, "drop": 0.1, "shuffle": True}


def run(folder: Path, alignment: str, *jobs: dict[str, Any]) -> list[dict[str, Any]]:
    """Run jobs one after the other on one cluster."""
    folder.mkdir(parents=True, exist_ok=True)
    first = as_job({"data": data(folder), **COMMON})
    out = folder / "out"
    federation = prepare(first, origin=folder / "job.yaml", out=out, threads=1, alignment=alignment)

    async def work() -> list[dict[str, Any]]:
        results = []
        async with LocalCluster(out, federation) as cluster:
            for job in jobs:
                (out / "job.yaml").write_text(yaml.safe_dump(job))
                results.append(await run_on(cluster, out, lambda event: None))
        return results

    return asyncio.run(work())


def aligned_bytes(result: dict[str, Any]) -> int:
    return sum(one["tensor"] for one in result["bytes"]["links"] if one["kind"] == "alignment")


def test_private_and_plain_alignment_end_in_the_same_model_to_the_bit(tmp_path: Path) -> None:
    again = {**COMMON, "train": {"epochs": 1, "save": "second"}}
    (plain,) = run(tmp_path / "plain", "plain", COMMON)
    private, kept = run(tmp_path / "private", "private", COMMON, again)
    for party in plain["parties"]:
        assert private["parties"][party]["model_sha256"] == plain["parties"][party]["model_sha256"]
    assert private["rows"] == plain["rows"] == kept["rows"]
    common = private["rows"]["train"] + private["rows"]["validation"] + private["rows"]["test"]
    rows = {name: one["own_rows"] for name, one in private["parties"].items()}
    passive = [count for name, count in rows.items() if name != "active"]
    assert aligned_bytes(private) == alignment_bytes(rows["active"], passive, told=common, masking=True)
    assert aligned_bytes(plain) == aligned_bytes(kept) == 0  # nothing is masked again while nobody's ids change


def test_rows_that_were_dropped_leave_the_kept_alignment_too(tmp_path: Path) -> None:
    forget = {**COMMON, "forget": {"samples": 5}, "certificate": False}
    again = {**COMMON, "train": {"epochs": 1, "save": "second"}}
    first, second = run(tmp_path, "private", forget, again)
    assert second["rows"]["train"] == first["rows"]["train"] - 5
    assert aligned_bytes(second) == 0
    logs = b"".join(path.read_bytes() for path in (tmp_path / "out" / "logs").glob("*.log"))
    ids = [line.split(",")[0].encode() for line in (tmp_path / "people.csv").read_text().splitlines()[1:]]
    assert ids and not [one for one in ids if one in logs]


def test_a_request_handed_in_at_a_passive_party_reaches_the_others_as_places_only(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = as_job({"data": data(tmp_path), **COMMON})
    federation = prepare(first, origin=tmp_path / "job.yaml", out=out, threads=1, alignment="private")
    forget = {"train": {"from": "original", "epochs": 0, "save": "again"}, "forget": {"request": "leaving"}, "seed": 1}

    async def work() -> list[dict[str, Any]]:
        async with LocalCluster(out, federation) as cluster:
            results = [await run_on(cluster, out, lambda event: None)]
            kept = {name: json.loads((out / "keys" / name / KEPT_FILE).read_text()) for name in federation.parties}
            training = kept["passive-1"]["order"]["train"]
            assert kept["active"]["order"] == kept["passive-1"]["order"]
            held = [line.split(",")[0] for line in (out / "data" / "passive-1.csv").read_text().splitlines()[1:]]
            alone = sorted(set(held) - set(training) - set(kept["active"]["order"]["test"]))[:2]
            assert alone
            wanted.extend([*training[3:6], *alone])
            (tmp_path / "leaving.txt").write_text("\n".join(wanted))
            words = ["request", str(out / "parties" / "passive-1.yaml"), "--ids", str(tmp_path / "leaving.txt")]
            told = CliRunner().invoke(app, [*words, "--name", "leaving"])
            assert told.exit_code == 0 and "3 of them are training rows" in told.stdout, told.output
            (out / "job.yaml").write_text(yaml.safe_dump(forget))
            results.append(await run_on(cluster, out, lambda event: None))
            return results

    wanted: list[str] = []
    _, after = asyncio.run(work())
    assert after["forget"]["rows"] == 3
    openings = [json.loads(path.read_text()) for path in (out / "keys").glob("*/requests/*.json")]
    assert len(openings) == 3 and all(one["ids"] == sorted(wanted[:3]) for one in openings)
    # Nothing but the parties' own folders has an id of the request: no log, no result, no certificate, no ledger.
    public = [path for path in out.rglob("*") if path.is_file() and not {"keys", "data", "models"} & set(path.parts)]
    assert {"certificate.json", "result.json", "coordinator.log"} <= {path.name for path in public}
    for path in public:
        content = path.read_bytes()
        assert not [one for one in wanted if one.encode() in content], path
    assert json.loads((out / "certificate.json").read_text())["request"]["kind"] == "request"


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
