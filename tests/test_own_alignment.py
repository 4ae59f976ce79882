"""The page on adding an alignment: its example is short, works on a real cluster, and shows no id on the wire."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.cluster.runs import run_on
from fedora_vfl.errors import FedoraError
from tests.conftest import as_job, write_people
from tests.pages import block

PAGE = "own-alignment.md"


def run(folder: Path, *, members: dict[str, str], plugin: bool = True) -> dict[str, Any]:
    """Run a small job whose members' federation files name these alignments."""
    data = {"source": "csv", "path": str(write_people(folder / "people.csv")), "id": "person", "parties": 2}
    job = as_job({"data": data, "train": {"epochs": 1}, "seed": 1})
    federation = prepare(job, origin=folder / "job.yaml", out=folder / "out", threads=1)
    (folder / "keyed_hashes.py").write_text(block(PAGE, "python"))
    for name in ("coordinator", *federation.parties):
        path = folder / "out" / f"{name}-federation.yaml"
        content = yaml.safe_load((folder / "out" / "federation.yaml").read_text())
        path.write_text(yaml.safe_dump({**content, "alignment": members.get(name, "keyed-hashes")}))
        if name != "coordinator":
            file = folder / "out" / "parties" / f"{name}.yaml"
            file.write_text(file.read_text().replace("../federation.yaml", f"../{path.name}"))
    own = ["--plugin", str(folder / "keyed_hashes.py")] if plugin else []
    (folder / "out" / "coordinator-federation.yaml").rename(folder / "out" / "federation.yaml")

    async def work() -> dict[str, Any]:
        programs = {name: ["party", *own] for name in federation.parties}
        async with LocalCluster(folder / "out", federation, programs=programs) as cluster:
            return await run_on(cluster, folder / "out", lambda event: None)

    return asyncio.run(work())


def test_the_example_of_the_page_finds_the_rows_that_the_plain_comparison_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALIGNMENT_KEY", "a secret of the parties")
    assert len(block(PAGE, "python").splitlines()) < 40
    assert yaml.safe_load(block(PAGE, "yaml")) == {"alignment": "keyed-hashes"}
    for folder in ("hashed", "plain"):
        (tmp_path / folder).mkdir()
    hashed = run(tmp_path / "hashed", members={})
    plain = run(tmp_path / "plain", members=dict.fromkeys(("coordinator", "active", "passive-1", "passive-2"), "plain"))
    assert hashed["rows"] == plain["rows"]
    sizes = {
        name: sum(one["protobuf"] for one in result["bytes"]["links"] if one["kind"] == "alignment")
        for name, result in (("hashed", hashed), ("plain", plain))
    }
    assert sizes["hashed"] > sizes["plain"]  # 64 letters an id


def test_members_whose_files_name_different_alignments_are_told_so(tmp_path: Path) -> None:
    with pytest.raises(FedoraError, match="aligns rows by 'plain', and the file here says 'keyed-hashes'"):
        run(tmp_path, members={"coordinator": "plain", "active": "plain", "passive-1": "plain"})


def test_an_alignment_that_a_party_does_not_know_is_named_with_those_it_does(tmp_path: Path) -> None:
    with pytest.raises(FedoraError, match="there is no alignment 'keyed-hashes'; allowed: "):
        run(tmp_path, members={}, plugin=False)
