"""What a party has given so far, over all jobs and restarts: kept in a small file that only it may read."""

import contextlib
import hashlib
import hmac
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedora_vfl.errors import DataError, StorageError, unwritten
from fedora_vfl.storage import create_privately

BUDGET_FILE = "budget.sqlite"
DAY_SECONDS = 86_400
REMEMBERED_DAYS = 30  # for which groups are held against new ones

Numbers = NDArray[np.int64]

# Commits outlive the process without waiting for the disk, which a phase would wait for too.
_TABLES = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS people (number INTEGER PRIMARY KEY, tag BLOB UNIQUE NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (day INTEGER NOT NULL, job TEXT UNIQUE NOT NULL);
CREATE TABLE IF NOT EXISTS starts (day INTEGER PRIMARY KEY, count INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS alignments (day INTEGER PRIMARY KEY, count INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS releases (day INTEGER PRIMARY KEY, counts BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS models (name TEXT PRIMARY KEY, operator TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS groups (
    digest BLOB PRIMARY KEY, day INTEGER NOT NULL, size INTEGER NOT NULL, members BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS learned (
    start TEXT NOT NULL, digest BLOB NOT NULL, day INTEGER NOT NULL, members BLOB NOT NULL, PRIMARY KEY (start, digest)
);
CREATE INDEX IF NOT EXISTS groups_by_size ON groups (size);
"""
_MENDABLE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY)
# What files of earlier releases lack: the day on which a group was last told of; why nothing is told of a model, and
# which fresh parameters it goes back to.
_ADDED = (
    ("groups", "told", "INTEGER NOT NULL DEFAULT 0"),
    ("models", "silent", "TEXT NOT NULL DEFAULT ''"),
    ("models", "start", "TEXT NOT NULL DEFAULT ''"),
)


class Budget:
    """Counts of jobs, of releases of each row, and of groups of rows of which figures were told."""

    def __init__(self, folder: Path, secret: bytes, *, clock: Callable[[], float] = time.time) -> None:
        """`secret` hides the ids: rows are known by numbers, which no change of the data file changes."""
        self._secret, self._clock = secret, clock
        self._path = path = folder / BUDGET_FILE
        try:
            create_privately(path, b"")
            self._file = sqlite3.connect(path, isolation_level=None)
            self._file.executescript(_TABLES)
            for table, column, kind in _ADDED:
                if column not in {found[1] for found in self._file.execute(f"PRAGMA table_info({table})")}:
                    self._file.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
        except (OSError, sqlite3.Error) as error:
            raise self._unkept(error) from None

    @property
    def _day(self) -> int:
        return int(self._clock() // DAY_SECONDS)

    def numbers(self, ids: Sequence[str]) -> Numbers:
        """Return the number that stands for each row here, the same for ever."""
        tags = [hmac.digest(self._secret, one.encode(), "sha256")[:16] for one in ids]
        with self._writing():
            self._file.executemany("INSERT OR IGNORE INTO people (tag) VALUES (?)", ((tag,) for tag in tags))
        known = {tag: number for number, tag in self._file.execute("SELECT number, tag FROM people")}
        return np.array([known[tag] for tag in tags], dtype=np.int64)

    def enter_job(self, job: str) -> int:
        """Count a job; return how many there were today, with this one."""
        day = self._day
        with self._writing():
            self._file.execute("INSERT OR IGNORE INTO jobs VALUES (?, ?)", (day, job))
            self._file.execute("DELETE FROM jobs WHERE day < ?", (day,))
        (count,) = self._file.execute("SELECT count(*) FROM jobs").fetchone()
        return int(count)

    def enter_start(self) -> int:
        """Count a model with fresh parameters; return how many there were today, with this one."""
        day = self._day
        with self._writing():
            self._file.execute("DELETE FROM starts WHERE day < ?", (day,))
            begun = "INSERT INTO starts VALUES (?, 1) ON CONFLICT (day) DO UPDATE SET count = count + 1"
            self._file.execute(begun, (day,))
        (count,) = self._file.execute("SELECT count FROM starts WHERE day = ?", (day,)).fetchone()
        return int(count)

    def enter_alignment(self) -> int:
        """Count an alignment in which ids are masked; return how many were begun today, with this one."""
        day = self._day
        with self._writing():
            self._file.execute("INSERT OR IGNORE INTO alignments VALUES (?, 0)", (day,))
            self._file.execute("UPDATE alignments SET count = count + 1 WHERE day = ?", (day,))
            self._file.execute("DELETE FROM alignments WHERE day < ?", (day,))
        (count,) = self._file.execute("SELECT count FROM alignments WHERE day = ?", (day,)).fetchone()
        return int(count)

    def release(self, rows: Numbers, *, most: int) -> bool:
        """Count a release of some rows, unless one of them has been released so often today; say whether it may be."""
        day, length = self._day, int(rows.max(initial=0)) + 1
        found = self._file.execute("SELECT counts FROM releases WHERE day = ?", (day,)).fetchone()
        counts = np.frombuffer(found[0], dtype="<u4").copy() if found else np.zeros(0, dtype="<u4")
        counts = np.pad(counts, (0, max(0, length - len(counts))))
        np.add.at(counts, rows, 1)  # a row may be in several rounds of a phase
        if int(counts.max(initial=0)) > most:
            return False
        with self._writing():
            self._file.execute("DELETE FROM releases WHERE day < ?", (day,))
            self._file.execute("INSERT OR REPLACE INTO releases VALUES (?, ?)", (day, counts.tobytes()))
        return True

    def own(self, model: str, operator: str, *, silent: str = "", start: str = "") -> None:
        """Remember whose job has saved a model, what it began with and, if nothing may be told of it, why."""
        entry = (model, operator, silent, start)
        with self._writing():
            self._file.execute(
                "INSERT OR REPLACE INTO models (name, operator, silent, start) VALUES (?, ?, ?, ?)", entry
            )

    def start(self, model: str) -> str:
        """Return which fresh parameters a saved model goes back to; where that is not known, the model is a start."""
        found = self._file.execute("SELECT start FROM models WHERE name = ?", (model,)).fetchone()
        return str(found[0]) if found and found[0] else f"model {model}"

    def learns(self, start: str, rows: Numbers, *, smallest: int) -> bool:
        """Tell whether a model of the same start has learned from a few rows more or less; if not, note these."""
        packed, day = packed_rows(rows), self._day
        others = self._file.execute("SELECT members FROM learned WHERE start = ?", (start,))
        if any(0 < difference(packed, np.frombuffer(other, np.uint8)) < smallest for (other,) in others):
            return True  # nothing will be told of it
        entry = (start, hashlib.sha256(packed.tobytes()).digest(), day, packed.tobytes())
        with self._writing():
            self._file.execute("DELETE FROM learned WHERE day < ?", (day - REMEMBERED_DAYS,))
            self._file.execute("INSERT OR REPLACE INTO learned VALUES (?, ?, ?, ?)", entry)
        return False

    def silent(self, model: str) -> str:
        """Return why nothing may be told of a saved model; an empty text if something may."""
        found = self._file.execute("SELECT silent FROM models WHERE name = ?", (model,)).fetchone()
        return str(found[0]) if found else ""

    def owner(self, model: str) -> str | None:
        """Return whose job has saved a model, if that is known."""
        found = self._file.execute("SELECT operator FROM models WHERE name = ?", (model,)).fetchone()
        return None if found is None else str(found[0])

    def may_tell(self, rows: Numbers, *, smallest: int, most: int) -> str | None:
        """Count a group of rows of which figures are to be told; return the reason if they may not be.

        Args:
            rows: The group.
            smallest: A group has at least so many rows, and differs from every other by as many, or not at all.
            most: So many different groups are told of in a day.
        """
        if len(rows) < smallest:
            return f"it is about {len(rows)} rows, and policy.smallest_group is {smallest}"
        day, packed = self._day, packed_rows(rows)
        digest = hashlib.sha256(packed.tobytes()).digest()
        if known := self._file.execute("SELECT told FROM groups WHERE digest = ?", (digest,)).fetchone():
            if known[0] != day:
                with self._writing():
                    self._file.execute("UPDATE groups SET told = ? WHERE digest = ?", (day, digest))
            return None
        (today,) = self._file.execute("SELECT count(*) FROM groups WHERE day = ?", (day,)).fetchone()
        if today >= most:
            return f"policy.groups_per_day is {most}, and figures about as many groups of rows were told today"
        if self.resembles(rows, smallest=smallest):
            return f"figures were told of rows that differ by fewer than policy.smallest_group, {smallest}"
        with self._writing():
            # Counted from the last time that a group was told of, not from the first: that is what is compared with.
            self._file.execute("DELETE FROM groups WHERE max(day, told) < ?", (day - REMEMBERED_DAYS,))
            entry = (digest, day, len(rows), packed.tobytes(), day)
            self._file.execute("INSERT INTO groups (digest, day, size, members, told) VALUES (?, ?, ?, ?, ?)", entry)
        return None

    def resembles(self, rows: Numbers, *, smallest: int) -> bool:
        """Tell whether figures were told of another group that differs from these rows by fewer than `smallest`."""
        packed = packed_rows(rows)
        similar = self._file.execute(
            "SELECT members FROM groups WHERE size BETWEEN ? AND ?",
            (len(rows) - smallest + 1, len(rows) + smallest - 1),
        )
        return any(0 < difference(packed, np.frombuffer(other, np.uint8)) < smallest for (other,) in similar)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Make what is written inside take effect as a whole; a full disk is told with the file's name."""
        try:
            self._file.execute("BEGIN IMMEDIATE")
            with self._file:
                yield
        except sqlite3.Error as error:
            raise self._unkept(error) from None

    def _unkept(self, error: OSError | sqlite3.Error) -> DataError:
        said = f"{self._path}: what this party has given so far cannot be kept there: {error}"
        if isinstance(error, OSError):
            return unwritten(error, said)
        mendable = getattr(error, "sqlite_errorcode", 0) & 0xFF in _MENDABLE
        return StorageError(said) if mendable else DataError(said)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def packed_rows(rows: Numbers) -> NDArray[np.uint8]:
    """Return one bit for every row up to the last of some."""
    members = np.zeros(int(rows.max(initial=-1)) + 1, dtype=np.uint8)
    members[rows] = 1
    return np.packbits(members)


def difference(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> int:
    """Count the rows that are in one group and not in the other."""
    length = max(len(one), len(other))
    differs = np.bitwise_xor(*(np.pad(bits, (0, length - len(bits))) for bits in (one, other)))
    return int(np.unpackbits(differs).sum())
