"""Coroutines that begin at once. A task of asyncio begins a turn of the event loop later (before Python 3.12)."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Started(Generic[Result]):
    """A coroutine that has run up to its first wait, and goes on by itself; who waits for it cannot cancel it."""

    def __init__(self, coroutine: Coroutine[Any, None, Result]) -> None:
        self._coroutine = coroutine
        self._ended: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._go_on()

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""
        return self._ended.done()

    def result(self) -> Result:
        """Return what it has returned, or raise what it has raised."""
        return self._ended.result()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended, or for so long; return whether it has."""
        await asyncio.wait([self._ended], timeout=timeout)
        return self.is_done

    def _go_on(self, _: "asyncio.Future[Any] | None" = None) -> None:
        """Run up to the next wait."""
        try:
            waits_for = self._coroutine.send(None)
        except StopIteration as end:
            self._ended.set_result(end.value)
        except asyncio.CancelledError:
            self._ended.cancel()
        except Exception as error:
            self._ended.set_exception(error)
        else:
            if waits_for is None:  # it only lets others have their turn
                asyncio.get_running_loop().call_soon(self._go_on)
            else:
                waits_for._asyncio_future_blocking = False  # as asyncio's own tasks say that they have understood
                waits_for.add_done_callback(self._go_on)
