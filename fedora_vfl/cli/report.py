"""The tables that end a job."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

# Figures of a model, as a reader knows them, short enough for a terminal of 80 columns; docs/metrics.md explains each.
ABILITIES = (
    ("test_accuracy", "accuracy, test rows", "{:.1%}"),
    ("forgotten_classes_accuracy", "… forgotten classes", "{:.1%}"),
    ("remaining_accuracy", "… remaining rows", "{:.1%}"),
    ("forget_accuracy", "… forgotten rows", "{:.1%}"),
    ("forget_minus_unseen_accuracy", "… minus unseen rows", "{:+.1%}"),
    ("backdoor_asr", "backdoor success", "{:.1%}"),
    ("untriggered_asr", "… without trigger", "{:.1%}"),
)
ATTACKS = (
    ("mia_asr", "paper's attack", "{:.1%}"),
    ("mia_auc", "honest attack, AUC", "{:.3f}"),
    ("mia_tpr_at_1_fpr", "… 1 % false alarms", "{:.1%}"),
    ("mia_tpr_at_1_fpr_reversed", "… turned round", "{:.1%}"),
)

SHOWN = {"retrain": "Retrain", "ga": "GA", "ico": "ICO", "cvfu": "CVFU", "fedora": "FedORA"}

# With more parties than this, the passive ones are added up; ledger.csv has them one by one.
MANY = 8


def finish(result: dict[str, Any], folder: Path, console: Console, *, also: str) -> None:
    """Draw the picture, print the report, and say which files there are; `also` names what else the folder has."""
    from fedora_vfl.cli.picture import draw

    picture = draw(result, folder)
    print_report(result, console, folder)
    names = ["result.json", "ledger.csv"]
    names += ["certificate.json"] if _certified(result) else []
    names += [picture] if picture else []
    console.print(f"Written to {folder}: {', '.join(names)}{also}", soft_wrap=True)


def print_report(result: dict[str, Any], console: Console, folder: Path) -> None:
    """Print accuracy, seconds and bytes."""
    if "unlearned" in result:
        print_comparison(result, console)
    if _certified(result):
        certificate = folder / "certificate.json"
        console.print(f"The signed certificate is {certificate}; check it: {how_to_verify(folder)}\n", soft_wrap=True)
    console.print(_figures(result))
    console.print(_phases(result["bytes"]))
    console.print(_links(result))


def how_to_verify(folder: Path) -> str:
    """Return the command that checks a run's certificate, with keys pinned: the folder cannot vouch for itself."""
    from fedora_vfl.certificates.trust import as_options
    from fedora_vfl.settings.federation import load_federation

    path = folder / "federation.yaml"
    if path.exists():
        return f"fedora verify {folder} {as_options(load_federation(path).keys)}"
    return f"fedora verify {folder} --federation FILE, your federation file with all members' keys"


def _certified(result: dict[str, Any]) -> bool:
    return "unlearned" in result and result["job"]["certificate"]


def print_comparison(result: dict[str, Any], console: Console) -> None:
    """Print the models side by side, and what that means."""
    console.print(_comparison(result))
    sentences = Table.grid(padding=(0, 1))
    for sentence in result["verdict"]:
        sentences.add_row("•", sentence)
    for figures, reason in _left_out(result["unlearned"]["left_out"]):
        sentences.add_row("•", f"Not told: {', '.join(figures)}; {reason}.")
    console.print(sentences)


def _left_out(left_out: dict[str, str]) -> Iterable[tuple[list[str], str]]:
    """Put figures that are kept back for the same reason together."""
    for reason in dict.fromkeys(left_out.values()):
        yield [name for name, other in left_out.items() if other == reason], reason


