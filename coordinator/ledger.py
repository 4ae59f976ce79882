"""The ledger: both ends' byte counts, laid side by side. A difference fails the job."""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from protos.meter_pb2 import Kind, Reading
from wire.errors import LedgerError

TENSOR_KINDS = {Kind.EMBEDDING, Kind.GRADIENT}

COLUMNS = ("link", "direction", "phase", "round", "kind", "messages", "tensor_bytes", "protobuf_bytes")


@dataclass(frozen=True, order=True)
class Entry:
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


class Ledger:
    """Reconciled entries of one job."""

    def __init__(self, entries: list[Entry], predicted: dict[str, int]) -> None:
        self.entries, self._predicted = entries, predicted

    @classmethod
    def reconcile(cls, books: dict[str, Iterable[Reading]], predicted: dict[str, int]) -> "Ledger":
        """Compare what every member counted; each line must stand in the books of both its ends, alike."""
        lines: defaultdict[tuple[str, str, str, int, int], dict[str, tuple[int, int, int]]] = defaultdict(dict)
        for keeper, readings in books.items():
            for one in readings:
                key = (one.sender, one.receiver, one.phase, one.round, one.kind)
                lines[key][keeper] = (one.messages, one.tensor_bytes, one.protobuf_bytes)
        entries = []
        for (sender, receiver, phase, round, kind), counts in sorted(lines.items()):
            ends = [counts.get(end, (0, 0, 0)) for end in (sender, receiver)]
            if ends[0] != ends[1] or not set(counts) <= {sender, receiver}:
                what = f"{Kind.Name(kind).lower()} messages from {sender} to {receiver} in {phase} round {round}"
                told = " and ".join(
                    f"{end} counted {count[0]} messages, {count[1]} tensor and {count[2]} protobuf bytes"
                    for end, count in zip((sender, receiver), ends, strict=True)
                )
                raise LedgerError(f"the books differ on the {what}: {told}")
            entries.append(Entry(sender, receiver, phase, round, Kind.Name(kind).lower(), *ends[0]))
        return cls(entries, predicted)

    def check_prediction(self) -> None:
        """Fail if embeddings and gradients took other bytes than the cost model says."""
        for phase, predicted in self._predicted.items():
            measured = self.totals([phase])["tensor"]
            if measured != predicted:
                raise LedgerError(f"{phase} exchanged {measured} tensor bytes, but the cost model says {predicted}")

    def totals(self, phases: Iterable[str] | None = None) -> dict[str, int]:
        """Return predicted, tensor and protobuf bytes of embeddings and gradients, of some phases or of all."""
        wanted = set(self._predicted if phases is None else phases)
        kinds = {Kind.Name(kind).lower() for kind in TENSOR_KINDS}
        counted = [entry for entry in self.entries if entry.kind in kinds and entry.phase in wanted]
        return {
            "predicted": sum(self._predicted.get(phase, 0) for phase in wanted),
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
        by_phase = {phase: self.totals([phase]) for phase in self._predicted if wanted is None or phase in wanted}
        return {**self.totals(phases), "phases": by_phase, "links": links}

    def to_csv(self) -> str:
        """Write every line."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        for entry in self.entries:
            writer.writerow([getattr(entry, column) for column in COLUMNS])
        return out.getvalue()
