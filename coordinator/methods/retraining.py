"""Retrain: fresh parameters, trained on what remains. The reference that every other method is held against."""

from coordinator.job import Train
from coordinator.methods import Method
from coordinator.methods.training import training
from coordinator.phases import REMAINING

NAME = "retrain"


def retraining(settings: Train, *, seed: int) -> Method[None]:
    """Train on the remaining rows just as the original model was trained on all; parameters are fresh beforehand."""
    anew = settings.model_copy(update={"epochs": settings.epochs_from_scratch})
    return training(anew, seed=seed, name=NAME, over=REMAINING)
