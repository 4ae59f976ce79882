"""The journal of a job: every request with its answers. A new process goes through it again to where the job was.

The course of a job is deterministic but for what it hears from parties, draws at random and reads off a clock. All of
that is journalled. Entries are written down at commits, where all parties have made their state last too: whatever came
after the last one is done again.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from fedora_vfl.errors import PartyError
from fedora_vfl.fault_points import reached
from fedora_vfl.wire.meter import Book, as_uncounted
from fedora_vfl.wire.protocol import COORDINATOR
from protos.fedora.v1.control_pb2 import FromCoordinator, FromParty
from protos.fedora.v1.journal_pb2 import JournalEntry
from protos.fedora.v1.meter_pb2 import Reading


class JournalFile(Protocol):
    """Where the entries of one job are kept."""

    async def append(self, entries: Sequence[JournalEntry]) -> None:
        """Write entries behind those that are there, all or none; they last when this returns."""

    async def entries(self) -> list[JournalEntry]:
        """Return all entries, in order."""

    async def truncate_after(self, number: int) -> None:
        """Strike all entries after this one."""


class InMemory:
    """A journal that ends with its process."""

    def __init__(self) -> None:
        self._entries: list[JournalEntry] = []

    async def append(self, entries: Sequence[JournalEntry]) -> None:
        """Keep entries."""
        self._entries.extend(entries)

    async def entries(self) -> list[JournalEntry]:
        """Return all entries."""
        return list(self._entries)

    async def truncate_after(self, number: int) -> None:
        """Strike later entries."""
        self._entries = [one for one in self._entries if one.number <= number]


class Journal:
    """The journal of one job in one attempt: first its entries are gone through again, then new ones are written."""

    def __init__(self, file: JournalFile | None = None, entries: Sequence[JournalEntry] = (), attempt: int = 1) -> None:
        """`entries` are those of earlier attempts that count."""
        self._file, self._earlier, self.attempt = file or InMemory(), entries, attempt
        self._place = 0  # entries that are behind, written or not
        self._unwritten: list[JournalEntry] = []
        self._values: dict[str, str] = {}  # since the last entry
        self._last = time.perf_counter()
        self.confirmed = max((one.number for one in entries if one.commit), default=0)
        self.seconds = 0.0  # of all entries behind
        self.books = Book()  # what the coordinator has counted of all requests behind
        self.uncounted = Book()  # and of attempts that did not count
        self._aside = Book()  # what no entry has of the latter

    @property
    def replaying(self) -> bool:
        """Whether what comes next has been asked and answered before."""
        return self._place < len(self._earlier)

    @property
    def number(self) -> int:
        """The number of the next request."""
        return self._place + 1

    def value(self, name: str, make: Callable[[], str]) -> str:
        """Return what was drawn under this name when the job first came here; the first time it is made."""
        if self.replaying and name in (known := self._earlier[self._place].values):
            return known[name]
        return self._values.setdefault(name, make())

    def replay(self, messages: Mapping[str, FromCoordinator]) -> JournalEntry | None:
        """Return the entry of a request that was made before; None if it is new."""
        if not self.replaying:
            return None
        entry = self._earlier[self._place]
        if entry.digest != digest(messages):
            reason = "would ask for something else than it did before: the release, or a method's file, is another now"
            raise PartyError(COORDINATOR, f"{reason}; cancel the job and submit it again")
        self._pass(entry)
        if not self.replaying:
            self._last = time.perf_counter()
        return entry

    def add(
        self,
        messages: Mapping[str, FromCoordinator],
        answers: Mapping[str, FromParty],
        *,
        asked: str,
        commit: bool,
        seconds: float,
        readings: Iterable[Reading],
    ) -> JournalEntry:
        """Enter a request that all parties have answered; it lasts from the next `write`."""
        now = time.perf_counter()
        entry = JournalEntry(
            number=self.number,
            attempt=self.attempt,
            asked=asked,
            digest=digest(messages),
            commit=commit,
            answers=answers,
            seconds=seconds,
            since=now - self._last,
            readings=readings,
            uncounted=self._aside.readings(),
            values=self._values,
        )
        self._aside = Book()
        self._values, self._last = {}, now
        self._unwritten.append(entry)
        self._pass(entry)
        return entry

    async def write(self) -> None:
        """Make all entries last; the last of them is a commit."""
        reached("journal.before")
        await self._file.append(self._unwritten)
        self.confirmed = self._unwritten[-1].number
        self._unwritten = []
        reached("journal.after")

    def set_aside(self, readings: Iterable[Reading]) -> None:
        """Take over what was counted in attempts that did not count; the next entry has it."""
        self._aside.add(as_uncounted(readings))

    def _pass(self, entry: JournalEntry) -> None:
        self._place += 1
        self.seconds += entry.since
        self.books.add(entry.readings)
        self.uncounted.add(entry.uncounted)


def digest(messages: Mapping[str, FromCoordinator]) -> bytes:
    """Return what a request is known by: the same to the same parties."""
    found = hashlib.sha256()
    for name in sorted(messages):
        content = messages[name].SerializeToString(deterministic=True)
        found.update(f"{name}/{len(content)}/".encode())
        found.update(content)
    return found.digest()
