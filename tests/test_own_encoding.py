"""The page on adding an encoding: its example is short, and works on a real cluster with every byte accounted for."""

import asyncio
import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.cluster.runs import run_on
from fedora_vfl.errors import SettingsError
from tests.conftest import as_job
from tests.pages import block, commands
from tests.test_command_line import fedora

PAGE = "own-encoding.md"
FILE = "fixed16.py"
BYTES_PER_ROW = 4 + 2 * 16  # a unit, and the page's embedding of 16 values

ROUNDING = """
import torch
from fedora_vfl.plugins import load_plugin
from fedora_vfl.wire.encodings import encoding_named
from pathlib import Path

load_plugin(Path("fixed16.py"))
encoding = encoding_named("fixed16")()
values = torch.randn(64, 16) * torch.logspace(-6, 6, 64).unsqueeze(1)
values[7] = 0.0
data = encoding.encode(values)
assert len(data) == encoding.nbytes(64, 16) == 64 * 36
wrong = (encoding.decode(memoryview(data), 64, 16) - values).abs().amax(dim=1)
assert bool((wrong <= 0.51 * values.abs().amax(dim=1) / 32767).all())
for awkward in (float("nan"), float("inf")):
    values[3, 2] = awkward
    assert not encoding.decode(memoryview(encoding.encode(values)), 64, 16).sum().isfinite()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with the page's files."""
    (tmp_path / FILE).write_text(block(PAGE, "python"))
    (tmp_path / "job.yaml").write_text(block(PAGE, "yaml"))
    return tmp_path


def test_the_example_of_the_page_runs_and_every_byte_is_as_predicted(folder: Path) -> None:
    assert len(block(PAGE, "python").splitlines()) < 40
    (run,) = commands(PAGE)
    ended = fedora(*run, "--out", "out", cwd=folder)
    assert ended.returncode == 0, ended.stderr
    result = json.loads((folder / "out" / "result.json").read_text())
    trained, rows = result["original"]["bytes"], result["rows"]
    assert trained["tensor"] == trained["predicted"] == 6 * rows["train"] * BYTES_PER_ROW * 2 * 2
    assert result["bytes"]["tensor"] == result["bytes"]["predicted"]
    assert result["original"]["test_accuracy"] > 0.8
    with (folder / "out" / "ledger.csv").open() as text:
        counted = [line for line in csv.DictReader(text) if line["kind"] in ("embedding", "gradient")]
    assert sum(int(line["tensor_bytes"]) for line in counted) == result["bytes"]["tensor"]


def test_a_party_that_was_started_without_the_file_refuses_the_job_in_a_sentence(folder: Path) -> None:
    job = {**yaml.safe_load(block(PAGE, "yaml")), "wire": {}}
    federation = prepare(as_job(job), origin=folder / "job.yaml", out=folder / "out", threads=1)
    own = ["--plugin", str(folder / FILE)]
    programs = {"coordinator": ["coordinator", *own], "passive-1": ["party", *own], "active": ["party", *own]}
    prepared = folder / "out" / "job.yaml"
    prepared.write_text(prepared.read_text().replace("wire: {}", "wire: {encoding: fixed16}"))

    async def work() -> None:
        async with LocalCluster(folder / "out", federation, programs=programs) as cluster:
            await run_on(cluster, folder / "out", lambda event: None)

    with pytest.raises(SettingsError, match=r"passive-2.*there is no encoding 'fixed16'; allowed: bfloat16, float16"):
        asyncio.run(work())


def test_the_example_rounds_to_half_a_unit_of_its_row(folder: Path) -> None:
    subprocess.run([sys.executable, "-c", ROUNDING], cwd=folder, check=True)
