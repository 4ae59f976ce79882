"""What the coordinator knows of its jobs, in one file that outlives it: jobs, what followers are told, the journal.

One SQLite database, for the owner alone, written ahead and synchronised: what a call has returned from survives a kill
and a loss of power. SQLite works in one thread of its own, so that a slow disk holds nobody up; calls take effect in
the order in which they are made. What is deleted is overwritten with zeros, as a job may name those who are to be
forgotten.
"""

import asyncio
import contextlib
import json
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from fedora_vfl.errors import DataError, SettingsError
from fedora_vfl.fault_points import reached
from fedora_vfl.storage import make_private_folder
from protos.fedora.v1.control_pb2 import Event, Result
from protos.fedora.v1.failure_pb2 import Failure

FILE = "jobs.sqlite"
# Of the tables below; a file of another number was written by another release.
SCHEMA = 1
# Another coordinator that is just ending still holds the file.
LOCK_SECONDS = 5.0
OTHERS = 0o077  # rights of anybody but the owner
MOST_EVENTS_READ = 500  # at once: a follower of a long job is told in portions

ROOM = "make room or mend the disk, and start the coordinator again: jobs go on"

T = TypeVar("T")


class StoreError(DataError):
    """The store cannot be written or read: the coordinator ends, and a job that runs stays where the disk has it."""


class State(StrEnum):
    """Where a job is."""

    QUEUED = "queued"
    RUNNING = "running"
    SUSPENDED = "suspended"  # it waits for a member that is missed
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


BEGUN = (State.RUNNING, State.SUSPENDED)
ENDED = (State.FINISHED, State.FAILED, State.CANCELLED)


@dataclass(frozen=True)
class StoredJob:
    """What there is to say of a job; its settings, result and events are read apart."""

    id: str
    number: int  # counts the jobs of a store
    submitted_by: str  # whose certificate it came with; empty without certificates
    origin: str  # the name of the job's file
    state: State
    cancelled_by: str | None  # who wants it cancelled; none unless somebody does
    submitted: float  # seconds since 1970, as all times here
    started: float | None = None
    ended: float | None = None
    missed: Mapping[str, float] = field(default_factory=dict)  # members that are missed, and since when
    failure: Failure | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in ENDED


@dataclass(frozen=True)
class Entry:
    """One line of a job's journal."""

    number: int  # from 1, in the order of writing
    time: float
    what: str
    content: bytes


@dataclass(frozen=True)
class Told:
    """An event that followers are told, and when it happened."""

    time: float
    event: Event  # with its number


_TABLES = """
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    token BLOB NOT NULL,
    submitted_by TEXT NOT NULL,
    origin TEXT NOT NULL,
    settings BLOB NOT NULL,
    state TEXT NOT NULL,
    cancelled_by TEXT,
    submitted REAL NOT NULL,
    started REAL,
    ended REAL,
    attempts INTEGER NOT NULL DEFAULT 0,
    missed TEXT NOT NULL DEFAULT '{}',
    failure BLOB,
    result BLOB,
    UNIQUE (submitted_by, token)
);
CREATE TABLE events (
    job TEXT NOT NULL,
    number INTEGER NOT NULL,
    time REAL NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (job, number)
) WITHOUT ROWID;
CREATE TABLE journal (
    job TEXT NOT NULL,
    number INTEGER NOT NULL,
    time REAL NOT NULL,
    what TEXT NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (job, number)
);
CREATE TABLE recorded (
    job TEXT NOT NULL,
    name TEXT NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (job, name)
);
"""

_COLUMNS = "number, id, submitted_by, origin, state, cancelled_by, submitted, started, ended, missed, failure"


