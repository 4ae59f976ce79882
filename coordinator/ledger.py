"""The ledger: both ends' byte counts, laid side by side. A difference fails the job."""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedora_vfl.errors import LedgerError
from fedora_vfl.wire.meter import TENSOR_KINDS, UNCOUNTED
from protos.fedora.v1.meter_pb2 import Kind, Reading

ALIGNMENT = "alignment"
COLUMNS = ("link", "direction", "phase", "round", "kind", "messages", "tensor_bytes", "protobuf_bytes")


@dataclass(frozen=True, order=True)
class LedgerEntry:
    """One line: the messages of one kind, one way over one link, in one round of one phase."""

    sender: str
    receiver: str
    phase: str
    round: int
    kind: str
    messages: int
    tensor_bytes: int
    protobuf_bytes: int

    @property
    def link(self) -> str:
        """The two ends, in an order that does not depend on the direction."""
        return "--".join(sorted((self.sender, self.receiver)))

    @property
    def direction(self) -> str:
        """Who sent to whom."""
        return f"{self.sender}->{self.receiver}"


class _EntryKey(NamedTuple):
    """What a line is about."""

    sender: str
    receiver: str
    phase: str
    round: int
    kind: int

    def described(self) -> str:
        """Say it in words."""
        what = f"the {_name(self.kind)} messages from {self.sender} to {self.receiver}"
        return f"{what} in {self.phase} round {self.round}"


class _Counts(NamedTuple):
    """What one end counted."""

    messages: int
    tensor_bytes: int
    protobuf_bytes: int

    def described(self) -> str:
        """Say it in words."""
        return f"{self.messages} messages, {self.tensor_bytes} tensor and {self.protobuf_bytes} protobuf bytes"


def _name(kind: int) -> str:
    try:
        return Kind.Name(kind).lower()
    except ValueError:
        raise LedgerError(f"a book has messages of kind {kind}, which is not known here") from None


def _lines(readings: Iterable[Reading]) -> Iterator[tuple[_EntryKey, _Counts]]:
    """Yield the lines of one member's book."""
    for one in readings:
        for count in one.counts:
            line = _EntryKey(one.sender, one.receiver, one.phase, count.round, one.kind)
            yield line, _Counts(count.messages, count.tensor_bytes, count.protobuf_bytes)


def _repeated(uncounted: dict[str, Iterable[Reading]]) -> list[LedgerEntry]:
    """Return one line for each kind of message on each link: the larger of what its ends have seen."""
    found: dict[_EntryKey, _Counts] = {}
    for keeper, readings in uncounted.items():
        for line, counts in _lines(readings):
            if keeper not in (line.sender, line.receiver):
                raise LedgerError(f"{keeper} keeps books on {line.described()}, which is not its own link")
            line = line._replace(phase=UNCOUNTED, round=0)
            found[line] = max(counts, found.get(line, _Counts(0, 0, 0)), key=lambda one: one.protobuf_bytes)
    return [
        LedgerEntry(line.sender, line.receiver, line.phase, line.round, _name(line.kind), *counts)
        for line, counts in sorted(found.items())
        if counts.messages
    ]


