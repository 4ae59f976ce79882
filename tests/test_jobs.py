"""A job is a thing with an id: it waits its turn, outlives whoever submitted it, and belongs to one operator."""

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from coordinator.jobs import happenings
from coordinator.queue import MOST_KEPT_EACH, MOST_WAITING_EACH, in_turns, without_ids
from coordinator.store import FILE, State, StoredJob, Told
from fedora_vfl.authority import Authority
from fedora_vfl.bench.faults.stage import until
from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.cluster.submission import RemoteJobs, submit
from fedora_vfl.errors import PartyError, SettingsError, StoppedError
from fedora_vfl.wire.protocol import COORDINATOR
from fedora_vfl.wire.tls import Credentials, Member
from protos.fedora.v1.control_pb2 import Event, PhaseFinished, PhaseStarted
from tests.conftest import Training, as_job, write_people, write_yaml

SHORT = {"train": {"epochs": 1, "overwrite": True}}
LONG = {"train": {"epochs": 100_000, "save": "long", "overwrite": True}}
PATIENCE = 60.0

Scenario = Callable[[LocalCluster, RemoteJobs], Awaitable[None]]


def text(content: dict[str, Any]) -> str:
    return yaml.safe_dump(content)


def ignore(_: Event) -> None:
    """Follow without looking."""


def with_jobs(folder: Path, scenario: Scenario, *, tls: bool = False, alone: bool = False) -> None:
    """Play a scenario on a cluster that is up, or on a coordinator alone."""
    out = folder / "run"
    data = {"source": "csv", "path": str(write_people(folder / "people.csv")), "id": "person"}
    federation = prepare(as_job({"data": data}), origin=out / "job.yaml", out=out, threads=1, tls=tls)
    programs = {name: list[str]() for name in federation.parties} if alone else None

    async def play() -> None:
        async with LocalCluster(out, federation, programs=programs) as cluster, jobs_of(cluster) as jobs:
            async with asyncio.timeout(3 * PATIENCE):
                await scenario(cluster, jobs)

    asyncio.run(play())


def jobs_of(cluster: LocalCluster, credentials: Credentials | None = None) -> RemoteJobs:
    federation = cluster.federation
    shown = credentials or cluster.operator
    return RemoteJobs(federation.coordinator.address, deadlines=federation.deadlines, credentials=shown)


async def state(jobs: RemoteJobs, id: str) -> str:
    return (await jobs.show(id)).summary.state


async def restart(cluster: LocalCluster, number: signal.Signals = signal.SIGKILL) -> None:
    """End the coordinator and start it again."""
    os.kill(cluster.processes[COORDINATOR].pid, number)
    await cluster.processes[COORDINATOR].wait()
    await cluster.start(COORDINATOR)


async def until_epoch(jobs: RemoteJobs, id: str) -> None:
    """Wait until a job has finished an epoch."""
    training = Training()
    following = asyncio.create_task(jobs.follow(id, training))
    await asyncio.wait_for(training.begun.wait(), PATIENCE)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


