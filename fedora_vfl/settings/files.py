"""Settings files: YAML in, checked and frozen objects out, errors that name file, field and allowed values."""

import difflib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from fedora_vfl.errors import SettingsError

try:
    from yaml import CSafeLoader as SafeLoader  # ten times as fast
except ImportError:  # PyYAML was built without libyaml
    from yaml import SafeLoader  # type: ignore[assignment]

MOST_LETTERS = 64 * 1024 * 1024  # a million ids of sixty letters
MOST_ENTRIES = 1_000_000  # names, values and groups, aliases written out
MOST_NAMED = 100_000  # groups, and names and values of groups: each takes a kilobyte to read, an id in a list far less
DEEPEST = 50  # groups within groups; settings need a few
MOST_SENTENCES = 20  # one for each field that is wrong


class Settings(BaseModel):
    """A group of settings: frozen, and closed against misspelt names."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True)
class Chosen:
    """Marks a group of settings whose class depends on what is written in it."""

    choose: Callable[[Any], type[BaseModel]]


# What other software calls some settings, and no comparison of letters would find.
ALSO_CALLED = {"learning_rate": "lr", "learning-rate": "lr", "load": "from", "name": "source", "type": "encoding"}


def load(path: Path, kind: type[S]) -> S:
    """Read a YAML file as `kind`; paths inside it that start with a dot or a name stay as they are written."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: is not UTF-8 text") from None
    except ValueError as error:
        raise SettingsError(f"{str(path)!r}: is no path: {error}") from None
    return parse(text, kind, origin=str(path))


def parse(text: str, kind: type[S], *, origin: str) -> S:
    """Check YAML text as `kind`; `origin` is the file name that errors speak of."""
    if len(text) > MOST_LETTERS:
        raise SettingsError(f"{origin}: has {len(text)} letters; allowed: up to {MOST_LETTERS}")
    try:
        _check_extent(text)
        content = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        last = max(1, len(text.splitlines()))  # libyaml finds that a file ends too early on the line behind it
        place = f" at line {min(error.problem_mark.line + 1, last)}" if error.problem_mark else ""
        raise SettingsError(f"{origin}: is not valid YAML{place}: {error.problem}") from None
    except RecursionError:
        raise SettingsError(f"{origin}: is nested too deeply") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as error:
        # PyYAML lets through what its own converters raise, for a date such as 2001-99-99.
        said = " ".join(str(error).split())
        raise SettingsError(f"{origin}: holds a value that YAML cannot read: {said}") from None
    return check({} if content is None else content, kind, origin=origin)


def _check_extent(text: str) -> None:
    """Refuse what is nested so deeply, or grows so large once aliases are written out, that reading it would hurt."""
    open_groups: list[tuple[str | None, int]] = [(None, 0)]  # their anchors, and entries so far
    kinds: list[type[yaml.Event]] = [yaml.StreamStartEvent]  # of the same groups
    sizes: dict[str, int] = {}  # by anchor
    named = 0
    for event in yaml.parse(text, Loader=SafeLoader):
        size = 1
        named += isinstance(event, yaml.CollectionStartEvent) or kinds[-1] is yaml.MappingStartEvent
        if named > MOST_NAMED:
            raise _at(event, f"more than {MOST_NAMED} names, values of names and groups")
        if isinstance(event, yaml.CollectionStartEvent):
            open_groups.append((event.anchor, 1))
            kinds.append(type(event))
            size = 0  # counted when it ends
        elif isinstance(event, yaml.CollectionEndEvent):
            kinds.pop()
            anchor, size = open_groups.pop()
            if anchor:
                sizes[anchor] = size
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise _at(event, f"the alias `{event.anchor}` stands for nothing that came before it")
            size = sizes[event.anchor]
        elif isinstance(event, yaml.ScalarEvent) and event.anchor:
            sizes[event.anchor] = 1
        anchor, so_far = open_groups[-1]
        open_groups[-1] = anchor, so_far + size
        if so_far + size > MOST_ENTRIES:
            raise _at(event, f"more than {MOST_ENTRIES} entries")
        if len(open_groups) > DEEPEST:
            raise _at(event, f"groups in groups, more than {DEEPEST} deep")


