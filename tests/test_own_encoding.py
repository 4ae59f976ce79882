"""The page on adding an encoding: its example is short, and works on a real cluster with every byte accounted for."""

import asyncio
import csv
import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.cluster.runs import run_on
from fedora_vfl.errors import SettingsError
from fedora_vfl.wire.encodings import ENCODINGS
from fedora_vfl.wire.protocol import COORDINATOR
from tests.conftest import as_job

PAGE = (Path(__file__).parents[1] / "docs" / "own-encoding.md").read_text()
BYTES_PER_ROW = 4 + 2 * 16  # a unit, and the page's embedding of 16 values


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """The page's file, known to this process for the length of a test."""
    before = dict(ENCODINGS)
    path = tmp_path / "fixed16.py"
    path.write_text(block("python"))
    runpy.run_path(str(path))
    yield path
    ENCODINGS.clear()
    ENCODINGS.update(before)


def run(folder: Path, file: Path, *, without: str = "") -> dict[str, Any]:
    """Run the page's job on a cluster whose members have loaded the file, all but one."""
    job = as_job(yaml.safe_load(block("yaml")))
    federation = prepare(job, origin=folder / "job.yaml", out=folder / "out", threads=1)
    modules = {COORDINATOR: "coordinator", **dict.fromkeys(federation.parties, "party")}
    programs = {name: ["tests.plugged", str(file), module] for name, module in modules.items() if name != without}

    async def work() -> None:
        async with LocalCluster(folder / "out", federation, programs=programs) as cluster:
            await run_on(cluster, folder / "out", lambda _: None)

    asyncio.run(work())
    result: dict[str, Any] = json.loads((folder / "out" / "result.json").read_text())
    return result


def test_the_example_of_the_page_runs_and_every_byte_is_as_predicted(file: Path, tmp_path: Path) -> None:
    assert len(block("python").splitlines()) < 40
    result = run(tmp_path, file)
    trained, rows = result["original"]["bytes"], result["rows"]
    assert trained["tensor"] == trained["predicted"] == 6 * rows["train"] * BYTES_PER_ROW * 2 * 2
    assert result["bytes"]["tensor"] == result["bytes"]["predicted"]
    assert result["original"]["test_accuracy"] > 0.8
    assert result["unlearned"]["forget_accuracy"] < result["original"]["forget_accuracy"]
    with (tmp_path / "out" / "ledger.csv").open() as text:
        counted = [line for line in csv.DictReader(text) if line["kind"] in ("embedding", "gradient")]
    assert sum(int(line["tensor_bytes"]) for line in counted) == result["bytes"]["tensor"]


@pytest.mark.parametrize("without", ["passive-2", "active"])
def test_a_party_that_was_started_without_the_file_refuses_the_job_in_a_sentence(
    file: Path, tmp_path: Path, without: str
) -> None:
    with pytest.raises(SettingsError, match=rf"{without}.*there is no encoding 'fixed16' here; known are float32"):
        run(tmp_path, file, without=without)


def test_the_example_rounds_to_half_a_unit_of_its_row(file: Path) -> None:
    encoding = ENCODINGS["fixed16"]()
    values = torch.randn(64, 16) * torch.logspace(-6, 6, 64).unsqueeze(1)
    values[7] = 0.0
    data = encoding.encode(values)
    assert len(data) == encoding.nbytes(64, 16) == 64 * BYTES_PER_ROW
    wrong = (encoding.decode(memoryview(data), 64, 16) - values).abs().amax(dim=1)
    assert bool((wrong <= 0.51 * values.abs().amax(dim=1) / 32767).all())
    for awkward in (float("nan"), float("inf")):
        values[3, 2] = awkward
        assert not encoding.decode(memoryview(encoding.encode(values)), 64, 16).sum().isfinite()
