"""The tables that end a job."""

from typing import Any

from rich.console import Console
from rich.table import Table

# Figures of a model, as a reader knows them; docs/metrics.md explains each.
COMPARED = (
    ("test_accuracy", "test accuracy", "{:.1%}"),
    ("forgotten_classes_accuracy", "… on forgotten classes", "{:.1%}"),
    ("forget_accuracy", "accuracy on the forgotten", "{:.1%}"),
    ("remaining_accuracy", "accuracy on the remaining", "{:.1%}"),
    ("backdoor_asr", "backdoor success", "{:.1%}"),
    ("mia_asr", "membership attack, the paper's", "{:.1%}"),
    ("mia_auc", "membership attack, honest: AUC", "{:.3f}"),
    ("mia_tpr_at_1_fpr", "… caught at 1 % false alarms", "{:.1%}"),
    ("mia_tpr_at_1_fpr_reversed", "… the attack turned round", "{:.1%}"),
)

# With more parties than this, the passive ones are added up; ledger.csv has them one by one.
MANY = 8


def print_report(result: dict[str, Any], console: Console) -> None:
    """Print accuracy, seconds and bytes."""
    console.print(_figures(result))
    if "unlearned" in result:
        console.print(_comparison(result))
        for sentence in result["verdict"]:
            console.print(f"• {sentence}", soft_wrap=True)
        console.print()
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


def _comparison(result: dict[str, Any]) -> Table:
    """Lay the models side by side."""
    models = [name for name in ("original", "unlearned", "retrain") if name in result]
    forget = result["forget"]
    title = f"Forgetting {forget['rows']:,} of {forget['rows'] + forget['remaining']:,} training rows"
    table = Table(title=title, title_justify="left")
    table.add_column("", style="bold")
    for name in (*models, *(["gap to Retrain"] if "gap" in result else [])):
        table.add_column(name, justify="right")
    for name, label, shown in COMPARED:
        values = [result[model].get(name) for model in models]
        if all(value is None for value in values):
            continue
        cells = ["–" if value is None else shown.format(value) for value in values]
        if "gap" in result:
            gap = result["gap"].get(name)
            cells.append("" if gap is None else f"{100 * gap:+.1f} points" if "%" in shown else f"{gap:+.3f}")
        table.add_row(label, *cells)
    shares = {"seconds": "seconds_share", "tensor bytes": "bytes_share"}
    for label, share in shares.items():
        values = [
            f"{result[model]['seconds']:.1f}" if label == "seconds" else f"{result[model]['bytes']['tensor']:,}"
            for model in models
        ]
        table.add_row(label, *values, *([f"{result['gap'][share]:.0%} of Retrain"] if "gap" in result else []))
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