def _at(event: yaml.Event, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)  # type: ignore[arg-type] # or libyaml's


class _Loader(SafeLoader):
    """YAML's safe loader, which also refuses a name that is given twice instead of taking the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return a mapping whose names differ."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"`{key.value}` is given twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def check(content: object, kind: type[S], *, origin: str) -> S:
    """Check a mapping as `kind`; every mistake is named in one sentence each."""
    if not isinstance(content, Mapping):
        raise SettingsError(f"{origin}: should hold `name: value` settings, not {type(content).__name__}")
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        found = error.errors()
        sentences = [sentence(detail, kind, origin, content) for detail in found[:MOST_SENTENCES]]
        if len(found) > MOST_SENTENCES:
            sentences.append(f"{origin}: {len(found) - MOST_SENTENCES} more settings are wrong")
        raise SettingsError("\n".join(sentences)) from None


def sentence(detail: ErrorDetails, kind: type[BaseModel], origin: str, content: object = None) -> str:
    """Say in one sentence what is wrong with one field of some content.

    Args:
        detail: What pydantic found.
        kind: The settings class that the content was checked as.
        origin: The file name that the sentence begins with.
        content: All that was checked; it tells the class of a group that depends on what is written in it.
    """
    place, group = _find(kind, detail["loc"], content)
    where = f"{origin}: {'.'.join(place)}" if place else origin
    if detail["type"] == "extra_forbidden":
        allowed = sorted(field.alias or name for name, field in group.model_fields.items())
        close = [ALSO_CALLED[place[-1]]] if ALSO_CALLED.get(place[-1]) in allowed else []
        close = close or difflib.get_close_matches(place[-1], allowed, n=1)
        hint = f"did you mean `{close[0]}`? " if close else ""
        return f"{where}: unknown setting; {hint}allowed here: {', '.join(allowed) or 'nothing'}"
    if detail["type"] == "missing":
        return f"{where}: is missing"
    if detail["type"] == "value_error":
        return f"{where}: {detail['ctx']['error']}"
    said = detail["msg"].replace("Input should", "should")
    given = detail["input"]
    return f"{where}: {said}" + (f" (got {_shown(given)})" if isinstance(given, str | int | float | None) else "")


def _shown(value: object) -> str:
    """Show a value in a sentence, if it is not too long for one."""
    try:
        shown = repr(value)
    except ValueError:  # Python does not write out numbers of thousands of digits
        return "a very long number"
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _find(kind: type[BaseModel], location: tuple[int | str, ...], content: object) -> tuple[list[str], type[BaseModel]]:
    """Return a field's place as written in the file, and the group of settings it stands in."""
    place: list[str] = []
    group = kind
    annotation: Any = None
    for depth, part in enumerate(location, start=1):
        place.append(str(part))
        content = _inside(content, part)
        fields = {field.alias or name: field for name, field in group.model_fields.items()}
        if part in fields:
            field = fields[str(part)]
            annotation = Annotated[field.annotation, *field.metadata, None]
        if part in fields or isinstance(part, int):
            members = _models_in(annotation, content)
            if depth < len(location) and members:
                group = members[0]
    return place, group


def _inside(content: object, part: int | str) -> object:
    """Return what stands at one place of a file's content; nothing where there is no such place."""
    if isinstance(content, Mapping):
        return content.get(part)
    inside = isinstance(content, list) and isinstance(part, int) and part < len(content)
    return content[part] if inside else None  # type: ignore[index]


def _models_in(annotation: Any, content: object) -> list[type[BaseModel]]:
    """Find the settings classes inside an annotation such as `Train | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) is Annotated:
        inner, *marks = get_args(annotation)
        chosen = [mark.choose(content) for mark in marks if isinstance(mark, Chosen)]
        return chosen or _models_in(inner, content)
    return [found for part in get_args(annotation) for found in _models_in(part, content)]
