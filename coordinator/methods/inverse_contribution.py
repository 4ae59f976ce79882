"""ICO: subtract what D_u has contributed to the parameters, then learn on without bringing it back.

Θ ← Θ + s·g,  g = ∇L(D_u)                            s by doubling, until D_u looks like rows never seen
Θ ← step(Θ, ∇L − max(0, ⟨∇L, ĝ⟩)·ĝ)                  K rounds over a share ν of D_r
"""

import math
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat

from coordinator.methods import Method, MethodResult, UnlearningTask
from coordinator.methods.influence import influence, shift
from coordinator.methods.registry import Unlearn, method
from coordinator.methods.training import update
from coordinator.phases import FORGET, REMAINING, learn, look, share
from coordinator.train import Train
from fedora_vfl.sampling.seeds import derive
from fedora_vfl.settings.bounds import BatchSize, Rounds
from protos.fedora.v1.phase_pb2 import Correction, Update

SUBTRACTION, CORRECTION = "subtraction", "correction"


class InverseContribution(Unlearn):
    """ICO's settings. Its source gives no more than the outline: the search for s and the projection are ours."""

    method: Literal["ico"] = "ico"
    rounds: Rounds = 5  # K
    part: Annotated[float, Field(gt=0, le=1)] = 0.5  # ν, of D_r in a round
    first: PositiveFloat = 0.01  # ‖s·g‖ to begin with, as a share of ‖Θ‖
    most: PositiveFloat = 0.1  # ‖s·g‖ in the end, at most
    lr: PositiveFloat | None = None  # of the correction; the training's
    batch_size: BatchSize | None = None  # the training's
    micro_batch: BatchSize = 1024  # rows of D_u in one message

    def most_rounds(self, train: Train) -> int:
        """Return K."""
        return self.rounds


@method("ico", InverseContribution)
def inverse_contribution(task: UnlearningTask, settings: InverseContribution) -> Method[MethodResult]:
    """Subtract, then correct for K rounds."""
    yield from _subtract(task, settings)
    train = task.train
    for k in range(1, settings.rounds + 1):
        yield learn(
            CORRECTION,
            k,
            over=share(REMAINING, settings.part),
            update=_correction(train, settings.lr or train.rate, fresh=k == 1),
            batch_size=settings.batch_size or train.batch_size,
            seed=derive(task.seed, CORRECTION, k),
        )
    return MethodResult(settings.rounds, f"all {settings.rounds} rounds of correction were run")


def _subtract(task: UnlearningTask, settings: InverseContribution) -> Method[None]:
    """Move along g, twice as far each time, until the loss on D_u is that of rows never seen, or far enough."""
    found = yield from influence(SUBTRACTION, batch_size=settings.micro_batch)
    target = _target(task)
    if not found.gradient or found.loss >= target:
        return
    unit = found.parameters / found.gradient
    s, largest, at = settings.first * unit, settings.most * unit, 0.0
    for attempt in range(2, 100):
        s = min(s, largest)
        yield shift(SUBTRACTION, attempt, s - at)
        at = s
        tried = yield look(SUBTRACTION, attempt, over=FORGET, batch_size=settings.micro_batch)
        if tried.loss >= target or s >= largest:
            return
        s *= 2


def _target(task: UnlearningTask) -> float:
    """Return the loss that rows have which were never seen: a guess's, where no row of their classes remains."""
    guess = math.log(task.classes)
    return guess if task.whole_classes or task.held_out_loss is None else task.held_out_loss


def _correction(train: Train, lr: float, *, fresh: bool) -> Update:
    """Return the training's own step, with the way back closed."""
    step = update(train, lr, fresh=fresh)
    correction = Correction(sgd=step.sgd) if step.HasField("sgd") else Correction(adam=step.adam)
    return Update(correction=correction, fresh=fresh)
