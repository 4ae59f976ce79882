"""What settings can name, one registry for each kind of thing, and files of a user's own that add to them."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
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
                raise SettingsError(f"the {self._noun} {name!r} is known already; choose another name")
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

    @property
    def entries(self) -> list[T]:
        """All that is known, in the order of names."""
        return [self._entries[name] for name in self.names]


def load_plugin(path: Path) -> None:
    """Run a Python file that registers something. Its owner must be trusted as the software itself is."""
    try:
        path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None
    before = len(Registry.everything)
    spec = importlib.util.spec_from_file_location(f"plugin_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise SettingsError(f"{path}: is not a Python file; a plug-in's name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where pydantic and dataclasses look for the names in annotations
    try:
        spec.loader.exec_module(module)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None
    except Exception as error:
        raise SettingsError(f"{path}: fails when it is loaded: {type(error).__name__}: {error}") from None
    if len(Registry.everything) == before:
        raise SettingsError(f"{path}: registers nothing; docs/own-method.md and the like show how to")
