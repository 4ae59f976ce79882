"""The byte meter: counts every message at one end, by link, direction, phase, round and kind."""

from collections.abc import Iterable
from typing import Any, NamedTuple

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
        # What was counted in attempts that did not count, by sender, receiver and kind.
        self._uncounted: dict[tuple[str, str, Kind], list[int]] = {}

    def enter(self, phase: str, round: int) -> None:
        """Book what follows under this phase and round."""
        self._phase = (phase, round)

    @property
    def phase(self) -> tuple[str, int]:
        """The phase and round under which messages are booked that do not say theirs."""
        return self._phase

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

    def readings(self) -> list[Reading]:
        """Return the counts."""
        readings: dict[TrafficKey, Reading] = {}
        for (sender, receiver, (phase, round), kind), (sums, _) in self._counts.items():
            whole = Reading(sender=sender, receiver=receiver, phase=phase, kind=kind)
            counts = readings.setdefault(TrafficKey(sender, receiver, phase, kind), whole).counts
            counts.add(round=round, messages=sums[0], tensor_bytes=sums[1], protobuf_bytes=sums[2])
        return list(readings.values())

    def uncounted(self) -> list[Reading]:
        """Return what was counted in attempts that did not count."""
        return [added_up(*line, [sums]) for line, sums in self._uncounted.items() if any(sums)]

    def close(self) -> list[Reading]:
        """Hand out the counts and start again from nothing."""
        readings = self.readings()
        self._counts.clear()
        self._uncounted.clear()
        return readings

    def state_dict(self, *more: tuple[str, str, Packed]) -> dict[str, Any]:
        """Return the counts as plain values, as they will be once some messages are sent, by sender and receiver."""
        counts = {key: list(sums) for key, (sums, _) in self._counts.items()}
        for sender, receiver, packed in more:
            if packed.kind is not None:
                sums = counts.setdefault((sender, receiver, packed.phase or self._phase, packed.kind), [0, 0, 0])
                sums[:] = sums[0] + 1, sums[1] + packed.tensor_bytes, sums[2] + len(packed.data)
        return {
            "phase": list(self._phase),
            "counts": [
                [sender, receiver, *phase, int(kind), *sums] for (sender, receiver, phase, kind), sums in counts.items()
            ],
            "uncounted": [
                [sender, receiver, int(kind), *sums] for (sender, receiver, kind), sums in self._uncounted.items()
            ],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to earlier counts; what has been counted since, did not count."""
        earlier: dict[tuple[str, str, tuple[str, int], Kind], list[int]] = {
            (sender, receiver, (phase, round), kind): sums
            for sender, receiver, phase, round, kind, *sums in state["counts"]
        }
        for sender, receiver, kind, *sums in state["uncounted"]:
            seen = self._uncounted.setdefault((sender, receiver, kind), [0, 0, 0])
            seen[:] = map(max, seen, sums)  # this process may have seen more since, or may be new
        for (sender, receiver, phase, kind), (sums, _) in self._counts.items():
            before = earlier.get((sender, receiver, phase, kind), [0, 0, 0])
            seen = self._uncounted.setdefault((sender, receiver, kind), [0, 0, 0])
            seen[:] = [one + max(0, now - then) for one, now, then in zip(seen, sums, before, strict=True)]
        name, round = state["phase"]
        self._phase = (name, round)
        self._counts = {
            key: (list(sums), self._totals.sums_of(TrafficKey(key[0], key[1], key[2][0], key[3])))
            for key, sums in earlier.items()
        }

    def start_again(self) -> None:
        """Begin with empty books; what they had did not count."""
        self.load_state_dict({"phase": ["join", 0], "counts": [], "uncounted": []})


UNCOUNTED = "repeated"  # the phase under which books have what did not count


def added_up(sender: str, receiver: str, kind: "Kind", sums: Iterable[Iterable[int]]) -> Reading:
    """Return one line of what did not count."""
    messages, tensor_bytes, protobuf_bytes = (sum(column) for column in zip(*sums, strict=True))
    line = Reading(sender=sender, receiver=receiver, phase=UNCOUNTED, kind=kind)
    line.counts.add(messages=messages, tensor_bytes=tensor_bytes, protobuf_bytes=protobuf_bytes)
    return line


class Book:
    """Lines that grow: those about the same messages are added up."""

    def __init__(self) -> None:
        self._sums: dict[TrafficKey, dict[int, list[int]]] = {}

    def add(self, readings: Iterable[Reading]) -> None:
        """Add lines."""
        for one in readings:
            rounds = self._sums.setdefault(TrafficKey(one.sender, one.receiver, one.phase, one.kind), {})
            for count in one.counts:
                line = rounds.setdefault(count.round, [0, 0, 0])
                line[:] = line[0] + count.messages, line[1] + count.tensor_bytes, line[2] + count.protobuf_bytes

    def readings(self) -> list[Reading]:
        """Return all lines."""
        found = []
        for key, rounds in self._sums.items():
            whole = Reading(sender=key.sender, receiver=key.receiver, phase=key.phase, kind=key.kind)
            for round, sums in rounds.items():
                whole.counts.add(round=round, messages=sums[0], tensor_bytes=sums[1], protobuf_bytes=sums[2])
            found.append(whole)
        return found


def as_uncounted(readings: Iterable[Reading]) -> list[Reading]:
    """Return lines of phases that did not count, phases and rounds added up."""
    sums: dict[tuple[str, str, Kind], list[tuple[int, int, int]]] = {}
    for one in readings:
        counts = [(count.messages, count.tensor_bytes, count.protobuf_bytes) for count in one.counts]
        sums.setdefault((one.sender, one.receiver, one.kind), []).extend(counts)
    return [added_up(*key, counts) for key, counts in sums.items() if counts]
