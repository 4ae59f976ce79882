"""The byte meter: counts every message at one end, by link, direction, phase, round and kind."""

from typing import NamedTuple

from protos.fedora.v1.meter_pb2 import Kind, Reading

TENSOR_KINDS = {"embedding", "gradient"}  # as the books call the kinds of message that carry batches


class Packed(NamedTuple):
    """A message as it travels, with what the meter needs to know of it; a kind of None is not counted."""

    data: bytes
    kind: "Kind | None"
    tensor_bytes: int = 0
    # Where the message belongs, when it says so itself; else it belongs to the phase its end is in.
    phase: tuple[str, int] | None = None


class TrafficKey(NamedTuple):
    """What a line of the books is about: the messages of one kind, one way over one link, in all rounds of a phase."""

    sender: str
    receiver: str
    phase: str
    kind: "Kind"


class Sums(NamedTuple):
    """What was counted of one line."""

    messages: int
    tensor_bytes: int
    protobuf_bytes: int


class Totals:
    """What all meters of a process have counted since it began, over all jobs; any thread may read them."""

    def __init__(self) -> None:
        self._sums: dict[TrafficKey, list[int]] = {}

    def sums_of(self, line: TrafficKey) -> list[int]:
        """Return the sums of one line, for a meter to add to."""
        return self._sums.setdefault(line, [0, 0, 0])

    def read(self) -> dict[TrafficKey, Sums]:
        """Return all sums as they are now."""
        # Copied in one step: the thread that counts may open a new line meanwhile.
        return {line: Sums(*sums) for line, sums in list(self._sums.items())}


class Meter:
    """The counts of one end. A phase is entered before its first message and left by entering the next."""

    def __init__(self, totals: Totals | None = None) -> None:
        """Counts are also added to `totals`, which closing the books leaves as they are."""
        self._counts: dict[tuple[str, str, tuple[str, int], Kind], tuple[list[int], list[int]]] = {}
        self._totals = totals or Totals()
        self._phase = ("join", 0)

    def enter(self, phase: str, round: int) -> None:
        """Book what follows under this phase and round."""
        self._phase = (phase, round)

    def count(self, sender: str, receiver: str, packed: Packed) -> None:
        """Add one message."""
        if packed.kind is None:
            return
        phase = packed.phase or self._phase
        key = (sender, receiver, phase, packed.kind)
        entry = self._counts.get(key)
        if entry is None:
            total = self._totals.sums_of(TrafficKey(sender, receiver, phase[0], packed.kind))
            entry = self._counts[key] = ([0, 0, 0], total)
        for sums in entry:
            sums[0] += 1
            sums[1] += packed.tensor_bytes
            sums[2] += len(packed.data)

    def by_kind(self, me: str) -> dict[str, tuple[int, int]]:
        """Return the protobuf bytes that one end has sent and received so far, by kind of message."""
        totals: dict[str, tuple[int, int]] = {}
        for (sender, _, _, kind), (sums, _) in self._counts.items():
            sent, received = totals.get(name := Kind.Name(kind).lower(), (0, 0))
            totals[name] = (sent + sums[2], received) if sender == me else (sent, received + sums[2])
        return totals

    def close(self) -> list[Reading]:
        """Hand out the counts and start again from nothing."""
        readings: dict[TrafficKey, Reading] = {}
        for (sender, receiver, (phase, round), kind), (sums, _) in self._counts.items():
            whole = Reading(sender=sender, receiver=receiver, phase=phase, kind=kind)
            counts = readings.setdefault(TrafficKey(sender, receiver, phase, kind), whole).counts
            counts.add(round=round, messages=sums[0], tensor_bytes=sums[1], protobuf_bytes=sums[2])
        self._counts.clear()
        return list(readings.values())
