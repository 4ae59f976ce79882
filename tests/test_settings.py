"""What settings files promise: a mistake is one sentence that names the file, the field and what is allowed."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from coordinator.job import Forget, Job
from coordinator.serving import serve
from coordinator.train import Train
from coordinator.wire import Wire
from fedora_vfl.datasets.catalogue import SOURCES, DataSource
from fedora_vfl.datasets.income.loading import IncomeData
from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.federation import Federation, load_federation
from fedora_vfl.settings.files import Settings, load, parse
from fedora_vfl.wire import addresses
from party.settings import load_party
from tests.conftest import write_yaml

deterministic = hypothesis.settings(derandomize=True, deadline=None)


class DataSection(Settings):
    """The part of a job file that speaks of data, as `fedora run` checks it."""

    data: DataSource


def refusal(text: str, kind: type[BaseModel] = Job) -> list[str]:
    """Return the sentences with which a file's text is refused."""
    with pytest.raises(SettingsError) as caught:
        parse(text, kind, origin="job.yaml")
    return str(caught.value).splitlines()


def names_of(kind: type[BaseModel]) -> str:
    """List the settings of a group by the names they have in a file."""
    return ", ".join(sorted(field.alias or name for name, field in kind.model_fields.items()))


# Fields


@pytest.mark.parametrize(
    ("text", "place", "hint", "allowed"),
    [
        ("train: {epoch: 3}", "train.epoch", "did you mean `epochs`? ", names_of(Train)),
        ("train: {learning_rate: 0.1}", "train.learning_rate", "did you mean `lr`? ", names_of(Train)),
        ("train: {load: runs/first}", "train.load", "did you mean `from`? ", names_of(Train)),
        ("train: {augment: {shfit: 1}}", "train.augment.shfit", "did you mean `shift`? ", "flip, shift"),
        ("tain: {epochs: 3}", "tain", "did you mean `train`? ", names_of(Job)),
        ("evaluate: {rounds: 3}", "evaluate.rounds", "", "batch_size, every"),
        ("wire: {type: float16}", "wire.type", "did you mean `encoding`? ", names_of(Wire)),
    ],
)
def test_an_unknown_setting_is_refused_with_a_near_miss_and_all_that_is_allowed(
    text: str, place: str, hint: str, allowed: str
) -> None:
    assert refusal(text) == [f"job.yaml: {place}: unknown setting; {hint}allowed here: {allowed}"]


def test_the_encoding_may_be_called_dtype_as_it_was_and_is_shown_by_its_name() -> None:
    wire = parse("wire: {dtype: float16}", Job, origin="job.yaml").wire
    assert wire.model_dump(by_alias=True, exclude_defaults=True) == {"encoding": "float16"}


def test_the_learning_rate_is_among_what_is_allowed_by_its_name_in_the_file() -> None:
    names = names_of(Train).split(", ")
    assert "lr" in names
    assert "from" in names
    assert "load" not in names


def test_an_unknown_setting_named_like_its_own_group_is_refused_with_what_the_group_allows() -> None:
    assert refusal("train: {train: 3}") == [
        f"job.yaml: train.train: unknown setting; allowed here: {names_of(Train)}",
    ]


