"""Ids of different files: what the federation's `matching` takes for one, and what it refuses."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from fedora_vfl.cli.__main__ import app
from fedora_vfl.errors import DataError
from fedora_vfl.settings.matching import SEPARATOR, Matching
from party.data.matching import matched
from party.data.reading import read
from party.data.settings import DataSettings
from party.handed_request import read_handed

ALL = Matching(parts=2, unicode="nfkc", case="fold", spaces="collapse", zeros="strip", dates=[2])


@pytest.mark.parametrize(
    ("settings", "one", "other"),
    [
        ({"case": "fold"}, "Straße", "STRASSE"),
        ({"spaces": "collapse"}, "Anna  Maria", "Anna Maria"),
        ({"spaces": "remove"}, "12 34 56", "123456"),
        ({"unicode": "nfkc"}, "Zoe\u0308", "Zo\u00eb"),
        ({"unicode": "nfkc"}, "１２３", "123"),
        ({"zeros": "strip"}, "00817", "817"),
        ({"zeros": "strip"}, "000", "0"),
        ({"unicode": "nfkc", "case": "fold"}, "ﬁ Ⅷ", "FI viii"),
    ],
)
def test_what_a_setting_takes_for_one_is_two_without_it(settings: dict[str, Any], one: str, other: str) -> None:
    matching = Matching(**settings)
    assert matching.matched([one]) == matching.matched([other])
    assert Matching().matched([one]) == one != other
    assert matching.matched([matching.matched([one])]) == matching.matched([one])  # a form is its own form


def test_nothing_is_taken_for_one_that_was_not_asked_for() -> None:
    assert Matching(zeros="strip").matched(["A007"]) == "A007"
    assert Matching(case="fold").matched(["a b"]) != Matching(case="fold").matched(["ab"])
    assert ALL.matched(["ab", "2020-01-02"]) != ALL.matched(["a", "2020-01-02"])


def party(folder: Path, lines: list[str], matching: dict[str, Any], **data: Any) -> Path:
    """Write a passive party's file with its data and its federation's matching."""
    federation = {
        "coordinator": {"address": "127.0.0.1:7000"},
        "active": {"address": "127.0.0.1:7001"},
        "passive": ["hospital"],
        "matching": matching,
    }
    (folder / "federation.yaml").write_text(yaml.safe_dump(federation))
    (folder / "people.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    content = {"name": "hospital", "federation": "federation.yaml", "data": {"path": "people.csv", **data}}
    path = folder / "hospital.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


PEOPLE = ["name,born,age", "Anna  MÜLLER,01.02.1990,3", "Bo Li,3.12.1985,4"]
RULES: dict[str, Any] = {"parts": 2, "case": "fold", "spaces": "collapse", "dates": [2]}


def test_a_composite_id_with_a_date_is_the_same_whatever_the_file_writes(tmp_path: Path) -> None:
    forms = []
    for folder, lines, written in (
        ("one", PEOPLE, "%d.%m.%Y"),
        ("two", ["n,b,x", "anna müller,1990-02-01,1", "BO LI,1985-12-03,2"], None),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "p.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        columns = lines[0].split(",")[:2]
        settings = DataSettings(path=tmp_path / folder / "p.csv", id=columns, date_format=written)  # type: ignore[arg-type]
        records = read(settings, with_labels=False)
        assert records.features is not None and len(records.features) == 2
        forms.append(matched(records, Matching(**RULES), settings).ids)
    assert forms[0] == forms[1] == [f"anna müller{SEPARATOR}1990-02-01", f"bo li{SEPARATOR}1985-12-03"]


def test_two_rows_that_become_one_are_an_error_with_both_spellings(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("id,x\nAnna,1\nBo,2\nANNA,3\n")
    settings = DataSettings(path=path)
    with pytest.raises(DataError, match="by the federation's `matching` the ids 'Anna' and 'ANNA' are one"):
        matched(read(settings, with_labels=False), Matching(case="fold"), settings)
    assert matched(read(settings, with_labels=False), Matching(), settings).ids == ["Anna", "Bo", "ANNA"]


@pytest.mark.parametrize(
    ("lines", "rules", "said"),
    [
        (["name,born,age", "Anna,31.02.1990,3"], RULES, "has a part that is no date"),
        (PEOPLE, {**RULES, "parts": 3}, "has 2 parts, and the federation's `matching` says 3"),
    ],
)
def test_what_cannot_be_matched_is_said(tmp_path: Path, lines: list[str], rules: dict[str, Any], said: str) -> None:
    file = party(tmp_path, lines, rules, id=["name", "born"], date_format="%d.%m.%Y")
    told = CliRunner().invoke(app, ["data", "match", str(file)])
    assert told.exit_code == DataError.exit_code and said in told.stderr


def test_the_preview_shows_what_becomes_of_the_own_ids(tmp_path: Path) -> None:
    file = party(tmp_path, PEOPLE, RULES, id=["name", "born"], date_format="%d.%m.%Y")
    told = CliRunner().invoke(app, ["data", "match", str(file)])
    assert told.exit_code == 0, told.output
    assert "'Anna  MÜLLER' + '01.02.1990'  →  'anna müller' + '1990-02-01'" in told.stdout
    assert "2 of 2 ids are compared in another form" in told.stdout


def test_a_request_may_spell_ids_as_the_file_does(tmp_path: Path) -> None:
    file = party(tmp_path, PEOPLE, RULES, id=["name", "born"], date_format="%d.%m.%Y")
    (tmp_path / "leaving.txt").write_text("anna Müller\t1.2.1990\n", encoding="utf-8")
    told = CliRunner().invoke(app, ["request", str(file), "--ids", str(tmp_path / "leaving.txt"), "--name", "one"])
    assert told.exit_code == 0, told.output
    assert told.stdout.startswith("1 id is handed in; name it in a job with: forget: {request: one}")
    assert "not in" not in told.stdout
    handed = read_handed(tmp_path / "keys", "one")
    assert handed is not None and handed.ids == [f"anna müller{SEPARATOR}1990-02-01"]
    again = CliRunner().invoke(app, ["request", str(file), "--ids", str(tmp_path / "leaving.txt"), "--name", "one"])
    assert again.exit_code and "was handed in already" in again.stderr


def test_a_request_says_which_ids_the_own_file_does_not_have_and_which_line_is_wrong(tmp_path: Path) -> None:
    file = party(tmp_path, PEOPLE, RULES, id=["name", "born"], date_format="%d.%m.%Y")
    leaving = tmp_path / "leaving.txt"
    leaving.write_text("anna Müller\t1.2.1990\n\nAnna Miller\t1.2.1990\n", encoding="utf-8")
    told = CliRunner().invoke(app, ["request", str(file), "--ids", str(leaving), "--name", "one"])
    assert told.exit_code == 0 and "1 of 2 is not in" in told.stdout, told.output
    leaving.write_text("anna Müller\t1.2.1990\n\nAnna Miller\n", encoding="utf-8")
    told = CliRunner().invoke(app, ["request", str(file), "--ids", str(leaving), "--name", "two"])
    assert told.exit_code and "leaving.txt, line 3: the id has 1 parts" in told.stderr
    assert read_handed(tmp_path / "keys", "two") is None
