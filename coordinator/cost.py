"""The cost model: the exact bytes that a private alignment and the phases exchange, from numbers of rows alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from fedora_vfl.sampling.rows import rows_of
from fedora_vfl.wire.encodings import TensorEncoding
from fedora_vfl.wire.masking import alignment_bytes
from protos.fedora.v1.control_pb2 import Ready
from protos.fedora.v1.phase_pb2 import Phase, Samples


@dataclass(frozen=True)
class CostModel:
    """What a phase's cost depends on besides the phase itself."""

    rows: dict["Samples.Set", int]  # size of each sample set
    embedding: int  # d_h
    encoding: type[TensorEncoding]
    passive: int  # number of passive parties

    def predict(self, phase: Phase) -> int:
        """Bytes of all encoded batches × directions × passive parties that take part."""
        rows = rows_of(phase.over, self.rows.get(phase.over.set, 0))
        batches, rest = divmod(rows, phase.plan.batch_size)
        one_way = batches * self.encoding.nbytes(phase.plan.batch_size, self.embedding)
        if rest:
            one_way += self.encoding.nbytes(rest, self.embedding)
        directions = 1 if phase.forward_only else 2
        return one_way * directions * (self.passive - len(phase.offline))


def predict_alignment(ready: Mapping[str, Ready], *, active: str) -> int:
    """Bytes of masked ids, tables and tags of all links; none where ids were compared in the open."""
    top = ready[active].aligned
    passive = [one.aligned.masked for name, one in ready.items() if name != active]
    masking = ready[active].HasField("aligned") and not top.kept
    return alignment_bytes(top.masked, passive, told=top.told, masking=masking)
