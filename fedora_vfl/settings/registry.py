"""What settings can name: one registry for each kind of thing, which plug-in files may add to."""

from collections.abc import Callable
from typing import ClassVar, Generic, TypeVar

from fedora_vfl.errors import SettingsError

T = TypeVar("T")


class Registry(Generic[T]):
    """Things of one kind, by name; `noun` is what errors call one of them."""

    everything: ClassVar[list[str]] = []  # what all registries hold together, such as "method ga"

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Make what is decorated known by a name that is still free."""

        def enter(entry: T) -> T:
            if name in self._entries:
                raise SettingsError(f"there is a {self._noun} {name!r} already; choose another name")
            self._entries[name] = entry
            Registry.everything.append(f"{self._noun} {name}")
            return entry

        return enter

    def get(self, name: object) -> T:
        """Return what is known by a name; raise ValueError, with the names that there are, if nothing is."""
        if not isinstance(name, str) or name not in self._entries:
            raise ValueError(f"there is no {self._noun} {name!r}; allowed: {', '.join(self.names)}")
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._entries

    @property
    def names(self) -> list[str]:
        """All names, sorted: the order of imports should not be seen."""
        return sorted(self._entries)
