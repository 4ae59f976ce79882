"""The byte meter: counts every message at one end, by link, direction, phase, round and kind."""

from typing import NamedTuple

from protos.meter_pb2 import Kind, Reading


class Packed(NamedTuple):
    """A message as it travels, with what the meter needs to know of it; a kind of None is not counted."""

    data: bytes
    kind: "Kind | None"
    tensor_bytes: int = 0
    # Where the message belongs, when it says so itself; else it belongs to the phase its end is in.
    phase: tuple[str, int] | None = None


class Meter:
    """The counts of one end. A phase is entered before its first message and left by entering the next."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, tuple[str, int], Kind], list[int]] = {}
        self._phase = ("join", 0)

    def enter(self, phase: str, round: int) -> None:
        """Book what follows under this phase and round."""
        self._phase = (phase, round)

    def count(self, sender: str, receiver: str, packed: Packed) -> None:
        """Add one message."""
        if packed.kind is None:
            return
        entry = self._counts.setdefault((sender, receiver, packed.phase or self._phase, packed.kind), [0, 0, 0])
        entry[0] += 1
        entry[1] += packed.tensor_bytes
        entry[2] += len(packed.data)

    def close(self) -> list[Reading]:
        """Hand out the counts and start again from nothing."""
        readings = [
            Reading(
                sender=sender,
                receiver=receiver,
                phase=phase,
                round=round,
                kind=kind,
                messages=messages,
                tensor_bytes=tensor_bytes,
                protobuf_bytes=protobuf_bytes,
            )
            for (sender, receiver, (phase, round), kind), (
                messages,
                tensor_bytes,
                protobuf_bytes,
            ) in self._counts.items()
        ]
        self._counts.clear()
        return readings
