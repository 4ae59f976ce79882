"""Nothing is lost: whoever is killed, stopped or cut off, and whenever, a job ends bit-equal to an undisturbed one."""

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.cluster.preparation import as_yaml, prepare
from fedora_vfl.cluster.runs import keep, run_on
from fedora_vfl.cluster.submission import submit
from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.federation import Deadlines
from fedora_vfl.storage import UNFINISHED
from fedora_vfl.wire.protocol import COORDINATOR
from party.commits import Commits
from protos.fedora.v1.control_pb2 import Event
from tests.conftest import as_job
from tests.test_state import assert_same_models, content

DEADLINES = Deadlines(join=60, step=20, silence=4)
EAGER = DEADLINES.model_copy(update={"commit_every": 0.01})  # a commit after whatever can have one
MEMBERS = (COORDINATOR, "passive-1", "passive-2", "active")

FORGETTING = content(
    unlearn={"method": "fedora", "budget": 0.3, "scales": {"rounds": 6}},
    compare=[{"method": "cvfu", "rounds": 2, "offline": "passive-2"}, "retrain"],
    backdoor={"target": 9},
)
NOISY = content(
    train={"epochs": 2, "batch_size": 64, "optimizer": "sgd", "lr": 0.05},
    unlearn={"steps": "paper", "dual": "parameterwise", "rounds": 2, "delta": 0.2},
    privacy={"passive": {"noise": 0.01}},
)

Strike = Callable[[LocalCluster], None]


class Strikes:
    """Follows a job and strikes when phases are over, counted from the first."""

    def __init__(self, cluster: LocalCluster, strikes: Mapping[int, Strike]) -> None:
        self._cluster, self._strikes, self._over = cluster, dict(strikes), 0
        self.notes: list[str] = []
        self.finished: set[tuple[str, int]] = set()  # phases and rounds whose end was told

    def __call__(self, event: Event) -> None:
        if event.WhichOneof("content") == "note":
            self.notes.append(event.note)
        if event.WhichOneof("content") == "finished":
            self._over += 1
            self.finished.add((event.finished.name, event.finished.round))
            if strike := self._strikes.pop(self._over, None):
                strike(self._cluster)


def kill(*members: str) -> Strike:
    """Kill members, all at once."""

    def strike(cluster: LocalCluster) -> None:
        for name in members:
            if cluster.processes[name].returncode is None:
                with contextlib.suppress(ProcessLookupError):  # it has ended, and nobody has noted that yet
                    os.kill(cluster.processes[name].pid, signal.SIGKILL)

    return strike


def run_with(
    job: dict[str, Any],
    out: Path,
    strikes: Mapping[int, Strike] | None = None,
    *,
    programs: Mapping[str, Sequence[str]] | None = None,
    deadlines: Deadlines = DEADLINES,
) -> tuple[dict[str, Any], list[str]]:
    """Run a job on a cluster whose members are struck; return its result, and what its user was told."""
    federation = prepare(as_job(job), origin=out / "job.yaml", out=out, threads=1, deadlines=deadlines)

    async def work() -> tuple[dict[str, Any], list[str]]:
        async with LocalCluster(out, federation, programs=programs) as cluster:
            follow = Strikes(cluster, strikes or {})
            result = await run_on(cluster, out, follow)
            assert not follow._strikes, "all strikes have fallen"
            assert {(one["phase"], one["round"]) for one in result["rounds"]} <= follow.finished, "no end was kept back"
            return result, follow.notes

    return asyncio.run(work())


def figures(out: Path) -> dict[str, Any]:
    """Return all that must be the same in two runs of a job: figures, books of what counted, claims."""
    result = json.loads((out / "result.json").read_text())
    models = [name for name in ("original", "unlearned", "cvfu", "retrain") if name in result]
    rounds = [{name: value for name, value in one.items() if not name.endswith("seconds")} for one in result["rounds"]]
    certificate = json.loads((out / "certificate.json").read_text())
    tensors = {phase: one["tensor"] for phase, one in result["bytes"]["phases"].items()}
    assert tensors == {phase: one["predicted"] for phase, one in result["bytes"]["phases"].items()}
    return {
        "models": {name: {**result[name], "seconds": 0, "bytes": 0} for name in models},
        "rounds": rounds,
        "tensors": tensors,
        "unlearning": result["unlearning"],
        "privacy": result["privacy"],
        "claims": certificate["final"],
    }


def assert_same(whole: Path, struck: Path) -> None:
    """Compare two runs, to the bit; nothing is left of commits, or of files that were being written."""
    assert_same_models(whole, struck)
    assert figures(whole) == figures(struck)
    for name in MEMBERS[1:]:
        assert not Commits(struck / "keys" / name).jobs()
    left = [path for path in struck.rglob("*") if path.name.endswith(UNFINISHED) or path.suffix in (".wal", ".shm")]
    assert not left


