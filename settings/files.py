"""Settings files: YAML in, checked and frozen objects out, errors that name file, field and allowed values."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from wire.errors import SettingsError


class Settings(BaseModel):
    """A group of settings: frozen, and closed against misspelt names."""

    model_config = ConfigDict(extra="forbid", frozen=True)


S = TypeVar("S", bound=BaseModel)


def load(path: Path, kind: type[S]) -> S:
    """Read a YAML file as `kind`; paths inside it that start with a dot or a name stay as they are written."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: is not UTF-8 text") from None
    return parse(text, kind, origin=str(path))


def parse(text: str, kind: type[S], *, origin: str) -> S:
    """Check YAML text as `kind`; `origin` is the file name that errors speak of."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}" if mark else ""
        raise SettingsError(f"{origin}: is not valid YAML{place}: {getattr(error, 'problem', error)}") from None
    return check({} if content is None else content, kind, origin=origin)


def check(content: object, kind: type[S], *, origin: str) -> S:
    """Check a mapping as `kind`; every mistake is named in one sentence each."""
    if not isinstance(content, Mapping):
        raise SettingsError(f"{origin}: should hold `name: value` settings, not {type(content).__name__}")
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise SettingsError("\n".join(sentence(detail, kind, origin) for detail in error.errors())) from None


def sentence(detail: ErrorDetails, kind: type[BaseModel], origin: str) -> str:
    """Say in one sentence what is wrong with one field."""
    place, group = _find(kind, detail["loc"])
    where = f"{origin}: {'.'.join(place)}" if place else origin
    if detail["type"] == "extra_forbidden":
        allowed = sorted(field.alias or name for name, field in group.model_fields.items())
        close = difflib.get_close_matches(place[-1], allowed, n=1)
        hint = f"did you mean `{close[0]}`? " if close else ""
        return f"{where}: unknown setting; {hint}allowed here: {', '.join(allowed) or 'nothing'}"
    if detail["type"] == "missing":
        return f"{where}: is missing"
    if detail["type"] == "value_error":
        return f"{where}: {detail['ctx']['error']}"
    said = detail["msg"].replace("Input should", "should")
    given = detail["input"]
    return f"{where}: {said}" + (f" (got {given!r})" if isinstance(given, str | int | float | None) else "")


def _find(kind: type[BaseModel], location: tuple[int | str, ...]) -> tuple[list[str], type[BaseModel]]:
    """Return a field's place as written in the file, and the group of settings it stands in.

    pydantic puts the chosen member of a union into the location, by its tag; a file does not have it there.
    """
    place: list[str] = []
    group, members = kind, [kind]
    for part in location:
        tagged = [member for member in members if part in _tags(member)]
        if tagged and len(members) > 1:
            group = tagged[0]
            members = [group]
            continue
        place.append(str(part))
        fields = {field.alias or name: field for name, field in group.model_fields.items()}
        if part in fields:
            members = _models_in(fields[str(part)].annotation)
            if part != location[-1] and members:
                group = members[0]
    return place, group


def _tags(kind: type[BaseModel]) -> set[object]:
    """Return the values that tell one member of a union from the others."""
    return {value for field in kind.model_fields.values() for value in getattr(field.annotation, "__args__", ())}


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """Find the settings classes inside an annotation such as `Train | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in getattr(annotation, "__args__", ()) for found in _models_in(part)]