def test_jobs_run_one_after_the_other_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, jobs: RemoteJobs) -> None:
        long = await jobs.submit(text(LONG), origin="long.yaml")
        await until_epoch(jobs, long.id)  # hanging up has not stopped it, as the rest shows
        first, second = [await jobs.submit(text(SHORT), origin=f"{name}.yaml") for name in ("first", "second")]
        assert (first.waiting, second.waiting) == (1, 2)
        listed = await jobs.list()
        assert [(one.state, one.waiting, one.origin) for one in listed.jobs] == [
            ("running", 0, "long.yaml"),
            ("queued", 1, "first.yaml"),
            ("queued", 2, "second.yaml"),
        ]
        notes: list[str] = []
        following = asyncio.create_task(jobs.follow(second.id, lambda event: notes.append(event.note)))
        with pytest.raises(SettingsError, match=f"job {first.id} has no result yet: it is queued"):
            await jobs.fetch(first.id)
        with pytest.raises(SettingsError, match="is queued: cancel it first"):
            await jobs.prune([first.id])
        assert (await jobs.cancel(long.id[:6])).id == long.id
        result = await following
        assert "the job waits for its turn: 2 jobs run before it" in notes
        assert (await jobs.fetch(second.id)).result == result
        ended = {one.id: one for one in (await jobs.list()).jobs}
        assert [ended[id].state for id in (long.id, first.id, second.id)] == ["cancelled", "finished", "finished"]
        assert ended[first.id].ended <= ended[second.id].started
        with pytest.raises(StoppedError, match="the job was cancelled"):
            await jobs.fetch(long.id)
        with pytest.raises(SettingsError, match="has ended already: it is cancelled"):
            await jobs.cancel(long.id)
        shown = await jobs.show(second.id)
        phases = [one.phase for one in shown.happenings if one.WhichOneof("content") == "phase"]
        assert [(one.finished.name, one.over, one.attempts) for one in phases] == [
            ("train", True, 1),
            ("test", True, 1),
        ]
        assert set((await jobs.prune()).ids) == {long.id, first.id, second.id}
        assert not (await jobs.list()).jobs

    with_jobs(tmp_path, scenario)


def test_a_queue_outlives_the_coordinator_and_followers_find_it_again(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, jobs: RemoteJobs) -> None:
        running = await jobs.submit(text(LONG), origin="long.yaml")
        await until_epoch(jobs, running.id)
        waiting = await jobs.submit(text(SHORT), origin="waiting.yaml")
        events: list[Event] = []
        following = asyncio.create_task(jobs.follow(waiting.id, events.append, patience=PATIENCE))
        went_on = asyncio.Event()

        def listen(event: Event) -> None:
            if "the job goes on after request" in event.note:
                went_on.set()

        watching = asyncio.create_task(jobs.follow(running.id, listen, patience=PATIENCE))
        await restart(cluster)
        await asyncio.wait_for(went_on.wait(), PATIENCE)
        await jobs.cancel(running.id)
        with pytest.raises(StoppedError, match="the job was cancelled"):
            await watching
        result = await following
        assert result.result_json
        notes = [event.note for event in events if event.WhichOneof("content") == "note"]
        assert any("is gone; it is looked for again" in note for note in notes) and "coordinator is back" in notes
        numbers = [event.number for event in events if event.number]
        assert numbers == list(range(1, len(numbers) + 1)), "every event once, in order"
        again: list[Event] = []
        assert await jobs.follow(waiting.id, again.append) == result
        assert [event for event in again if event.number] == [event for event in events if event.number]
        assert await state(jobs, running.id) == "cancelled"

    with_jobs(tmp_path, scenario)


def test_a_job_waits_longer_than_the_join_deadline_for_a_party_that_was_here_before(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, jobs: RemoteJobs) -> None:
        await jobs.follow((await jobs.submit(text(SHORT), origin="first.yaml")).id, ignore)
        path = tmp_path / "run" / "federation.yaml"
        content = yaml.safe_load(path.read_text())
        content["deadlines"]["join"] = 1.0  # less than a party takes to start
        write_yaml(path, content)
        await restart(cluster)
        await jobs.list(patiently=True)  # the next process is up, and the log's last part is its own
        await until_logged(cluster, [f"{name} joined" for name in cluster.federation.parties])
        os.kill(cluster.processes["passive-2"].pid, signal.SIGKILL)
        await cluster.processes["passive-2"].wait()
        await until_logged(cluster, ["passive-2 left"])
        begins, waits = [await jobs.submit(text(SHORT), origin=f"{name}.yaml") for name in ("begins", "waits")]
        await until_missed(jobs, begins.id)
        await restart(cluster)  # to which nobody who is missed has been, and the job that waits did not come to it
        states = {one.id: one.state for one in (await jobs.list(patiently=True)).jobs}
        assert (states[begins.id], states[waits.id]) == ("running", "queued")
        await jobs.cancel(begins.id)
        await until_missed(jobs, waits.id)
        await cluster.start("passive-2")
        assert (await jobs.follow(waits.id, ignore)).result_json

    with_jobs(tmp_path, scenario)


