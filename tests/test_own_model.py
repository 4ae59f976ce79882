"""The page on adding a bottom model: its example is short, and works as the page says."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml
from safetensors import safe_open

from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.cluster.runs import run_on
from fedora_vfl.errors import SettingsError
from tests.conftest import as_job, pinned_keys
from tests.pages import block, commands
from tests.test_command_line import fedora

PAGE = "own-model.md"
FILE = "residual.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with the page's files."""
    (tmp_path / FILE).write_text(block(PAGE, "python"))
    (tmp_path / "job.yaml").write_text(block(PAGE, "yaml"))
    return tmp_path


def test_the_example_of_the_page_runs_as_the_page_says(folder: Path) -> None:
    assert len(block(PAGE, "python").splitlines()) < 40
    (run,) = commands(PAGE)
    ended = fedora(*run, "--out", "out", cwd=folder)
    assert ended.returncode == 0, ended.stderr
    result = json.loads((folder / "out" / "result.json").read_text())
    assert {"original", "unlearned", "retrain"} <= set(result)
    for party in ("passive-1", "passive-2", "active"):
        with safe_open(folder / "out" / "models" / party / "unlearned.safetensors", "pt") as saved:
            assert any("inner" in name for name in saved.keys())  # noqa: SIM118  (it is no mapping)
    assert fedora("verify", "out", *pinned_keys(folder / "out"), cwd=folder).returncode == 0


def test_a_party_that_was_started_without_the_file_refuses_the_job_in_a_sentence(folder: Path) -> None:
    job, own = as_job(yaml.safe_load(block(PAGE, "yaml"))), ["--plugin", str(folder / FILE)]
    federation = prepare(job, origin=folder / "job.yaml", out=folder / "out", threads=1)
    programs = {"passive-1": ["party", *own], "active": ["party", *own]}

    async def work() -> None:
        async with LocalCluster(folder / "out", federation, programs=programs) as cluster:
            await run_on(cluster, folder / "out", lambda event: None)

    with pytest.raises(SettingsError, match="there is no bottom model 'residual'; allowed: cnn, ") as caught:
        asyncio.run(work())
    assert "passive-2" in str(caught.value)
