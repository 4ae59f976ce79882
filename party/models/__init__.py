"""Models by name: importing a module here enters its bottom model into the registry."""

from party.models import cnn, mlp, vision
from party.models.registry import BOTTOMS, Bottom, bottom

__all__ = ["BOTTOMS", "Bottom", "bottom", "cnn", "mlp", "vision"]