@pytest.mark.parametrize(
    ("text", "start", "parts"),
    [
        ("train: {lr: fast}", "train.lr: should be a valid number", ["(got 'fast')"]),
        ("train: {epochs: 2.5}", "train.epochs: should be a valid integer", ["(got 2.5)"]),
        ("train: {epochs: many}", "train.epochs: should be a valid integer", ["(got 'many')"]),
        ("train: {nesterov: 7}", "train.nesterov: should be a valid boolean", ["(got 7)"]),
        ("train: 5", "train: should be a valid dictionary", ["(got 5)"]),
        ("train: null", "train: should be a valid dictionary", ["(got None)"]),
        ("train: {betas: 3}", "train.betas: should be a valid tuple", ["(got 3)"]),
        ("train: {betas: [0.9]}", "train.betas.1: is missing", []),
        ("train: {betas: [0.9, x]}", "train.betas.1: should be a valid number", ["(got 'x')"]),
        ("model: {top: 128}", "model.top: should be a valid list", ["(got 128)"]),
        ("data: 3", "data: should be a valid dictionary", ["(got 3)"]),
        ("train: {optimizer: sdg}", "train.optimizer: should be", ["'sgd'", "'adam'", "(got 'sdg')"]),
        ("train: {optimizer: [sgd]}", "train.optimizer: should be", ["'sgd'", "'adam'"]),
        (
            "wire: {encoding: int7}",
            "wire.encoding: there is no encoding 'int7'; allowed: ",
            ["float32", "float16", "bfloat16"],
        ),
        ("train: {schedule: linear}", "train.schedule: should be", ["'constant'", "'step'", "'cosine'"]),
        ("train: {epochs: -1}", "train.epochs: should be greater than or equal to 0", ["(got -1)"]),
        ("train: {lr: 0}", "train.lr: should be greater than 0", ["(got 0)"]),
        ("train: {lr: .nan}", "train.lr: should be ", ["(got nan)"]),
        ("train: {momentum: 1}", "train.momentum: should be less than 1", ["(got 1)"]),
        ("train: {batch_size: 0}", "train.batch_size: should be greater than 0", ["(got 0)"]),
        ("train: {augment: {shift: 17}}", "train.augment.shift: should be less than or equal to 16", ["(got 17)"]),
        ("model: {embedding: 0}", "model.embedding: should be greater than 0", ["(got 0)"]),
        ("model: {embedding: 16385}", "model.embedding: should be less than or equal to 16384", ["(got 16385)"]),
        ("model: {top: [128, 0]}", "model.top.1: should be greater than 0", ["(got 0)"]),
        ("seed: -1", "seed: should be greater than or equal to 0", ["(got -1)"]),
        ("seed: 9223372036854775808", "seed: should be less than 9223372036854775808", []),
        ("train: {save: ../model}", "train.save: ", ["(got '../model')"]),
        ("train: {nesterov: true, momentum: 0}", "train: nesterov needs a momentum above 0", []),
        ("train: {1: 2}", "train.1: Keys should be strings", []),
        ("null: 2", "None: Keys should be strings", []),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_place_and_with_what_was_given(
    text: str, start: str, parts: list[str]
) -> None:
    (sentence,) = refusal(text)
    assert sentence.startswith(f"job.yaml: {start}")
    assert all(part in sentence for part in parts)


@pytest.mark.parametrize(
    "text", ["train: {lr: .inf}", "train: {epsilon: .inf}", "train: {weight_decay: .inf}", "train: {lr: 1e999}"]
)
def test_an_infinite_number_is_refused(text: str) -> None:
    (sentence,) = refusal(text)
    assert sentence.startswith("job.yaml: train.")


def test_every_mistake_gets_a_sentence_of_its_own() -> None:
    sentences = refusal("train: {epochs: -1, lr: fast, epoch: 3}\nmodel: {embedding: 0}\nsede: 1")
    places = [sentence.split(": ")[:2] for sentence in sentences]
    expected = ["model.embedding", "sede", "train.epoch", "train.epochs", "train.lr"]
    assert sorted(places) == [["job.yaml", place] for place in expected]


def test_values_that_yaml_takes_for_text_are_still_numbers() -> None:
    assert parse("train: {lr: 1e-3}", Job, origin="job.yaml").train.lr == 0.001


def test_checked_settings_cannot_be_changed() -> None:
    job = parse("seed: 3", Job, origin="job.yaml")
    with pytest.raises(ValueError, match="frozen"):
        job.seed = 4
    assert job.seed == 3


def test_an_empty_file_is_a_file_of_defaults() -> None:
    assert parse("", Job, origin="job.yaml") == parse("# nothing\n", Job, origin="job.yaml") == Job()


# Files


@pytest.mark.parametrize(
    ("text", "line"), [("seed: 1\ntrain: [", 2), ("seed:\n\tbad", 2), ("seed: *nobody", 1), ("a: b: c", 1), ("%", 1)]
)
def test_broken_yaml_is_refused_with_the_line(text: str, line: int) -> None:
    (sentence,) = refusal(text)
    assert sentence.startswith(f"job.yaml: is not valid YAML at line {line}: ")


@pytest.mark.parametrize("text", ["!!python/object/apply:os.getcwd []", "seed: !!python/name:os.getcwd"])
def test_yaml_that_would_execute_is_refused(text: str) -> None:
    (sentence,) = refusal(text)
    assert sentence.startswith("job.yaml: is not valid YAML at line 1: could not determine a constructor")


def test_characters_that_yaml_forbids_are_refused_in_one_sentence() -> None:
    (sentence,) = refusal("seed: \x00")
    assert sentence.startswith("job.yaml: holds a value that YAML cannot read: ")


@pytest.mark.parametrize(("text", "kind"), [("[1, 2]", "list"), ("3", "int"), ("words", "str"), ("true", "bool")])
def test_what_is_not_a_mapping_is_refused(text: str, kind: str) -> None:
    assert refusal(text) == [f"job.yaml: should hold `name: value` settings, not {kind}"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes("seed: é".encode("latin-1"))
    for name, reason in (
        ("absent.yaml", "cannot be read: No such file or directory"),
        ("", "cannot be read: Is a directory"),
        ("latin.yaml", "is not UTF-8 text"),
    ):
        with pytest.raises(SettingsError) as caught:
            load(tmp_path / name, Job)
        assert str(caught.value) == f"{tmp_path / name}: {reason}"


def test_a_file_is_named_as_it_was_given(tmp_path: Path) -> None:
    path = write_yaml(tmp_path / "job.yaml", {"train": {"epoch": 1}})
    with pytest.raises(SettingsError) as caught:
        load(path, Job)
    assert str(caught.value).startswith(f"{path}: train.epoch: unknown setting; ")


# Any text

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates() | st.binary(max_size=4)
)
KEYS = st.sampled_from([*Job.model_fields, *Train.model_fields, "from", "epoch"]) | SCALARS
CONTENT = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)
FRAGMENTS = st.sampled_from(
    [
        "train",
        "seed",
        "lr",
        ": ",
        "\n",
        "  ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "&a ",
        "*a",
        "|",
        "'",
        '"',
        "# ",
        "?",
        "<<",
    ]
)
ODD = st.sampled_from(
    ["2001-99-99", "0b_", "0x_", "!!bool x", "!!int ''", "!!float x", "!!timestamp x", "1:2:3", "=", "~"]
)


def check_refused_or_taken(text: str) -> None:
    """Let only SettingsError pass, in sentences that begin with the file's name."""
    try:
        job = parse(text, Job, origin="x")
    except SettingsError as error:
        assert str(error).startswith("x: ")
    else:
        assert isinstance(job, Job)


@deterministic
@given(st.text() | st.lists(FRAGMENTS | st.text(max_size=3)).map("".join))
def test_any_text_is_refused_or_taken_but_never_fails_otherwise(text: str) -> None:
    check_refused_or_taken(text)


@deterministic
@given(st.dictionaries(KEYS, CONTENT, max_size=4))
def test_any_content_is_refused_or_taken_but_never_fails_otherwise(content: dict[Any, Any]) -> None:
    check_refused_or_taken(yaml.safe_dump(content))


@deterministic
@given(st.lists(FRAGMENTS | ODD, max_size=12).map("".join))
def test_any_text_with_odd_values_is_refused_or_taken_but_never_fails_otherwise(text: str) -> None:
    check_refused_or_taken(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("seed: 2001-99-99", id="a day that does not exist"),
        pytest.param("seed: 0b_", id="a number without digits"),
        pytest.param(f"seed: {'9' * 5000}", id="a number too long for Python to read"),
        pytest.param(f"seed: 0x{'f' * 5000}", id="a number too long for Python to write"),
        pytest.param("seed: !!int ''", id="an empty number"),
        pytest.param("seed: !!bool maybe", id="neither yes nor no"),
        pytest.param("seed: !!timestamp soon", id="no time"),
        pytest.param("[" * 5000, id="too deep"),
    ],
)
def test_values_that_yaml_stumbles_over_are_refused(text: str) -> None:
    (sentence,) = refusal(text)
    assert sentence.startswith("job.yaml: ")


