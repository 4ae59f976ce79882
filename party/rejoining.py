"""How a party comes back to a coordinator that it has lost: for how long it tries, and how often."""

import random
import time
from collections.abc import Callable

from fedora_vfl.errors import PartyError
from fedora_vfl.settings.federation import Deadlines
from fedora_vfl.wire.protocol import COORDINATOR
from protos.fedora.v1.failure_pb2 import Failure

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 5.0


class Rejoining:
    """The pauses between attempts to join: each longer than the last, none the same as another party's."""

    def __init__(self, deadlines: Deadlines, *, in_job: bool, clock: Callable[[], float] = time.monotonic) -> None:
        """A party that was `in_job` when its last process ended is as patient as one that has lost its connection."""
        self._deadlines, self._clock, self._been_in = deadlines, clock, False
        self._patience = deadlines.absence if in_job else deadlines.join
        self._deadline = clock() + self._patience
        self._noticed = clock() + 2 * deadlines.silence  # that an earlier process has ended
        self._pause = FIRST_PAUSE_SECONDS

    def was_in(self) -> None:
        """Note that the coordinator had let this party in before the connection broke."""
        self._been_in, self._pause = True, FIRST_PAUSE_SECONDS
        self._patience = self._deadlines.absence
        self._deadline = self._clock() + self._patience

    def pause(self, error: PartyError) -> float:
        """Return how long to wait before the next attempt; raise the error if there is none."""
        # One that comes back may be faster than the coordinator's notice that it was gone.
        back = self._been_in or self._clock() < self._noticed
        # What the coordinator sends must not end this process either.
        garbled = self._been_in and (error.culprit, error.kind) == (COORDINATOR, Failure.PROTOCOL)
        passing = error.kind in (Failure.LOST, Failure.SILENT) or (error.kind == Failure.TAKEN and back) or garbled
        if not passing or self._clock() > self._deadline:
            raise error
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        return pause * random.uniform(0.5, 1.0)
