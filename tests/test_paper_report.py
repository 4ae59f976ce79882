"""The report of the paper's experiments: every table and figure, from whatever cells there are."""

import csv
import io
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fedora_vfl.bench.paper.cells import Cell, Place, distinct, places
from fedora_vfl.bench.paper.command import Asked, report
from fedora_vfl.bench.paper.experiments import Plan, load_plan
from fedora_vfl.bench.paper.figures import NUMBERS, figure
from fedora_vfl.bench.paper.findings import CLAIMS, NO, OPEN, YES, findings
from fedora_vfl.bench.paper.report import Material, write_report
from fedora_vfl.bench.paper.sheet import Sheet, SheetRow
from fedora_vfl.bench.paper.sources import Source
from fedora_vfl.bench.paper.store import DONE, Record
from fedora_vfl.bench.paper.sweep import failed
from fedora_vfl.bench.paper.tables import Tables
from fedora_vfl.wire.protocol import VERSION

PLAN = load_plan()
PLACES = list(
    places(PLAN, "small", {name: Source(one.data, one.data) for name, one in PLAN.data_sets.items()}),
)


def measured(cell: Cell, **figures: float | None) -> Record:
    """Return a cell with figures that its digest decides."""
    draw = random.Random(cell.digest)
    clean = cell.group.run == "clean"
    made: dict[str, float | None] = {
        "test_accuracy": draw.uniform(0.3, 0.9),
        "forget_accuracy": draw.uniform(0.0, 0.9),
        "mia_asr": draw.uniform(0.4, 0.7) if clean else None,
        "mia_auc": draw.uniform(0.4, 0.7) if clean else None,
        "backdoor_asr": None if clean else draw.uniform(0.0, 1.0),
    }
    return Record(
        cell=cell.content,
        digest=cell.digest,
        method=cell.method,
        settings={"part": 0.5, "budget": 0.16, **cell.unlearn},
        status=DONE,
        why="",
        figures={**made, **figures},
        original=made,
        cost={
            "rounds": 5,
            "forgotten_rows": 40,
            "remaining_rows": 360,
            "predicted": 9e5,
            "tensor": 9e5,
            "protobuf": 1e6,
        },
        seconds={"method": draw.uniform(1, 2), "cell": 3.0},
        versions={"fedora": "0"},
    )


