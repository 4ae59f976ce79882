"""The tables that end a job."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


def print_report(result: dict[str, Any], out: Path, console: Console) -> None:
    """Print accuracy, seconds and bytes."""
    original, counted = result["original"], result["bytes"]
    rows = result["rows"]
    figures = Table(title="Result", title_justify="left", show_header=False)
    figures.add_column(style="bold")
    figures.add_column(justify="right")
    figures.add_row("test accuracy", f"{original['test_accuracy']:.2%}")
    figures.add_row("test loss", f"{original['test_loss']:.4f}")
    figures.add_row("rows in common", f"{rows['train']:,} train, {rows['test']:,} test")
    figures.add_row("parameters", f"{sum(party['parameters'] for party in result['parties'].values()):,}")
    figures.add_row("seconds in training", f"{original['seconds']:.1f}")
    figures.add_row("seconds in all", f"{result['seconds']:.1f}")
    console.print(figures)

    phases = Table(title="Embeddings and gradients, in bytes", title_justify="left")
    for name in ("phase", "predicted", "tensor", "protobuf", "overhead"):
        phases.add_column(name, justify="left" if name == "phase" else "right")
    for name, line in [*counted["phases"].items(), ("in all", counted)]:
        overhead = line["protobuf"] / line["tensor"] - 1 if line["tensor"] else 0.0
        values = (f"{line[key]:,}" for key in ("predicted", "tensor", "protobuf"))
        phases.add_row(name, *values, f"{overhead:.3%}", style="bold" if name == "in all" else None)
    console.print(phases)

    links = Table(title="Every link, in bytes; both ends agree", title_justify="left")
    for name in ("from", "to", "kind", "messages", "tensor", "protobuf"):
        links.add_column(name, justify="left" if name in ("from", "to", "kind") else "right")
    sums: dict[tuple[str, str, str], list[int]] = {}
    for line in counted["links"]:
        sender, receiver = line["direction"].split("->")
        entry = sums.setdefault((sender, receiver, line["kind"]), [0, 0, 0])
        for index, key in enumerate(("messages", "tensor", "protobuf")):
            entry[index] += line[key]
    for names, numbers in sums.items():
        links.add_row(*names, *(f"{number:,}" for number in numbers))
    console.print(links)
    console.print(
        f"Written to {out}: result.json, ledger.csv; models in {out}/models, logs in {out}/logs", highlight=False
    )
