"""CVFU: the active party keeps a matrix M of logits, a row for each training row, and learns from what it remembers.

M ← z(D_r)                                           rows of D_u are not in it
Θ ← Θ + η_u·clip(∇L(D_u))                            the first update subtracts D_u's gradient, once
z̃ = M[b] + z − stopgrad(z),  Θ ← Θ − η/R·∇L(z̃)      for each of the R batches b of D_r, K times; M ← z after each

With everyone online this is close to learning on from D_r with logits that are one round old.
"""

import math
from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, field_validator

from coordinator.methods import Method, MethodResult, UnlearningTask
from coordinator.methods.influence import influence, shift
from coordinator.methods.registry import Unlearn, method
from coordinator.phases import REMAINING, learn, look
from coordinator.train import Train
from fedora_vfl.errors import SettingsError
from fedora_vfl.sampling.seeds import derive
from fedora_vfl.settings.bounds import BatchSize, Rounds
from protos.fedora.v1.phase_pb2 import Loss, Observe, Phase, Sgd, StaleCrossEntropy, Update

CONFIDENCE, REMOVAL, REFRESH = "confidence", "removal", "refresh"
STALE = Loss(stale_cross_entropy=StaleCrossEntropy())


class ConfidenceMatrix(Unlearn):
    """CVFU's settings. How the clipped gradient of D_u is weighed is ours."""

    method: Literal["cvfu"] = "cvfu"
    rounds: Rounds = 5  # K
    # η, of a whole round: confidences stand still that long, so that its steps add up and must be small together.
    lr: PositiveFloat = 0.01
    subtract: NonNegativeFloat = 0.05  # η_u
    clip: PositiveFloat = 1.0  # largest norm of D_u's gradient, over all parties
    batch_size: BatchSize | None = None  # the training's
    micro_batch: BatchSize = 1024  # rows in one message while parameters stand still
    offline: list[str] = Field(default_factory=list)  # passive parties that take no part in the rounds

    @field_validator("offline", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    def most_rounds(self, train: Train) -> int:
        """Return K."""
        return self.rounds


@method("cvfu", ConfidenceMatrix)
def confidence_matrix(task: UnlearningTask, settings: ConfidenceMatrix) -> Method[MethodResult]:
    """Check who is to be offline, then go."""
    for name in settings.offline:
        if name not in task.passive:
            known = ", ".join(task.passive)
            raise SettingsError(f"unlearn.offline: {name!r} is not a passive party of this federation: {known}")
    return _rounds(task, settings)


def _rounds(task: UnlearningTask, settings: ConfidenceMatrix) -> Method[MethodResult]:
    """Fill the matrix, subtract once, and learn from stale confidences for K rounds."""
    batch_size = settings.batch_size or task.train.batch_size
    rate = settings.lr / math.ceil(task.remaining / batch_size)
    keep = Update(observe=Observe(confidence=True, cache=settings.offline))
    yield look(CONFIDENCE, 1, over=REMAINING, batch_size=settings.micro_batch, update=keep)
    if settings.subtract:
        found = yield from influence(REMOVAL, batch_size=settings.micro_batch)
        shorten = min(1.0, settings.clip / found.gradient) if found.gradient else 0.0
        yield _without(settings.offline, shift(REMOVAL, 2, settings.subtract * shorten))
    for k in range(1, settings.rounds + 1):
        phase = learn(
            REFRESH,
            k,
            over=REMAINING,
            update=Update(sgd=Sgd(lr=rate), fresh=k == 1),
            batch_size=batch_size,
            seed=derive(task.seed, REFRESH, k),
            loss=STALE,
        )
        yield _without(settings.offline, phase)
    return MethodResult(settings.rounds, f"all {settings.rounds} rounds were run")


def _without(parties: list[str], phase: Phase) -> Phase:
    """Return a phase in which some passive parties take no part."""
    phase.offline.extend(parties)
    return phase
