"""fedora data: one file per party."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fedora_vfl.errors import DataError, FedoraError, SettingsError

if TYPE_CHECKING:
    from fedora_vfl.datasets.datafile import Cut
    from fedora_vfl.datasets.settings import Backdoor, DataSource

ORIGIN = "fedora data"
POISONED = "poisoned.txt"


def data(
    source: Annotated[
        str,
        typer.Argument(
            help="income, digits, npz, csv, parquet, medmnist, cifar10, cifar100 or tiny-imagenet.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the parties' files.")],
    path: Annotated[
        Path | None, typer.Option(help="The file to cut: npz in MedMNIST's layout, csv or parquet.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The set of medmnist, such as pathmnist.")] = None,
    root: Annotated[
        Path | None, typer.Option(help="Folder of public image sets. [default: $FEDORA_DATA or ~/.cache/fedora]")
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Pixels of medmnist's images: 28, 64, 128 or 224. [default: 28]")
    ] = None,
    download: Annotated[
        bool | None, typer.Option(help="Whether a missing public image set is fetched. [default: yes]")
    ] = None,
    parties: Annotated[int, typer.Option(help="Number of passive parties, 1 to 32.")] = 2,
    active_features: Annotated[
        bool | None, typer.Option(help="Whether the active party gets features too. [default: income yes, others no]")
    ] = None,
    drop: Annotated[float, typer.Option(help="Share of rows each party lacks, each its own.")] = 0.0,
    shuffle: Annotated[bool, typer.Option("--shuffle", help="Give each party an order of its own.")] = False,
    limit: Annotated[int | None, typer.Option(help="Keep so many training rows, drawn at random.")] = None,
    file_format: Annotated[
        str | None, typer.Option("--format", help="csv or parquet, for tables. [default: csv]")
    ] = None,
    identity: Annotated[
        str | None, typer.Option("--id", help="Column of sample ids; rows are numbered without.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="Column of labels. [default: label]")] = None,
    seed: Annotated[int, typer.Option(help="Decides which rows are dropped, drawn, shuffled and poisoned.")] = 0,
    noise_party: Annotated[str | None, typer.Option(help="Noise: the party whose features get it.")] = None,
    sigma: Annotated[float | None, typer.Option(help="Noise: its size, as a share of the features' own.")] = None,
    target: Annotated[str | None, typer.Option(help="Backdoor: the class that its trigger is to stand for.")] = None,
    classes: Annotated[
        list[str] | None, typer.Option("--class", help="Backdoor: class whose rows are poisoned; may be given often.")
    ] = None,
    percent: Annotated[float | None, typer.Option(help="Backdoor: share of each such class. [default: 100]")] = None,
    samples: Annotated[int | None, typer.Option(help="Backdoor: instead, so many rows of any class.")] = None,
    size: Annotated[int | None, typer.Option(help="Backdoor in images: side of the white square.")] = None,
    column: Annotated[str | None, typer.Option(help="Backdoor in tables: column of the trigger.")] = None,
    value: Annotated[str | None, typer.Option(help="Backdoor in tables: what stands there.")] = None,
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
    wanted = {
        "source": source,
        "path": path,
        "name": name,
        "root": root,
        "size": image_size,
        "download": download,
        "parties": parties,
        "active_features": active_features,
        "drop": drop,
        "shuffle": shuffle,
        "limit": limit,
        "format": file_format,
        "id": identity,
        "label": label,
        "noise": _given({"party": noise_party, "sigma": sigma}) or None,
    }
    poison = {
        "target": target,
        "classes": classes,
        "percent": percent,
        "samples": samples,
        "size": size,
        "column": column,
        "value": _number_or_text(value),
    }
    try:
        made = _cut(_given(wanted), _given(poison), out, seed)
    except FedoraError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        print(f"error: {out}: cannot be written to: {error.strerror}", file=sys.stderr)
        sys.exit(DataError.exit_code)
    _show(made, out)


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what was not given, so that defaults are those of a job file."""
    return {name: value for name, value in settings.items() if value is not None}


def _number_or_text(value: str | None) -> float | str | None:
    """Take a value as a job file would."""
    if value is None:
        return None
    try:
        return float(value)
    except ValueError:
        return value


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


def _source(wanted: dict[str, Any]) -> "DataSource":
    from fedora_vfl.datasets.settings import DataSource
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
