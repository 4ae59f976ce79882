"""The one list of bottom models: each is a class of checked settings that knows how to build its network.

The command line checks settings too, and need not wait for torch: modules with settings import it where they build.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from fedora_vfl.errors import SettingsError
from fedora_vfl.plugins import Registry
from fedora_vfl.settings.files import Settings, check

if TYPE_CHECKING:
    from torch import nn


class Bottom(Settings):
    """The settings of a bottom model, which are the fields of a subclass, and its builder."""

    @abstractmethod
    def build(self, shape: tuple[int, ...], embedding: int) -> "nn.Module":
        """Return a network from rows of `shape` to embeddings; raise SettingsError where the shape does not fit."""


BOTTOMS: Registry[type[Bottom]] = Registry("bottom model")


def bottom(name: str, settings: dict[str, Any], *, origin: str) -> Bottom:
    """Return the checked settings of a bottom model by name."""
    try:
        kind = BOTTOMS.get(name)
    except ValueError as error:
        raise SettingsError(f"{origin}: bottom: {error}") from None
    return check(settings, kind, origin=f"{origin} ({name})")
