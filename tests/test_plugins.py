"""Plug-in files and the registries that they add to: what comes in is whole, what cannot is refused in a sentence."""

import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.methods.catalogue import METHODS
from fedora_vfl.datasets.catalogue import SOURCES
from fedora_vfl.errors import SettingsError
from fedora_vfl.plugins import Registry, load_plugin
from party.models import BOTTOMS
from tests.conftest import write_yaml
from tests.pages import block
from tests.test_command_line import fedora

THINGS: Registry[type] = Registry("thing")


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "registers nothing; docs/own-method.md"),
        ("x = ", "fails when it is loaded: SyntaxError"),
        ("import nowhere", "fails when it is loaded: ModuleNotFoundError: No module named 'nowhere'"),
        ("open('/nowhere')", "fails when it is loaded: FileNotFoundError"),
        (block("own-method.md", "python").replace('("neggrad"', '("ga"'), "the method 'ga' is known already; choose"),
        (block("own-model.md", "python").replace('("residual"', '("mlp"'), "the bottom model 'mlp' is known already"),
        (
            block("own-data-source.md", "python").replace('("sqlite"', '("csv"'),
            "the data source 'csv' is known already",
        ),
    ],
)
def test_a_file_that_adds_nothing_new_is_refused_in_a_sentence_and_replaces_nothing(
    text: str, said: str, tmp_path: Path
) -> None:
    before = [(METHODS.get("ga"), BOTTOMS.get("mlp"), SOURCES.get("csv")), list(Registry.everything)]
    path = write(tmp_path / "own.py", text)
    with pytest.raises(SettingsError) as caught:
        load_plugin(path)
    assert str(caught.value).startswith(f"{path}: {said}") and len(str(caught.value).splitlines()) == 1
    assert before == [(METHODS.get("ga"), BOTTOMS.get("mlp"), SOURCES.get("csv")), list(Registry.everything)]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing.py", "cannot be read: No such file"),
        (".", "cannot be read: Is a directory"),
        ("own.txt", "is not a Py"),
    ],
)
def test_what_is_no_python_file_is_refused_in_a_sentence(name: str, said: str, tmp_path: Path) -> None:
    write(tmp_path / "own.txt", "x = 1")
    with pytest.raises(SettingsError, match=f": {said}"):
        load_plugin(tmp_path / name)


def test_a_file_may_use_annotations_and_dataclasses_as_any_module_does(tmp_path: Path) -> None:
    text = """from __future__ import annotations
from dataclasses import dataclass, field
from fedora_vfl.settings.files import Settings
from tests.test_plugins import THINGS

class Part(Settings):
    size: int = 3

@dataclass
class Note:
    words: list[str] = field(default_factory=list)

@THINGS.register("whole")
class Whole(Settings):
    part: Part = Part()
"""
    load_plugin(write(tmp_path / "own.py", text))
    assert THINGS.get("whole")().part.size == 3
    assert THINGS.names == ["whole"]


def test_an_unknown_name_is_answered_with_those_that_there_are() -> None:
    colours: Registry[int] = Registry("colour")
    colours.register("red")(1)
    colours.register("blue")(2)
    assert colours.get("red") == 1 and "red" in colours and "green" not in colours and None not in colours
    for name in ("green", None, ["red"]):
        with pytest.raises(ValueError, match=r"there is no colour .*; allowed: blue, red$"):
            colours.get(name)


@pytest.mark.parametrize(
    ("module", "option"), [("coordinator", "--plugin"), ("coordinator", "--method"), ("party", "--plugin")]
)
def test_a_member_does_not_start_with_a_file_that_cannot_be_loaded(module: str, option: str, tmp_path: Path) -> None:
    address = {"address": "127.0.0.1:20001"}
    write_yaml(tmp_path / "federation.yaml", {"coordinator": address, "active": address, "passive": ["passive-1"]})
    data = {"path": "rows.csv"}
    write_yaml(tmp_path / "party.yaml", {"name": "passive-1", "federation": "federation.yaml", "data": data})
    config = tmp_path / ("federation.yaml" if module == "coordinator" else "party.yaml")
    path = write(tmp_path / "own.py", "x = 1")
    command = [sys.executable, "-m", module, "--config", str(config), option, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == SettingsError.exit_code
    assert ended.stderr.splitlines()[-1].startswith(f"error: {path}: registers nothing")


@pytest.mark.parametrize("option", ["--plugin", "--method"])
@pytest.mark.parametrize("verb", [["run"], ["submit", "--coordinator", "127.0.0.1:1"]])
def test_no_job_begins_with_a_file_that_cannot_be_loaded(verb: list[str], option: str, tmp_path: Path) -> None:
    write_yaml(tmp_path / "job.yaml", {"data": {"source": "digits"}})
    ended = fedora(*verb, "job.yaml", option, "missing.py", "--out", "out", cwd=tmp_path)
    assert ended.returncode == SettingsError.exit_code
    assert ended.stderr == "error: missing.py: cannot be read: No such file or directory\n"


# What the command line makes of a source's settings

SOURCE = """from pydantic import Field
from fedora_vfl.datasets.images import DigitsData
from fedora_vfl.datasets.registry import SOURCES

@SOURCES.register("own-digits")
class OwnDigits(DigitsData):
    \"\"\"Digits of my own.\"\"\"
    target: int = Field(default=3, description="A name that the backdoor has already.")
    hidden: dict[str, int] = Field(default_factory=dict)

    def load(self, seed):
        print("target", self.target)
        return super().load(seed)
"""


def test_a_setting_named_like_an_option_of_every_source_gets_an_option_of_its_own(tmp_path: Path) -> None:
    write(tmp_path / "own.py", SOURCE)
    own = ["data", "--plugin", "own.py", "own-digits"]
    said = fedora(*own, "--help", cwd=tmp_path, columns=80).stdout
    assert "--data-target <int>" in said and "[default: 3]" in said and "--hidden" not in said
    arguments = ["--data-target", "5", "--target", "9", "--class", "1", "--percent", "10", "--out", "parts"]
    ended = fedora(*own, *arguments, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "target 5" in ended.stdout and (tmp_path / "parts" / "poisoned.txt").exists()


def test_a_broken_file_is_refused_before_any_data_are_cut(tmp_path: Path) -> None:
    ended = fedora("data", "--plugin", "missing.py", "digits", "--out", "parts", cwd=tmp_path)
    assert ended.returncode == SettingsError.exit_code
    assert ended.stderr == "error: missing.py: cannot be read: No such file or directory\n"
    assert not (tmp_path / "parts").exists()
