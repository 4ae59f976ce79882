"""Retrain: fresh parameters, trained on what remains. The reference that every other method is held against."""

from typing import Literal

from coordinator.methods import Case, Ending, Method
from coordinator.methods.registry import Unlearn, method
from coordinator.methods.training import training
from coordinator.phases import REMAINING
from coordinator.train import Train

NAME = "retrain"


class Retrain(Unlearn):
    """Retrain's settings: it trains as the original was trained."""

    method: Literal["retrain"] = "retrain"

    def most_rounds(self, train: Train) -> int:
        """Return the number of epochs."""
        return self.rounds or train.epochs_from_scratch


@method(NAME, Retrain, fresh=True)
def retraining(case: Case, settings: Retrain) -> Method[Ending]:
    """Train on the remaining rows just as the original model was trained on all; parameters are fresh beforehand."""
    epochs = settings.most_rounds(case.train)
    anew = case.train.model_copy(update={"epochs": epochs})
    yield from training(anew, seed=case.seed, name=NAME, over=REMAINING)
    return Ending(epochs, "all epochs were trained")
