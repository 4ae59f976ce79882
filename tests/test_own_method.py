"""The page on adding a method: its example is short, and works as the page says."""

import json
import re
from pathlib import Path

import pytest

from coordinator.methods.registry import METHODS, load_method
from fedora_vfl.errors import SettingsError
from tests.test_command_line import fedora

PAGE = (Path(__file__).parents[1] / "docs" / "own-method.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


def test_the_example_of_the_page_runs_as_the_page_says(tmp_path: Path) -> None:
    assert len(block("python").splitlines()) < 40
    (tmp_path / "neggrad.py").write_text(block("python"))
    (tmp_path / "job.yaml").write_text(block("yaml"))
    out = tmp_path / "out"
    ended = fedora("run", "job.yaml", "--method", "neggrad.py", "--out", str(out), cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    result = json.loads((out / "result.json").read_text())
    climbs = [entry for entry in result["rounds"] if entry["phase"] == "climb"]
    assert 1 <= len(climbs) <= 5 and len(climbs) == result["unlearned"]["rounds"]
    assert result["unlearned"]["bytes"]["phases"]["climb"]["tensor"] > 0
    assert result["unlearned"]["forget_accuracy"] < result["original"]["forget_accuracy"]
    assert {"fedora", "ga", "retrain"} <= set(result)
    assert fedora("verify", str(out), cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read as a Python file with a method"),
        ("x = 1", "makes no method known; it should use @method"),
        ("x = ", "fails when it is loaded: SyntaxError"),
        ("import nowhere", "fails when it is loaded: ModuleNotFoundError: No module named 'nowhere'"),
        (block("python").replace('@method("neggrad"', '@method("ga"'), "names its method 'ga', which there is already"),
    ],
)
def test_a_file_that_is_no_method_is_refused_in_a_sentence(text: str | None, said: str, tmp_path: Path) -> None:
    before = dict(METHODS)
    path = tmp_path / "method.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_method(path)
    assert f"{path}: {said}" in str(caught.value)
    assert before == METHODS