def test_a_coordinator_that_was_restarted_while_nothing_ran_leaves_books_right(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, jobs: RemoteJobs) -> None:
        for _ in range(2):
            await restart(cluster)
            await jobs.list(patiently=True)
            await until_logged(cluster, [f"{name} joined" for name in cluster.federation.parties])
        result = await jobs.follow((await jobs.submit(text(SHORT), origin="next.yaml")).id, ignore)
        assert "repeated" not in result.ledger_csv

    with_jobs(tmp_path, scenario)


async def until_logged(cluster: LocalCluster, lines: list[str]) -> None:
    """Wait until the coordinator's present process has said all of this."""
    log, begins = cluster.log_path(COORDINATOR), "signs certificates"
    await until(lambda: all(line in log.read_text().rpartition(begins)[2] for line in lines))


async def until_missed(jobs: RemoteJobs, id: str) -> None:
    """Wait until a job that runs is known to wait for passive-2 alone."""
    while (found := (await jobs.show(id)).summary).state != "running" or list(found.missed) != ["passive-2"]:
        assert found.state in ("queued", "running"), found.reason
        await asyncio.sleep(0.05)


def test_a_caller_that_is_cancelled_takes_its_job_along(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, jobs: RemoteJobs) -> None:
        training, federation = Training(), cluster.federation
        work = asyncio.create_task(
            submit(
                federation.coordinator.address,
                text(LONG),
                origin="long.yaml",
                follow=training,
                deadlines=federation.deadlines,
            )
        )
        await asyncio.wait_for(training.begun.wait(), PATIENCE)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        assert [one.state for one in (await jobs.list()).jobs] == ["cancelled"]
        after = await jobs.submit(text(SHORT), origin="after.yaml")
        assert (await jobs.follow(after.id, ignore)).result_json

    with_jobs(tmp_path, scenario)


def operator(cluster: LocalCluster, folder: Path, name: str) -> Credentials:
    """Issue a certificate to one more operator."""
    authority = Authority.load(folder / "certificates" / "authority")
    authority.issue(Member(name, "operator"), folder / "certificates" / name, days=30)
    return Credentials.load(folder / "certificates" / name)


def test_to_other_operators_a_job_is_not_there(tmp_path: Path) -> None:
    run = tmp_path / "run"

    async def scenario(cluster: LocalCluster, jobs: RemoteJobs) -> None:
        secret = {**SHORT, "forget": {"ids": ["p0042"]}}
        mine = await jobs.submit(text(secret), origin="mine.yaml")
        async with AsyncExitStack() as stack:
            other = await stack.enter_async_context(jobs_of(cluster, operator(cluster, run, "regulator")))
            own = await stack.enter_async_context(
                jobs_of(cluster, Credentials.load(run / "certificates" / COORDINATOR))
            )
            listed = await other.list()
            assert not listed.jobs and listed.others == 1
            for ask in (other.show, other.cancel, other.fetch, lambda id: other.prune([id])):
                with pytest.raises(SettingsError) as refused:
                    await ask(mine.id)
                with pytest.raises(SettingsError) as unknown:
                    await ask("0123456789abcdef")
                assert str(refused.value).replace(mine.id, "…") == str(unknown.value).replace("0123456789abcdef", "…")
            with pytest.raises(SettingsError, match="there is no job"):
                await other.follow(mine.id, ignore)
            theirs = await other.submit(text(SHORT), origin="theirs.yaml")
            assert [one.id for one in (await other.list()).jobs] == [theirs.id]
            # Whoever could read the coordinator's disk may clear up there.
            assert [one.id for one in (await own.list()).jobs] == [mine.id, theirs.id]
            shown = (await own.show(mine.id)).settings
            assert "p0042" not in shown and "1 ids" in shown
            await own.cancel(theirs.id)
            with pytest.raises(StoppedError, match="the job was cancelled by coordinator"):
                await other.fetch(theirs.id)
            with pytest.raises(PartyError, match="only a certificate of role operator allows"):
                await own.submit(text(SHORT), origin="own.yaml")
            with pytest.raises(PartyError, match="came to list jobs, which only a certificate of role operator or"):
                async with jobs_of(cluster, Credentials.load(run / "certificates" / "active")) as party:
                    await party.list()
        await jobs.cancel(mine.id)

    with_jobs(tmp_path, scenario, tls=True, alone=True)


