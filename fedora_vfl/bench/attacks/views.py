"""What each role has seen of a run, gathered row by row."""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from coordinator.phases import look
from fedora_vfl.bench.one_process.parties import OneProcess, Step
from protos.fedora.v1.phase_pb2 import Samples

TARGET = "passive-1"  # whose gradients and embeddings are looked at
LOOKED_AT = 2000  # rows of a set at most
EVALUATION_BATCH = 1024


@dataclass
class Trace:
    """What one passive party is sent and sends during training, row by row."""

    rows: int
    gradients: list[Tensor] = field(default_factory=list)  # one per epoch, in the common order, times the batch size
    first_rows: Tensor | None = None
    first_embeddings: Tensor | None = None  # of the first batch, when the bottom was as it had been made

    def __call__(self, step: Step) -> None:
        """Keep what one batch brought."""
        sent = step.gradients[TARGET]
        if self.first_rows is None:
            self.first_rows, self.first_embeddings = step.rows, step.embeddings[TARGET]
        if step.phase.round > len(self.gradients):
            self.gradients.append(torch.zeros(self.rows, sent.shape[1]))
        self.gradients[-1][step.rows] = sent * len(step.rows)

    def joined(self) -> Tensor:
        """Return the directions of all epochs' gradients, side by side."""
        return torch.cat([functional.normalize(one, dim=1) for one in self.gradients], dim=1)


@dataclass(frozen=True)
class Seen:
    """What evaluation shows of a set of rows."""

    rows: Tensor
    embeddings: dict[str, Tensor]
    logits: Tensor


def observe(process: OneProcess, over: Samples) -> Seen:
    """Evaluate a set of rows, or the same draw of a large one, and return what is sent and computed."""
    steps: list[Step] = []
    process.watch = steps.append
    wanted = Samples(set=over.set, share=min(1.0, LOOKED_AT / len(process.active.sets.rows[over.set])))
    process.run(look("evaluation", 1, over=wanted, batch_size=EVALUATION_BATCH))
    process.watch = None
    embeddings = {name: torch.cat([one.embeddings[name] for one in steps]) for name in process.passive}
    return Seen(torch.cat([one.rows for one in steps]), embeddings, torch.cat([one.logits for one in steps]))


def known_anyway(process: OneProcess, rows: Tensor) -> Tensor:
    """Return what the active party has without any embedding: labels, and its own columns if it has any."""
    beside = functional.one_hot(process.labels[rows], process.active.classes).float()
    own = process.active.inputs
    return torch.cat([beside, own.batch(rows).flatten(1)], dim=1) if own else beside