class Ledger:
    """Reconciled entries of one job."""

    def __init__(
        self,
        entries: list[LedgerEntry],
        predicted: dict[str, int],
        alignment: int = 0,
        repeated: list[LedgerEntry] | None = None,
    ) -> None:
        """`repeated` are the messages of attempts that did not count."""
        self.entries, self._predicted, self._alignment, self.repeated = entries, predicted, alignment, repeated or []

    @classmethod
    def reconcile(
        cls,
        books: dict[str, Iterable[Reading]],
        predicted: dict[str, int],
        uncounted: dict[str, Iterable[Reading]] | None = None,
        *,
        alignment: int = 0,
    ) -> "Ledger":
        """Compare what every member counted; each line must stand in the books of both its ends, alike.

        `uncounted` is what members have seen of attempts that did not count. There the ends need not agree: what was on
        its way when a connection broke was counted by one of them, and one that was killed has counted for nobody.
        """
        lines: dict[_EntryKey, dict[str, _Counts]] = {}
        for keeper, readings in books.items():
            for line, counts in _lines(readings):
                if keeper not in (line.sender, line.receiver) or line.sender == line.receiver:
                    raise LedgerError(f"{keeper} keeps books on {line.described()}, which is not its own link")
                if keeper in lines.setdefault(line, {}):
                    raise LedgerError(f"{keeper} has two lines on {line.described()}")
                lines[line][keeper] = counts
        for line, counted in lines.items():
            ends = {end: counted.get(end, _Counts(0, 0, 0)) for end in (line.sender, line.receiver)}
            if len(set(ends.values())) > 1:
                told = " and ".join(f"{end} counted {count.described()}" for end, count in ends.items())
                raise LedgerError(f"the books differ on {line.described()}: {told}")
        entries = [
            LedgerEntry(line.sender, line.receiver, line.phase, line.round, _name(line.kind), *counted[line.sender])
            for line, counted in sorted(lines.items())
        ]
        return cls(entries, predicted, alignment, _repeated(uncounted or {}))

    def check_prediction(self) -> None:
        """Fail if embeddings and gradients, or masked ids, took other bytes than the cost model says."""
        if (masked := self.alignment()["tensor"]) != self._alignment:
            raise LedgerError(f"the alignment exchanged {masked} bytes, but the cost model says {self._alignment}")
        for phase in self.phases():
            measured, predicted = self.totals([phase])["tensor"], self._predicted.get(phase, 0)
            if measured != predicted:
                raise LedgerError(f"{phase} exchanged {measured} tensor bytes, but the cost model says {predicted}")

    def phases(self) -> list[str]:
        """Return the phases that exchanged tensors or should have, in the order in which they first ran."""
        exchanged = [entry.phase for entry in self.entries if entry.kind in TENSOR_KINDS]
        return list(dict.fromkeys([*self._predicted, *exchanged]))

    def totals(self, phases: Iterable[str] | None = None) -> dict[str, int]:
        """Return predicted, tensor and protobuf bytes of embeddings and gradients, of some phases or of all."""
        wanted = set(self.phases() if phases is None else phases)
        counted = [entry for entry in self.entries if entry.kind in TENSOR_KINDS and entry.phase in wanted]
        return {
            "predicted": sum(self._predicted.get(phase, 0) for phase in wanted),
            "tensor": sum(entry.tensor_bytes for entry in counted),
            "protobuf": sum(entry.protobuf_bytes for entry in counted),
        }

    def alignment(self) -> dict[str, int]:
        """Return predicted, measured and protobuf bytes of finding the common rows; in the open none are predicted."""
        counted = [entry for entry in self.entries if entry.kind == ALIGNMENT]
        return {
            "predicted": self._alignment,
            "tensor": sum(entry.tensor_bytes for entry in counted),
            "protobuf": sum(entry.protobuf_bytes for entry in counted),
        }

    def summary(self, phases: Iterable[str] | None = None) -> dict[str, Any]:
        """Return the `bytes` of result.json: totals, and every link, direction, phase and kind, rounds added up."""
        wanted = None if phases is None else set(phases)
        sums: defaultdict[tuple[str, str, str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
        for entry in self.entries:
            if wanted is None or entry.phase in wanted:
                line = sums[entry.link, entry.direction, entry.phase, entry.kind]
                for index, value in enumerate((entry.messages, entry.tensor_bytes, entry.protobuf_bytes)):
                    line[index] += value
        links = [
            {
                "link": link,
                "direction": direction,
                "phase": phase,
                "kind": kind,
                "messages": messages,
                "tensor": tensor,
                "protobuf": protobuf,
            }
            for (link, direction, phase, kind), (messages, tensor, protobuf) in sorted(sums.items())
        ]
        by_phase = {phase: self.totals([phase]) for phase in self.phases() if wanted is None or phase in wanted}
        told = {**self.totals(wanted), "phases": by_phase, "links": links}
        if wanted is None and self.repeated:
            told["repeated"] = {
                "messages": sum(one.messages for one in self.repeated),
                "tensor": sum(one.tensor_bytes for one in self.repeated),
                "protobuf": sum(one.protobuf_bytes for one in self.repeated),
            }
        return told

    def to_csv(self) -> str:
        """Write every line."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        for entry in (*self.entries, *self.repeated):
            writer.writerow([getattr(entry, column) for column in COLUMNS])
        return out.getvalue()