def test_a_job_that_is_submitted_again_after_a_lost_answer_is_the_same_job(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, jobs: RemoteJobs) -> None:
        first = await jobs.submit(text(SHORT), origin="job.yaml")
        tokens = iter([bytes(16), bytes(16)])
        patched = pytest.MonkeyPatch()
        patched.setattr("fedora_vfl.cluster.submission.secrets.token_bytes", lambda _: next(tokens))
        try:
            second, again = [await jobs.submit(text(SHORT), origin="job.yaml") for _ in range(2)]
        finally:
            patched.undo()
        assert second.id == again.id != first.id
        assert len((await jobs.list()).jobs) == 2

    with_jobs(tmp_path, scenario, alone=True)


def test_a_queue_has_an_end_and_a_wrong_job_does_not_come_into_it(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, jobs: RemoteJobs) -> None:
        with pytest.raises(SettingsError, match=r"wrong\.yaml: train\.epoch: unknown setting"):
            await jobs.submit("train: {epoch: 3}", origin="wrong.yaml")
        assert not (await jobs.list()).jobs
        for _ in range(MOST_WAITING_EACH + 1):  # one runs
            await jobs.submit(text(SHORT), origin="job.yaml")
        with pytest.raises(PartyError, match=f"takes no further job while {MOST_WAITING_EACH} jobs of yours wait"):
            await jobs.submit(text(SHORT), origin="job.yaml")

    with_jobs(tmp_path, scenario, alone=True)


def test_operators_who_fill_the_queue_do_not_keep_another_waiting(tmp_path: Path) -> None:
    run = tmp_path / "run"

    async def scenario(cluster: LocalCluster, jobs: RemoteJobs) -> None:
        greedy = [
            await jobs.submit(text(SHORT), origin="greedy.yaml") for _ in range(MOST_WAITING_EACH + 1)
        ]  # one runs
        async with AsyncExitStack() as stack:
            second, third = [
                await stack.enter_async_context(jobs_of(cluster, operator(cluster, run, name)))
                for name in ("regulator", "auditor")
            ]
            more = [await second.submit(text(SHORT), origin="more.yaml") for _ in range(MOST_WAITING_EACH)]
            # Behind the job that runs; then it is the first operator's turn again.
            assert [one.waiting for one in more[:2]] == [1, 3]
            mine = await third.submit(text(SHORT), origin="\x1b[2J\r\nmine.yaml")
            assert mine.waiting == 2
            for full in (jobs, second, third):
                with pytest.raises(PartyError, match="takes no further job while"):
                    await full.submit(text(SHORT), origin="job.yaml")
            (shown,) = (await third.list()).jobs
            assert shown.origin.isprintable()  # as all that is repeated to a terminal
            for foreign in (greedy[-1].id, greedy[-1].id[:8]):
                with pytest.raises(SettingsError, match="there is no job"):
                    await third.cancel(foreign)
        assert (await jobs.show(greedy[1].id)).summary.waiting == 3

    with_jobs(tmp_path, scenario, tls=True, alone=True)


