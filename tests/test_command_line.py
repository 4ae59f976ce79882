"""The command line: help that teaches, errors in one sentence with their exit code, and nothing left running."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import write_people, write_yaml
from wire.errors import DataError, SettingsError, StoppedError

FEDORA = [sys.executable, "-m", "fedora"]


def fedora(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end."""
    environment = {**os.environ, "COLUMNS": "200"}
    command = [*FEDORA, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, text=True, capture_output=True, timeout=120, check=False)


@pytest.mark.parametrize("verb", ["", "demo", "run", "submit", "data"])
def test_help_teaches(verb: str, tmp_path: Path) -> None:
    done = fedora(*([verb] if verb else []), "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "Usage" in done.stdout and "--help" in done.stdout
    assert "\\b" not in done.stdout and "\b" not in done.stdout


def test_help_shows_a_job_file_that_can_be_copied(tmp_path: Path) -> None:
    lines = fedora("run", "--help", cwd=tmp_path).stdout.splitlines()
    assert "      train: {epochs: 10, batch_size: 256, optimizer: adam, lr: 0.001}" in lines


@pytest.mark.parametrize("module", ["party", "coordinator"])
def test_a_process_s_help_lists_its_exit_codes(module: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", module, "--help"]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0 and "exit codes:" in done.stdout


def test_a_run_from_a_job_file_writes_what_it_prints(tmp_path: Path) -> None:
    write_people(tmp_path / "people.csv")
    data = {"source": "csv", "path": "people.csv", "id": "person"}
    job = write_yaml(tmp_path / "jobs" / "own.yaml", {"data": data, "train": {"epochs": 2}})
    # The table lies in the current folder, not beside the job: both are looked in.
    done = fedora("run", job, "--out", tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert f"{result['original']['test_accuracy']:.2%}" in done.stdout
    assert f"{result['bytes']['tensor']:,}" in done.stdout
    assert {"original", "rounds", "bytes", "seconds", "seed", "versions"} <= result.keys()

    bad = write_yaml(tmp_path / "bad.yaml", {"data": {"source": "csv", "path": "nobody.csv"}})
    failed = fedora("run", bad, "--out", tmp_path / "out", "--overwrite", cwd=tmp_path)
    assert failed.returncode == DataError.exit_code
    assert json.loads((tmp_path / "out" / "result.json").read_text()) == result, "a job that fails early harms nothing"

    refused = fedora("run", job, "--out", tmp_path / "out", cwd=tmp_path)
    assert refused.returncode == SettingsError.exit_code
    assert "is not empty; choose another folder or add --overwrite" in refused.stderr


@pytest.mark.parametrize(
    ("job", "code", "said"),
    [
        ({"data": {"source": "incom"}}, 2, "data: `source` should be one of income, digits, npz, csv, parquet, files"),
        ({}, 2, "data: is missing"),
        ({"data": {"source": "income", "parties": 33}}, 2, "data.parties: should be less than or equal to 32"),
        ({"data": {"source": "income"}, "trian": {}}, 2, "trian: unknown setting; did you mean `train`?"),
        ({"data": {"source": "income"}, "train": {"lr": "fast"}}, 2, "train.lr: should be a valid number"),
        ({"data": {"source": "income"}, "model": {"bottom": "vit"}}, 2, "no bottom model 'vit'; choose from"),
        ({"data": {"source": "income"}, "model": {"hiden": [3]}}, 2, "hiden: unknown setting; did you mean `hidden`?"),
        ({"data": {"source": "npz", "path": "nowhere.npz"}}, 3, "nowhere.npz"),
        ({"data": {"source": "csv", "path": "people.csv", "label": "outcome"}}, 3, "outcome"),
        ({"data": {"source": "income"}, "train": {"from": "nowhere"}}, 3, "nowhere"),
    ],
)
def test_a_bad_job_is_one_sentence_and_an_exit_code(job: object, code: int, said: str, tmp_path: Path) -> None:
    write_people(tmp_path / "people.csv")
    path = write_yaml(tmp_path / "job.yaml", job)
    done = fedora("run", path, "--out", tmp_path / "out", cwd=tmp_path)
    assert done.returncode == code
    assert said in done.stderr
    assert done.stderr.startswith("error: ") and len(done.stderr.splitlines()) == 1


def test_data_is_cut_into_files_that_a_run_takes(tmp_path: Path) -> None:
    write_people(tmp_path / "people.csv")
    arguments = ["csv", "--path", "people.csv", "--id", "person", "--out", "parts", "--drop", "0.1", "--shuffle"]
    done = fedora("data", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    files = {path.stem: str(path) for path in (tmp_path / "parts").iterdir()}
    assert set(files) == {"active", "passive-1", "passive-2"}
    job = write_yaml(tmp_path / "job.yaml", {"data": {"source": "files", "files": files, "id": "person"}})
    done = fedora("run", job, "--out", tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "out" / "result.json").read_text())["rows"]
    assert 250 < rows["train"] + rows["test"] < 400

    bad = fedora("data", "csv", "--path", "nobody.csv", "--out", "more", cwd=tmp_path)
    assert bad.returncode == DataError.exit_code and "nobody.csv" in bad.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopping_the_command_stops_the_cluster(number: signal.Signals, tmp_path: Path) -> None:
    write_people(tmp_path / "people.csv")
    data = {"source": "csv", "path": "people.csv", "id": "person"}
    job = write_yaml(tmp_path / "job.yaml", {"data": data, "train": {"epochs": 1_000_000}})
    command = [*FEDORA, "run", str(job), "--out", str(tmp_path / "out")]
    with subprocess.Popen(command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        while "training and" not in process.stdout.readline():
            assert process.poll() is None
        members = children(process.pid)
        assert len(members) == 4
        process.send_signal(number)
        process.wait(timeout=30)
        if number != signal.SIGKILL:
            assert process.returncode == StoppedError.exit_code
            assert process.stderr.read() == "error: stopped by Ctrl-C or a signal\n"
    deadline = time.monotonic() + 30
    while any(alive(pid) for pid in members):
        assert time.monotonic() < deadline, "a process outlived the command that started it"


def children(pid: int) -> list[int]:
    """Return the processes that a process started."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that has ended and waits to be buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
