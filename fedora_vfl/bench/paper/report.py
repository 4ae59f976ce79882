"""The report of a sweep: cells.csv, report.md, report.html and plots."""

import csv
import io
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import mean

from fedora_vfl.bench.paper.cells import Place
from fedora_vfl.bench.paper.experiments import Experiment, Plan, Preset
from fedora_vfl.bench.paper.figures import NUMBERS
from fedora_vfl.bench.paper.findings import OPEN, findings, summary
from fedora_vfl.bench.paper.plots import Plots
from fedora_vfl.bench.paper.progress import describe
from fedora_vfl.bench.paper.sheet import Sheet
from fedora_vfl.bench.paper.store import Record
from fedora_vfl.bench.paper.tables import Tables, listed
from fedora_vfl.documents.document import (
    Block,
    Bullets,
    Code,
    Document,
    Fold,
    Grid,
    Heading,
    Paragraph,
    Row,
    Table,
    Verdict,
    Verdicts,
)
from fedora_vfl.documents.markdown import markdown
from fedora_vfl.documents.webpage import webpage
from fedora_vfl.storage import write_atomically
from fedora_vfl.wire.protocol import VERSION

FIGURES = (
    "test_accuracy",
    "forget_accuracy",
    "forget_minus_unseen_accuracy",
    "forgotten_classes_accuracy",
    "remaining_accuracy",
    "mia_asr",
    "mia_auc",
    "mia_tpr_at_1_fpr",
    "backdoor_asr",
    "untriggered_asr",
)
COST = ("rounds", "forgotten_rows", "remaining_rows", "predicted", "tensor", "protobuf")
MAIN_METRICS = ("test_accuracy", "forget_accuracy", "forgotten_classes_accuracy", "mia_asr", "mia_auc", "backdoor_asr")


@dataclass(frozen=True)
class Material:
    """What a report is made of."""

    plan: Plan
    preset: Preset
    places: Sequence[Place]
    records: Mapping[str, Record]
    missing: Mapping[str, str]  # data sets that are not here, and why
    command: str


def write_report(material: Material, out: Path) -> list[Path]:
    """Write all files of the report; return them."""
    files = {"cells.csv": cells_csv(material)}
    document = compose(material, out)
    files["report.md"] = markdown(document, out)
    files["report.html"] = webpage(document)
    for name, text in files.items():
        write_atomically(out / name, text)
    return [out / name for name in files]


