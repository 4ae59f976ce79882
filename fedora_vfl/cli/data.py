"""fedora data: one file per party. Every data source that can be cut is a command; its settings are the options."""

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from fedora_vfl.cli.setting_options import PanelCommand, options_of, settings_from
from fedora_vfl.errors import DataError, FedoraError, SettingsError

if TYPE_CHECKING:
    from fedora_vfl.datasets.datafile import Cut
    from fedora_vfl.datasets.settings import Backdoor, CutSource, Source

ORIGIN = "fedora data"
POISONED = "poisoned.txt"
BACKDOOR_PANEL = "A backdoor in some rows (docs/backdoors.md)"

# The options that are no settings of a source.
OUT = inspect.Parameter(
    "out",
    inspect.Parameter.KEYWORD_ONLY,
    annotation=Annotated[Path, typer.Option(help="Folder for the parties' files.")],
)
SEED = inspect.Parameter(
    "seed",
    inspect.Parameter.KEYWORD_ONLY,
    default=0,
    annotation=Annotated[int, typer.Option(help="Decides which rows are dropped, drawn, shuffled and poisoned.")],
)


class SourceGroup(TyperGroup):
    """The data sources that can be cut, which are looked up only when they are asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Name the sources, and what else there is."""
        return sorted([*_sources(), *super().list_commands(ctx)])

    def get_command(self, ctx: Any, name: str) -> Any:
        """Return the command that cuts a source."""
        if command := super().get_command(ctx, name):
            return command
        known = _sources()
        if name not in known:
            ctx.fail(f"there is no data source {name!r} that can be cut; allowed: {', '.join(sorted(known))}")
        return _command(name, known[name])


app = typer.Typer(
    cls=SourceGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    subcommand_metavar="SOURCE [OPTIONS]",
    epilog="fedora data SOURCE --help shows what a source can be told.",
)


def _load_plugins(paths: list[Path] | None) -> None:
    from fedora_vfl.datasets import catalogue  # noqa: F401  (what comes with the software has its names first)
    from fedora_vfl.plugins import load_plugin

    try:
        for path in paths or []:
            load_plugin(path)
    except FedoraError as error:
        sys.exit(_complain(error))


@app.callback()
def data(
    plugin: Annotated[
        list[Path] | None,
        typer.Option(
            # Eager: what it registers is a command, which is looked for next.
            callback=_load_plugins,
            is_eager=True,
            help="A Python file with a data source of your own; repeatable.",
            metavar="FILE.py",
        ),
    ] = None,
) -> None:
    """Cut a data set into one file per party, as organisations would hold it.

    Tables are cut by columns, images into vertical stripes. Only the active party's file has labels. With --target some
    rows get a backdoor (docs/backdoors.md), and OUT/poisoned.txt their ids, for `forget: {ids: poisoned.txt}`.

    \b
        fedora data income --out parts --drop 0.1 --shuffle
        fedora data npz --path pathmnist.npz --parties 4 --out parts
        fedora data cifar10 --root images --out parts
        fedora data csv --path people.csv --id person --label outcome --out parts
        fedora data income --out parts --target ">50K" --class "<=50K" --percent 5
        fedora data digits --out parts --noise-party passive-2 --sigma 0.2
    """


@app.command("match")
def match(
    party: Annotated[Path, typer.Argument(help="The party file.", metavar="PARTY.yaml")],
    rows: Annotated[int, typer.Option(min=1, help="Show so many ids.")] = 10,
) -> None:
    """Show a party, on its own file, what the federation's `matching` makes of its ids; nothing leaves the machine.

    Two rows that become one are an error, with both spellings.
    """
    from party.data.matching import matched, shown, spellings
    from party.data.reading import read
    from party.settings import load_party

    try:
        settings, federation = load_party(party)
        records = read(settings.data, with_labels=settings.name == federation.active.name)
        pairs = list(spellings(records, federation.matching, settings.data))
        changed = [(written, normal) for written, normal in pairs if written != normal]
        for written, normal in (changed or pairs)[:rows]:
            print(f"{shown(written)}  →  {shown(normal)}")
        print(f"{len(changed)} of {len(pairs)} ids are compared in another form than the file has")
        matched(records, federation.matching, settings.data)
    except FedoraError as error:
        sys.exit(_complain(error))