def _figures(result: dict[str, Any]) -> Table:
    """Show the job as a whole; what the models' own table has is not said again."""
    original, rows = result["original"], result["rows"]
    compared = "unlearned" in result
    table = Table(title="Job" if compared else "Result", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    if not compared:
        for name, label, shown in (("test_accuracy", "test accuracy", "{:.2%}"), ("test_loss", "test loss", "{:.4f}")):
            table.add_row(label, "not told" if original[name] is None else shown.format(original[name]))
    table.add_row("rows in common", f"{rows['train']:,} train, {rows['test']:,} test")
    table.add_row("parameters", f"{sum(party['parameters'] for party in result['parties'].values()):,}")
    if not compared:
        table.add_row("seconds in training", f"{original['seconds']:.1f}")
    table.add_row("seconds in all", f"{result['seconds']:.1f}")
    return table


def _comparison(result: dict[str, Any]) -> Table:
    """Lay the models side by side."""
    compared = [one["method"] for one in result["job"]["compare"]]
    models, forget = ["original", "unlearned", *compared], result["forget"]
    # With several methods side by side there is no room for gaps; result.json has them.
    gap = result.get("gap") if compared == ["retrain"] else None
    title = f"Forgetting {forget['rows']:,} of {forget['rows'] + forget['remaining']:,} training rows"
    table = Table(title=title, title_justify="left")
    table.add_column("", style="bold", no_wrap=True)
    several, away = _retrains(result)
    titles = SHOWN | ({"retrain": f"{len(result['retrains']['models'])} Retrains"} if several else {})
    for name in (*models, *(["gap to Retrain"] if gap else [])):
        table.add_column(titles.get(name, name), justify="right", no_wrap=True)
    # Poisoned rows differ from all others whether they are remembered or not: attacks on them say nothing.
    attacks = ATTACKS if result["unlearned"].get("backdoor_asr") is None else ()
    for name, label, shown in (*ABILITIES, *attacks):
        values = [result[model].get(name) for model in models]
        if any(value is not None for value in values):
            cells = ["–" if value is None else shown.format(value) for value in values]
            if name in several:
                cells[models.index("retrain")] = _mean(several[name], shown)
            table.add_row(label, *cells, *([_difference(gap.get(name), shown, away.get(name))] if gap else []))
    table.add_section()
    for label, cells in _costs(result, models, gap):
        table.add_row(label, *cells)
    return table


def _retrains(result: dict[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
    """Return what several Retrains make of each figure, and how many deviations the unlearned model is from them."""
    several = result.get("retrains") or {"figures": {}, "deviations": {}}
    return several["figures"], several["deviations"].get("unlearned") or {}


def _mean(spread: dict[str, Any], shown: str) -> str:
    """Write the mean of several Retrains, and their deviation."""
    deviation = spread["deviation"]
    beside = f"{100 * deviation:.1f}" if "%" in shown else f"{deviation:.3f}"
    return f"{shown.format(spread['mean'])} ± {beside}"


def _difference(gap: float | None, shown: str, deviations: float | None = None) -> str:
    """Write a gap in the units of its figure and, where there are several Retrains, in their standard deviations."""
    if gap is None:
        return ""
    # Adding 0 turns the -0.0 of a small difference into 0.0.
    said = f"{round(100 * gap, 1) + 0.0:+.1f} points" if "%" in shown else f"{round(gap, 3) + 0.0:+.3f}"
    return said if deviations is None else f"{said}, {abs(deviations):.1f} sd"


def _costs(result: dict[str, Any], models: list[str], gap: dict[str, Any] | None) -> Iterable[tuple[str, list[str]]]:
    """Say what each model took to make, and what share of Retrain's that is."""
    seconds = [f"{result[model]['seconds']:.1f}" for model in models]
    sent = [f"{result[model]['bytes']['tensor'] / 1e6:,.1f}" for model in models]
    yield "seconds", seconds + ([f"{gap['seconds_share']:.0%} of Retrain"] if gap else [])
    yield "megabytes sent", sent + ([f"{gap['bytes_share']:.0%} of Retrain"] if gap else [])


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
