"""The tables that end a job."""

from typing import Any

from rich.console import Console
from rich.table import Table

# With more parties than this, the passive ones are added up; ledger.csv has them one by one.
MANY = 8


def print_report(result: dict[str, Any], console: Console) -> None:
    """Print accuracy, seconds and bytes."""
    console.print(_figures(result))
    console.print(_phases(result["bytes"]))
    console.print(_links(result))


def _figures(result: dict[str, Any]) -> Table:
    original, rows = result["original"], result["rows"]
    table = Table(title="Result", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_row("test accuracy", f"{original['test_accuracy']:.2%}")
    table.add_row("test loss", f"{original['test_loss']:.4f}")
    table.add_row("rows in common", f"{rows['train']:,} train, {rows['test']:,} test")
    table.add_row("parameters", f"{sum(party['parameters'] for party in result['parties'].values()):,}")
    table.add_row("seconds in training", f"{original['seconds']:.1f}")
    table.add_row("seconds in all", f"{result['seconds']:.1f}")
    return table


def _phases(counted: dict[str, Any]) -> Table:
    table = Table(title="Embeddings and gradients, in bytes", title_justify="left")
    for name in ("phase", "predicted", "tensor", "protobuf", "overhead"):
        table.add_column(name, justify="left" if name == "phase" else "right")
    for name, line in [*counted["phases"].items(), ("in all", counted)]:
        overhead = line["protobuf"] / line["tensor"] - 1 if line["tensor"] else 0.0
        values = (f"{line[key]:,}" for key in ("predicted", "tensor", "protobuf"))
        table.add_row(name, *values, f"{overhead:.3%}", style="bold" if name == "in all" else None)
    return table


def _links(result: dict[str, Any]) -> Table:
    table = Table(title="Every link, in bytes; both ends agree", title_justify="left")
    for name in ("from", "to", "kind", "messages", "tensor", "protobuf"):
        table.add_column(name, justify="left" if name in ("from", "to", "kind") else "right")
    passive = {name for name, party in result["parties"].items() if party["role"] == "passive"}
    shown = dict.fromkeys(passive, "all passive") if len(passive) > MANY else {}
    sums: dict[tuple[str, str, str], list[int]] = {}
    for line in result["bytes"]["links"]:
        sender, receiver = line["direction"].split("->")
        entry = sums.setdefault((shown.get(sender, sender), shown.get(receiver, receiver), line["kind"]), [0, 0, 0])
        for index, key in enumerate(("messages", "tensor", "protobuf")):
            entry[index] += line[key]
    for names, numbers in sums.items():
        table.add_row(*names, *(f"{number:,}" for number in numbers))
    return table