def cells_csv(material: Material) -> str:
    """Return every cell of every experiment, a line each."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    models = [f"{model} {name}" for model in ("unlearned", "original") for name in FIGURES]
    head = ["experiment", "data set", "request", "run", "setting", "method", "seed", "status", "why"]
    writer.writerow([*head, *models, *COST, "seconds", "seconds of the cell", "release", "date", "digest"])
    for place in material.places:
        record = material.records.get(place.cell.digest)
        name = [place.experiment, place.data_set, place.request, place.run, place.setting, place.title, place.seed]
        status = [record.status, record.why] if record else ["missing", ""]
        figures = [_plain(one.get(figure)) for one in (_unlearned(record), _original(record)) for figure in FIGURES]
        cost = [_plain(record.cost.get(one)) if record else "" for one in COST]
        seconds = [_plain(record.seconds.get(one)) if record else "" for one in ("method", "cell")]
        made = [record.versions.get(one, "") if record else "" for one in ("fedora", "date")]
        writer.writerow([*name, *status, *figures, *cost, *seconds, *made, place.cell.digest])
    return text.getvalue()


def _unlearned(record: Record | None) -> dict[str, float | None]:
    return record.figures if record else {}


def _original(record: Record | None) -> dict[str, float | None]:
    return record.original if record else {}


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.10g}"


def compose(material: Material, out: Path) -> Document:
    """Put the report together."""
    sheet = Sheet(material.places, material.records)
    tables, plots = Tables(sheet, material.plan), Plots(sheet, material.plan, out / "plots")
    blocks: list[Block] = [*_opening(material, sheet, tables, plots)]
    for name, experiment in _experiments(material).items():
        blocks += _section(name, experiment, material, sheet, tables, plots)
    blocks += _gaps(material)
    blocks += _making(material)
    done = sum(record.done for record in material.records.values())
    wanted = len({place.cell.digest for place in material.places})
    measured = f"{done} of {wanted} cells measured, by release {_releases(material)}{_dates(material)}"
    subtitle = f"Preset `{material.preset}`; {measured}; page written by release {VERSION}."
    title = "Unlearning in vertical federated learning: the paper's experiments, run again"
    return Document(title, subtitle, blocks, letter="S")


def _experiments(material: Material) -> dict[str, Experiment]:
    """Return the experiments that the preset has."""
    every = material.plan.experiments
    return {name: one for name, one in every.items() if one.extent(material.preset).data}


def _in_short(material: Material, tables: Tables, plots: Plots) -> list[Block]:
    """Return the one picture and the one table for who reads no further."""
    table = tables.at_a_glance(["sample-unlearning", "label-unlearning"])
    picture = plots.trade_off(
        ["sample-unlearning", "label-unlearning"],
        "trade-off",
        "How far from Retrain, and for how many bytes. A point is a method on one data set and request, means over "
        "seeds: to the left is cheap, down is near Retrain. Distance: the mean of how far test accuracy, unlearning "
        "accuracy and the honest AUC (in hundredths) are from Retrain's, in points.",
    )
    return [
        Heading(2, "In short", "short"),
        *_originals(material),
        *([picture] if picture else []),
        *([table] if table else []),
    ]


def _originals(material: Material) -> list[Block]:
    """Say how good the models are that have to forget: of one that has learned little, forgetting says little."""
    found: dict[str, list[float]] = {}
    for place in material.places:
        record = material.records.get(place.cell.digest)
        accuracy = record.original.get("test_accuracy") if record and record.done else None
        # Where whole classes are forgotten, accuracy is that on the other classes.
        if accuracy is not None and place.run == "clean" and place.experiment == "sample-unlearning":
            found.setdefault(material.plan.data_sets[place.data_set].title, []).append(accuracy)
    told = [f"{100 * mean(values):.1f} % on {title}" for title, values in found.items()]
    return [Paragraph(f"Before they forget, models get these test rows right: {listed(told)}.")] if told else []


def _opening(material: Material, sheet: Sheet, tables: Tables, plots: Plots) -> list[Block]:
    found = findings(sheet, material.plan)
    whole = len(_experiments(material)) == len(material.plan.experiments)
    what = "Every table and figure" if whole else "Tables and figures"
    size = (
        "These runs are smaller than the paper's: parts of the data sets, smaller networks, fewer epochs, few seeds. "
        "Absolute figures are not comparable with the paper's; directions and orders are."
        if material.preset != "paper"
        else "These runs have the paper's data sets and kinds of network. The paper gives neither learning rates nor "
        "epochs nor FedORA's inputs, so that absolute figures may differ for that reason alone."
    )
    return [
        Paragraph(
            f"{what} of the paper, measured with this software: real processes that exchange nothing but protobuf "
            f"over gRPC, every byte counted at both ends. {size}"
        ),
        *_beyond(material),
        *_in_short(material, tables, plots),
        Heading(2, "The paper's claims, one by one", "findings"),
        Paragraph(f"{summary(found)} Claims are in our words; thresholds in brackets are ours."),
        *_claims(found),
        Heading(2, "How to read this", "what"),
        Paragraph(
            "Retrain, a model trained from scratch without the forgotten rows, is the reference for every figure: "
            "not 0 % for unlearning accuracy, and not 50 % for a membership attack. Rows named “− Retrain” give the "
            "difference to it, in points, or as it is for figures that are no percentages. "
            "± is the sample standard deviation over seeds. The paper's own figures stand beside ours, in italics."
        ),
        Paragraph(
            "One disagreement is expected. The paper's Retrain gets 30 % of the removed rows right on CIFAR-10 with "
            "half of two classes removed. As the other half of these classes is still learnt from, a model trained "
            "without the removed rows should do on them as on test rows of the same classes; the honest attack (AUC "
            "near 0.5 for Retrain) shows whether it does. And a method that ends far below that has not forgotten "
            "better: it has made rows stand out by how unsure it is of them."
        ),
        Fold("Methods", [Bullets([f"{one.title}: {one.about}" for one in material.plan.methods.values()])]),
        Fold("Data sets, networks, training", [_data_sets(material)]),
        *_ages(material),
    ]


def _beyond(material: Material) -> list[Block]:
    """Say which experiments the preset does without."""
    inside = _experiments(material)
    outside = [one.title for name, one in material.plan.experiments.items() if name not in inside]
    if not outside:
        return []
    return [Paragraph(f"This preset does without: {', '.join(outside)}. The preset `small` has them.")]


def _claims(found: list[Verdict]) -> list[Block]:
    """Return the claims that cells bear on, and folded away those that were not looked at."""
    looked_at = [one for one in found if one.holds != OPEN]
    others = [f"{one.claim} ({one.where})." for one in found if one.holds == OPEN]
    blocks: list[Block] = [Verdicts(looked_at)] if looked_at else []
    return [*blocks, Fold(f"Claims not measured in these runs: {len(others)}", [Bullets(others)])] if others else blocks


def _ages(material: Material) -> list[Block]:
    """Say which release measured each experiment's figures, and when."""
    rows, stale = [], set[str]()
    for name, experiment in material.plan.experiments.items():
        made: dict[tuple[str, str], set[str]] = {}
        for place in material.places:
            record = material.records.get(place.cell.digest) if place.experiment == name else None
            if record:
                release = record.versions["fedora"]
                made.setdefault((release, record.versions.get("date", "")), set()).add(record.digest)
                if not material.plan.methods[place.method].current(release, material.preset):
                    stale.add(place.title)
        for (release, date), cells in sorted(made.items()):
            rows.append([experiment.title, release, date or "not noted", f"{len(cells)}"])
    if not rows:
        return []
    notes = []
    if stale:
        notes = [f"To be made again, as the method has changed since: figures of {', '.join(sorted(stale))}."]
    elif any(release != VERSION for _, release, _, _ in rows):
        notes = ["Methods measured by earlier releases have not changed since: run again, they give the same figures."]
    grid = Grid(
        "Which release measured the figures, and when.", ["experiment", "release", "date", "cells"], rows, notes
    )
    return [grid] if stale else [Fold("Release and date of the figures", [grid])]


