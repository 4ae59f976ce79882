"""Methods by name: what a job may say of each, and the generator of phases that it is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, SerializeAsAny

from coordinator.methods import Method, MethodResult, UnlearningTask
from coordinator.train import Train
from fedora_vfl.plugins import Registry
from fedora_vfl.settings.bounds import Rounds
from fedora_vfl.settings.files import Chosen, Settings
from fedora_vfl.settings.model import ModelName


class Unlearn(Settings):
    """What every method can be told. A method adds its own settings in a class of its own."""

    method: str
    rounds: Rounds | None = None  # K
    save: ModelName = "unlearned"
    overwrite: bool = False  # whether `save` may replace another model of that name

    @property
    def repeats(self) -> int:
        """How many models a comparison makes with this method, each from a seed of its own."""
        return int(getattr(self, "seeds", 1))

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
METHODS: Registry[RegisteredMethod] = Registry("method")


def method(name: str, settings: type[Unlearn], *, fresh: bool = False) -> Callable[[Run], Run]:
    """Make a generator of phases known to jobs by this name."""

    def enter(run: Run) -> Run:
        METHODS.register(name)(RegisteredMethod(settings, run, fresh))
        return run

    return enter


def settings_class(content: Any) -> type[Unlearn]:
    """Return the class of settings that a section wants by its `method`."""
    name = content.get("method", DEFAULT) if isinstance(content, dict) else DEFAULT
    return METHODS.get(name).settings if name in METHODS else Unlearn


def _read(content: Any) -> Any:
    """Turn a section, or the name of a method alone, into that method's settings."""
    if isinstance(content, Unlearn):
        return content
    if isinstance(content, str):
        content = {"method": content}
    if not isinstance(content, dict):
        raise ValueError("should be a method's name or its settings")
    name = content.get("method", DEFAULT)
    return METHODS.get(name).settings.model_validate({**content, "method": name})


MethodSettings = Annotated[SerializeAsAny[Unlearn], BeforeValidator(_read), Chosen(settings_class)]
