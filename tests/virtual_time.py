"""An event loop in which time is a number and threads are none: what happens in it happens in the same order always.

A wait takes no time, and what would run in a thread runs at once. From the moment that it is `dead`, as a process that
was killed is, nothing more comes of what would be done there.
"""

import asyncio
import selectors
from collections.abc import Callable
from typing import Any


class Killed(BaseException):
    """The process is no more."""


class _Instant(selectors.DefaultSelector):
    """Waits for nothing: time is moved on by as much as would be waited."""

    def __init__(self, pass_time: Callable[[float], None]) -> None:
        super().__init__()
        self._pass_time = pass_time

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return at once."""
        if timeout is None:
            raise AssertionError("everybody waits, and for nothing")
        self._pass_time(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop."""

    def __init__(self) -> None:
        self._now, self.dead = 0.0, False
        super().__init__(_Instant(self._pass))
        self.set_exception_handler(lambda *_: None)

    def time(self) -> float:
        """Return the time."""
        return self._now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        """Run a function, here and now."""
        future = self.create_future()
        try:
            if self.dead:
                raise Killed
            future.set_result(func(*args))
        except BaseException as error:
            future.set_exception(error)
        return future

    def _pass(self, seconds: float) -> None:
        self._now += seconds