def _data_sets(material: Material) -> Table:
    rows = []
    for name in dict.fromkeys(place.data_set for place in material.places):
        described = material.plan.data_sets[name]
        size = described.size(material.preset)
        assert size is not None
        record = next((one for one in material.records.values() if one.done and one.data_set == name), None)
        rows_here = f"{record.cost['forgotten_rows'] + record.cost['remaining_rows']:,.0f}" if record else "–"
        model, train = _settings(size.model.model_dump(exclude_unset=True)), _settings(size.train)
        rows.append(Row(described.title, described.in_paper or "not in the paper", [rows_here, model, train]))
    return Table(
        "Data sets, networks and training of this preset.",
        ["", "in the paper", "training rows", "network", "training"],
        rows,
        text=True,
    )


def _settings(section: Mapping[str, object]) -> str:
    """Write settings so that they can be read at a glance."""
    return ", ".join(f"{name.replace('_', ' ')} {value}".replace("bottom ", "") for name, value in section.items())


def _section(
    name: str, experiment: Experiment, material: Material, sheet: Sheet, tables: Tables, plots: Plots
) -> list[Block]:
    source = listed([NUMBERS[label] for label in experiment.labels])
    blocks: list[Block] = [Heading(2, experiment.title, name), Paragraph(f"{experiment.about} In the paper: {source}.")]
    blocks += _without_figures(name, experiment, material)
    if not sheet.measured(name):
        return [*blocks, Paragraph("None of its cells has been run.")]
    data_sets = list(dict.fromkeys(line.data_set for line in sheet.lines(name)))
    match experiment.layout:
        case "methods":
            found: list[Block | None] = [tables.by_method(name, metric) for metric in MAIN_METRICS]
            bars = (
                "Hollow marks are the paper's values where its text or tables give any; whiskers are ± one deviation."
            )
            ua = plots.bars(name, ["forget_accuracy"], f"{name}-unlearning-accuracy", f"Unlearning accuracy. {bars}")
            attacks = plots.bars(
                name,
                ["mia_asr", "mia_auc", "backdoor_asr"],
                f"{name}-attacks",
                f"Membership attacks, the paper's (MIA-ASR) and the honest one (AUC), and backdoor success. {bars} "
                "Dotted: guessing.",
            )
            found = [found[0], found[1], ua, *found[2:5], found[5], attacks]
        case "time":
            found = [tables.by_method(name, "seconds_per_round")]
        case "cost":
            found = [tables.cost(name, data_set) for data_set in data_sets]
        case "curves":
            marks = "Dashed: Retrain. Hollow marks: the paper's values, on CIFAR-10 at the paper's size."
            found = [plots.curves(name, name, f"{experiment.title}. {marks}")]
            found += [tables.by_setting(name, data_set) for data_set in data_sets]
        case "settings":
            found = [tables.by_setting(name, data_set) for data_set in data_sets]
    return [*blocks, *(block for block in found if block is not None)]


