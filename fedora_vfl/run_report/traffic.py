"""Bytes of a run, by link and by phase."""

from collections.abc import Mapping
from typing import Any

from fedora_vfl.documents.document import Block, Drawing, Fold, Grid, Heading, Paragraph
from fedora_vfl.documents.drawings import Bar, bars

MANY = 8  # with more passive parties than this they are added up
KINDS = {
    "embedding": "embeddings",
    "gradient": "gradients",
    "dual": "dual variables",
    "alignment": "finding the common rows",
    "control": "control: what to do next, reports",
}


def traffic(result: Mapping[str, Any]) -> list[Block]:
    """Say what travelled between the members."""
    counted = result["bytes"]
    links = by_link(result)
    total = sum(sum(parts.values()) for parts in links.values())
    drawn = [
        Bar(
            f"{sender} → {receiver}", size(sum(parts.values())), {KINDS.get(kind, kind): n for kind, n in parts.items()}
        )
        for (sender, receiver), parts in links.items()
    ]
    phases = [
        [name, f"{line['predicted']:,}", f"{line['tensor']:,}", f"{line['protobuf']:,}"]
        for name, line in [*counted["phases"].items(), ("in all", counted)]
    ]
    return [
        Heading(2, "What travelled between the members", "bytes"),
        Paragraph(
            f"{size(total)} in all, counted by the sender and by the receiver of every message, which agree. Rows, "
            "labels and predictions never travel; embeddings are numbers that a party's own network makes of its rows."
        ),
        Drawing(
            bars(drawn, title="Bytes by link and direction"),
            "Bytes on every link, each direction apart, by what they were. Messages as sent, before encryption.",
        ),
        Fold(
            "Bytes of embeddings and gradients, phase by phase",
            [
                Grid(
                    "Embeddings and gradients: what the cost model predicted, the values themselves, and the messages "
                    "around them, in bytes.",
                    ["phase", "predicted", "values", "messages"],
                    phases,
                )
            ],
        ),
    ]


def by_link(result: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, int]]:
    """Add up the bytes of messages by sender and receiver, and by kind; the busiest link first."""
    passive = {name for name, party in result["parties"].items() if party["role"] == "passive"}
    shown = dict.fromkeys(passive, f"all {len(passive)} passive") if len(passive) > MANY else {}
    sums: dict[tuple[str, str], dict[str, int]] = {}
    for line in result["bytes"]["links"]:
        sender, receiver = line["direction"].split("->")
        parts = sums.setdefault((shown.get(sender, sender), shown.get(receiver, receiver)), dict.fromkeys(KINDS, 0))
        parts[line["kind"]] = parts.get(line["kind"], 0) + line["protobuf"]
    return dict(sorted(sums.items(), key=lambda one: -sum(one[1].values())))


def size(count: float) -> str:
    """Write a number of bytes for people."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:,.1f} {unit}"
    return f"{count:.0f} bytes"