class Store:
    """The coordinator's one file of jobs; no other process can have it open at the same time."""

    def __init__(self, database: sqlite3.Connection, thread: ThreadPoolExecutor, path: Path) -> None:
        self._database, self._thread, self.path = database, thread, path

    @classmethod
    async def open(cls, folder: Path) -> "Store":
        """Open the store in a folder, for nobody else to read; the first call makes it."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="jobs")
        path = folder / FILE
        try:
            return cls(await asyncio.get_running_loop().run_in_executor(thread, _open, path), thread, path)
        except BaseException:
            thread.shutdown(wait=False)
            raise

    async def close(self) -> None:
        """Let go of the file; all that was written stays."""
        await self._do(lambda database: database.close())
        self._thread.shutdown(wait=False)

    # Jobs

    async def add(self, id: str, *, token: bytes, submitted_by: str, origin: str, settings: str) -> str:
        """Put a job at the end of the queue and return its id; a token that its user has used before names that job."""

        def work(database: sqlite3.Connection) -> str:
            known = "SELECT id FROM jobs WHERE submitted_by = ? AND token = ?"
            if found := database.execute(known, (submitted_by, token)).fetchone():
                return str(found[0])
            database.execute(
                "INSERT INTO jobs (id, token, submitted_by, origin, settings, state, submitted) VALUES (?,?,?,?,?,?,?)",
                (id, token, submitted_by, origin, _packed(settings.encode()), State.QUEUED, time.time()),
            )
            return id

        return await self._change(work)

    async def with_token(self, submitted_by: str, token: bytes) -> str | None:
        """Return the id of the job that a user has submitted with a token, if there is one."""
        query = "SELECT id FROM jobs WHERE submitted_by = ? AND token = ?"
        row = await self._do(lambda database: database.execute(query, (submitted_by, token)).fetchone())
        return row and str(row[0])

    async def job(self, id: str) -> StoredJob | None:
        """Return a job, by its whole id."""
        found = await self._select("WHERE id = ?", (id,))
        return found[0] if found else None

    async def jobs(self, *, submitted_by: str | None = None, beginning: str = "") -> list[StoredJob]:
        """Return jobs in the order in which they came: all, or one user's, or those whose id begins so."""
        whose = "AND submitted_by = ?" if submitted_by is not None else ""
        values = [beginning, beginning, *([submitted_by] if submitted_by is not None else [])]
        return await self._select(f"WHERE substr(id, 1, length(?)) = ? {whose} ORDER BY number", values)

    async def in_state(self, *states: State) -> list[StoredJob]:
        """Return the jobs in some states, in the order in which they came."""
        places = ",".join("?" * len(states))
        return await self._select(f"WHERE state IN ({places}) ORDER BY number", states)

    async def settings(self, id: str) -> str:
        """Return a job's settings; once it has ended, without the ids of those who asked to be forgotten."""
        return await self._do(
            lambda database: _unpacked(
                database.execute("SELECT settings FROM jobs WHERE id = ?", (id,)).fetchone()[0]
            ).decode()
        )

    async def waiting_bytes(self, submitted_by: str) -> int:
        """Return what the settings of one operator's waiting jobs take on the disk."""
        sizes = "SELECT coalesce(sum(length(settings)), 0) FROM jobs WHERE state = ? AND submitted_by = ?"
        return await self._do(lambda database: int(database.execute(sizes, (State.QUEUED, submitted_by)).fetchone()[0]))

    async def begin(self, id: str) -> bool:
        """Note that a job runs now; not if it was cancelled while it waited."""

        def work(database: sqlite3.Connection) -> bool:
            change = "UPDATE jobs SET state = ?, started = coalesce(started, ?) WHERE id = ? AND state IN (?, ?, ?)"
            begun = (State.RUNNING, time.time(), id, State.QUEUED, *BEGUN)
            return database.execute(change, begun).rowcount == 1

        return await self._change(work)

    async def suspend(self, id: str) -> None:
        """Note that a job that runs waits for somebody who is missed; `begin` takes that back."""
        change = "UPDATE jobs SET state = ? WHERE id = ? AND state = ?"
        await self._change(lambda database: database.execute(change, (State.SUSPENDED, id, State.RUNNING)))

    async def set_missed(self, id: str, missed: Mapping[str, float]) -> None:
        """Note who is missed, and since when."""
        change, text = "UPDATE jobs SET missed = ? WHERE id = ?", json.dumps(dict(missed))
        await self._change(lambda database: database.execute(change, (text, id)))

    async def want_cancelled(self, id: str, by: str) -> None:
        """Note that a job is to be cancelled: it is, also if the coordinator ends before it has come to that."""
        change = "UPDATE jobs SET cancelled_by = ? WHERE id = ? AND cancelled_by IS NULL"
        await self._change(lambda database: database.execute(change, (by, id)))

    async def end(
        self,
        id: str,
        state: State,
        *,
        settings: str,
        failure: Failure | None = None,
        result: Result | None = None,
        told: Sequence[Told] = (),
    ) -> None:
        """Note how a job ended, once, and forget what only a job that runs needs: the journal and the names in it.

        Args:
            id: The job.
            state: How it ended.
            settings: Its settings as they are kept from now on.
            failure: Why it failed or was cancelled.
            result: What it leaves, if it went well.
            told: The last events.
        """

        def work(database: sqlite3.Connection) -> None:
            _tell(database, id, told)
            database.execute(
                "UPDATE jobs SET state = ?, ended = ?, missed = '{}', settings = ?, failure = ?, result = ? "
                "WHERE id = ?",
                (
                    state,
                    time.time(),
                    _packed(settings.encode()),
                    failure.SerializeToString() if failure else None,
                    _packed(result.SerializeToString()) if result else None,
                    id,
                ),
            )
            database.execute("DELETE FROM journal WHERE job = ?", (id,))
            database.execute("DELETE FROM recorded WHERE job = ?", (id,))

        await self._change(work)
        await self._do(_fold)

    async def result(self, id: str) -> Result | None:
        """Return what a job has left."""
        query = "SELECT result FROM jobs WHERE id = ?"
        row = await self._do(lambda database: database.execute(query, (id,)).fetchone())
        return Result.FromString(_unpacked(row[0])) if row and row[0] is not None else None

    async def remove(self, ids: Sequence[str]) -> int:
        """Remove jobs that have ended, with all that is known of them; return how many there were."""

        def work(database: sqlite3.Connection) -> int:
            removed = 0
            for id in ids:
                delete = "DELETE FROM jobs WHERE id = ? AND state IN (?, ?, ?)"
                if database.execute(delete, (id, *ENDED)).rowcount:
                    database.execute("DELETE FROM events WHERE job = ?", (id,))
                    removed += 1
            return removed

        removed = await self._change(work)
        await self._do(_fold)
        return removed

    # What followers are told

    async def tell(self, id: str, told: Sequence[Told]) -> None:
        """Keep events, each with its number, for those who follow now or later."""
        await self._change(lambda database: _tell(database, id, told))

    async def told(self, id: str, *, after: int = 0, most: int = MOST_EVENTS_READ) -> list[Told]:
        """Return the events after a number, in order."""
        query = "SELECT time, content FROM events WHERE job = ? AND number > ? ORDER BY number LIMIT ?"
        rows = await self._do(lambda database: database.execute(query, (id, after, most)).fetchall())
        return [Told(moment, Event.FromString(content)) for moment, content in rows]

    async def last_number(self, id: str) -> int:
        """Return the number of the last event; 0 if there is none."""
        query = "SELECT coalesce(max(number), 0) FROM events WHERE job = ?"
        return int((await self._do(lambda database: database.execute(query, (id,)).fetchone()))[0])

    # The journal of a job that runs

    async def append(self, id: str, what: str, content: bytes) -> int:
        """Write a line to a job's journal and return its number; it is on the disk when this returns."""
        return await self.append_all(id, [(what, content)])

    async def append_all(self, id: str, lines: Sequence[tuple[str, bytes]]) -> int:
        """Write lines to a job's journal, all or none, and return the number of the last."""

        def work(database: sqlite3.Connection) -> int:
            query = "SELECT coalesce(max(number), 0) FROM journal WHERE job = ?"
            last, now = int(database.execute(query, (id,)).fetchone()[0]), time.time()
            rows = [(id, last + place, now, *line) for place, line in enumerate(lines, 1)]
            database.executemany("INSERT INTO journal (job, number, time, what, content) VALUES (?,?,?,?,?)", rows)
            return last + len(rows)

        return await self._change(work)

    async def next_attempt(self, id: str) -> int:
        """Count one more attempt at a job, and return how many there were; the first is 1."""

        def work(database: sqlite3.Connection) -> int:
            database.execute("UPDATE jobs SET attempts = attempts + 1 WHERE id = ?", (id,))
            return int(database.execute("SELECT attempts FROM jobs WHERE id = ?", (id,)).fetchone()[0])

        return await self._change(work)

    async def entries(self, id: str) -> list[Entry]:
        """Return a job's journal, in the order in which it was written."""
        query = "SELECT number, time, what, content FROM journal WHERE job = ? ORDER BY number"
        return [Entry(*row) for row in await self._do(lambda database: database.execute(query, (id,)).fetchall())]

    async def truncate_after(self, id: str, number: int) -> None:
        """Strike the lines of a journal after one; with 0 all of them."""
        delete = "DELETE FROM journal WHERE job = ? AND number > ?"
        await self._change(lambda database: database.execute(delete, (id, number)))

    async def value(self, id: str, name: str, make: Callable[[], str]) -> str:
        """Return what was recorded under a name for this job; the first call makes it and writes it down.

        For what must be the same when a job goes on in a new process: randomness, the time.
        """

        def work(database: sqlite3.Connection) -> str:
            query = "SELECT content FROM recorded WHERE job = ? AND name = ?"
            if found := database.execute(query, (id, name)).fetchone():
                return str(found[0])
            content = make()
            database.execute("INSERT INTO recorded (job, name, content) VALUES (?, ?, ?)", (id, name, content))
            return content

        return await self._change(work)

    async def _select(self, where: str, values: Sequence[object]) -> list[StoredJob]:
        query = f"SELECT {_COLUMNS} FROM jobs {where}"
        rows = await self._do(lambda database: database.execute(query, tuple(values)).fetchall())
        return [_job(row) for row in rows]

    async def _change(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Change the database, whole or not at all; return once that is on the disk."""

        def transaction(database: sqlite3.Connection) -> T:
            database.execute("BEGIN IMMEDIATE")
            try:
                answer = work(database)
                reached("store.before")
                database.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # a full disk has ended the transaction already
                    database.execute("ROLLBACK")
                raise
            reached("store.after")
            return answer

        return await self._do(transaction)

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def guarded() -> T:
            with _explained(self.path):
                return work(self._database)

        return await asyncio.get_running_loop().run_in_executor(self._thread, guarded)


def _open(path: Path) -> sqlite3.Connection:
    """Open the database, or make it."""
    try:
        make_private_folder(path.parent)
        # Made before SQLite would, as only its owner's; files that SQLite makes beside it get the same rights.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        if path.stat().st_mode & OTHERS:
            path.chmod(0o600)
    except OSError as error:
        hint = "name another folder with --jobs"
        raise SettingsError(f"{path}: the jobs cannot be kept there: {error.strerror}; {hint}") from None
    with _explained(path):
        database = sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            # Exclusive: a second coordinator is refused, and no memory is shared through a file, which some network
            # file systems cannot do.
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            database.execute("PRAGMA secure_delete = ON")
            database.execute("BEGIN IMMEDIATE")
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version == 0:
                for statement in _TABLES.split(";"):
                    database.execute(statement)
                database.execute(f"PRAGMA user_version = {SCHEMA}")
            database.execute("COMMIT")
            if version not in (0, SCHEMA):
                raise SettingsError(f"{path}: was written by another release of this software; move it away")
        except BaseException:
            database.close()
            raise
        return database


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what SQLite says into a sentence for whoever runs the coordinator."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            raise SettingsError(f"{path}: another coordinator has these jobs open; end it first") from None
        raise StoreError(f"{path}: the jobs cannot be written down: {error}; {ROOM}") from None
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path}: is damaged: {error}; move it away, and jobs begin anew") from None
    except OSError as error:
        raise StoreError(f"{path}: the jobs cannot be written down: {error.strerror}; {ROOM}") from None


def _tell(database: sqlite3.Connection, id: str, told: Sequence[Told]) -> None:
    rows = [(id, one.event.number, one.time, one.event.SerializeToString()) for one in told]
    database.executemany("INSERT INTO events (job, number, time, content) VALUES (?, ?, ?, ?)", rows)


def _fold(database: sqlite3.Connection) -> None:
    """Move what was written ahead into the database itself, and leave nothing of it: it may have had names in it."""
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _job(row: Sequence[Any]) -> StoredJob:
    number, id, submitted_by, origin, state, cancelled_by, submitted, started, ended, missed, failure = row
    return StoredJob(
        id=id,
        number=number,
        submitted_by=submitted_by,
        origin=origin,
        state=State(state),
        cancelled_by=cancelled_by,
        submitted=submitted,
        started=started,
        ended=ended,
        missed=json.loads(missed),
        failure=None if failure is None else Failure.FromString(failure),
    )


def _packed(content: bytes) -> bytes:
    """Results and settings are text that repeats itself: a tenth of it is kept."""
    return zlib.compress(content, 1)


def _unpacked(content: bytes) -> bytes:
    return zlib.decompress(content)