# Data sections


@pytest.mark.parametrize("text", ["data: {}", "data: {source: mnist}", "data: 3", "data: [npz]", "data: {source: 5}"])
def test_a_data_section_without_a_known_source_is_refused_with_the_list(text: str) -> None:
    (sentence,) = refusal(text, DataSection)
    assert sentence.startswith(f"job.yaml: data: `source` should be one of {', '.join(SOURCES.names)}")


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("{}", ["data: is missing"]),
        ("data: {source: npz}", ["data.path: is missing"]),
        (
            "data: {source: income, partys: 3}",
            [f"data.partys: unknown setting; did you mean `parties`? allowed here: {names_of(IncomeData)}"],
        ),
        # A setting may have the name of a source, or of the section itself.
        ("data: {source: income, income: 3}", [f"data.income: unknown setting; allowed here: {names_of(IncomeData)}"]),
        ("data: {source: income, data: 3}", [f"data.data: unknown setting; allowed here: {names_of(IncomeData)}"]),
        ("data: {source: files, files: 3}", ["data.files: should be a valid dictionary (got 3)"]),
        (
            "data: {source: csv, path: x, columns: {passive-1: 3}}",
            ["data.columns.passive-1: should be a valid list (got 3)"],
        ),
        ("data: {source: income, parties: 0}", ["data.parties: should be greater than or equal to 1 (got 0)"]),
        (
            "data: {source: files, files: {passive-1: a.csv}}",
            ["data: `files` names no file for `active`, the party with the labels"],
        ),
        (
            "data: {source: npz, drop: 2}",
            ["data.path: is missing", "data.drop: should be less than 1 (got 2)"],
        ),
    ],
)
def test_a_mistake_in_a_data_section_is_placed_as_it_stands_in_the_file(text: str, sentences: list[str]) -> None:
    assert sorted(refusal(text, DataSection)) == sorted(f"job.yaml: {sentence}" for sentence in sentences)


