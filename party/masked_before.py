"""What a process has masked in a job, so that an interrupted alignment goes on with it; in memory only."""

import hashlib
import os
from collections.abc import Awaitable, Callable

from party.masking import fresh_secret

# Of what was masked, so much is remembered, of millions of ids; what is beyond is masked again.
MOST_BYTES = 512 * 1024 * 1024


class MaskedBefore:
    """The secret of one job's alignment, and what was made with it, message by message, until the alignment is done."""

    def __init__(self) -> None:
        self._job, self._made, self._held = "", dict[bytes, bytes](), 0
        self.secret = self.order_key = b""

    def begin(self, job: str) -> None:
        """Go on with a job's alignment, or begin it with a fresh secret."""
        if job != self._job:
            self.forget()
            self._job, self.secret, self.order_key = job, fresh_secret(), os.urandom(32)

    def forget(self) -> None:
        """Forget the secret and all that was made with it."""
        self._job, self._made, self._held = "", {}, 0
        self.secret = self.order_key = b""

    async def chunk(self, what: str, given: bytes, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """Return what was made of the same bytes before, or make it.

        Args:
            what: What it is made for, with whom.
            given: What it is made of.
            make: Makes it.
        """
        key = hashlib.blake2b(what.encode() + b"\0" + given, digest_size=16).digest()
        if (made := self._made.get(key)) is None:
            made = await make()
            if self._held + len(made) <= MOST_BYTES:
                self._made[key], self._held = made, self._held + len(made)
        return made
