"""What a party keeps of a job, when a job commits, and how books and parties come back."""

import asyncio
import dataclasses
import errno
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from coordinator.blame import is_passing
from coordinator.journal import InMemory, Journal
from coordinator.pace import FEW_STEPS, PROBE_STEPS, SHARE, Pace
from fedora_vfl.cluster.local import loopback_federation
from fedora_vfl.errors import DataError, PartyError, from_failure, to_failure, unwritten
from fedora_vfl.settings.federation import Deadlines
from fedora_vfl.settings.files import check
from fedora_vfl.wire.meter import Meter, Packed
from party.commits import MOST_UNCONFIRMED, Commits, JobCommits
from party.consent import Consent
from party.context import PartyContext
from party.metrics import PartyMetrics
from party.rejoining import LONGEST_PAUSE_SECONDS, Rejoining
from party.settings import PartySettings
from party.state import SETS
from protos.fedora.v1.control_pb2 import Drop, FromCoordinator, FromParty, Saved, Setup
from protos.fedora.v1.exchange_pb2 import Order
from protos.fedora.v1.failure_pb2 import Failure
from protos.fedora.v1.meter_pb2 import Kind

JOB = "0123abcd"


def state(value: float) -> dict[str, Any]:
    """Return what a commit holds, as small as it can be."""
    order = Order(**{name: [f"{name}-1", f"{name}-2"] for name in SETS})
    return {"state": {"order": order, "networks": {"w": torch.tensor([value])}}, "books": [1, "two"], "none": None}


def value(commits: JobCommits, number: int) -> float:
    return float(commits.read(number)["state"]["networks"]["w"])


def test_a_commit_is_read_as_it_was_written_and_only_its_owner_may(tmp_path: Path) -> None:
    commits = Commits(tmp_path).of(JOB)
    commits.write(1, state(0.5), confirmed=0)
    read = commits.read(1)
    assert Order(**read["state"]["order"]) == state(0.5)["state"]["order"]
    assert (read["books"], read["none"], value(commits, 1)) == ([1, "two"], None, 0.5)
    folder = tmp_path / "commits" / JOB
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_two_confirmed_commits_stay_and_those_that_are_newer(tmp_path: Path) -> None:
    commits = Commits(tmp_path).of(JOB)
    held = []
    for number, confirmed in [(1, 0), (2, 1), (3, 2), (5, 3), (6, 3), (9, 6)]:
        commits.write(number, state(number), confirmed=confirmed)
        held.append(commits.numbers())
    assert held == [[1], [1, 2], [1, 2, 3], [2, 3, 5], [2, 3, 5, 6], [5, 6, 9]]
    commits.erase_after(5)
    assert commits.numbers() == [5]


