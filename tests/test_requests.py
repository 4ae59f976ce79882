"""Whom a request means is found out before anything is trained; what is wrong with it is said in one sentence."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coordinator.engine import Engine
from coordinator.job import Forget
from coordinator.roster import Connection
from fedora_vfl.cluster.local import LocalCluster, loopback_federation
from fedora_vfl.cluster.preparation import load_job
from fedora_vfl.errors import PartyError, SettingsError
from fedora_vfl.sampling.rows import rows_drawn
from fedora_vfl.settings.files import check
from fedora_vfl.wire.meter import Meter
from party.data.split import assign
from party.handed_request import as_bits, bits_bytes, from_bits
from party.request import check_rows, resolve
from protos.fedora.v1.control_pb2 import Accepted, Classes, Event, FromCoordinator, FromParty, Ids, Request
from protos.fedora.v1.exchange_pb2 import Order
from protos.fedora.v1.phase_pb2 import Samples
from tests.conftest import write_yaml
from tests.test_cluster import Submit, with_cluster

CLASSES = ["cat", "dog", "owl"]
LABELS = torch.tensor([0, 1, 0, 1, 0, 1, 0, 1, 0, 0])
ORDER = Order(
    train=[f"t{row}" for row in range(len(LABELS))], validation=["v0"], test=["e0", "e1"], probe=["backdoor-e0"]
)


def rows_of(request: Request) -> list[int]:
    """Find the rows that a request means among those above."""
    return cast(list[int], resolve(request, ORDER, LABELS, CLASSES).tolist())


def by_class(*names: str, percent: float = 100, seed: int = 0) -> Request:
    return Request(classes=Classes(classes=names, percent=percent), seed=seed)


def by_id(*ids: str) -> Request:
    return Request(ids=Ids(ids=ids))


# What the active party makes of a request


def test_ids_are_found_in_whatever_order_they_are_named() -> None:
    assert rows_of(by_id("t7", "t0", "t3")) == [0, 3, 7]
    assert rows_of(by_id("t9")) == [9]


def test_a_class_taken_whole_is_every_one_of_its_training_rows() -> None:
    assert rows_of(by_class("dog")) == [1, 3, 5, 7]


@given(
    labels=st.lists(st.integers(0, 4), min_size=6, max_size=200),
    percent=st.floats(0.01, 100),
    seed=st.integers(0, 2**63 - 1),
)
def test_a_share_of_classes_takes_that_share_of_each_rounded_up(labels: list[int], percent: float, seed: int) -> None:
    known = torch.tensor(labels)
    wanted = sorted({labels[0], labels[-1]})
    if set(labels) == set(wanted):
        return  # it might leave nothing
    request = Request(classes=Classes(classes=[str(one) for one in wanted], percent=percent), seed=seed)
    order = Order(train=[str(row) for row in range(len(labels))])
    rows = resolve(request, order, known, [str(one) for one in range(5)])
    assert rows.tolist() == sorted(set(rows.tolist()))
    for one in wanted:
        assert int((known[rows] == one).sum()) == rows_drawn(percent / 100, labels.count(one))
    assert set(known[rows].tolist()) == set(wanted)
    assert resolve(request, order, known, [str(one) for one in range(5)]).equal(rows), "the same seed, the same rows"


@given(training=st.integers(2, 300), seed=st.integers(0, 2**63 - 1), data=st.data())
def test_so_many_samples_are_so_many_different_training_rows(training: int, seed: int, data: st.DataObject) -> None:
    samples = data.draw(st.integers(1, training - 1))
    order = Order(train=[str(row) for row in range(training)])
    rows = resolve(Request(samples=samples, seed=seed), order, torch.zeros(training, dtype=torch.int64), ["a"])
    assert len(rows) == samples == len(set(rows.tolist()))
    assert rows.tolist() == sorted(rows.tolist()) and rows[0] >= 0 and rows[-1] < training


def test_another_seed_draws_other_rows() -> None:
    order, labels = Order(train=[str(row) for row in range(1000)]), torch.zeros(1000, dtype=torch.int64)
    one, other = (resolve(Request(samples=100, seed=seed), order, labels, ["a"]) for seed in (1, 2))
    assert not one.equal(other)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (by_id("t1", "nobody"), "forget.ids: 'nobody' is not among the rows in common"),
        (by_id("x", "y"), "forget.ids: 'x', 'y' are not among the rows in common"),
        (by_id(*"abcdefg"), "forget.ids: 'a', 'b', 'c', 'd', 'e' and 2 more are not among the rows in common"),
        (by_id("t1", "t2", "t1"), "forget.ids: 't1' is named twice"),
        (by_id("e1"), "forget.ids: 'e1' was never trained on"),
        (by_id("v0", "t1", "e0"), "forget.ids: 'v0', 'e0' were never trained on"),
        (by_id("backdoor-e0"), "forget.ids: 'backdoor-e0' was never trained on"),
        (by_id(), "forget: names no rows"),
        (by_class(), "forget: names no rows"),
        (by_id(*ORDER.train), "forget: would leave nothing of the 10 training rows; some must remain"),
        (by_class("cat", "dog"), "forget: would leave nothing of the 10 training rows; some must remain"),
        (Request(samples=10), "forget: would leave nothing of the 10 training rows; some must remain"),
        (Request(samples=11), "forget.samples: asks for 11 of 10 training rows"),
        (Request(samples=0), "forget: names no rows"),
        (by_class("fox"), "forget.classes: there is no class 'fox'; the classes are 'cat', 'dog', 'owl'"),
        (by_class("owl"), "forget.classes: class 'owl' has no training rows"),
        (by_class("dog", "dog"), "forget.classes: a class is named twice in 'dog', 'dog'"),
        (by_class("dog", percent=0), "forget.percent: is 0; allowed: above 0, up to 100"),
        (by_class("dog", percent=100.5), "forget.percent: is 100.5; allowed: above 0, up to 100"),
        (by_class("dog", percent=float("nan")), "forget.percent: is nan; allowed: above 0, up to 100"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused_in_one_sentence(request_: Request, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        rows_of(request_)
    assert str(caught.value) == said


def test_a_request_without_content_is_the_coordinator_s_fault() -> None:
    with pytest.raises(PartyError) as caught:
        rows_of(Request(seed=1))
    assert caught.value.culprit == "coordinator"


# What a passive party believes


@given(training=st.integers(2, 100), data=st.data())
def test_a_passive_party_takes_any_ascending_part_of_the_training_rows(training: int, data: st.DataObject) -> None:
    rows = sorted(data.draw(st.sets(st.integers(0, training - 1), min_size=1, max_size=training - 1)))
    assert check_rows(rows, training, sender="active").tolist() == rows


@pytest.mark.parametrize("rows", [[], [3, 2], [2, 2], [4, 10], [10], list(range(10)), [0, 2**32 - 1]])
def test_a_passive_party_refuses_rows_that_cannot_be_meant(rows: list[int]) -> None:
    with pytest.raises(PartyError) as caught:
        check_rows(rows, 10, sender="active")
    assert str(caught.value) == "active asked to forget rows that are not an ascending part of the 10 training rows"


# Who is told


class ScriptedParty:
    """A control link to a party that accepts everything, and keeps what it was sent."""

    def __init__(self, rows: int, remaining: int) -> None:
        self.sent: list[FromCoordinator] = []
        self._accepted = Accepted(rows=rows, remaining=remaining)

    async def send(self, message: FromCoordinator, timeout: float | None = None) -> None:
        self.sent.append(message)

    async def receive(self, timeout: float | None = None, most: int | None = None) -> FromParty:
        return FromParty(accepted=self._accepted)


def engine_over(lines: dict[str, ScriptedParty]) -> Engine:
    """Make an engine that talks to these lines."""
    federation = loopback_federation([name for name in lines if name != "active"])
    connections = [Connection(name, cast(Any, line), Meter()) for name, line in lines.items()]

    async def ignore(event: Event) -> None:
        pass

    engine = Engine(federation, connections, ignore)
    engine.rows = {Samples.TRAIN: 100}
    return engine


def test_only_the_active_party_is_told_what_the_rows_have_in_common() -> None:
    lines = {name: ScriptedParty(5, 95) for name in ("passive-1", "passive-2", "active")}
    engine = engine_over(lines)
    request = by_class("cat", percent=50, seed=7)
    accepted = asyncio.run(engine.request(request))
    assert (accepted.rows, accepted.remaining) == (5, 95)
    assert engine.rows[Samples.FORGET] == 5 and engine.rows[Samples.REMAINING] == 95
    assert [one.request for one in lines["active"].sent] == [request]
    for name in ("passive-1", "passive-2"):
        (told,) = lines[name].sent
        assert told.HasField("request") and told.request == Request(), "not even the seed of the draw"


def test_a_party_that_finds_other_rows_is_named() -> None:
    lines = {"passive-1": ScriptedParty(5, 95), "passive-2": ScriptedParty(6, 94), "active": ScriptedParty(5, 95)}
    with pytest.raises(PartyError) as caught:
        asyncio.run(engine_over(lines).request(Request(samples=5)))
    assert caught.value.culprit == "passive-2"
    assert "\n" not in str(caught.value)


# What the user writes


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({}, "wants one of `ids`, `classes`, `samples`, `pending` and `request`, and has none"),
        (
            {"ids": ["a"], "classes": [1]},
            "wants one of `ids`, `classes`, `samples`, `pending` and `request`, and has ids and classes",
        ),
        ({"ids": ["a"], "percent": 50}, "`percent` is a share of `classes`, which are not given"),
        ({"classes": []}, "classes"),
        ({"classes": ["a"], "percent": 0}, "percent"),
        ({"classes": ["a"], "percent": 101}, "percent"),
        ({"classes": ["a"], "percent": "half"}, "percent"),
        ({"samples": 0}, "samples"),
        ({"samples": -1}, "samples"),
        ({"samples": 1.5}, "samples"),
        ({"classes": "yes"}, "classes"),
        ({"ids": [1.5]}, "ids"),
    ],
)
def test_a_section_that_makes_no_sense_is_refused_when_it_is_read(section: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        check(section, Forget, origin="job.yaml")
    assert said in str(caught.value) and str(caught.value).startswith("job.yaml")


def test_numbers_are_names_of_classes_but_ids_are_taken_as_written() -> None:
    assert check({"classes": [0, "one"]}, Forget, origin="").classes == ["0", "one"]
    with pytest.raises(SettingsError, match="wants ids in quotes"):  # YAML has made 8 of 010
        check({"ids": [8, "p1"]}, Forget, origin="")
    with pytest.raises(SettingsError, match="is an empty list"):
        check({"ids": []}, Forget, origin="")


def test_a_file_of_ids_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    assert ids_from(tmp_path, b"\xef\xbb\xbfp1\r\np2\r\n") == ["p1", "p2"]


def ids_from(folder: Path, content: str | bytes) -> list[str] | str | None:
    """Read a job that names a file of ids."""
    file = folder / "who.txt"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    job = load_job(write_yaml(folder / "job.yaml", {"forget": {"ids": "who.txt"}}))
    assert job.forget is not None
    return job.forget.ids


@pytest.mark.parametrize(
    ("content", "ids"),
    [
        ("a\nb\n", ["a", "b"]),
        ("a", ["a"]),
        ("\n\n  a  \r\n\r\n\tb c\n\n", ["a", "b c"]),
        ("007\n1e3\nnull\n", ["007", "1e3", "null"]),
        ("Ünïcode\n", ["Ünïcode"]),
    ],
)
def test_a_file_has_one_id_per_line_and_empty_lines_do_not_count(content: str, ids: list[str], tmp_path: Path) -> None:
    assert ids_from(tmp_path, content) == ids


@pytest.mark.parametrize(
    ("content", "said"), [("", "who.txt holds no ids"), (" \n\n\t\n", "who.txt holds no ids"), (b"\xff\xfe", "UTF-8")]
)
def test_a_file_without_ids_is_refused(content: str | bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        ids_from(tmp_path, content)
    assert "job.yaml: forget.ids: " in str(caught.value) and said in str(caught.value)


@pytest.mark.parametrize(("name", "said"), [("nobody.txt", "No such file"), (".", "Is a directory")])
def test_a_file_that_cannot_be_read_is_named_with_a_hint(name: str, said: str, tmp_path: Path) -> None:
    job = write_yaml(tmp_path / "job.yaml", {"forget": {"ids": name}})
    with pytest.raises(SettingsError) as caught:
        load_job(job)
    assert "forget.ids: " in str(caught.value) and said in str(caught.value)
    assert "a single id is written as a list: [ID]" in str(caught.value)


# On a real cluster

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown id": ({"forget": {"ids": ["p0001", "nobody"]}}, "'nobody' is not among the rows in common"),
    "class": ({"forget": {"classes": ["maybe"]}}, "there is no class 'maybe'; the classes are 'no', 'yes'"),
    "everyone": ({"forget": {"classes": ["no", "yes"]}}, "would leave nothing of the"),
    "too many": ({"forget": {"samples": 5000}}, "asks for 5000 of"),
    "two kinds": ({"forget": {"ids": ["p0001"], "classes": ["no"]}}, "has ids and classes"),
    "a file, unread": ({"forget": {"ids": "who.txt"}}, "'who.txt' is a file, which the command line should have read"),
    "γ": (
        {"forget": {"samples": 3}, "unlearn": {"goal": "uncertain", "gamma": 1.4}},
        "unlearn.gamma: 1.4 cannot be reached; the largest value that L_u takes here is 1.38629",
    ),
    "γ of a sum": (
        {"forget": {"samples": 3}, "unlearn": {"steps": "paper", "gamma": 4.2, "reduction": "sum"}},
        "unlearn.gamma: 4.2 cannot be reached; the largest value that L_u takes here is 4.15888",
    ),
}


def test_a_bad_request_is_said_before_any_training_and_changes_nothing(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, submit: Submit) -> None:
        for name, (content, said) in BAD.items():
            started: list[str] = []
            with pytest.raises(SettingsError) as caught:
                await submit({"train": {"epochs": 50}, **content}, follow=names_of_phases(started))
            assert said in str(caught.value), name
            assert "\n" not in str(caught.value), name
            assert started == [], f"{name}: no phase has run"
            assert list((tmp_path / "run").rglob("*.safetensors")) == [], f"{name}: no model and no commit is left"
        # The cluster is as good as new: the next request, for a single person, is honoured.
        result = await submit({"train": {"epochs": 1}, "forget": {"ids": [trained_person(tmp_path)]}})
        assert result["forget"] == {"rows": 1, "remaining": result["rows"]["train"] - 1}

    with_cluster(tmp_path, scenario, rows=120)


def names_of_phases(names: list[str]) -> Callable[[Event], None]:
    """Follow a job and write down which phases it starts."""

    def follow(event: Event) -> None:
        if event.WhichOneof("content") == "started":
            names.append(event.started.name)

    return follow


def trained_person(folder: Path) -> str:
    """Return the id of a training row of the cluster's table."""
    ids = [line.split(",")[0] for line in (folder / "people.csv").read_text().splitlines()[1:]]
    return next(one for one, part in zip(ids, assign(ids, None, 0.2, origin=""), strict=True) if part == "train")


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 1000])
def test_whom_a_party_names_takes_the_same_bytes_whoever_it_is(rows: int) -> None:
    for places in ([], [0], [rows - 1], list(range(rows))):
        bits = as_bits(places, rows)
        assert len(bits) == bits_bytes(rows) and from_bits(bits, rows) == places
    for wrong in (b"", bytes(bits_bytes(rows) + 1), *([b"\xff" * bits_bytes(rows)] if rows % 8 else [])):
        assert from_bits(wrong, rows) is None