# Federations


def federation(**changes: Any) -> dict[str, Any]:
    """Return the content of a federation file that is right but for the changes."""
    whole = {
        "coordinator": {"address": "10.0.0.1:7000"},
        "active": {"address": "10.0.0.2:7001"},
        "passive": ["p1", "p2"],
    }
    return {**whole, **changes}


def federation_refusal(**changes: Any) -> list[str]:
    return refusal(yaml.safe_dump(federation(**changes)), Federation)


def test_a_federation_lists_its_parties_with_the_active_one_last(tmp_path: Path) -> None:
    loaded = load_federation(write_yaml(tmp_path / "federation.yaml", federation()))
    assert loaded.parties == ["p1", "p2", "active"]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"passive": ["p1", "p2", "p1"]}, "p1"),
        ({"passive": ["active"]}, "active"),
        ({"passive": ["p1"], "active": {"name": "p1", "address": "a:1"}}, "p1"),
    ],
)
def test_two_parties_of_one_name_are_refused(changes: dict[str, Any], name: str) -> None:
    assert federation_refusal(**changes) == [f"job.yaml: the name {name!r} is given to two parties"]


def test_two_names_that_differ_only_in_case_are_refused() -> None:
    told = ["job.yaml: the names 'active' and 'Active' differ only in case"]
    assert federation_refusal(passive=["p1", "Active"]) == told


def test_an_address_of_ipv6_has_brackets() -> None:
    (sentence,) = federation_refusal(coordinator={"address": "fd77::1:7000"})
    assert sentence.endswith("write one of IPv6 with brackets, such as [fd00::1]:7000")
    assert addresses.split("[fd77::1]:7000") == ("fd77::1", 7000)


def test_an_address_to_listen_at_is_checked_before_anything_else(tmp_path: Path) -> None:
    path = write_yaml(tmp_path / "federation.yaml", federation())
    with pytest.raises(SettingsError, match="--listen: 'here' is not an address: write HOST:PORT"):
        asyncio.run(serve(path, "here", [], None, None))
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize("name", ["", "coordinator", "a b", "../p", "-p", "é", "p\n", "p" * 64])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    (sentence,) = federation_refusal(passive=["p1", name])
    assert sentence.startswith(f"job.yaml: passive.1: {name!r} is not a name: letters, digits, ")


@pytest.mark.parametrize("name", ["p", "9", "St.Mary-2_b", "p" * 63, "Coordinator"])
def test_other_names_are_taken(name: str) -> None:
    assert parse(yaml.safe_dump(federation(passive=[name])), Federation, origin="x").passive == [name]


@pytest.mark.parametrize("address", ["", "host", "host:", ":7000", "host:0", "host:65536", "host:-1", "host:http"])
def test_an_address_that_is_none_is_refused_with_an_example(address: str) -> None:
    expected = f"{address!r} is not an address: write HOST:PORT, such as 10.0.0.1:7000"
    assert federation_refusal(coordinator={"address": address}) == [f"job.yaml: coordinator.address: {expected}"]
    assert federation_refusal(active={"address": address}) == [f"job.yaml: active.address: {expected}"]


def test_a_port_in_digits_that_are_none_is_refused_as_any_other() -> None:
    (sentence,) = federation_refusal(coordinator={"address": "host:²"})
    assert "'host:²' is not an address" in sentence


@pytest.mark.parametrize("address", ["localhost:1", "10.0.0.1:65535", "[::1]:7000", "hospital.example.org:443"])
def test_other_addresses_are_taken(address: str) -> None:
    content = federation(coordinator={"address": address})
    assert parse(yaml.safe_dump(content), Federation, origin="x").coordinator.address == address


@pytest.mark.parametrize(("count", "limit"), [(0, "at least 1 item"), (33, "at most 32 items")])
def test_a_federation_has_one_to_thirty_two_passive_parties(count: int, limit: str) -> None:
    (sentence,) = federation_refusal(passive=[f"p{number}" for number in range(count)])
    assert sentence.startswith("job.yaml: passive: ")
    assert limit in sentence


