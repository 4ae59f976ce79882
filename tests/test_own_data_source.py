"""The page on adding a data source: its example is short, and works as the page says."""

import csv
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fedora_vfl.errors import DataError, SettingsError
from tests.conftest import write_people, write_yaml
from tests.pages import block, commands
from tests.test_command_line import fedora

PAGE = "own-data-source.md"
FILE = "sqlite_source.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with the page's files, and people in a database."""
    (tmp_path / FILE).write_text(block(PAGE, "python"))
    (tmp_path / "job.yaml").write_text(block(PAGE, "yaml"))
    with (
        write_people(tmp_path / "people.csv").open(newline="") as file,
        closing(sqlite3.connect(tmp_path / "clinic.db")) as base,
    ):
        names, *rows = csv.reader(file)
        base.execute(f"CREATE TABLE people ({', '.join(names)})")
        base.executemany(f"INSERT INTO people VALUES ({', '.join('?' for _ in names)})", rows)
        base.commit()
    return tmp_path


def test_the_example_of_the_page_runs_as_the_page_says(folder: Path) -> None:
    assert len(block(PAGE, "python").splitlines()) < 40
    run, shown, cut = commands(PAGE)
    ended = fedora(*run, "--out", "out", cwd=folder)
    assert ended.returncode == 0, ended.stderr
    result = json.loads((folder / "out" / "result.json").read_text())
    assert result["rows"]["train"] + result["rows"]["test"] == 400
    ended = fedora(*shown, cwd=folder)
    assert "A table of a SQLite database." in ended.stdout and "Name of the table in the database." in ended.stdout
    ended = fedora(*cut, cwd=folder)
    assert ended.returncode == 0, ended.stderr
    for name in ("passive-1", "passive-2", "active"):
        assert (folder / "parts" / f"{name}.csv").read_bytes() == (folder / "out" / "data" / f"{name}.csv").read_bytes()


@pytest.mark.parametrize(
    ("data", "code", "said"),
    [
        ({}, SettingsError.exit_code, "job.yaml: data.table: is missing"),
        ({"tabel": "people"}, SettingsError.exit_code, "data.tabel: unknown setting; did you mean `table`?"),
        ({"table": "patients"}, DataError.exit_code, "clinic.db: table `patients` cannot be read: no such table"),
        ({"table": "people", "label": "outcome"}, DataError.exit_code, "clinic.db: has no column `outcome`"),
    ],
)
def test_a_mistake_in_its_section_is_refused_as_for_every_source(
    data: dict[str, str], code: int, said: str, folder: Path
) -> None:
    write_yaml(folder / "job.yaml", {"data": {"source": "sqlite", "path": "clinic.db", "id": "person", **data}})
    ended = fedora("run", "job.yaml", "--plugin", FILE, "--out", "out", cwd=folder)
    assert ended.returncode == code
    assert said in ended.stderr


def test_without_the_file_the_source_is_unknown(folder: Path) -> None:
    ended = fedora("run", "job.yaml", "--out", "out", cwd=folder)
    assert ended.returncode == SettingsError.exit_code
    assert "data: `source` should be one of cifar10" in ended.stderr and "sqlite" not in ended.stderr