@pytest.fixture(scope="module")
def forgetting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run that trains, forgets, compares and certifies."""
    out = tmp_path_factory.mktemp("forgetting") / "whole"
    result, _ = run_with(FORGETTING, out)
    assert "repeated" not in result["bytes"]
    return out


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run with noise and the parameterwise form."""
    out = tmp_path_factory.mktemp("noisy") / "whole"
    run_with(NOISY, out)
    return out


def test_any_member_killed_in_training_forgetting_measuring_and_comparing(forgetting: Path, tmp_path: Path) -> None:
    strikes = {
        1: kill("passive-1"),  # training
        4: kill("active"),  # measuring
        8: kill(COORDINATOR),  # forgetting
        11: kill("passive-2"),
        14: kill(*MEMBERS),  # a power cut
        22: kill("active", COORDINATOR),
    }
    result, notes = run_with(FORGETTING, tmp_path / "run", strikes)
    assert_same(forgetting, tmp_path / "run")
    assert any("passive-1 was ended by SIGKILL; it is started again" in note for note in notes)
    assert result["bytes"]["repeated"]["protobuf"] > 0
    assert "repeated" in (tmp_path / "run" / "ledger.csv").read_text()


def test_running_statistics_survive_kills_in_rounds_and_in_the_guard_s_retreat(tmp_path: Path) -> None:
    job = content(
        model={"bottom": "resnet18", "width": 2, "embedding": 8, "top": [16]},
        train={"epochs": 6, "batch_size": 16, "lr": 0.005},
        unlearn={"budget": 1.0, "scales": {"rounds": 6, "step": 0.5, "push_share": 1.0}},
    )
    whole, _ = run_with(job, tmp_path / "whole")
    phases = [one["phase"] for one in whole["rounds"]]
    assert {"unlearning", "retreat"} <= set(phases), "steps so large do harm, and the guard takes parameters back"
    rounds, retreat = phases.index("unlearning"), phases.index("retreat")  # as many phases are over before them
    strikes = {
        rounds: kill("passive-1"),
        rounds + 1: kill("active"),
        retreat: kill(*MEMBERS),
        retreat + 1: kill("passive-2", COORDINATOR),
    }
    run_with(job, tmp_path / "run", strikes, deadlines=EAGER)
    assert_same(tmp_path / "whole", tmp_path / "run")


def test_long_phases_are_cut_and_a_member_killed_in_the_middle_of_one_changes_no_bit(tmp_path: Path) -> None:
    job = content(
        train={"epochs": 2, "batch_size": 6, "overlap": 3, "local_steps": 2},
        evaluate={"batch_size": 8},
        unlearn={"method": "fedora", "dual": "parameterwise", "scales": {"rounds": 30}},
        compare=[{"method": "cvfu", "rounds": 2, "offline": "passive-2"}, {"method": "ico", "rounds": 1}],
    )
    run_with(job, tmp_path / "whole")
    often = DEADLINES.model_copy(update={"commit_every": 0.05})
    programs = {
        "passive-1": striking(tmp_path, "passive-1", {"exchange.send": 50, "exchange.receive": 90}),
        "active": striking(tmp_path, "active", {"exchange.send": 200}),
    }
    run_with(job, tmp_path / "cut", programs=programs, deadlines=often)
    assert_same(tmp_path / "whole", tmp_path / "cut")
    said = [path.read_text() for path in (tmp_path / "cut" / "logs").glob("*.log")]
    assert any("the job goes on from request" in one for one in said)
    assert parts_of(tmp_path / "cut", "train") > parts_of(tmp_path / "whole", "train") == 2


def parts_of(out: Path, phase: str) -> int:
    """Count the requests that a phase took, by the messages that a party was sent."""
    lines = (out / "ledger.csv").read_text().splitlines()
    (line,) = [one for one in lines if one.startswith(f"active--coordinator,coordinator->active,{phase},1,control,")]
    return int(line.split(",")[5])


def striking(folder: Path, member: str, places: Mapping[str, int], blow: str = "kill") -> list[str]:
    """Return the program of a member that strikes itself at the nth time that it reaches some instants, once each."""
    marks = folder / member
    marks.mkdir(parents=True)
    role = COORDINATOR if member == COORDINATOR else "party"
    return ["tests.striking", role, str(marks), blow, json.dumps(dict(places))]


def test_any_member_killed_before_and_after_it_writes_sends_and_journals(noisy: Path, tmp_path: Path) -> None:
    programs = {
        COORDINATOR: striking(tmp_path, COORDINATOR, {"journal.before": 2, "journal.after": 2, "coordinator.send": 20}),
        "passive-1": striking(tmp_path, "passive-1", {"commit.after": 2, "file.before-rename": 6}),
        "passive-2": striking(tmp_path, "passive-2", {"resume.after": 2, "exchange.send": 40}),
        "active": striking(tmp_path, "active", {"commit.before": 3, "party.send": 12}),
    }
    run_with(NOISY, tmp_path / "run", programs=programs)
    assert_same(noisy, tmp_path / "run")
    struck = {path.name for member in MEMBERS for path in (tmp_path / member).iterdir()}
    assert len(struck) >= 8


