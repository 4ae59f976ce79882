"""fedora data: one file per party."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from wire.errors import DataError, FedoraError


def data(
    source: Annotated[str, typer.Argument(help="income, digits, npz, csv or parquet.")],
    out: Annotated[Path, typer.Option(help="Folder for the parties' files.")],
    path: Annotated[
        Path | None, typer.Option(help="The file to cut: npz in MedMNIST's layout, csv or parquet.")
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
    seed: Annotated[int, typer.Option(help="Decides which rows are dropped, drawn and shuffled.")] = 0,
) -> None:
    """Cut a data set into one file per party, as organisations would hold it.

    Tables are cut by columns, images into vertical stripes. Only the active party's file has labels.

    \b
        fedora data income --out parts --drop 0.1 --shuffle
        fedora data npz --path pathmnist.npz --parties 4 --out parts
        fedora data csv --path people.csv --id person --label outcome --out parts
    """
    from datasets.cutting import cut
    from datasets.settings import DataSource
    from settings.files import Settings, check

    class Section(Settings):
        data: DataSource

    given: dict[str, Any] = {
        "source": source,
        "path": path,
        "active_features": active_features,
        "limit": limit,
        "format": file_format,
        "id": identity,
        "label": label,
    }
    content = {key: value for key, value in given.items() if value is not None}
    content |= {"parties": parties, "drop": drop, "shuffle": shuffle}
    try:
        files = cut(check({"data": content}, Section, origin="fedora data").data, out, seed=seed).files
    except FedoraError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        print(f"error: {out}: cannot be written to: {error.strerror}", file=sys.stderr)
        sys.exit(DataError.exit_code)
    table = Table(title="One file per party", title_justify="left")
    table.add_column("party", no_wrap=True)
    table.add_column("file", overflow="fold")
    table.add_column("rows", justify="right")
    table.add_column("columns", overflow="fold")
    for name, file in files.items():
        table.add_row(name, str(file.path), f"{file.rows:,}", ", ".join(file.columns))
    Console(highlight=False).print(table)
