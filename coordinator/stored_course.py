"""What is kept of a job that runs, in the coordinator's store."""

from collections.abc import Mapping, Sequence

from coordinator.store import Store
from coordinator.telling import Telling
from protos.fedora.v1.journal_pb2 import JournalEntry


class StoredCourse:
    """The part of the store that is about one job."""

    def __init__(self, store: Store, id: str, telling: Telling) -> None:
        """`telling` has what was told of the job and may not be on the disk yet."""
        self._store, self._id, self._telling = store, id, telling

    async def append(self, entries: Sequence[JournalEntry]) -> None:
        """Write entries behind those that are there, all or none; what was told before them first."""
        await self._telling.flush()
        await self._store.append_all(self._id, [(one.asked, one.SerializeToString()) for one in entries])

    async def entries(self) -> list[JournalEntry]:
        """Return all entries, in order."""
        return [JournalEntry.FromString(line.content) for line in await self._store.entries(self._id)]

    async def truncate_after(self, number: int) -> None:
        """Strike all entries after this one."""
        await self._store.truncate_after(self._id, number)

    async def next_attempt(self) -> int:
        """Count the attempts at the job."""
        return await self._store.next_attempt(self._id)

    async def set_missed(self, missed: Mapping[str, float], *, suspended: bool) -> None:
        """Note who is missed and since when, and whether the job waits without an end."""
        await self._store.set_missed(self._id, missed)
        await (self._store.suspend(self._id) if suspended else self._store.begin(self._id))
