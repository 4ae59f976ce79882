"""Retrain: fresh parameters, trained on what remains. The reference that every other method is held against."""

from typing import Annotated, Literal

from pydantic import Field

from coordinator.methods import Method, MethodResult, UnlearningTask
from coordinator.methods.registry import Unlearn, method
from coordinator.methods.training import training
from coordinator.phases import REMAINING
from coordinator.train import Train

NAME = "retrain"


class Retrain(Unlearn):
    """Retrain's settings: it trains as the original was trained."""

    method: Literal["retrain"] = "retrain"
    seeds: Annotated[int, Field(ge=1, le=16)] = 1  # in `compare`: how many are trained, each from a seed of its own

    def most_rounds(self, train: Train) -> int:
        """Return the number of epochs."""
        return self.rounds or train.epochs_from_scratch


@method(NAME, Retrain, fresh=True)
def retraining(task: UnlearningTask, settings: Retrain) -> Method[MethodResult]:
    """Train on the remaining rows just as the original model was trained on all; parameters are fresh beforehand."""
    epochs = settings.most_rounds(task.train)
    anew = task.train.model_copy(update={"epochs": epochs})
    yield from training(anew, seed=task.seed, name=NAME, over=REMAINING)
    return MethodResult(epochs, "all epochs were trained")
