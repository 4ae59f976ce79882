"""All methods that come with the software: to import this is to make them known."""

from coordinator.methods import (
    confidence_matrix,
    fedora,
    gradient_ascent,
    inverse_contribution,
    nothing,
    retraining,
)
from coordinator.methods.fedora_settings import Fedora
from coordinator.methods.registry import METHODS, MethodSettings

__all__ = [
    "METHODS",
    "Fedora",
    "MethodSettings",
    "confidence_matrix",
    "fedora",
    "gradient_ascent",
    "inverse_contribution",
    "nothing",
    "retraining",
]
