"""Options of the command line made from settings: name, type, default and help are those of the fields."""

import functools
import inspect
import operator
import types
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.core import TyperCommand


@dataclass(frozen=True)
class SettingOption:
    """One field of some settings as an option."""

    place: tuple[str, ...]  # of the setting, such as noise, sigma
    flag: str  # what it is called, without the dashes
    field: FieldInfo
    panel: str | None  # the part of the help that it stands in
    required: bool

    @property
    def name(self) -> str:
        """What the option's value is called when a command is run; a flag may be a word of Python's, such as class."""
        return f"set_{self.flag.replace('-', '_')}"

    def parameter(self) -> inspect.Parameter:
        """Return the option as a parameter of a command."""
        kind = _type_of(self.field.annotation)
        option = typer.Option(
            self._flags(kind),
            help=self._help(),
            metavar=_metavar(self.field.annotation),
            rich_help_panel=self.panel,
            show_default=False,
        )
        return inspect.Parameter(
            self.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if self.required else None,
            annotation=Annotated[kind if self.required else kind | None, option],
        )

    def _flags(self, kind: Any) -> str:
        # What is off unless told needs no option to turn it off.
        both = kind is bool and self.field.default is not False
        return f"--{self.flag}/--no-{self.flag}" if both else f"--{self.flag}"

    def _help(self) -> str:
        default = self.field.get_default(call_default_factory=True, validated_data={})
        if self.field.is_required() or default in (None, False, []):
            return str(self.field.description)
        return f"{self.field.description}  [default: {'yes' if default is True else default}]"


def options_of(
    kind: type[BaseModel],
    names: Iterable[str] | None = None,
    *,
    panel: str | None = None,
    optional: bool = False,
    taken: Collection[str] = (),
) -> Iterator[SettingOption]:
    """Make options of those fields of a settings class that have a description.

    A field's title, if it has one, gives the option its name. A group of settings inside becomes an option for each of
    its fields.

    Args:
        kind: The settings class.
        names: The fields that are wanted; all unless told.
        panel: The part of the help that the options stand in.
        optional: Whether all of the settings may be left out together.
        taken: Options that there are already; a field of such a name becomes `--data-NAME`.
    """
    for name in kind.model_fields if names is None else names:
        field = kind.model_fields[name]
        group = _inner(field.annotation)
        if isinstance(group, type) and issubclass(group, BaseModel):
            for one in options_of(group, panel=panel, optional=optional or not field.is_required()):
                flag = one.flag if one.field.title else f"{name}-{one.flag}"
                yield replace(one, place=(name, *one.place), flag=flag)
        elif field.description:
            flag = (field.title or name).replace(" ", "-").replace("_", "-")
            flag = f"data-{flag}" if flag in taken else flag
            yield SettingOption((name,), flag, field, panel, required=field.is_required() and not optional)


def settings_from(options: Iterable[SettingOption], given: dict[str, Any]) -> dict[str, Any]:
    """Put the values of options where a settings file has them; those not given are left to their defaults."""
    settings: dict[str, Any] = {}
    for option in options:
        value = given[option.name]
        if value is None or value == []:
            continue
        group = settings
        for part in option.place[:-1]:
            group = group.setdefault(part, {})
        group[option.place[-1]] = _number_or_text(value) if _is_number_or_text(option.field.annotation) else value
    return settings


class PanelCommand(TyperCommand):
    """A command whose help shows options in the parts that they name."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, part by part, in the order of their first option."""
        parts: dict[str, list[tuple[str, str]]] = {}
        for one in self.get_params(ctx):
            record = one.get_help_record(ctx)
            if record is not None:
                parts.setdefault(getattr(one, "rich_help_panel", None) or "Options", []).append(record)
        for title, records in parts.items():
            with formatter.section(title):
                formatter.write_dl(records)


def _inner(annotation: Any) -> Any:
    """Return an annotation without the `None` that stands for a setting left out."""
    if get_origin(annotation) in (Union, types.UnionType):
        return functools.reduce(operator.or_, (part for part in get_args(annotation) if part is not type(None)))
    return annotation


def _type_of(annotation: Any) -> Any:
    """Return what typer should make of an option's text; the settings class checks it further."""
    inner = _inner(annotation)
    if get_origin(inner) is Literal:
        return type(get_args(inner)[0])
    if get_origin(inner) is list:
        return list[str]
    return str if _is_number_or_text(annotation) else inner


def _metavar(annotation: Any) -> str | None:
    """Return how a value is shown where typer would not know; None where it does."""
    inner = _inner(annotation)
    if get_origin(inner) is Literal:
        return f"<{'|'.join(map(str, get_args(inner)))}>"
    return "<str>" if get_origin(inner) is list else None


def _is_number_or_text(annotation: Any) -> bool:
    return {float, str} <= set(get_args(_inner(annotation)))


def _number_or_text(value: str) -> float | str:
    """Take a value as a settings file would."""
    try:
        return float(value)
    except ValueError:
        return value