def _sources() -> "dict[str, type[CutSource]]":
    from fedora_vfl.datasets.catalogue import SOURCES
    from fedora_vfl.datasets.settings import CutSource

    found = {name: SOURCES.get(name) for name in SOURCES.names}
    return {name: kind for name, kind in found.items() if issubclass(kind, CutSource)}


def _command(name: str, kind: "type[CutSource]") -> Any:
    """Make the command that cuts one source; typer makes it of a function's signature."""
    from fedora_vfl.datasets.settings import Backdoor, CutSource

    elsewhere = set(CutSource.trigger_settings) - set(kind.trigger_settings)
    poison = [one for one in Backdoor.model_fields if one not in elsewhere]
    backdoor = list(options_of(Backdoor, poison, panel=BACKDOOR_PANEL, optional=True))
    shared = list(options_of(kind, CutSource.model_fields))
    taken = {OUT.name, SEED.name, "help", *(one.flag for one in (*shared, *backdoor))}
    own = [one for one in kind.model_fields if one not in CutSource.model_fields]
    own.sort(key=lambda one: not kind.model_fields[one].is_required())
    special = list(options_of(kind, own, panel=f"Options of {name}", taken=taken))

    def run(out: Path, seed: int, **given: Any) -> None:
        wanted = {"source": name, **settings_from([*special, *shared], given)}
        _run(wanted, settings_from(backdoor, given), out, seed)

    before, after = ([one.parameter() for one in options] for options in (special, [*shared, *backdoor]))
    run.__signature__ = inspect.Signature([*before, OUT, SEED, *after])  # type: ignore[attr-defined]
    single = typer.Typer(rich_markup_mode=None, add_completion=False)
    single.command(name, cls=PanelCommand, help=inspect.getdoc(kind))(run)
    return typer.main.get_command(single)


def _run(wanted: dict[str, Any], poison: dict[str, Any], out: Path, seed: int) -> None:
    """Cut, and say what was made or what went wrong."""
    try:
        made = _cut(wanted, poison, out, seed)
    except FedoraError as error:
        sys.exit(_complain(error))
    except OSError as error:
        sys.exit(_complain(DataError(f"{out}: cannot be written to: {error.strerror}")))
    _show(made, out)


def _complain(error: FedoraError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return error.exit_code


def _cut(wanted: dict[str, Any], poison: dict[str, Any], out: Path, seed: int) -> "Cut":
    """Check the settings, write the files, and the ids of poisoned rows beside them."""
    from fedora_vfl.datasets.cutting import cut
    from fedora_vfl.storage import write_atomically

    made = cut(_source(wanted), out, seed=seed, backdoor=_backdoor(poison))
    if made.poisoned:
        write_atomically(out / POISONED, "".join(f"{one}\n" for one in made.poisoned))
    else:
        (out / POISONED).unlink(missing_ok=True)  # of an earlier cut, which this one replaces
    return made


def _source(wanted: dict[str, Any]) -> "Source":
    from fedora_vfl.datasets.catalogue import DataSource
    from fedora_vfl.settings.files import Settings, check

    class Section(Settings):
        data: DataSource

    return check({"data": wanted}, Section, origin=ORIGIN).data


def _backdoor(poison: dict[str, Any]) -> "Backdoor | None":
    from fedora_vfl.datasets.settings import Backdoor
    from fedora_vfl.settings.files import Settings, check

    class Section(Settings):
        backdoor: Backdoor

    if not poison:
        return None
    if "target" not in poison:
        raise SettingsError(f"{ORIGIN}: --target is missing: the class that the backdoor's trigger is to stand for")
    return check({"backdoor": poison}, Section, origin=ORIGIN).backdoor


def _show(made: "Cut", out: Path) -> None:
    table = Table(title="One file per party", title_justify="left")
    table.add_column("party", no_wrap=True)
    table.add_column("file", overflow="fold")
    table.add_column("rows", justify="right")
    table.add_column("columns", overflow="fold")
    for name, file in made.files.items():
        table.add_row(name, str(file.path), f"{file.rows:,}", ", ".join(file.columns))
    console = Console(highlight=False)
    console.print(table)
    if made.poisoned:
        console.print(f"{len(made.poisoned):,} rows are poisoned; their ids: {out / POISONED}", soft_wrap=True)
