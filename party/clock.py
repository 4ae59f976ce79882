"""Where a party's time goes: into computing, into waiting for others, into sending."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

COMPUTING, WAITING, SENDING = ACTIVITIES = ("computing", "waiting", "sending")


class Interval:
    """Tells when so many seconds have passed since it last did."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._last = seconds, time.monotonic()

    def is_over(self) -> bool:
        """Tell whether it is time, and if so begin the next interval."""
        if time.monotonic() - self._last <= self._seconds:
            return False
        self._last = time.monotonic()
        return True


class Spent(NamedTuple):
    """Seconds by what they went into."""

    computing: float
    waiting: float
    sending: float


class Spending:
    """A time that is booked under one activity. Every message has two: a generator would take three times as long."""

    __slots__ = ("_activity", "_clock")

    def __init__(self, clock: "Clock", activity: str) -> None:
        self._clock, self._activity = clock, activity

    def __enter__(self) -> None:
        self._clock.turn(self._activity, 1)

    def __exit__(self, *_: object) -> None:
        self._clock.turn(self._activity, -1)


class Clock:
    """Books every second of a phase under one activity; any thread may read it, also while a phase runs."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._seconds: dict[tuple[str, ...], float] = {}  # by phase and activity
        self._phase: str | None = None
        self._since = 0.0
        # How many messages are sent or waited for at this moment; several may be.
        self._under_way = {SENDING: 0, WAITING: 0}

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[Callable[[], Spent]]:
        """Run a phase inside, and tell what it has taken so far; time is computing unless something else is said."""
        with self._lock:
            self._phase, self._since = name, self._now()
            before = {activity: self._seconds.setdefault((name, activity), 0.0) for activity in ACTIVITIES}

        def spent() -> Spent:
            seconds = self.read()
            return Spent(*(seconds[name, activity] - before[activity] for activity in ACTIVITIES))

        try:
            yield spent
        finally:
            with self._lock:
                self._book()
                self._phase = None

    def spend(self, activity: str) -> "Spending":
        """Book the time inside under waiting or sending; while both happen at once it is sending."""
        return Spending(self, activity)

    def read(self) -> dict[tuple[str, ...], float]:
        """Return the seconds by phase and activity, up to this moment."""
        with self._lock:
            self._book()
            return dict(self._seconds)

    def turn(self, activity: str, by: int) -> None:
        """Begin with an activity, or end it."""
        with self._lock:
            self._book()
            self._under_way[activity] += by

    def _book(self) -> None:
        """Add the time since the last look to what it was spent on."""
        if self._phase is not None:
            now = self._now()
            under_way = self._under_way
            activity = SENDING if under_way[SENDING] else WAITING if under_way[WAITING] else COMPUTING
            self._seconds[self._phase, activity] += now - self._since
            self._since = now
