"""The results as a page, its picture and its table beside it, and as tables in the terminal."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from fedora_vfl.bench.attacks import findings, tables
from fedora_vfl.bench.attacks.catalogue import EXPLAINED, FEATURES, GROUPS, LABELS, MEMBERSHIP, OUTSIDERS, PROPERTIES
from fedora_vfl.bench.attacks.plots import draw
from fedora_vfl.bench.attacks.results import Results
from fedora_vfl.bench.attacks.scenes import Extent
from fedora_vfl.storage import write_atomically
from fedora_vfl.wire.protocol import VERSION

SOURCE = """\
Each run is a whole training with two passive parties and one active party, by the parties' own code (networks, batches, \
losses, update rules, noise, wire types) in one process instead of three. Its parameters are equal to the bit to those \
of a cluster of real processes, which `tests/test_attacks_bench.py` checks, and so is all that crosses. An attack gets \
what its role has in such a run and nothing else, but for what the list of attacks says it needs to know."""
READING = """\
A figure is the mean over seeds ± its standard deviation; in brackets stands what is reached *without* looking, which is \
what counts as no leak. *Balanced accuracy* is the mean, over classes, of the share recognised: naming the majority \
class, or any other way of guessing, gets 1/C. *R²* is the share of the columns' variance that is recovered: predicting \
the mean gets 0, the true rows get 1, below 0 is worse than the mean. *AUC* is 0.5 for guessing. Advantage, in the \
picture, is the way from guessing to certainty that was gone."""
SIGHT = (
    ("passive party", "its own rows and bottom; ∂L/∂h of its rows, every epoch", "labels"),
    ("active party", "labels, its own columns; every embedding, every epoch and evaluation", "passive parties' rows"),
    ("coordinator", "numbers of rows, losses, accuracies, norms", "single rows, where a figure is about few"),
    ("outsider", "who talks to whom, when, and how much (TLS)", "numbers of rows and rounds"),
)
LABELS_TEXT = """\
A curious passive party guesses the labels of the training rows. The lines from raw columns use the same labels and the \
same head on columns that were never trained with anybody: what completion has over them is the federation's doing. The \
control gives every row another row's gradients."""
FEATURES_TEXT = """\
A curious active party guesses passive-1's rows, all encoded columns together, from the embeddings that evaluation \
sends. In brackets, for the learned inverses, is a regression with the same known rows from what the active party has \
anyway: labels, and its own columns if it has any. *Bottom known* is for a bottom that got out; *untrained*, for one that \
starts from a seed that others know, with the embeddings of the very first batch. Categories are columns of Income: in \
brackets the share of the most frequent one. Where rows are wider than embeddings (images), many rows fit, and the \
search with the bottom alone does worse than an inverse that has seen true rows."""
PROPERTY_TEXT = """\
A curious active party guesses what is no column of the party whose embeddings it looks at, from 100 rows of which it is \
known: of Income, sex from passive-1 (age, workclass, education) and whether age is above the median from passive-2 \
(marital status, occupation, relationship, race, sex); of images, whether the other party's half is brighter than the \
median. In brackets: the same from labels and the active party's own columns. Where raw columns get no further than \
embeddings, an embedding gives the property away as fully as the columns would."""
MEMBERSHIP_TEXT = """\
One row in ten is forgotten, by FedORA's defaults and by Retrain. AUC of telling forgotten rows, and rows that are kept, \
from test rows. Retrain never saw the forgotten rows: its figure is the mark for a model that has forgotten, and \
differences of a few hundredths from it are noise. This is about the *model*: who is in the training is no secret among \
parties, as ids and requests are compared by all."""
OUTSIDER_TEXT = """\
The coordinator is told figures, never rows. A model that always says one class (made by forgetting all others) turns \
accuracy into the share of that class in a group: for a group of one it is the row's label, for ten or more the guess \
that fits most rows is hardly better than the majority (in brackets). Two groups that differ in one row would tell that \
row's class again, whatever their size. The outsider gets the number of rows of every batch; sizes are the same, message \
by message, with true and with shuffled labels, so that they say nothing of labels. Sizes are those of protobuf messages: \
what HTTP/2 and TLS add depends on nothing else. Times of messages were not attacked."""
DEFENCE_TEXT = """\
*Labels* is the strongest of direction and clusters, *completion* has 100 labels, *rows* is the strongest of the \
inverses with 200 rows and the bottom known, from one release and from the mean of 30 releases with fresh noise, \
*property* is from passive-2. ε is for one row of a passive party over the training and one evaluation, at δ = 1e-5 \
(docs/privacy.md says what it means). Noise and clipping of gradients are in units of 1/B, B = 128 being the batch. \
**Label shield** (noise along the directions in which the classes' mean gradients differ, its deviation so many times \
their spread; after Marvell) and **distance correlation** (a penalty at passive parties; NoPeek, Vepakomma et al., 2020) \
are experiments of this benchmark and **no settings of the product**; all others are."""
LIMITS = (
    "The attacks are ours, and simple. A better one may get further: a low figure is no proof of safety, a high one is "
    "proof of a leak.",
    "Parties are curious, not malicious: they run the protocol as it is. One that sends made-up embeddings or gradients "
    "may get more.",
    "Networks and data sets are small, training is short; models that fit their rows more closely remember more.",
    "What several parties could learn by putting their views together, or one from several jobs over the same rows, is "
    "measured only for fresh noise (30 releases).",
    "Defences were not tuned, and attackers know of clipping and noise but did not adapt otherwise.",
    "Spreads are over few seeds. Differences below about 0.05 mean nothing.",
)


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
        f"Made by `{material.command}`, release {VERSION}: {results.runs} runs. Income has {extent.income_rows:,} "
        f"training rows, digits {1437:,}, images {extent.image_rows:,}; {extent.epochs} epochs ({extent.image_epochs} on "
        "images), Adam, batches of 128, embeddings of 64 unless told otherwise. Bottoms have one hidden layer of 64, on "
        "images two convolutions."
    )
    yield "## In short"
    yield "\n".join(f"- {line}" for line in findings.lines(results))
    if picture:
        yield f"![Advantage of every attack, and what defences leave of leaks and of accuracy]({picture})"
    yield SOURCE
    yield READING
    yield "## Who sees what"
    yield tables.written(("role", "sees", "could learn"), SIGHT, texts=True)
    header = ["attack", *results.scenes]
    for title, text, lines in (
        ("Labels, from gradients", LABELS_TEXT, LABELS),
        ("Rows, from embeddings", FEATURES_TEXT, FEATURES),
        ("Properties, from embeddings", PROPERTY_TEXT, PROPERTIES),
        ("Membership, before and after unlearning", MEMBERSHIP_TEXT, MEMBERSHIP),
        ("Coordinator and outsider", OUTSIDER_TEXT, OUTSIDERS),
    ):
        yield f"## {title}"
        yield text
        yield tables.written(header, tables.attack_lines(lines, results, spread=True))
    yield "## Defences"
    yield DEFENCE_TEXT
    for scene in results.scenes:
        if len(results.defences(scene)) > 1:
            yield f"### {scene}"
            shown = [tables.guesses(results, scene), *tables.defence_lines(results, scene, spread=True)]
            yield tables.written(("defence", *tables.DEFENCE_COLUMNS), shown)
    yield "## The attacks"
    kinds = ((one.name, one.who, one.how, one.needs, one.reference) for one in EXPLAINED)
    yield tables.written(("attack", "by", "idea", "knows besides what it sees", "after"), kinds, texts=True)
    yield "## What this does not say"
    yield "\n".join(f"- {line}" for line in LIMITS)
    if results.failed:
        yield "## What failed"
        yield "\n".join(f"- {run}: {why}" for run, why in results.failed.items())
    if results.missing:
        yield f"{results.missing} runs are not done yet; the same command goes on."


def print_tables(material: Material, console: Console) -> None:
    """Print the page's tables, as far as a terminal's width allows."""
    results = material.results
    for title, lines in GROUPS.items():
        shown = tables.attack_lines(lines, results, spread=False)
        tables.printed(console, title, ["in brackets: guessing", *results.scenes], shown)
    for scene in results.scenes:
        if len(results.defences(scene)) > 1:
            lines = [tables.guesses(results, scene), *tables.defence_lines(results, scene, spread=False)]
            header = ["defence", *tables.SHORT_DEFENCE_COLUMNS]
            tables.printed(console, f"What a defence leaves: {scene}", header, (line[:-1] for line in lines))
    console.print()
    for line in findings.lines(results):
        console.print(f"- {line.replace('**', '')}", soft_wrap=True)