@pytest.mark.parametrize("part", ["00000002.safetensors", "order-*.json"])
def test_a_damaged_commit_is_none(part: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    commits = Commits(tmp_path).of(JOB)
    commits.write(1, state(1), confirmed=0)
    commits.write(2, state(2), confirmed=1)
    (file,) = (tmp_path / "commits" / JOB).glob(part)
    file.write_bytes(file.read_bytes()[:-3] + b"???")
    assert commits.whole() == ([1] if "safetensors" in part else [])
    assert "a commit is not used" in caplog.text
    with pytest.raises(DataError, match="is damaged"):
        commits.read(2)
    commits.write(3, state(3), confirmed=1)
    assert 3 in commits.whole() and value(commits, 3) == 3, "the next commit does not stand on what is damaged"


def test_commits_of_jobs_that_have_ended_are_erased(tmp_path: Path) -> None:
    commits = Commits(tmp_path)
    for job in ("a1", "b2"):
        commits.of(job).write(1, state(1), confirmed=0)
    commits.erase_all_but(["b2", "c3"])
    assert commits.jobs() == ["b2"]
    with pytest.raises(PartyError, match="not a name for a file"):
        commits.of("../b2")


class Time:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_commits_come_so_seldom_that_they_cost_little_and_so_often_as_is_wanted() -> None:
    clock = Time()
    pace = Pace(30.0, clock=clock)
    pace.asked("setup", ["a"], seconds=0.1)
    pace.committed(0.02)
    pace.asked("train 1", ["a"], seconds=0.3)
    assert not pace.due("train 2")  # it will be over after 0.3 s
    clock.now = SHARE * 0.02 - 0.3
    assert pace.due("train 2")
    pace.committed(10.0)  # a slow disk
    clock.now += 29.6
    assert not pace.due("train 2")
    clock.now += 0.2
    assert pace.due("train 2")


def test_a_party_that_is_left_out_commits_once() -> None:
    pace = Pace(30.0, clock=Time())
    pace.asked("train 1", ["a", "b"], seconds=1.0)
    assert pace.lagging == {"a", "b"}
    pace.committed(0.1)
    pace.asked("assess", ["a"], seconds=1.0)
    assert pace.lagging == {"a"}


def test_a_phase_is_cut_into_parts_of_about_the_same_length() -> None:
    pace = Pace(10.0, clock=Time())
    assert pace.steps("train", 1000) == pace.steps("train", FEW_STEPS) == PROBE_STEPS < FEW_STEPS
    pace.ran("train", PROBE_STEPS, PROBE_STEPS * 0.1)  # a hundred steps fit
    assert pace.steps("test", FEW_STEPS) == PROBE_STEPS, "its steps may take some times as long"
    pace.ran("train", PROBE_STEPS, PROBE_STEPS * 0.01)
    assert pace.steps("test", FEW_STEPS) == FEW_STEPS
    pace.ran("train", PROBE_STEPS, PROBE_STEPS * 0.1)
    assert pace.steps("train", 100) == 100
    assert pace.steps("train", 101) == 51
    assert pace.steps("train", 1000) == 100
    pace.ran("train", 1, 60.0)
    assert pace.steps("train", 5) == 1


def embedding(size: int) -> Packed:
    return Packed(bytes(size), Kind.EMBEDDING, size)


def test_books_go_back_with_the_state_and_what_came_after_is_shown_apart() -> None:
    meter = Meter()
    meter.enter("train", 1)
    meter.count("p", "a", embedding(10))
    answer = Packed(bytes(3), Kind.CONTROL)
    kept = meter.state_dict(("p", "c", answer))
    meter.count("p", "c", answer)
    committed = meter.readings()
    meter.enter("train", 2)
    meter.count("p", "a", embedding(20))
    meter.load_state_dict(kept)
    assert meter.readings() == committed
    (uncounted,) = meter.uncounted()
    assert (uncounted.phase, uncounted.counts[0].tensor_bytes) == ("repeated", 20)
    meter.count("p", "a", embedding(5))  # under the phase that was left
    assert [one.round for one in meter.readings()[0].counts] == [1]
    new = Meter()  # of a new process, which has counted nothing yet
    new.load_state_dict(kept)
    assert new.readings() == committed and not new.uncounted()


def test_a_coordinator_that_confirms_nothing_does_not_fill_the_disk(tmp_path: Path) -> None:
    commits = Commits(tmp_path).of(JOB)
    for number in range(1, MOST_UNCONFIRMED + 1):
        commits.write(number, state(number), confirmed=0)
    with pytest.raises(PartyError, match=f"has confirmed none of the last {MOST_UNCONFIRMED} commits"):
        commits.write(MOST_UNCONFIRMED + 1, state(1), confirmed=0)
    commits.write(MOST_UNCONFIRMED + 1, state(1), confirmed=MOST_UNCONFIRMED)
    assert len(commits.numbers()) == 3


def answered(number: int) -> dict[str, FromParty]:
    return {"active": FromParty(saved=Saved(name=str(number)))}


def test_a_journal_gives_what_was_answered_and_drawn_and_refuses_another_question() -> None:
    asked = {"active": FromCoordinator(drop=Drop())}

    async def work() -> None:
        file = InMemory()
        first = Journal(file)
        for number in (1, 2, 3):
            drawn = first.value("salt", lambda number=number: f"salt-{number}")  # type: ignore[misc]
            assert drawn == first.value("salt", lambda: "another") == f"salt-{number}"
            first.add(asked, answered(number), asked="drop", commit=number == 2, seconds=1.0, readings=[])
            if number == 2:
                await first.write()
        entries = await file.entries()
        assert [one.number for one in entries] == [1, 2], "what came after the last commit is done again"
        again = Journal(file, entries, attempt=2)
        assert again.confirmed == 2
        for number in (1, 2):
            assert again.replaying
            assert again.value("salt", lambda: "another") == f"salt-{number}"
            entry = again.replay(asked)
            assert entry and dict(entry.answers) == answered(number)
        assert not again.replaying and again.replay(asked) is None
        assert again.value("salt", lambda: "new") == "new"
        with pytest.raises(PartyError, match="would ask for something else than it did before"):
            Journal(file, entries, attempt=3).replay({"passive-1": asked["active"]})

    asyncio.run(work())


def test_a_party_comes_back_for_as_long_as_it_may_with_growing_pauses() -> None:
    clock = Time()
    deadlines = Deadlines(join=10, absence=100, silence=4)
    lost = PartyError("coordinator", "is gone", Failure.LOST)
    rejoining = Rejoining(deadlines, in_job=False, clock=clock)
    pauses = [rejoining.pause(lost) for _ in range(12)]
    assert max(pauses[:1]) < 0.3 and max(pauses) <= LONGEST_PAUSE_SECONDS and pauses[-1] > 2
    clock.now = 10.1
    with pytest.raises(PartyError):
        rejoining.pause(lost)
    rejoining.was_in()
    clock.now = 100
    assert rejoining.pause(lost) < 0.3
    clock.now = 111
    with pytest.raises(PartyError):
        rejoining.pause(lost)
    assert Rejoining(deadlines, in_job=True, clock=clock).pause(lost)
    with pytest.raises(PartyError):
        rejoining.pause(PartyError("coordinator", "speaks another protocol", Failure.PROTOCOL))


def test_what_a_job_was_told_survives_a_commit_and_is_not_taken_back(tmp_path: Path) -> None:
    settings = check({"name": "active", "federation": "f", "data": {"path": "d.csv"}}, PartySettings, origin="party")
    settings = settings.model_copy(update={"keys": tmp_path})
    records: Any = None
    context = PartyContext(settings, loopback_federation(["p"]), records, Meter(), PartyMetrics(1), secret=b"s" * 32)
    consent = Consent(context, Setup(job=JOB), active=True)
    consent._levels.add((0.5, 1.0, 0, 1.0, b"rows"))
    consent._parts.remember([np.array([1, 2], dtype=np.uint8)])
    commits = Commits(tmp_path).of(JOB)
    commits.write(1, {**state(1), "consent": consent.state_dict()}, confirmed=0)
    consent._levels.add((0.7, 1.0, 0, 1.0, b"rows"))
    order = Order(train=["a"], test=["b"])
    for process in (context, dataclasses.replace(context, told={})):  # the same one, and a new one
        again = Consent(process, Setup(job=JOB), active=True)
        again.load_state_dict(commits.read(1)["consent"], order)
        assert len(again._levels) == (2 if process is context else 1)
        assert [one.tolist() for one in again._parts.kept()] == [[1, 2]]
        again.close()
    consent.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_job_waits_for_a_disk_that_somebody_can_mend(number: int) -> None:
    error = unwritten(OSError(number, os.strerror(number)), "keys: cannot be written")
    assert is_passing(from_failure(to_failure(error, reporter="active")))
    gone = unwritten(FileNotFoundError(errno.ENOENT, "No such file"), "keys: cannot be written")
    assert not is_passing(from_failure(to_failure(gone, reporter="active")))
