"""The page on adding a method: its example is short, and works as the page says."""

import json
from pathlib import Path

from tests.conftest import pinned_keys
from tests.pages import block
from tests.test_command_line import fedora

PAGE = "own-method.md"


def test_the_example_of_the_page_runs_as_the_page_says(tmp_path: Path) -> None:
    assert len(block(PAGE, "python").splitlines()) < 40
    (tmp_path / "neggrad.py").write_text(block(PAGE, "python"))
    (tmp_path / "job.yaml").write_text(block(PAGE, "yaml"))
    out = tmp_path / "out"
    ended = fedora("run", "job.yaml", "--plugin", "neggrad.py", "--out", str(out), cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    result = json.loads((out / "result.json").read_text())
    climbs = [entry for entry in result["rounds"] if entry["phase"] == "climb"]
    assert 1 <= len(climbs) <= 5 and len(climbs) == result["unlearned"]["rounds"]
    assert result["unlearned"]["bytes"]["phases"]["climb"]["tensor"] > 0
    assert result["unlearned"]["forget_accuracy"] < result["original"]["forget_accuracy"]
    assert {"fedora", "ga", "retrain"} <= set(result)
    assert fedora("verify", str(out), *pinned_keys(out), cwd=tmp_path).returncode == 0
