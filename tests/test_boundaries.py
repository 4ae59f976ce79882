"""What a party touches: its own file, no listening port if passive, nothing on the wire but what the docs list."""

import asyncio
import os
from pathlib import Path

import pytest

from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.cluster.runs import run_on
from fedora_vfl.settings.federation import Deadlines
from fedora_vfl.wire.protocol import COORDINATOR
from protos.fedora.v1 import control_pb2, exchange_pb2
from protos.fedora.v1.control_pb2 import Event
from tests.conftest import as_job, write_people

DOCS = Path(__file__).parent.parent / "docs"


def test_a_party_opens_its_own_data_file_and_no_other(tmp_path: Path) -> None:
    people = write_people(tmp_path / "people.csv")
    out = tmp_path / "run"
    data = {"source": "csv", "path": str(people), "id": "person", "parties": 2}
    deadlines = Deadlines(join=1)
    federation = prepare(as_job({"data": data}), origin=out / "job.yaml", out=out, threads=1, deadlines=deadlines)
    files = {path: path.stem for path in [*(out / "data").iterdir(), *(out / "parties").iterdir()]}
    assert set(files.values()) == {"active", "passive-1", "passive-2"}
    for path in [*files, people]:
        os.utime(path, (0, path.stat().st_mtime))  # never read, as far as the file system knows

    async def start_one_alone() -> None:
        programs: dict[str, list[str]] = {COORDINATOR: [], "active": [], "passive-2": []}
        async with LocalCluster(out, federation, programs=programs) as cluster:
            await cluster.processes["passive-1"].wait()

    asyncio.run(start_one_alone())
    read = {path for path in files if path.stat().st_atime > 0}
    if not read:
        pytest.skip("this file system does not record when files are read")
    assert {files[path] for path in read} == {"passive-1"}
    assert people.stat().st_atime == 0


def test_a_passive_party_listens_on_no_port(tmp_path: Path) -> None:
    out = tmp_path / "run"
    data = {"source": "csv", "path": str(write_people(tmp_path / "people.csv")), "id": "person"}
    job = as_job({"data": data, "train": {"epochs": 2}})
    federation = prepare(job, origin=out / "job.yaml", out=out, threads=1)
    seen: dict[str, set[int]] = {}

    async def watch_ports() -> None:
        async with LocalCluster(out, federation) as cluster:

            def look(event: Event) -> None:
                if event.WhichOneof("content") == "finished":
                    seen.update({name: listening(process.pid) for name, process in cluster.processes.items()})

            await run_on(cluster, out, look)

    asyncio.run(watch_ports())
    ports = {name: int(address.rpartition(":")[2]) for name, address in (
        (COORDINATOR, federation.coordinator.address),
        ("active", federation.active.address),
    )}  # fmt: skip
    assert seen == {
        COORDINATOR: {ports[COORDINATOR]},
        "active": {ports["active"]},
        "passive-1": set(),
        "passive-2": set(),
    }


def listening(pid: int) -> set[int]:
    """Return the TCP ports a process listens on, as the kernel knows them."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(descriptor.readlink().name)
        except FileNotFoundError:
            continue
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def test_every_message_that_crosses_is_in_the_docs_table_of_who_learns_what() -> None:
    table = (DOCS / "wire-contract.md").read_text()
    messages = [exchange_pb2.Parcel(), control_pb2.FromParty(), control_pb2.FromCoordinator()]
    for message in messages:
        for field in message.DESCRIPTOR.oneofs_by_name["content"].fields:
            assert f"`{field.name}`" in table, f"docs/wire-contract.md does not say who learns what from {field.name}"
