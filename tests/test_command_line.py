"""The command line: help that teaches, errors in one sentence with their exit code, and nothing left running."""

import asyncio
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fedora_vfl.cli import demo
from fedora_vfl.cli.following import Follower
from fedora_vfl.cluster.preparation import load_job
from fedora_vfl.errors import CertificateError, DataError, SettingsError, StoppedError, UncheckedError
from protos.fedora.v1.control_pb2 import Event, PhaseFinished, PhaseStarted
from tests.conftest import write_people, write_yaml

FEDORA = [sys.executable, "-m", "fedora_vfl.cli"]


def fedora(*arguments: str | Path, cwd: Path, columns: int = 200) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end."""
    environment = {**os.environ, "COLUMNS": str(columns)}
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


@pytest.mark.parametrize("verb", ["run", "submit"])
def test_help_tells_how_to_forget_in_lines_that_a_job_file_takes(verb: str, tmp_path: Path) -> None:
    said = fedora(verb, "--help", cwd=tmp_path).stdout
    assert "rounds.png" in said and "certificate.json" in said
    shown = [line.strip() for line in said.splitlines() if re.match(r" {6}[a-z]+: +[\[{]", line)]
    sections = ["forget:", "unlearn:", *(["backdoor:"] if verb == "run" else [])]
    assert all(any(line.startswith(section) for line in shown) for section in sections)
    (tmp_path / "people.txt").write_text("p0001\n")
    job = tmp_path / "job.yaml"
    job.write_text("\n".join(line for line in shown if not line.startswith("model:")) + "\n")
    assert load_job(job).forget


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
        (
            {"data": {"source": "incom"}},
            2,
            "data: `source` should be one of cifar10, cifar100, csv, digits",
        ),
        ({}, 2, "data: is missing"),
        ({"data": {"source": "income", "parties": 33}}, 2, "data.parties: should be less than or equal to 32"),
        ({"data": {"source": "income"}, "trian": {}}, 2, "trian: unknown setting; did you mean `train`?"),
        ({"data": {"source": "income"}, "train": {"lr": "fast"}}, 2, "train.lr: should be a valid number"),
        ({"data": {"source": "income"}, "model": {"bottom": "vit"}}, 2, "no bottom model 'vit'; allowed: "),
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


@pytest.mark.parametrize(
    ("source", "own", "of_others"),
    [
        ("income", ["--format", "--column"], ["--path", "--root", "--image-size", "--id", "--size"]),
        ("digits", ["--size"], ["--format", "--path", "--column"]),
        (
            "medmnist",
            ["--name", "--image-size <28|64|128|224>", "--no-download", "--size"],
            ["--format", "--id", "--value"],
        ),
        ("csv", ["--path", "--test-path", "--id", "--ignore", "--format", "--value"], ["--root", "--name", "--size"]),
    ],
)
def test_the_help_of_a_source_shows_its_own_settings_and_no_others(
    source: str, own: list[str], of_others: list[str], tmp_path: Path
) -> None:
    said = fedora("data", source, "--help", cwd=tmp_path, columns=80).stdout
    everywhere = ["--out", "--seed", "--parties", "--drop", "--shuffle", "--limit", "--noise-party", "--sigma"]
    assert all(option in said for option in own + everywhere)
    assert not any(re.search(rf"^  {option} ", said, re.MULTILINE) for option in of_others)
    assert max(map(len, said.splitlines())) <= 80


def test_the_examples_of_the_help_work(tmp_path: Path) -> None:
    said = fedora("data", "--help", cwd=tmp_path).stdout
    examples = [shlex.split(line)[1:] for line in said.splitlines() if line.startswith("      fedora data")]
    without_files = [words for words in examples if words[1] in ("income", "digits")]
    assert len(without_files) == 3
    for words in without_files:
        ended = fedora(*words, cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mnist"], "there is no data source 'mnist' that can be cut; allowed: cifar10, cifar100, csv, digits, income"),
        (["files"], "there is no data source 'files' that can be cut"),
        (["csv", "--out", "parts"], "Missing option '--path'"),
        (["digits", "--out", "parts", "--parties", "33"], "data.parties: should be less than or equal to 32 (got 33)"),
        (["digits", "--out", "parts", "--sigma", "1"], "data.noise.party: is missing"),
        (["digits", "--out", "parts", "--percent", "5"], "--target is missing"),
    ],
)
def test_data_that_cannot_be_cut_as_told_are_refused(arguments: list[str], said: str, tmp_path: Path) -> None:
    ended = fedora("data", *arguments, cwd=tmp_path)
    assert ended.returncode == SettingsError.exit_code
    assert said in ended.stderr
    assert not (tmp_path / "parts").exists()


# Forgetting: one run, and all that it leaves behind


@dataclass(frozen=True)
class Forgotten:
    """A run that forgot poisoned rows, as a user of a narrow terminal saw it."""

    folder: Path
    cut: str
    said: list[str]
    result: dict[str, Any]


@pytest.fixture(scope="module")
def forgotten(tmp_path_factory: pytest.TempPathFactory) -> Forgotten:
    """Cut data with a backdoor, then train, forget the poisoned rows, and compare."""
    folder = tmp_path_factory.mktemp("forgotten")
    write_people(folder / "people.csv")
    poison = ["--target", "yes", "--class", "no", "--percent", "20", "--column", "colour", "--value", "red"]
    cut = fedora("data", "csv", "--path", "people.csv", "--id", "person", "--out", "parts", *poison, cwd=folder)
    assert cut.returncode == 0, cut.stderr
    files = {path.stem: str(path) for path in (folder / "parts").glob("*.csv")}
    job = {
        "data": {"source": "files", "files": files, "id": "person"},
        "train": {"epochs": 2},
        "forget": {"ids": "poisoned.txt"},
        "compare": ["retrain"],
    }
    path = write_yaml(folder / "parts" / "job.yaml", job)
    done = fedora("run", path, "--out", "out", cwd=folder, columns=80)
    assert done.returncode == 0, done.stderr
    result = json.loads((folder / "out" / "result.json").read_text())
    return Forgotten(folder, cut.stdout, done.stdout.splitlines(), result)


def test_poisoned_rows_are_listed_so_that_a_job_can_forget_them(forgotten: Forgotten) -> None:
    ids = (forgotten.folder / "parts" / "poisoned.txt").read_text().split()
    assert forgotten.result["forget"]["rows"] == len(ids) > 10
    assert f"{len(ids)} rows are poisoned" in forgotten.cut
    assert forgotten.result["unlearned"]["backdoor_asr"] is not None


def test_a_run_that_forgets_says_what_it_left_and_how_to_check_it(forgotten: Forgotten) -> None:
    names = "result.json, ledger.csv, certificate.json, rounds.png"
    assert any(line.startswith(f"Written to out: {names}") for line in forgotten.said)
    assert all((forgotten.folder / "out" / name).stat().st_size for name in names.split(", "))
    said = "The signed certificate is out/certificate.json; check it: fedora "
    (command,) = (line.removeprefix(said) for line in forgotten.said if line.startswith(said))
    assert fedora(*command.split(), cwd=forgotten.folder).returncode == 0
    assert fedora("verify", "out", cwd=forgotten.folder).returncode == UncheckedError.exit_code


def test_what_is_only_measured_takes_one_line_a_model(forgotten: Forgotten) -> None:
    stages = [line.split()[0] for line in forgotten.said if line.endswith(" s")]
    assert stages.count("measuring") == 3 and stages.count("certificate") == 1
    assert set(stages) == {"train", "measuring", "unlearning", "recovery", "certificate", "retrain"}


def test_models_stand_side_by_side_in_80_columns_no_label_cut(forgotten: Forgotten) -> None:
    top = next(place for place, line in enumerate(forgotten.said) if line.startswith("Forgetting "))
    end = next(place for place, line in enumerate(forgotten.said) if place > top and line.startswith("└"))
    assert all(len(line.rstrip()) <= 80 for line in forgotten.said[top:end])
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in forgotten.said[top:end] if line.startswith("│")
    ]
    labels = [row[0] for row in rows]
    assert labels[0] == "accuracy, test rows" and {"… forgotten rows", "backdoor success", "seconds"} <= set(labels)
    assert "" not in labels, "a label that wraps leaves a line without one"
    gap = 100 * forgotten.result["gap"]["backdoor_asr"]
    assert rows[labels.index("backdoor success")][-1] == f"{gap:+.1f} points".replace("-0.0", "+0.0")
    said = " ".join(" ".join(forgotten.said[end + 1 :]).split())
    assert all(sentence in said for sentence in forgotten.result["verdict"])


def events(*phases: tuple[str, int]) -> list[Event]:
    """Return what a follower hears of phases of these names and rounds, of three."""
    heard = []
    for name, round in phases:
        heard.append(Event(started=PhaseStarted(name=name, round=round, of_rounds=3)))
        dual = 0.5 if name == "unlearning" else None
        finished = PhaseFinished(name=name, round=round, of_rounds=3, loss=0.25, accuracy=0.5, seconds=1, dual=dual)
        heard.append(Event(finished=finished))
    return heard


def test_many_short_rounds_are_told_in_few_lines_the_last_one_always() -> None:
    console = Console(file=io.StringIO(), width=80)
    pushes = [(name, round) for round in range(1, 63) for name in ("unlearning", "remaining")]
    with Follower(console) as follow:
        for event in events(*pushes, ("unlearning", 63), *(("recovery", round) for round in range(1, 9))):
            follow(event)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) <= 20 and all(len(line) <= 80 for line in lines)
    assert any("unlearning  round 63" in line for line in lines) and "recovery  round  8" in lines[-1]
    assert all("L_u" in line and "Ω" in line for line in lines if "unlearning" in line)


def test_rounds_that_are_told_at_the_end_of_their_phase_keep_their_numbers() -> None:
    console = Console(file=io.StringIO(), width=80)
    begun, *rounds = events(("recovery", 1), *(("recovery", round) for round in range(1, 13)))
    with Follower(console) as follow:
        for event in (begun, *(one for one in rounds if one.WhichOneof("content") == "finished")):
            follow(event)
    assert "recovery  round 12" in console.file.getvalue().splitlines()[-1]  # type: ignore[attr-defined]


@pytest.mark.parametrize("terminal", [False, True])
def test_a_stage_that_ends_leaves_a_line_and_the_next_one_its_introduction(terminal: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100, _environ={})
    with Follower(console, chapters={"unlearning": "Now it forgets."}) as follow:
        for event in events(
            ("train", 3), ("test", 1), ("probe", 1), ("unlearning", 1), ("remaining", 1), ("recovery", 1)
        ):
            follow(event)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    wanted = [
        "      train  3/3  loss 0.2500  accuracy 50.00%  1.0 s",
        "  measuring  test loss 0.2500  accuracy 50.00%  2.0 s",
        "Now it forgets.",
        " unlearning  round  1  L_u  0.250  Ω 0.500  remaining accuracy 50.0%  2.0 s",
        "   recovery  round  1  loss 0.2500  accuracy 50.00%  1.0 s",
    ]
    places = [shown.rindex(line) for line in wanted]
    assert places == sorted(places)


def test_the_demo_tells_its_story_and_checks_its_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = demo.JOB.read_text().replace("parties: 2", "parties: 2, limit: 1500").replace("epochs: 10", "epochs: 2")
    monkeypatch.setattr(demo, "JOB", tmp_path / "demo.yaml")
    demo.JOB.write_text(job)
    console = Console(file=io.StringIO(), width=200)
    asyncio.run(demo.tell(tmp_path / "out", None, console))
    said = console.file.getvalue()  # type: ignore[attr-defined]
    steps = [said.index(f"\n{number}. ") for number in range(1, 7)]
    assert steps == sorted(steps)
    assert "backdoor success" in said and "6. The certificate holds" in said
    assert (tmp_path / "out" / "rounds.png").exists()

    certificate = tmp_path / "out" / "certificate.json"
    certificate.write_text(certificate.read_text().replace('"rounds": ', '"rounds": 1'))
    with pytest.raises(CertificateError, match="does not hold"):
        demo.conclusion(tmp_path / "out")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--class", "no"], "--target is missing"),
        (["--target", "yes"], "needs either `classes`, with `percent`, or `samples`"),
        (["--target", "yes", "--samples", "0"], "backdoor.samples: should be greater than or equal to 1"),
        (["--noise-party", "passive-2"], "data.noise.sigma: is missing"),
        (["--noise-party", "passive-9", "--sigma", "0.1"], "allowed: passive-1, passive-2, active"),
    ],
)
def test_a_backdoor_or_noise_that_makes_no_sense_is_one_sentence(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    write_people(tmp_path / "people.csv")
    done = fedora("data", "csv", "--path", "people.csv", "--id", "person", "--out", "parts", *arguments, cwd=tmp_path)
    assert done.returncode == SettingsError.exit_code
    assert said in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopping_the_command_stops_the_cluster(number: signal.Signals, tmp_path: Path) -> None:
    write_people(tmp_path / "people.csv")
    data = {"source": "csv", "path": "people.csv", "id": "person"}
    job = write_yaml(tmp_path / "job.yaml", {"data": data, "train": {"epochs": 100_000}})
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
