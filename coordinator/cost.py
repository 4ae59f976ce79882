"""The cost model: the exact bytes that a private alignment and the phases exchange, from numbers of rows alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from fedora_vfl.sampling.rows import rows_of, rows_of_round
from fedora_vfl.wire.choice import Encodings
from fedora_vfl.wire.encodings import TensorEncoding
from fedora_vfl.wire.masking import alignment_bytes
from protos.fedora.v1.control_pb2 import Ready
from protos.fedora.v1.meter_pb2 import Kind
from protos.fedora.v1.phase_pb2 import Joint, Phase, Samples, Sgd, Update


@dataclass(frozen=True)
class CostModel:
    """What a phase's cost depends on besides the phase itself."""

    rows: dict["Samples.Set", int]  # size of each sample set
    embedding: int  # d_h
    links: Mapping[str, Encodings]  # by passive party

    def predict(self, phase: Phase) -> int:
        """Return the bytes of all encoded batches, one way or both, of the passive parties that take part."""
        kinds = [Kind.EMBEDDING] if phase.forward_only else [Kind.EMBEDDING, Kind.GRADIENT]
        online = [link for name, link in self.links.items() if name not in phase.offline]
        return sum(self._one_way(phase, kind, link.way(kind, phase).encoding) for link in online for kind in kinds)

    @property
    def rows_for_one(self) -> float:
        """How many rows of joint rounds take the bytes of one row of training."""
        return self._row(Phase(update=Update(sgd=Sgd()))) / self._row(Phase(joint=Joint()))

    def _row(self, phase: Phase) -> int:
        """Return the bytes of one row, both ways, on all links."""
        ways = [link.way(kind, phase) for link in self.links.values() for kind in (Kind.EMBEDDING, Kind.GRADIENT)]
        return sum(way.encoding.nbytes(1, self.embedding) for way in ways)

    def _one_way(self, phase: Phase, kind: Kind, encoding: type[TensorEncoding]) -> int:
        if phase.HasField("joint"):
            joint = phase.joint
            # Held-out rows get no gradients.
            a_round = rows_of_round(joint) if kind == Kind.EMBEDDING else joint.forget + joint.remaining
            return joint.rounds * encoding.nbytes(a_round, self.embedding)
        rows = rows_of(phase.over, self.rows.get(phase.over.set, 0))
        batches, rest = divmod(rows, phase.plan.batch_size)
        whole = batches * encoding.nbytes(phase.plan.batch_size, self.embedding)
        return whole + (encoding.nbytes(rest, self.embedding) if rest else 0)


def predict_alignment(ready: Mapping[str, Ready], *, active: str) -> int:
    """Bytes of masked ids, tables and tags of all links; none where ids were compared in the open."""
    top = ready[active].aligned
    passive = [one.aligned.masked for name, one in ready.items() if name != active]
    masking = ready[active].HasField("aligned") and not top.kept
    return alignment_bytes(top.masked, passive, told=top.told, masking=masking)