def test_operators_take_turns_and_each_one_s_jobs_keep_their_order() -> None:
    def job(number: int, whose: str) -> StoredJob:
        return StoredJob(f"{whose}{number}", number, whose, "job.yaml", State.QUEUED, None, 0.0)

    waiting = [job(1, "a"), job(2, "a"), job(3, "a"), job(4, "b"), job(5, "c"), job(6, "b")]
    assert [one.id for one in in_turns(waiting, {})] == ["a1", "b4", "c5", "a2", "b6", "a3"]
    assert [one.id for one in in_turns(waiting, {"a": 2, "b": 1})] == ["c5", "b4", "a1", "b6", "a2", "a3"]


def test_old_jobs_make_room_and_nobody_is_named_once_a_job_has_ended(tmp_path: Path) -> None:
    name = "somebody-who-must-not-be-named"

    async def scenario(cluster: LocalCluster, jobs: RemoteJobs) -> None:
        await jobs.submit(text(SHORT), origin="first.yaml")  # it waits for parties that never come
        ids = []
        for number in range(MOST_KEPT_EACH + 5):
            job = {**SHORT, "forget": {"ids": [name]}}
            ids.append((await jobs.submit(text(job), origin=f"{number}.yaml")).id)
            await jobs.cancel(ids[-1])
        listed = (await jobs.list()).jobs
        assert [one.id for one in listed[1:]] == ids[5:]
        shown = await jobs.show(ids[-1])
        assert name not in shown.settings and "1 ids" in shown.settings
        folder = tmp_path / "run" / "keys" / COORDINATOR
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
        assert FILE in {path.name for path in folder.iterdir()}

    with_jobs(tmp_path, scenario, alone=True)


def test_ids_are_found_by_their_beginning(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, jobs: RemoteJobs) -> None:
        ids = [(await jobs.submit(text(SHORT), origin="job.yaml")).id for _ in range(2)]
        assert (await jobs.show(ids[1][:8].upper())).summary.id == ids[1]
        with pytest.raises(SettingsError, match="'ab' is too short for the id of a job"):
            await jobs.show("ab")
        with pytest.raises(SettingsError, match="there is no job 'zzzz' of yours here"):
            await jobs.show("zzzz")
        with pytest.raises(SettingsError, match="there is no job '%%%%%' of yours here"):
            await jobs.show("%%%%%")

    with_jobs(tmp_path, scenario, alone=True)


