"""The results as a page, its picture and its table beside it, and as tables in the terminal."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from fedora_vfl.bench.attacks import findings, prose, tables
from fedora_vfl.bench.attacks.catalogue import EXPLAINED, FEATURES, GROUPS, LABELS, MEMBERSHIP, OUTSIDERS, PROPERTIES
from fedora_vfl.bench.attacks.plots import draw
from fedora_vfl.bench.attacks.results import Results
from fedora_vfl.bench.attacks.scenes import Extent
from fedora_vfl.storage import write_atomically


@dataclass(frozen=True)
class Material:
    """What a report is made of."""

    extent: Extent
    results: Results
    command: str


def write_report(material: Material, page: Path) -> None:
    """Write the page, its picture and its table beside it."""
    write_atomically(page.with_suffix(".csv"), figures_csv(material.results))
    picture = page.with_suffix(".svg")
    drawn = draw(material.results, picture)
    write_atomically(page, "\n\n".join(_blocks(material, picture.name if drawn else None)) + "\n")


def figures_csv(results: Results) -> str:
    """Return every figure with that of guessing."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["data_set", "defence", "figure", "mean", "deviation", "guessing", "advantage", "seeds"])
    for (scene, defence), found in results.figures.items():
        for name, one in found.items():
            numbers = (one.mean, one.spread, one.guess, one.advantage)
            writer.writerow(
                [scene, defence, name, *("" if value is None else f"{value:.4f}" for value in numbers), one.seeds]
            )
    return out.getvalue()


def _blocks(material: Material, picture: str | None) -> Iterator[str]:
    results, extent = material.results, material.extent
    yield "# What leaks by design"
    yield (
        f"Made by `{material.command}`: {results.runs} runs ({_releases(results)}). Income has {extent.income_rows:,} "
        f"training rows, digits 1,438, colour images {extent.image_rows:,}; {extent.epochs} epochs "
        f"({extent.image_epochs} on colour images), Adam, batches of 128, embeddings of 64 unless told otherwise. "
        "Bottoms have one hidden layer of 64, on colour images two convolutions. Where a bottom is known, "
        f"{extent.targets} rows, or {extent.image_targets} colour images, are looked for."
    )
    yield "## In short"
    yield "\n".join(f"- {line}" for line in findings.lines(results))
    if picture:
        yield f"![Advantage of every attack, and what defences leave of leaks and of accuracy]({picture})"
    yield prose.SOURCE
    yield prose.READING
    yield "## Who sees what"
    yield tables.written(("role", "sees", "could learn"), prose.SIGHT, texts=True)
    header = ["attack", *results.scenes]
    for title, text, lines in (
        ("Labels, from gradients", prose.LABELS, LABELS),
        ("Rows, from embeddings", prose.FEATURES, FEATURES),
        ("Properties, from embeddings", prose.PROPERTY, PROPERTIES),
        ("Membership, before and after unlearning", prose.MEMBERSHIP, MEMBERSHIP),
        ("Coordinator and outsider", prose.OUTSIDERS, OUTSIDERS),
    ):
        yield f"## {title}"
        yield text
        yield tables.written(header, tables.attack_lines(lines, results, spread=True))
    yield "## Defences"
    yield prose.DEFENCES
    for scene in results.scenes:
        if len(results.defences(scene)) > 1:
            yield f"### {scene}"
            shown = [tables.guesses(results, scene), *tables.defence_lines(results, scene, spread=True)]
            yield tables.written(("defence", *tables.DEFENCE_COLUMNS), shown)
    yield "## The attacks"
    kinds = ((one.name, one.who, one.how, one.needs, one.reference) for one in EXPLAINED)
    yield tables.written(("attack", "by", "idea", "knows besides what it sees", "after"), kinds, texts=True)
    yield "## What this does not say"
    yield "\n".join(f"- {line}" for line in prose.LIMITS)
    if results.failed:
        yield "## What failed"
        yield "\n".join(f"- {run}: {why}" for run, why in results.failed.items())
    if results.missing:
        yield f"{results.missing} runs are not done yet; the same command goes on."


def _releases(results: Results) -> str:
    """Say which releases made the runs, as a report may be written long after them."""
    counts = sorted(results.releases.items())
    return " and ".join(f"{count} by release {name}" for name, count in counts) or "none yet"


def print_tables(material: Material, console: Console) -> None:
    """Print the page's tables, as far as a terminal's width allows."""
    results = material.results
    for title, lines in GROUPS.items():
        shown = tables.attack_lines(lines, results, spread=False)
        tables.printed(console, title, ["in brackets: guessing", *results.scenes], shown)
    for scene in results.scenes:
        if len(results.defences(scene)) > 1:
            left = [tables.guesses(results, scene), *tables.defence_lines(results, scene, spread=False)]
            header = ["defence", *tables.SHORT_DEFENCE_COLUMNS]
            tables.printed(
                console, f"What a defence leaves: {scene} (*: no setting)", header, (line[:-1] for line in left)
            )
    console.print()
    for line in findings.lines(results):
        console.print(f"- {line.replace('**', '')}", soft_wrap=True)
