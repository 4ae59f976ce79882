"""The page of a run: it says what the files of the run say, needs nothing from elsewhere, and trusts none of them."""

import html
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fedora_vfl.cli.run_report import make
from fedora_vfl.errors import DataError
from tests.conftest import pinned_keys, run, write_people


@pytest.fixture(scope="module")
def forgotten(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train, forget and compare; return the folder of the run."""
    folder = tmp_path_factory.mktemp("report")
    people = write_people(folder / "people.csv")
    data = {"source": "csv", "path": str(people), "id": "person"}
    run(
        {"data": data, "train": {"epochs": 3}, "forget": {"samples": 40}, "compare": ["retrain", "ga"]},
        folder / "out",
    )
    return folder / "out"


class Reader(HTMLParser):
    """Takes a page apart: its words, its tags, and all that it would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.append(tag)
        self.loaded += [value for name, value in attrs if name in ("src", "href", "srcset") and value]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Note that the tag opened last is closed."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keep the words, but for the style."""
        if self.open and self.open[-1] != "style":
            self.words.append(data)


def taken_apart(page: str) -> Reader:
    """Return what a page consists of; every tag that is opened is closed."""
    reader = Reader()
    reader.feed(page)
    assert not reader.open
    return reader


def result_of(folder: Path) -> dict[str, Any]:
    """Return the figures of a run."""
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


def test_a_page_needs_nothing_from_elsewhere_and_has_every_figure(forgotten: Path) -> None:
    page = make(forgotten, None, None, [])
    reader, result = taken_apart(page), result_of(forgotten)
    assert all(one.startswith(("data:image/", "#")) for one in reader.loaded)
    assert "script" not in reader.tags and "link" not in reader.tags
    said = " ".join(reader.words)
    assert all(sentence in said for sentence in result["verdict"])
    for model in ("original", "unlearned", "retrain", "ga"):
        assert f"{100 * result[model]['test_accuracy']:.1f} %" in said
    assert f"{result['gap']['mia_auc']:+.3f}".replace("-", "−") in said
    assert "40 rows, drawn at random" in said
    sums = {line["direction"] for line in result["bytes"]["links"]}
    assert all(direction.replace("->", " → ") in said for direction in sums)


def test_the_page_says_how_the_certificate_stood_up(forgotten: Path, tmp_path: Path) -> None:
    trust = [word for word in pinned_keys(forgotten) if "=" in word]
    assert "The certificate holds" in make(forgotten, None, None, trust)
    assert "was not checked to the end" in make(forgotten, None, None, [])
    changed = shutil.copytree(forgotten, tmp_path / "changed")
    certificate = changed / "certificate.json"
    certificate.write_text(certificate.read_text().replace('"rows": 40', '"rows": 41'))
    page = make(changed, None, None, trust)
    assert "The certificate does not hold" in page and "What it claims" not in page
    certificate.unlink()
    assert "The certificate is missing" in make(changed, None, None, trust)
    result = result_of(changed)
    result["job"]["certificate"] = False
    (changed / "result.json").write_text(json.dumps(result))
    assert "There is no certificate: the job did not ask for one" in make(changed, None, None, trust)


def test_a_page_whose_figures_nobody_signed_says_so(forgotten: Path, tmp_path: Path) -> None:
    changed = shutil.copytree(forgotten, tmp_path / "better")
    result = result_of(changed)
    result["unlearned"]["mia_auc"] = 0.5
    (changed / "result.json").write_text(json.dumps(result))
    page = make(changed, None, None, [word for word in pinned_keys(changed) if "=" in word])
    assert "other values than were signed for mia_auc of unlearned" in page
    assert "The certificate holds" not in page


def test_words_and_numbers_of_rows_that_nobody_signed_are_not_passed_on(forgotten: Path, tmp_path: Path) -> None:
    changed = shutil.copytree(forgotten, tmp_path / "praised")
    trust = [word for word in pinned_keys(changed) if "=" in word]
    result = result_of(changed)
    honest, result["verdict"] = result["verdict"], ["All is well."]
    (changed / "result.json").write_text(json.dumps(result))
    said = " ".join(taken_apart(make(changed, None, None, trust)).words)
    assert "All is well." not in said and all(sentence in said for sentence in honest)
    result["forget"]["rows"] += 1
    (changed / "result.json").write_text(json.dumps(result))
    assert "other values than were signed for the number of rows" in make(changed, None, None, trust)


def test_words_from_the_files_are_text_and_nothing_else(forgotten: Path, tmp_path: Path) -> None:
    sly = "<img src=http://elsewhere/x onerror=alert(1)>"
    changed = shutil.copytree(forgotten, tmp_path / "sly")
    result = result_of(changed)
    result["verdict"] = [sly]
    result["unlearning"]["stopped"] = f"`{sly}`"
    result["parties"][sly] = result["parties"].pop("passive-1")
    for line in result["bytes"]["links"]:
        line["direction"] = line["direction"].replace("passive-1", sly)
    (changed / "result.json").write_text(json.dumps(result))
    page = make(changed, None, None, [])
    assert all(one.startswith(("data:image/", "#")) for one in taken_apart(page).loaded)
    assert html.escape(sly, quote=False) in page


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"unlearned": 3}', "[" * 100_000, '{"original": {}}'])
def test_a_file_that_is_no_result_is_one_sentence(content: str, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(DataError, match=re.escape(str(tmp_path / "result.json"))):
        make(tmp_path, None, None, [])


def test_a_folder_without_a_run_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="name the folder of a run"):
        make(tmp_path, None, None, [])


def test_a_training_alone_has_a_page_too(tmp_path: Path) -> None:
    people = write_people(tmp_path / "people.csv")
    run({"data": {"source": "csv", "path": str(people), "id": "person"}, "train": {"epochs": 1}}, tmp_path / "out")
    page = make(tmp_path / "out", None, None, [])
    assert f"{result_of(tmp_path / 'out')['original']['test_accuracy']:.2%}" in page
    assert "Nobody was to be forgotten" in page
