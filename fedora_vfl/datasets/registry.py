"""Data sources by name: what a job may say of each, and how it is loaded."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, SerializeAsAny

from fedora_vfl.datasets.settings import CutSource, ReadySource, Source
from fedora_vfl.plugins import Registry
from fedora_vfl.settings.files import Chosen, Settings

SOURCES: Registry[type[CutSource] | type[ReadySource]] = Registry("data source")


def _name(content: Any) -> object:
    return content.get("source") if isinstance(content, dict) else None


def _settings_class(content: Any) -> type[BaseModel]:
    """Return the class of settings that a section wants by its `source`."""
    return SOURCES.get(_name(content)) if _name(content) in SOURCES else Settings


def _read(content: Any) -> Any:
    """Turn a section into the settings of the source that it names."""
    if isinstance(content, Source):
        return content
    if _name(content) not in SOURCES:
        raise ValueError(f"`source` should be one of {', '.join(SOURCES.names)}")
    return SOURCES.get(_name(content)).model_validate(content)


DataSource = Annotated[SerializeAsAny[Source], BeforeValidator(_read), Chosen(_settings_class)]
