"""What the coordinator knows of its jobs is on the disk, is its owner's alone, and forgets whom it should forget."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from coordinator.store import FILE, State, Store, Told
from fedora_vfl.errors import DataError, SettingsError
from protos.fedora.v1.control_pb2 import Event, Result
from protos.fedora.v1.failure_pb2 import Failure

SETTINGS = "forget: {ids: [somebody-who-must-not-be-named]}"


def with_store(folder: Path, scenario: Callable[[Store], Awaitable[None]]) -> None:
    """Play a scenario on a store, which is closed at the end."""

    async def play() -> None:
        store = await Store.open(folder)
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(play())


async def add(store: Store, id: str, *, by: str = "bank", token: bytes = b"") -> str:
    return await store.add(id, token=token or id.encode(), submitted_by=by, origin="job.yaml", settings=SETTINGS)


def test_jobs_are_there_after_the_store_was_opened_again(tmp_path: Path) -> None:
    async def first(store: Store) -> None:
        for id in ("aa", "ab", "ba"):
            assert await add(store, id) == id
        assert await store.begin("aa")
        await store.set_missed("aa", {"passive-1": 12.5})
        await store.suspend("aa")
        await store.tell("ab", [Told(1.0, Event(note="one", number=1)), Told(2.0, Event(note="two", number=2))])
        result = Result(result_json="{}", ledger_csv="a,b", certificate_json="")
        await store.end("ba", State.FINISHED, settings="", result=result)

    async def second(store: Store) -> None:
        assert [(one.id, one.state) for one in await store.jobs()] == [
            ("aa", State.SUSPENDED),
            ("ab", State.QUEUED),
            ("ba", State.FINISHED),
        ]
        assert [one.id for one in await store.jobs(beginning="a")] == ["aa", "ab"]
        assert [one.id for one in await store.jobs(submitted_by="hospital")] == []
        job = await store.job("aa")
        assert job and job.missed == {"passive-1": 12.5} and job.started and not job.has_ended
        assert await store.settings("aa") == SETTINGS
        assert [one.event.note for one in await store.told("ab", after=1)] == ["two"]
        assert await store.last_number("ab") == 2
        found = await store.result("ba")
        assert found and found.ledger_csv == "a,b"
        assert await store.result("aa") is None

    with_store(tmp_path, first)
    with_store(tmp_path, second)


def test_a_job_that_is_submitted_twice_with_one_token_is_one_job(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        assert await add(store, "first", token=b"t") == "first"
        assert await add(store, "second", token=b"t") == "first"
        assert await add(store, "third", by="hospital", token=b"t") == "third", "another user's token is another token"
        assert await store.with_token("bank", b"t") == "first"
        assert await store.with_token("bank", b"u") is None

    with_store(tmp_path, scenario)


def test_the_journal_keeps_its_order_and_can_be_struck_from_a_line_on(tmp_path: Path) -> None:
    async def write(store: Store) -> None:
        assert [await store.append("job", what, what.encode()) for what in ("a", "b", "c", "d")] == [1, 2, 3, 4]
        await store.append("another", "z", b"")
        assert await store.append_all("another", [("y", b""), ("x", b"")]) == 3
        await add(store, "job")
        assert [await store.next_attempt("job") for _ in range(2)] == [1, 2]
        await store.truncate_after("job", 2)
        assert await store.append("job", "e", b"e") == 3
        assert await store.value("job", "salt", lambda: "drawn") == "drawn"

    async def read(store: Store) -> None:
        assert [(one.number, one.what, one.content) for one in await store.entries("job")] == [
            (1, "a", b"a"),
            (2, "b", b"b"),
            (3, "e", b"e"),
        ]
        assert await store.value("job", "salt", lambda: "drawn anew") == "drawn"
        assert [one.what for one in await store.entries("another")] == ["z", "y", "x"]
        assert await store.next_attempt("job") == 3

    with_store(tmp_path, write)
    with_store(tmp_path, read)


@pytest.mark.parametrize("wanted", ["append", "add"])
def test_what_a_call_has_returned_from_survives_a_kill(wanted: str, tmp_path: Path) -> None:
    act = {
        "append": "print(await store.append('job', 'report', b'x'), flush=True)",
        "add": "print(await store.add('job', token=b't', submitted_by='', origin='', settings=''), flush=True)",
    }
    program = (
        "import asyncio, os, signal, sys; from pathlib import Path; from coordinator.store import Store\n"
        "async def work():\n"
        "    store = await Store.open(Path(sys.argv[1]))\n"
        f"    {act[wanted]}\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(work())\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert done.returncode == -9 and done.stdout

    async def scenario(store: Store) -> None:
        found = await (store.entries("job") if wanted == "append" else store.jobs())
        assert len(found) == 1

    with_store(tmp_path, scenario)


def test_the_store_is_its_owner_s_alone(tmp_path: Path) -> None:
    folder = tmp_path / "keys" / "coordinator"

    async def scenario(store: Store) -> None:
        await add(store, "job")
        assert folder.stat().st_mode & 0o777 == 0o700
        files = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
        assert set(files.values()) == {0o600} and FILE in files

    with_store(folder, scenario)
    (folder / FILE).chmod(0o644)  # as a careless copy leaves it
    with_store(folder, scenario)


@pytest.mark.parametrize("state", [State.FINISHED, State.FAILED, State.CANCELLED])
def test_nobody_is_named_in_the_files_of_a_job_that_has_ended(state: State, tmp_path: Path) -> None:
    name = b"somebody-who-must-not-be-named"

    def kept() -> bytes:
        return b"".join(path.read_bytes() for path in tmp_path.iterdir())

    async def scenario(store: Store) -> None:
        ids = [os.urandom(8).hex() for _ in range(2000)]
        await store.add("job", token=b"t", submitted_by="", origin="", settings=f"forget: {{ids: {ids}}}")
        part = (await store._do(lambda database: database.execute("SELECT settings FROM jobs").fetchone()))[0][500:600]
        assert part in kept()
        await store.append("job", "request", name)
        await store.value("job", "salt", lambda: name.decode())
        assert name in kept()
        await store.end("job", state, settings="", failure=Failure(reason="it failed"))
        assert name not in kept() and part not in kept()
        assert not await store.entries("job")

    with_store(tmp_path, scenario)


def test_only_jobs_that_have_ended_can_be_removed(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        for id in ("ended", "queued"):
            await add(store, id)
            await store.tell(id, [Told(1.0, Event(note="one", number=1))])
        await store.end("ended", State.CANCELLED, settings="", failure=Failure(reason="cancelled"))
        assert await store.remove(["ended", "queued", "never"]) == 1
        assert [one.id for one in await store.jobs()] == ["queued"]
        assert not await store.told("ended") and await store.told("queued")
        assert await store.begin("queued") and not await store.begin("ended")

    with_store(tmp_path, scenario)


def test_a_second_coordinator_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.store.LOCK_SECONDS", 0.1)

    async def scenario(store: Store) -> None:
        with pytest.raises(SettingsError, match="another coordinator has these jobs open"):
            await Store.open(tmp_path)

    with_store(tmp_path, scenario)


def test_a_store_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="the jobs cannot be kept there: File exists"):
        asyncio.run(Store.open(tmp_path / "file"))
    (tmp_path / FILE).write_bytes(b"not a database, but something else that was put there" * 100)
    with pytest.raises(DataError, match="is damaged: file is not a database; move it away"):
        asyncio.run(Store.open(tmp_path))
    (tmp_path / FILE).unlink()
    with sqlite3.connect(tmp_path / FILE) as later:
        later.execute("PRAGMA user_version = 99")
    later.close()
    with pytest.raises(SettingsError, match="was written by another release"):
        asyncio.run(Store.open(tmp_path))


def test_a_change_that_fails_leaves_nothing_half_done(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        await add(store, "job")
        event = Event(note="one", number=1)
        with pytest.raises(DataError):
            await store.tell("job", [Told(1.0, event), Told(1.0, event)])
        assert not await store.told("job")
        await store.tell("job", [Told(1.0, event)])

    with_store(tmp_path, scenario)


def test_a_full_disk_is_said_and_what_was_there_stays(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        await add(store, "job")
        await store._do(lambda database: database.execute("PRAGMA max_page_count = 12").fetchall())
        with pytest.raises(DataError, match="cannot be written down: database or disk is full; make room"):
            await store.append("job", "report", os.urandom(1_000_000))
        assert not await store.entries("job")
        assert await store.append("job", "report", b"small") == 1

    with_store(tmp_path, scenario)
