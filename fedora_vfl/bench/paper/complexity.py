"""The paper's complexity table, in exact bytes: what a method must exchange, from the numbers of rows alone."""

from typing import Any

from coordinator.methods.self_scaling import budget
from fedora_vfl.bench.paper.store import Record

# float32, as embeddings and gradients travel in all experiments; FedORA's joint rounds take fewer, and have more rows.
BYTES_PER_VALUE = 4
DIRECTIONS = 2  # embeddings go there, gradients come back

# The table's terms, as a reader of the report sees them.
FORMULAS = {
    "retrain": "|D_r|·K",
    "ga": "|D_u|·K",
    "ico": "|D_u| + ν·|D_r|·K",
    "cvfu": "(|D_r| + υ)·K",
    "fedora-paper": "(|D_u| + δ·|D_r|)·K",
    "fedora": "budget·epochs·|D_r| at most (ours)",
}


def predicted_bytes(record: Record) -> float | None:
    """Return rows × width of an embedding × bytes per value × directions × passive parties."""
    rows = _rows(record)
    if rows is None:
        return None
    original = record.cell["original"]
    width, parties = original["model"].get("embedding", 64), original["data"].get("parties", 2)
    return float(rows * width * BYTES_PER_VALUE * DIRECTIONS * parties)


def _rows(record: Record) -> float | None:
    """Return the rows that the table says are exchanged."""
    settings, forgotten = record.settings, record.cost["forgotten_rows"]
    remaining, rounds = record.cost["remaining_rows"], record.cost["rounds"]
    match settings.get("method"):
        case "retrain":
            return remaining * rounds
        case "ga":
            return forgotten * rounds
        case "ico":
            return forgotten + float(settings["part"]) * remaining * rounds
        case "cvfu":
            return remaining * rounds  # υ, which the paper leaves open, taken as 0
        case "fedora" if settings.get("steps") == "paper":
            return (forgotten + _delta(settings) * remaining) * rounds
        case "fedora":
            epochs = record.cell["original"]["train"].get("epochs", 10)
            share = settings["budget"] or budget(int(forgotten), int(remaining), settings.get("goal", "as-retrained"))
            return float(share) * float(epochs) * remaining
    return None


def _delta(settings: dict[str, Any]) -> float:
    if "asymmetric-batches" in settings.get("without", []):
        return 1.0
    return 0.05 if settings.get("delta") is None else float(settings["delta"])