@pytest.mark.parametrize("count", [1, 32])
def test_so_many_passive_parties_are_taken(count: int) -> None:
    content = federation(passive=[f"p{number}" for number in range(count)])
    assert len(parse(yaml.safe_dump(content), Federation, origin="x").passive) == count


def test_a_federation_says_what_it_lacks_and_what_it_does_not_know() -> None:
    assert refusal("passive: [p1]", Federation) == ["job.yaml: coordinator: is missing", "job.yaml: active: is missing"]
    assert federation_refusal(deadlines={"stp": 3}) == [
        "job.yaml: deadlines.stp: unknown setting; did you mean `step`? "
        "allowed here: absence, commit_every, join, setup, silence, step"
    ]
    assert federation_refusal(deadlines={"step": 0}) == ["job.yaml: deadlines.step: should be greater than 0 (got 0)"]


def test_an_infinite_deadline_is_refused() -> None:
    (sentence,) = federation_refusal(deadlines={"silence": float("inf")})
    assert sentence.startswith("job.yaml: deadlines.silence: ")


# Party files


@pytest.fixture
def write_party(tmp_path: Path) -> Callable[..., Path]:
    """Write a federation file, and beside it a folder with a party file that is right but for the changes."""

    def write(**changes: Any) -> Path:
        write_yaml(tmp_path / "federation.yaml", federation())
        whole = {"name": "p1", "federation": "../federation.yaml", "data": {"path": "rows.csv"}}
        return write_yaml(tmp_path / "p1" / "party.yaml", {**whole, **changes})

    return write


def party_refusal(path: Path) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_party(path)
    return str(caught.value).splitlines()


def test_relative_paths_start_at_the_folder_of_the_file(write_party: Callable[..., Path], tmp_path: Path) -> None:
    settings, federation = load_party(write_party())
    assert settings.data.path == tmp_path / "p1" / "rows.csv"
    assert settings.models == tmp_path / "p1" / "models"
    assert settings.federation.resolve() == (tmp_path / "federation.yaml").resolve()
    assert federation.parties == ["p1", "p2", "active"]


def test_absolute_paths_stay(write_party: Callable[..., Path], tmp_path: Path) -> None:
    settings, _ = load_party(write_party(data={"path": "/data/rows.csv"}, models=str(tmp_path / "kept")))
    assert settings.data.path == Path("/data/rows.csv")
    assert settings.models == tmp_path / "kept"


def test_a_party_that_is_no_member_is_refused_with_the_members(write_party: Callable[..., Path]) -> None:
    path = write_party(name="p3")
    federation = path.parent / "../federation.yaml"
    assert party_refusal(path) == [f"{path}: name: 'p3' is not a party of {federation}: p1, p2, active"]


def test_mistakes_in_the_two_files_name_the_file_each_is_in(write_party: Callable[..., Path]) -> None:
    path = write_party(data={"path": "rows.csv", "lable": "ill"})
    assert party_refusal(path)[0].startswith(f"{path}: data.lable: unknown setting; did you mean `label`? ")
    path = write_party(federation="absent.yaml")
    assert party_refusal(path) == [f"{path.parent / 'absent.yaml'}: cannot be read: No such file or directory"]
    path = write_party()
    broken = path.parent / "../federation.yaml"
    write_yaml(broken, federation(passive=[]))
    assert party_refusal(path)[0].startswith(f"{broken}: passive: ")


def test_a_path_that_no_file_can_have_is_refused(write_party: Callable[..., Path]) -> None:
    (sentence,) = party_refusal(write_party(federation="a\0b"))
    assert "is no path" in sentence


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [" + "{b: 1}, " * 100_000 + "]", "more than 100000 names, values of names and groups"),
        ("\n".join(f"k{number}: 1" for number in range(60_000)), "more than 100000 names, values of names and groups"),
        ("a: [" + "1, " * 1_000_001 + "]", "more than 1000000 entries"),
        ("[" * 60, "groups in groups, more than 50 deep"),
    ],
)
def test_a_text_that_would_take_much_memory_is_refused_before_it_does(text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(text, Job, origin="job.yaml")
    assert said in str(caught.value)


def test_a_long_list_of_people_is_read() -> None:
    ids = [f"p{number}" for number in range(200_000)]
    assert parse(f"forget: {{ids: [{', '.join(ids)}]}}", Job, origin="job.yaml").forget == Forget(ids=ids)