def flip_a_byte_and_kill(party: str) -> Strike:
    """Damage a party's newest commit, as a disk may, and kill the party."""

    def strike(cluster: LocalCluster) -> None:
        kill(party)(cluster)
        folder = cluster.log_path("x").parents[1] / "keys" / party / "commits"
        newest = max(folder.glob("*/*.safetensors"))
        data = bytearray(newest.read_bytes())
        data[-1] ^= 1
        newest.write_bytes(data)

    return strike


def let_go_after_a_silence(party: str) -> Strike:
    """Stop a party for longer than it takes to be missed, then let it go on."""

    def strike(cluster: LocalCluster) -> None:
        pid = cluster.processes[party].pid
        os.kill(pid, signal.SIGSTOP)
        asyncio.get_running_loop().call_later(1.5 * DEADLINES.silence, os.kill, pid, signal.SIGCONT)

    return strike


def test_a_damaged_commit_a_stopped_party_and_a_full_disk(noisy: Path, tmp_path: Path) -> None:
    programs = {"active": striking(tmp_path, "active", {"commit.before": 6}, "full")}
    strikes = {3: flip_a_byte_and_kill("passive-1"), 7: let_go_after_a_silence("passive-2")}
    _, notes = run_with(NOISY, tmp_path / "run", strikes, programs=programs)
    assert_same(noisy, tmp_path / "run")
    assert any("active cannot write the disk: No space left on device" in note for note in notes)
    assert "a commit is not used" in (tmp_path / "run" / "logs" / "passive-1.log").read_text()


def test_a_run_that_was_killed_whole_goes_on_in_its_folder(noisy: Path, tmp_path: Path) -> None:
    out, job = tmp_path / "run", tmp_path / "job.yaml"
    job.write_text(as_yaml(as_job(NOISY)))
    command = [sys.executable, "-m", "fedora_vfl.cli"]
    run = subprocess.Popen([*command, "run", str(job), "--out", str(out), "--threads", "1"], stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: commits_of(out, "passive-1") >= 2)
    finally:
        run.kill()
        run.wait()
    refused = subprocess.run([*command, "run", str(job), "--out", str(out)], capture_output=True, text=True, timeout=60)
    assert refused.returncode == SettingsError.exit_code
    assert f"go on with it by --resume {out}" in " ".join(refused.stderr.split())
    done = subprocess.run([*command, "run", "--resume", str(out)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the job goes on after request" in done.stdout
    assert_same(noisy, out)


def test_a_job_whose_party_stays_away_is_suspended_and_goes_on_when_it_returns(noisy: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    short = DEADLINES.model_copy(update={"absence": 1.0})
    federation = prepare(as_job(NOISY), origin=out / "job.yaml", out=out, threads=1, deadlines=short)

    async def work() -> None:
        async with LocalCluster(out, federation) as cluster:

            async def bring_back() -> None:
                await cluster.processes["passive-2"].wait()
                await asyncio.to_thread(wait_for, lambda: state_of(out) == ("suspended", ["passive-2"]))
                await cluster.start("passive-2")

            follow = Strikes(cluster, {2: kill("passive-2")})
            back = asyncio.create_task(bring_back())
            # Unlike `run_on`, this starts nobody again.
            address, settings = federation.coordinator.address, (out / "job.yaml").read_text()
            keep(await submit(address, settings, origin="job.yaml", follow=follow, deadlines=short), out)
            await back
            assert any("suspended until passive-2" in note for note in follow.notes)

    asyncio.run(work())
    assert_same(noisy, out)


def state_of(out: Path) -> tuple[str, list[str]]:
    """Look into the coordinator's store, which it has for itself: its write-ahead log is copied first."""
    copy = out / "copy"
    copy.mkdir(exist_ok=True)
    for path in (out / "keys" / COORDINATOR).glob("jobs.sqlite*"):
        (copy / path.name).write_bytes(path.read_bytes())
    try:
        with sqlite3.connect(copy / "jobs.sqlite") as database:
            state, missed = database.execute("SELECT state, missed FROM jobs").fetchone()
    except (sqlite3.Error, TypeError):
        return "", []  # it was being written
    return state, list(json.loads(missed))


def commits_of(out: Path, party: str) -> int:
    """Count the commits that a party holds."""
    held = Commits(out / "keys" / party)
    return max((max(held.of(job).numbers(), default=0) for job in held.jobs()), default=0)


def wait_for(condition: Callable[[], bool], *, seconds: float = 60.0) -> None:
    """Look until something has happened."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing has happened"
        time.sleep(0.05)  # between two looks, not instead of one
