"""GA: climb the loss of the rows to forget.

Θ ← Θ + η/R·clip(∇L(b))                              for each of the R batches b of D_u, K times over D_u
"""

import math
from typing import Literal

from pydantic import PositiveFloat

from coordinator.methods import Method, MethodResult, UnlearningTask
from coordinator.methods.registry import Unlearn, method
from coordinator.phases import FORGET, learn
from coordinator.train import Train
from fedora_vfl.sampling.seeds import derive
from fedora_vfl.settings.bounds import BatchSize, Rounds
from protos.fedora.v1.phase_pb2 import Ascent, Update

NAME = "ascent"


class GradientAscent(Unlearn):
    """GA's settings. The paper names no values; clipping is ours."""

    method: Literal["ga"] = "ga"
    rounds: Rounds = 5  # K
    lr: PositiveFloat = 0.03  # η, of a whole round: how many batches D_u makes does not matter then
    clip: PositiveFloat = 1.0  # largest norm of a party's gradient
    batch_size: BatchSize | None = None  # the training's

    def most_rounds(self, train: Train) -> int:
        """Return K."""
        return self.rounds


@method("ga", GradientAscent)
def gradient_ascent(task: UnlearningTask, settings: GradientAscent) -> Method[MethodResult]:
    """Ascend for K rounds."""
    batch_size = settings.batch_size or task.train.batch_size
    rate = settings.lr / math.ceil(task.forget / batch_size)
    for k in range(1, settings.rounds + 1):
        yield learn(
            NAME,
            k,
            over=FORGET,
            update=Update(ascent=Ascent(lr=rate, clip=settings.clip)),
            batch_size=batch_size,
            seed=derive(task.seed, NAME, k),
        )
    return MethodResult(settings.rounds, f"all {settings.rounds} rounds were run")
