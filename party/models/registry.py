"""The one list of bottom models: each is a class of checked settings that knows how to build its network."""

from abc import abstractmethod
from typing import Any, ClassVar

from torch import nn

from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.files import Settings, check


class Bottom(Settings):
    """The settings of a bottom model, and its builder."""

    name: ClassVar[str]

    @abstractmethod
    def build(self, shape: tuple[int, ...], embedding: int) -> nn.Module:
        """Return a network from rows of `shape` to embeddings; raise SettingsError where the shape does not fit."""


BOTTOMS: dict[str, type[Bottom]] = {}


def register(kind: type[Bottom]) -> type[Bottom]:
    """Enter a bottom model into the registry; a class decorator."""
    BOTTOMS[kind.name] = kind
    return kind


def bottom(name: str, settings: dict[str, Any], *, origin: str) -> Bottom:
    """Return the checked settings of a bottom model by name."""
    if name not in BOTTOMS:
        raise SettingsError(f"{origin}: bottom: there is no bottom model {name!r}; choose from {', '.join(BOTTOMS)}")
    return check(settings, BOTTOMS[name], origin=f"{origin} ({name})")
