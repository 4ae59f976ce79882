"""Methods by name: what a job may say of each, and the generator of phases that it is."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, PositiveInt, SerializeAsAny

from coordinator.methods import Method, MethodResult, UnlearningTask
from coordinator.train import Train
from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.files import Chosen, Settings
from fedora_vfl.settings.model import ModelName


class Unlearn(Settings):
    """What every method can be told. A method adds its own settings in a class of its own."""

    method: str
    rounds: PositiveInt | None = None  # K
    save: ModelName = "unlearned"

    def most_rounds(self, train: Train) -> int:
        """Return the number of rounds that progress is measured against."""
        return self.rounds or 1


@dataclass(frozen=True)
class RegisteredMethod:
    """One method."""

    settings: type[Unlearn]
    run: Callable[[UnlearningTask, Any], Method[MethodResult]]
    fresh: bool = False  # whether it begins with fresh parameters, not with the original model's


Run = Callable[[UnlearningTask, Any], Method[MethodResult]]

DEFAULT = "fedora"
METHODS: dict[str, RegisteredMethod] = {}


def method(name: str, settings: type[Unlearn], *, fresh: bool = False) -> Callable[[Run], Run]:
    """Make a generator of phases known to jobs by this name."""

    def enter(run: Run) -> Run:
        METHODS[name] = RegisteredMethod(settings, run, fresh)
        return run

    return enter


def load_method(path: Path) -> None:
    """Make the methods of a Python file known. The file is run: its owner must be trusted as the software itself is."""
    before = dict(METHODS)
    try:
        spec = importlib.util.spec_from_file_location(f"method_{path.stem}", path)
        assert spec is not None and spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    except (OSError, AssertionError):
        raise SettingsError(f"{path}: cannot be read as a Python file with a method") from None
    except Exception as error:
        raise SettingsError(f"{path}: fails when it is loaded: {type(error).__name__}: {error}") from None
    if before == METHODS:
        raise SettingsError(f"{path}: makes no method known; it should use @method, see docs/own-method.md")
    replaced = [name for name, entry in before.items() if METHODS[name] is not entry]
    if replaced:
        METHODS.update(before)
        raise SettingsError(f"{path}: names its method {replaced[0]!r}, which there is already")


def settings_class(content: Any) -> type[Unlearn]:
    """Return the class of settings that a section wants by its `method`."""
    name = content.get("method", DEFAULT) if isinstance(content, dict) else DEFAULT
    return METHODS[name].settings if isinstance(name, str) and name in METHODS else Unlearn


def _read(content: Any) -> Any:
    """Turn a section, or the name of a method alone, into that method's settings."""
    if isinstance(content, Unlearn):
        return content
    if isinstance(content, str):
        content = {"method": content}
    if not isinstance(content, dict):
        raise ValueError("should be a method's name or its settings")
    name = content.get("method", DEFAULT)
    if name not in METHODS:
        raise ValueError(f"there is no method {name!r}; allowed: {', '.join(METHODS)}")
    return METHODS[name].settings.model_validate({**content, "method": name})


MethodSettings = Annotated[SerializeAsAny[Unlearn], BeforeValidator(_read), Chosen(settings_class)]
