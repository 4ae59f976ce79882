"""The cost model: bytes that a run must exchange, from the numbers of rows alone (SPEC's table, in exact bytes)."""

from dataclasses import dataclass

from fedora_vfl.sampling.rows import rows_drawn
from protos.fedora.v1.phase_pb2 import Phase, Samples
from protos.fedora.v1.tensor_pb2 import BFLOAT16, FLOAT16, FLOAT32, DType

BYTES_PER_VALUE: dict[DType, int] = {FLOAT32: 4, FLOAT16: 2, BFLOAT16: 2}


@dataclass(frozen=True)
class CostModel:
    """What a phase's cost depends on besides the phase itself."""

    rows: dict["Samples.Set", int]  # size of each sample set
    embedding: int  # d_h
    dtype: DType
    passive: int  # number of passive parties

    def predict(self, phase: Phase) -> int:
        """Rows × d_h × bytes per value × directions × passive parties; a phase that only observes has one direction."""
        rows = rows_drawn(phase.over.share, self.rows.get(phase.over.set, 0))
        directions = 1 if phase.update.WhichOneof("rule") == "observe" else 2
        return rows * self.embedding * BYTES_PER_VALUE[self.dtype] * directions * (self.passive - len(phase.offline))