async def fedora(*words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fedora_vfl.cli", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


async def said(*words: str, code: int = 0) -> str:
    """Return what a command prints, which must end as it should."""
    process = await fedora(*words)
    out, err = await process.communicate()
    assert process.returncode == code, (out + err).decode()
    return (err if code else out).decode()


def test_a_job_outlives_the_command_that_submitted_it(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, jobs: RemoteJobs) -> None:
        where = ("--coordinator", cluster.federation.coordinator.address)
        job = write_yaml(tmp_path / "long.yaml", LONG)
        process = await fedora("submit", str(job), *where, "--out", str(tmp_path / "long"))
        assert process.stdout
        id = (await process.stdout.readline()).decode().split()[1]
        while b"train" not in await process.stdout.readline():
            pass
        os.kill(process.pid, signal.SIGINT)
        out, err = (one.decode() for one in await process.communicate())
        assert process.returncode == StoppedError.exit_code
        assert f"fedora follow {id[:8]} --coordinator {where[1]}" in out
        assert f"fedora cancel {id[:8]} --coordinator {where[1]}" in out
        assert err == "error: stopped by Ctrl-C or a signal\n"
        assert await state(jobs, id) == "running"
        again = await fedora("submit", str(job), *where, "--out", str(tmp_path / "long"))
        assert again.stdout
        assert (await again.stdout.readline()).decode() == f"job {id}\n", "not a second one"
        assert await said("cancel", id[:8], *where) == f"job {id} is cancelled\n"
        assert await state(jobs, id) == "cancelled"
        _, told = await again.communicate()
        assert (again.returncode, told) == (StoppedError.exit_code, b"error: the job was cancelled\n")
        assert not list((tmp_path / "long").iterdir()), "what is submitted from there now is another job"

    with_jobs(tmp_path, scenario)


def test_the_command_line_submits_follows_lists_shows_fetches_and_removes(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, jobs: RemoteJobs) -> None:
        where = ("--coordinator", cluster.federation.coordinator.address)
        assert await said("jobs", *where) == "there are no jobs of yours\n"
        job = write_yaml(tmp_path / "job.yaml", SHORT)
        id = (await said("submit", str(job), *where, "--detach")).strip()
        assert re.fullmatch("[0-9a-f]{32}", id)
        followed = await said("follow", id[:8], *where)
        assert re.search(r"train +1/1 +loss", followed) and f"fedora result {id[:8]}" in followed
        listed = await said("jobs", *where)
        assert id[:8] in listed and "finished" in listed and "job.yaml" in listed
        shown = await said("jobs", "show", id[:8], *where)
        assert re.search(r"train 1/1  \d+\.\d s, loss", shown) and "epochs: 1" in shown
        out = tmp_path / "fetched"
        assert "Written to" in await said("result", id[:8], *where, "--out", str(out))
        assert {path.name for path in out.iterdir()} == {"result.json", "ledger.csv"}
        again = await said("result", id[:8], *where, "--out", str(out), code=SettingsError.exit_code)
        assert "is not empty" in again
        assert await said("jobs", "prune", *where) == "1 job was removed\n"
        gone = await said("result", id[:8], *where, "--out", str(tmp_path / "gone"), code=SettingsError.exit_code)
        assert gone == f"error: there is no job '{id[:8]}' of yours here; `fedora jobs` lists those that are\n"
        both = ("submit", str(job), *where, "--detach", "--out", str(out))
        assert "--detach: nothing is written then" in await said(*both, code=SettingsError.exit_code)

    with_jobs(tmp_path, scenario)


def test_nobody_who_listens_is_said_in_one_sentence() -> None:
    words = ("jobs", "--coordinator", "127.0.0.1:1")
    began = time.monotonic()
    error = asyncio.run(said(*words, code=PartyError.exit_code)).splitlines()[-1]
    assert error == "error: coordinator cannot be reached at 127.0.0.1:1 within 10 s: nobody listens there"
    assert time.monotonic() - began < 25


def test_settings_of_a_job_that_has_ended_name_nobody() -> None:
    plain = "train: {epochs: 3}  # as its user wrote it\n"
    assert without_ids(plain) == plain
    kept = without_ids(text({"forget": {"ids": ["p1", "p2"]}, "unlearn": {"method": "ga"}, "seed": 4}))
    assert yaml.safe_load(kept) == {"forget": {"ids": "2 ids"}, "unlearn": {"method": "ga"}, "seed": 4}
    assert without_ids(kept) == kept
    assert without_ids("forget: {ids: [p1], nonsense: 3}") == ""


def test_a_phase_that_was_attempted_twice_is_one_line() -> None:
    def begun(name: str, round: int, number: int) -> Event:
        return Event(started=PhaseStarted(name=name, round=round, of_rounds=3, phase=number))

    def over(name: str, round: int, seconds: float) -> Event:
        return Event(finished=PhaseFinished(name=name, round=round, of_rounds=3, seconds=seconds))

    events = [
        begun("train", 1, 1),
        over("train", 1, 1.0),
        begun("train", 2, 2),
        Event(note="passive-1 is missed"),
        begun("train", 2, 2),
        over("train", 2, 2.0),
        begun("train", 3, 3),
    ]
    lines = happenings(Told(float(number), event) for number, event in enumerate(events))
    shown = [
        one.note or (one.phase.finished.round, one.phase.attempts, one.phase.over, one.phase.finished.seconds)
        for one in lines
    ]
    assert shown == [(1, 1, True, 1.0), (2, 2, True, 2.0), "passive-1 is missed", (3, 1, False, 0.0)]
    assert [one.time for one in lines] == [0.0, 2.0, 3.0, 6.0]