def material(records: dict[str, Record], chosen: list[Place] = PLACES, plan: Plan = PLAN) -> Material:
    """Return what a report is made of."""
    missing = {"cifar100": "cifar100 is left out: nobody has it"}
    return Material(plan, "small", chosen, records, missing, "fedora bench paper")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of all cells, one of which has failed."""
    out = tmp_path_factory.mktemp("report")
    records = {digest: measured(cell) for digest, cell in distinct(PLACES).items()}
    broken = next(iter(distinct(PLACES).values()))
    records[broken.digest] = failed(broken, "active reported a loss that is not <finite>")
    write_report(material(records), out)
    return out


def test_the_report_names_every_table_and_figure_of_the_paper(whole: Path) -> None:
    for name in ("report.md", "report.html"):
        text = (whole / name).read_text()
        for number in NUMBERS.values():
            assert number in text, (name, number)


def test_every_line_of_every_experiment_is_in_the_tables(whole: Path) -> None:
    text = (whole / "report.md").read_text()
    for name, experiment in PLAN.experiments.items():
        section = text.split(f'<a id="{name}"></a>')[1].split("<a id=")[0]
        assert experiment.title in section
        for place in PLACES:
            if place.experiment == name:
                assert place.title in section and PLAN.data_sets[place.data_set].title in section


def test_the_page_needs_nothing_from_elsewhere(whole: Path) -> None:
    page = (whole / "report.html").read_text()
    assert not re.findall(r"(?:src|href)\s*=\s*[\"'](?!#|data:)", page)
    assert "@import" not in page and "url(" not in page and "<script" not in page
    anchors = set(re.findall(r'href="#([^"]+)"', page))
    assert anchors and anchors <= set(re.findall(r'id="([^"]+)"', page))


def test_what_a_party_says_is_shown_as_text(whole: Path) -> None:
    page = (whole / "report.html").read_text()
    assert "not &lt;finite&gt;" in page and "<finite>" not in page


def test_plots_are_files_too(whole: Path) -> None:
    plots = {path.stem for path in (whole / "plots").glob("*.svg")}
    assert {"figure-omega", "figure-delta", "sample-unlearning-attacks", "label-unlearning-attacks"} <= plots
    for link in re.findall(r"!\[.*?\]\((.*?)\)", (whole / "report.md").read_text()):
        assert (whole / link).is_file()


def test_the_same_cells_give_the_same_report(whole: Path, tmp_path: Path) -> None:
    records = {digest: measured(cell) for digest, cell in reversed(distinct(PLACES).items())}
    broken = next(iter(distinct(PLACES).values()))
    records[broken.digest] = failed(broken, "active reported a loss that is not <finite>")
    write_report(material(records), tmp_path)
    for name in ("report.html", "report.md", "cells.csv"):
        assert (tmp_path / name).read_bytes() == (whole / name).read_bytes()


def test_every_cell_is_in_the_table_of_cells(whole: Path) -> None:
    rows = list(csv.DictReader(io.StringIO((whole / "cells.csv").read_text())))
    assert len(rows) == len(PLACES)
    assert sum(row["status"] == "failed" for row in rows) >= 1
    assert all(row["unlearned test_accuracy"] for row in rows if row["status"] == "done")


def test_a_report_without_any_cell_says_so(tmp_path: Path) -> None:
    write_report(material({}), tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "None of its cells has been run" in text
    assert "cifar100 is left out" in text
    assert f"{len(distinct(PLACES))} cells have not been run" in text


def test_every_row_of_the_papers_tables_has_a_figure_or_says_why_not(tmp_path: Path) -> None:
    chosen = [place for place in PLACES if place.data_set != "cifar100"]  # of which no files are given
    cells = distinct(place for place in chosen if place.data_set == "digits")
    write_report(material({digest: measured(cell) for digest, cell in cells.items()}, chosen), tmp_path)
    text = (tmp_path / "report.md").read_text()
    section = text.split('<a id="sample-unlearning"></a>')[1].split("<a id=")[0]
    assert "Not run: Income; PathMNIST; CIFAR-10; Tiny-ImageNet. No files were given: CIFAR-100." in section


def test_a_preset_tells_what_it_does_without_and_how_good_its_models_are(tmp_path: Path) -> None:
    every = list(places(PLAN, "medium", {name: Source(one.data, one.data) for name, one in PLAN.data_sets.items()}))
    chosen = [place for place in every if place.data_set == "cifar10" and place.experiment == "sample-unlearning"]
    records = {digest: measured(cell) for digest, cell in distinct(chosen).items()}
    write_report(Material(PLAN, "medium", every, records, {}, "fedora bench paper"), tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "This preset does without: Running time" in text and '<a id="table-noise">' not in text
    assert re.search(r"Before they forget, models get these test rows right: \d+\.\d % on CIFAR-10\.", text)
    assert re.search(r"Not in this preset: .*; CIFAR-10 m=5, n=50%;", text)
    assert "Claims not measured in these runs" in text


def test_a_report_does_not_tell_where_its_readers_files_lie(tmp_path: Path) -> None:
    folder = tmp_path / "private"
    folder.mkdir()
    asked = Asked(preset="small", only=[], data=folder, out=tmp_path / "out")
    report(asked, Console(quiet=True))
    for name in ("report.md", "report.html", "cells.csv"):
        assert str(folder) not in (tmp_path / "out" / name).read_text()
    assert "FOLDER holds no cifar100.npz" in (tmp_path / "out" / "report.md").read_text()


def test_a_gap_is_taken_from_retrain_seed_by_seed() -> None:
    line = SheetRow("sample-unlearning", "digits", "m=2, n=50%", "", "GA")
    members = [place for place in PLACES if place.data_set == "digits" and place.experiment == line.experiment]
    members = [place for place in members if place.seed < 2]
    accuracy = {("Retrain", 0): 0.9, ("Retrain", 1): 0.7, ("GA", 0): 0.8, ("GA", 1): 0.5}
    records = {
        place.cell.digest: measured(place.cell, test_accuracy=accuracy[place.title, place.seed])
        for place in members
        if (place.title, place.seed) in accuracy
    }
    sheet = Sheet(members, records)
    assert sheet.gap(line, "test_accuracy") == pytest.approx(-0.15)
    assert Tables(sheet, PLAN).entry(line, "test_accuracy") == "65.0 ± 21.2"
    assert Tables(sheet, PLAN).gap(line, "test_accuracy") == "−15.0"


def test_the_papers_figure_stands_beside_ours() -> None:
    known = figure("cifar10", "m=2, n=50%", "", "FedORA", "test_accuracy")
    assert known and known.value == 0.8165
    table = Tables(Sheet(PLACES, {d: measured(c) for d, c in distinct(PLACES).items()}), PLAN).by_method(
        "sample-unlearning", "test_accuracy"
    )
    assert table
    told = [row.entries for row in table.rows if row.whose == "paper" and row.label == "CIFAR-10, m=2, n=50%"]
    assert told == [["81.5", "68.4", "80.8", "78.5", "81.7", "81.7"]]


def test_claims_are_judged_by_the_figures() -> None:
    assert all(one.holds == OPEN for one in findings(Sheet(PLACES, {}), PLAN))
    for accuracy, verdict in ((0.1, YES), (0.95, NO)):
        records = {
            digest: measured(cell, test_accuracy=accuracy if cell.method == "ga" else 0.9)
            for digest, cell in distinct(PLACES).items()
        }
        found = findings(Sheet(PLACES, records), PLAN)
        assert len(found) == len(CLAIMS)
        assert next(one.holds for one in found if one.claim.startswith("Gradient ascent costs")) == verdict


def test_only_figures_whose_method_has_changed_since_are_to_be_made_again(tmp_path: Path) -> None:
    """Retrain gives the same figures since 0.7.0, FedORA's own steps do not."""
    chosen = [one for one in PLACES if one.experiment == "sample-unlearning" and one.data_set == "digits"]
    by_title = {one.title: one for one in chosen}
    old, new = by_title["Retrain"], by_title["FedORA (auto)"]
    for release, stale in (("0.7.0", True), (VERSION, False)):
        versions = {old: "0.7.0", new: release}
        records = {
            place.cell.digest: replace(measured(place.cell), versions={"fedora": by}) for place, by in versions.items()
        }
        write_report(material(records, [old, new]), tmp_path)
        written = (tmp_path / "report.md").read_text(encoding="utf-8")
        assert ("To be made again, as the method has changed since: figures of FedORA (auto)." in written) == stale
        assert ("have not changed since" in written) != stale


@pytest.mark.parametrize("release", ["0.5.0 or earlier", "", "0.6.9"])
def test_figures_of_releases_that_are_too_old_or_not_known_do_not_count(release: str) -> None:
    assert not PLAN.methods["retrain"].current(release, "small")
    assert PLAN.methods["retrain"].current("0.10.0", "small"), "by number, not by letter"


def test_seconds_that_two_releases_took_are_not_held_against_each_other() -> None:
    chosen = [one for one in PLACES if one.experiment == "table-cost" and one.data_set == "digits"]
    retrain = next(one for one in chosen if one.title == "Retrain")
    other = next(one for one in chosen if one.title == "GA" and one.seed == retrain.seed)
    for releases, comparable in ((("0.7.0", "0.7.0"), True), (("0.7.0", "0.8.0"), False)):
        records = {
            place.cell.digest: replace(measured(place.cell), versions={"fedora": by})
            for place, by in zip((retrain, other), releases, strict=True)
        }
        sheet = Sheet([retrain, other], records)
        (line,) = (one for one in sheet.lines("table-cost") if one.title == "GA")
        assert (sheet.share(line, "seconds") is not None) == comparable
        assert sheet.share(line, "bytes") == 1.0, "bytes are the same whoever counts them"
