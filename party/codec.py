"""Tensors to bytes and back at one end of a link, with the memory of what was sent that error feedback needs.

Embeddings: both ends remember, for every row, the embedding that the receiver has. What travels is the encoded
difference to it, and both ends add what arrives (EF21, as in EF-VFL). Gradients: the sender remembers, for every row,
what the encoding has left out, and adds it to the row's next gradient.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedora_vfl.sampling.seeds import derive
from fedora_vfl.wire.choice import Encodings, Way
from fedora_vfl.wire.encodings import TensorEncoding
from protos.fedora.v1.meter_pb2 import EMBEDDING, GRADIENT, Kind
from protos.fedora.v1.phase_pb2 import Phase

_PURPOSES = {EMBEDDING: "embedding", GRADIENT: "gradient"}


@dataclass
class LinkMemory:
    """What one end of a link remembers of every row of the common order."""

    embeddings: Tensor = field(default_factory=lambda: torch.zeros(0, 0))  # as the receiver has them
    errors: Tensor = field(default_factory=lambda: torch.zeros(0, 0))  # of gradients: left out so far
    phase: str = ""  # the name of the phases whose gradients these are

    def forget(self, rows: Tensor) -> None:
        """Remember nothing of some rows."""
        for kept in (self.embeddings, self.errors):
            kept[rows[rows < len(kept)]] = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain values."""
        return {"embeddings": self.embeddings, "errors": self.errors, "phase": self.phase}


class LinkMemories:
    """What a party remembers of all its links, by the other end's name."""

    def __init__(self, links: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._links = {peer: LinkMemory(**kept) for peer, kept in (links or {}).items()}

    def of(self, peer: str) -> LinkMemory:
        """Return what is remembered of one link."""
        return self._links.setdefault(peer, LinkMemory())

    def forget(self, rows: Tensor) -> None:
        """Remember nothing of some rows; every party does so at the same time."""
        for link in self._links.values():
            link.forget(rows)

    def clear(self) -> None:
        """Remember nothing: what comes is of another model."""
        for link in self._links.values():
            link.embeddings, link.errors, link.phase = torch.zeros(0, 0), torch.zeros(0, 0), ""

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain values."""
        return {peer: link.state_dict() for peer, link in self._links.items()}


class Codec:
    """One end of one link, for one job."""

    def __init__(self, encodings: Encodings, *, passive: str, memory: LinkMemory | None = None) -> None:
        """`passive` is the link's passive party: what is random on a link has its name in the seed."""
        self._encodings, self._passive, self.memory = encodings, passive, memory or LinkMemory()
        # One object of each encoding at this end; what it is used for at the other end is done by others of them.
        self._own: dict[type[TensorEncoding], TensorEncoding] = {}
        self._echoes: dict[type[TensorEncoding], TensorEncoding] = {}
        self._phase: Phase | None = None
        self._ways: dict[Kind, Way] = {}

    def way(self, kind: Kind, phase: Phase) -> Way:
        """Return how a tensor travels; asked several times for every message, it is worked out once a phase."""
        if phase is not self._phase:
            self._phase, self._ways = phase, {}
        way = self._ways.get(kind)
        if way is None:
            way = self._ways[kind] = self._encodings.way(kind, phase)
        return way

    def encode(self, kind: Kind, phase: Phase, step: int, tensor: Tensor, rows: Tensor) -> bytes | memoryview:
        """Return the bytes of the float32 tensor of one batch, whose rows have these numbers."""
        way = self.way(kind, phase)
        encoding = _object(self._own, way.encoding)
        if way.draws:
            encoding.draw_from(self._seed(kind, phase, step) if way.random else None)
        if not way.feedback:
            return encoding.encode(tensor)
        width = tensor.shape[1]
        if kind == EMBEDDING:
            known = self._known(rows, width)
            data = encoding.encode(tensor - known)
            self.memory.embeddings[rows] = known + self._arriving(way, data, rows, width)
        else:
            wanted = tensor + self._missing(phase, rows, width)
            data = encoding.encode(wanted)
            self.memory.errors[rows] = wanted - self._arriving(way, data, rows, width)
        return data

    def decode(
        self, kind: Kind, phase: Phase, data: memoryview, rows: Tensor, width: int, check: Callable[[Tensor], None]
    ) -> Tensor:
        """Return the float32 tensor of one batch, unless `check` refuses it.

        A gradient is in memory of its own. An embedding may lie in the message: the active party computes with all
        parties' embeddings side by side, in one matrix, and so copies it there.

        Raises ValueError for bytes that the encoding cannot have made.
        """
        way = self.way(kind, phase)
        encoding = _object(self._own, way.encoding)
        values = (encoding.view if kind == EMBEDDING else encoding.decode)(data, rows.shape[0], width)
        check(values)
        if way.feedback and kind == EMBEDDING:
            values = self._known(rows, width) + values
            check(values)
            self.memory.embeddings[rows] = values
        return values

    def _seed(self, kind: Kind, phase: Phase, step: int) -> int:
        return derive(phase.plan.seed, "encoding", self._passive, _PURPOSES[kind], step)

    def _arriving(self, way: Way, data: bytes | memoryview, rows: Tensor, width: int) -> Tensor:
        """Return what the other end makes of the bytes."""
        return _object(self._echoes, way.encoding).decode(memoryview(data), len(rows), width)

    def _known(self, rows: Tensor, width: int) -> Tensor:
        self.memory.embeddings = _holding(self.memory.embeddings, rows, width)
        return self.memory.embeddings[rows]

    def _missing(self, phase: Phase, rows: Tensor, width: int) -> Tensor:
        """Return what earlier gradients of the rows have lacked; those of other phases are of another loss."""
        if self.memory.phase != phase.name:
            self.memory.errors, self.memory.phase = torch.zeros(0, 0), phase.name
        self.memory.errors = _holding(self.memory.errors, rows, width)
        return self.memory.errors[rows]


def _object(objects: dict[type[TensorEncoding], TensorEncoding], encoding: type[TensorEncoding]) -> TensorEncoding:
    found = objects.get(encoding)
    if found is None:
        found = objects[encoding] = encoding()
    return found


def _holding(kept: Tensor, rows: Tensor, width: int) -> Tensor:
    """Return a memory that has a place for all of these rows; new ones are zero."""
    missing = int(rows.max()) + 1 - len(kept) if len(rows) else 0
    if missing <= 0:
        return kept
    return torch.cat([kept if len(kept) else kept.new_zeros(0, width), kept.new_zeros(missing, width)])