def _without_figures(name: str, experiment: Experiment, material: Material) -> list[Block]:
    """Say of which of the paper's rows there is no figure of ours, and why not."""
    extent = experiment.extent(material.preset)
    done = {
        (place.data_set, place.request)
        for place in material.places
        if place.experiment == name and (record := material.records.get(place.cell.digest)) and record.done
    }
    whole: dict[str, list[str]] = {}  # by reason
    in_paper = {name: one.title for name, one in material.plan.data_sets.items() if one.in_paper}
    for data_set, title in in_paper.items():
        requests = experiment.requests.get(data_set, [])
        absent: dict[str, str] = {}
        for request in requests:
            if (data_set, request.title) not in done:
                inside = data_set in extent.data and extent.has(request)
                why = "No files were given" if data_set in material.missing else "Not run"
                absent[request.title] = why if inside else "Not in this preset"
        for why in dict.fromkeys(absent.values()):
            these = [one for one, reason in absent.items() if reason == why]
            whole.setdefault(why, []).append(title if len(these) == len(requests) else f"{title} {' and '.join(these)}")
    if not whole or not done:
        return []
    said = " ".join(f"{why}: {'; '.join(titles)}." for why, titles in whole.items())
    return [Paragraph(f"Rows of the paper without a figure of ours. {said}")]


def _gaps(material: Material) -> list[Block]:
    """Say which cells are not there."""
    missing: dict[str, Place] = {}
    failed: dict[str, tuple[Place, Record]] = {}
    for place in material.places:
        record = material.records.get(place.cell.digest)
        if record is None:
            missing.setdefault(place.cell.digest, place)
        elif not record.done:
            failed.setdefault(place.cell.digest, (place, record))
    blocks: list[Block] = [Heading(2, "Cells that are missing or have failed", "gaps")]
    if material.missing:
        blocks.append(Bullets([f"{sentence}." for sentence in material.missing.values()]))
    if failed:
        blocks.append(Paragraph(f"{len(failed)} cells failed:"))
        blocks.append(Bullets([f"{describe(place)}: {record.why}" for place, record in failed.values()]))
    if missing:
        counts: dict[str, int] = {}
        for place in missing.values():
            key = f"{place.experiment}, {place.data_set}, {'with a backdoor' if place.run == 'backdoor' else 'clean'}"
            counts[key] = counts.get(key, 0) + 1
        blocks.append(Paragraph(f"{len(missing)} cells have not been run:"))
        blocks.append(Bullets([f"{key}: {count}" for key, count in counts.items()]))
    if not (material.missing or failed or missing):
        blocks.append(Paragraph("None: every cell of the preset was run and gave figures."))
    return blocks


def _releases(material: Material) -> str:
    """Name the releases that have measured the cells, the oldest first."""
    found = {record.versions["fedora"] for record in material.records.values()}
    return ", ".join(sorted(found, key=lambda release: [int(part) for part in re.findall("[0-9]+", release)])) or "–"


def _dates(material: Material) -> str:
    """Say on which days, where they were noted."""
    days = sorted({day for record in material.records.values() if (day := record.versions.get("date"))})
    return "" if not days else f" on {days[0]}" if len(days) == 1 else f" from {days[0]} to {days[-1]}"


def _making(material: Material) -> list[Block]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    libraries = ", ".join(f"{name} {version(name)}" for name in ("torch", "grpcio", "numpy"))
    seconds = sum(record.seconds.get("cell", 0) for record in material.records.values())
    facts = [
        f"{os.cpu_count()} cores, {memory:.0f} GiB of memory; Python {platform.python_version()}; {libraries}.",
        f"Measured with release {_releases(material)}; all cells together took {seconds / 60:.0f} minutes.",
        "Each cell is a job on a cluster of real processes, from one original model per data set, run and seed. The "
        "same seed gives the same figures; only seconds differ.",
        "cells.csv has every cell with all its figures; cells/ has them with all settings.",
    ]
    if "," in _releases(material):
        facts.append("Cells of several releases stand side by side; choose a new folder to run all of them again.")
    return [Heading(2, "How this was made", "making"), Code(material.command), Bullets(facts)]
