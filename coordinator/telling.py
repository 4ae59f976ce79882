"""What those who follow a job are told: kept in the store first, so that whoever comes later, or again, is told too."""

import asyncio
import contextlib
import time

from coordinator.store import Store, Told
from protos.fedora.v1.control_pb2 import Event

# Events are written down in portions: a round may take less time than a disk needs.
PORTION_SECONDS = 0.1
MOST_PENDING = 1000  # events that may wait for the disk; then whoever tells waits


class Bell:
    """Wakes those who follow a job when there is something new to see."""

    def __init__(self) -> None:
        self._changed: dict[str, asyncio.Event] = {}
        self._passing: dict[str, Event] = {}
        self.leaving = False  # whether nobody will ring any more

    def changed(self, id: str) -> asyncio.Event:
        """Return what is set at the next change; ask for it before looking, and nothing is missed."""
        return self._changed.setdefault(id, asyncio.Event())

    def passing(self, id: str) -> Event | None:
        """Return what only matters at the moment, such as the step that a phase is at."""
        return self._passing.get(id)

    def ring(self, id: str, passing: Event | None = None) -> None:
        """Have those who follow a job look again."""
        if passing is not None:
            self._passing[id] = passing
        if changed := self._changed.pop(id, None):
            changed.set()

    def forget(self, id: str) -> None:
        """Let go of a job that has ended, once those who follow it have been woken."""
        self._passing.pop(id, None)
        self.ring(id)

    def ring_all(self) -> None:
        """Have everybody look again: jobs have moved up, or the coordinator leaves."""
        for id in list(self._changed):
            self.ring(id)


class Telling:
    """Takes the events of one job that runs; what followers see is on the disk."""

    def __init__(self, store: Store, bell: Bell, id: str, *, last: int) -> None:
        """`last` is the number of the last event that was told before."""
        self._store, self._bell, self._id, self._last = store, bell, id, last
        self._pending: list[Told] = []
        self._arrived, self._room, self._hurry = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._closing = False
        self._writing = asyncio.create_task(self._write())

    async def put(self, event: Event) -> None:
        """Tell those who follow the job."""
        if event.WhichOneof("content") == "progress":
            self._bell.ring(self._id, passing=event)
            return
        await self._until_pending_are_below(MOST_PENDING)
        self._last += 1
        event.number = self._last
        self._pending.append(Told(time.time(), event))
        self._arrived.set()

    async def say(self, note: str) -> None:
        """Tell a line."""
        await self.put(Event(note=note))

    async def flush(self) -> None:
        """Wait until all that was told is on the disk: nobody will tell it again."""
        if self._pending:
            self._hurry.set()
            await self._until_pending_are_below(1)

    async def stop(self) -> list[Told]:
        """Stop writing, and return what is left to be written with the job's end."""
        self._closing = True
        self._hurry.set()
        self._arrived.set()
        await self._writing
        return self._pending

    async def _until_pending_are_below(self, most: int) -> None:
        while len(self._pending) >= most and not self._writing.done():
            self._room.clear()
            await self._room.wait()
        if self._writing.done():
            self._writing.result()  # the disk is full, or worse

    async def _write(self) -> None:
        try:
            while not self._closing:
                await self._arrived.wait()
                self._arrived.clear()
                if not self._closing:
                    self._hurry.clear()
                if portion := list(self._pending):
                    await self._store.tell(self._id, portion)
                    del self._pending[: len(portion)]
                    self._room.set()
                    self._bell.ring(self._id)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), PORTION_SECONDS)
        finally:
            self._room.set()
