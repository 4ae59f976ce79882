"""What byte counts promise: both ends agree on every line, the cost model is exact, and nothing is booked twice."""

import csv
from collections.abc import Iterable
from typing import Any

import hypothesis
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from coordinator.cost import CostModel
from coordinator.ledger import COLUMNS, Ledger
from coordinator.phases import CROSS_ENTROPY, FORGET, REMAINING, TEST, TRAIN, VALIDATION, learn, look, share
from fedora_vfl.errors import LedgerError
from fedora_vfl.wire.choice import Encodings
from fedora_vfl.wire.encodings import ENCODINGS, Float32, Int2, Int4, Int8, TensorEncoding
from fedora_vfl.wire.link import pack_control, unpack_control
from fedora_vfl.wire.meter import Meter, Packed
from party.batches import SampleSets, draw
from protos.fedora.v1.control_pb2 import FromCoordinator, FromParty
from protos.fedora.v1.meter_pb2 import Count, Kind, Reading
from protos.fedora.v1.phase_pb2 import Adam, Influence, Joint, JointRounds, Phase, Samples, Sgd, Shift, Update

deterministic = hypothesis.settings(derandomize=True, deadline=None)


def reading(**changes: Any) -> Reading:
    """Return a line of embeddings that is complete but for the changes."""
    whole: dict[str, Any] = {
        "sender": "passive-1",
        "receiver": "active",
        "phase": "train",
        "round": 3,
        "kind": Kind.EMBEDDING,
        "messages": 10,
        "tensor_bytes": 4000,
        "protobuf_bytes": 4120,
    }
    line = {**whole, **changes}
    count = Count(**{name: line.pop(name) for name in ("round", "messages", "tensor_bytes", "protobuf_bytes")})
    return Reading(**line, counts=[count])


def back(**changes: Any) -> Reading:
    """Return the line of gradients that answers it."""
    turned = {"sender": "active", "receiver": "passive-1", "kind": Kind.GRADIENT, "protobuf_bytes": 4110}
    return reading(**{**turned, **changes})


def told(**changes: Any) -> Reading:
    """Return a line of control messages."""
    line = {"sender": "coordinator", "kind": Kind.CONTROL, "messages": 1, "tensor_bytes": 0, "protobuf_bytes": 90}
    return reading(**{**line, **changes})


def reconcile(readings: Iterable[Reading], predicted: dict[str, int] | None = None) -> Ledger:
    """Reconcile lines that both ends have counted alike."""
    books: dict[str, list[Reading]] = {}
    for one in readings:
        for end in (one.sender, one.receiver):
            books.setdefault(end, []).append(one)
    return Ledger.reconcile({**books}, predicted or {})


def difference(books: dict[str, Iterable[Reading]]) -> str:
    with pytest.raises(LedgerError) as caught:
        Ledger.reconcile(books, {})
    return str(caught.value)


# Reconciling


def test_books_that_agree_become_one_line_each() -> None:
    ledger = reconcile([told(), reading(), back(), reading(round=4)])
    assert [(one.direction, one.phase, one.round, one.kind, one.messages) for one in ledger.entries] == [
        ("active->passive-1", "train", 3, "gradient", 10),
        ("coordinator->active", "train", 3, "control", 1),
        ("passive-1->active", "train", 3, "embedding", 10),
        ("passive-1->active", "train", 4, "embedding", 10),
    ]
    assert {one.link for one in ledger.entries} == {"active--passive-1", "active--coordinator"}


def test_the_order_of_lines_in_a_book_has_no_part_in_it() -> None:
    lines = [reading(round=number) for number in range(5)]
    ledger = Ledger.reconcile({"passive-1": lines, "active": lines[::-1]}, {})
    assert ledger.entries == reconcile(lines).entries


@pytest.mark.parametrize("wrong", ["passive-1", "active"])
@pytest.mark.parametrize("number", ["messages", "tensor_bytes", "protobuf_bytes"])
def test_any_number_that_differs_is_an_error_naming_link_phase_round_and_kind(number: str, wrong: str) -> None:
    books: dict[str, Iterable[Reading]] = {"passive-1": [back(), reading()], "active": [back(), reading()]}
    books[wrong] = [back(), reading(**{number: 5})]
    sentence = difference(books)
    assert "embedding messages from passive-1 to active in train round 3: " in sentence
    counted = {"messages": 10, "tensor_bytes": 4000, "protobuf_bytes": 4120}
    for end in ("passive-1", "active"):
        count = {**counted, number: 5} if end == wrong else counted
        messages, tensor, protobuf = count.values()
        assert f"{end} counted {messages} messages, {tensor} tensor and {protobuf} protobuf bytes" in sentence


@pytest.mark.parametrize("lacking", ["passive-1", "active"])
def test_a_line_that_one_end_lacks_is_an_error(lacking: str) -> None:
    other = "active" if lacking == "passive-1" else "passive-1"
    for books in ({other: [reading()], lacking: []}, {other: [reading()]}):
        sentence = difference({**books})
        assert "embedding messages from passive-1 to active in train round 3: " in sentence
        assert f"{lacking} counted 0 messages, 0 tensor and 0 protobuf bytes" in sentence


@pytest.mark.parametrize("changes", [{"phase": "test"}, {"round": 4}, {"kind": Kind.GRADIENT}])
def test_the_same_bytes_under_another_label_are_a_difference(changes: dict[str, Any]) -> None:
    sentence = difference({"passive-1": [reading()], "active": [reading(**changes)]})
    assert sentence.startswith("the books differ on the ")


def test_both_directions_of_a_link_are_compared_apart() -> None:
    turned = reading(sender="active", receiver="passive-1")
    assert "counted 0 messages" in difference({"passive-1": [reading()], "active": [turned]})


def test_a_line_that_a_third_party_claims_is_an_error() -> None:
    sentence = difference({"passive-1": [reading()], "active": [reading()], "passive-2": [reading()]})
    assert "embedding messages from passive-1 to active in train round 3" in sentence


def test_a_third_party_that_claims_a_line_is_named() -> None:
    assert "passive-2" in difference({"passive-1": [reading()], "active": [reading()], "passive-2": [reading()]})


def test_a_line_that_stands_twice_in_one_book_is_an_error() -> None:
    difference({"passive-1": [reading(messages=99), reading()], "active": [reading()]})


def test_a_line_of_a_kind_that_is_not_known_is_an_error_of_the_ledger() -> None:
    later = Reading.FromString(reading(kind=0).SerializeToString() + b"\x20\x63")  # kind: 99
    difference({"passive-1": [later], "active": []})


@deterministic
@given(
    st.lists(
        st.tuples(
            st.sampled_from([("passive-1", "active"), ("active", "passive-1"), ("passive-2", "active")]),
            st.sampled_from(["train", "test"]),
            st.integers(0, 2),
            st.sampled_from([Kind.CONTROL, Kind.EMBEDDING, Kind.GRADIENT]),
        ),
        max_size=30,
    ),
    st.data(),
)
def test_two_meters_that_see_the_same_messages_always_reconcile_and_one_lost_message_never_does(
    messages: list[tuple[tuple[str, str], str, int, Kind]], data: st.DataObject
) -> None:
    meters = {name: Meter() for name in ("passive-1", "passive-2", "active")}
    lost = data.draw(st.none() | st.integers(0, len(messages) - 1)) if messages else None
    for place, ((sender, receiver), phase, round, kind) in enumerate(messages):
        packed = Packed(bytes(8 + place), kind, place)
        for end in (sender, receiver):
            meters[end].enter(phase, round)
            if place != lost or end == sender:
                meters[end].count(sender, receiver, packed)
    books: dict[str, Iterable[Reading]] = {name: meter.close() for name, meter in meters.items()}
    if lost is None:
        assert sum(one.messages for one in Ledger.reconcile(books, {}).entries) == len(messages)
    else:
        assert "the books differ" in difference(books)


def test_books_name_a_line_once_however_many_rounds_it_has() -> None:
    meter = Meter()
    for round in range(100):
        meter.enter("unlearning", round)
        meter.count("coordinator", "passive-1", Packed(bytes(40), Kind.CONTROL))
    (book,) = meter.close()
    assert [count.round for count in book.counts] == list(range(100))
    assert len(book.SerializeToString()) < 100 * 10


# What the ledger tells


@pytest.fixture
def ledger() -> Ledger:
    """Two rounds of training and one of testing, with one passive party, as both ends counted them."""
    lines = [
        told(phase="setup", round=0, protobuf_bytes=55),
        *(told(round=number) for number in (1, 2)),
        *(reading(round=number) for number in (1, 2)),
        *(back(round=number) for number in (1, 2)),
        reading(phase="test", round=1, messages=2, tensor_bytes=800, protobuf_bytes=824),
    ]
    return reconcile(lines, {"train": 16000, "test": 800})


def test_the_csv_file_has_every_line(ledger: Ledger) -> None:
    lines = list(csv.reader(ledger.to_csv().splitlines()))
    assert tuple(lines[0]) == COLUMNS
    assert len(lines) == 1 + len(ledger.entries) == 9
    assert lines[1] == ["active--passive-1", "active->passive-1", "train", "1", "gradient", "10", "4000", "4110"]
    assert lines[3] == ["active--coordinator", "coordinator->active", "setup", "0", "control", "1", "0", "55"]
    assert lines[6] == ["active--passive-1", "passive-1->active", "test", "1", "embedding", "2", "800", "824"]
    assert sum(int(line[6]) for line in lines[1:]) == 16800


def test_totals_are_of_embeddings_and_gradients_alone(ledger: Ledger) -> None:
    assert ledger.totals() == {"predicted": 16800, "tensor": 16800, "protobuf": 2 * (4120 + 4110) + 824}
    assert ledger.totals(["train"]) == {"predicted": 16000, "tensor": 16000, "protobuf": 2 * (4120 + 4110)}
    assert ledger.totals(["test"]) == {"predicted": 800, "tensor": 800, "protobuf": 824}
    assert ledger.totals(["setup"]) == ledger.totals([]) == {"predicted": 0, "tensor": 0, "protobuf": 0}


def test_the_summary_adds_up_rounds_and_keeps_link_direction_phase_and_kind(ledger: Ledger) -> None:
    summary = ledger.summary()
    assert {name: summary[name] for name in ("predicted", "tensor", "protobuf")} == ledger.totals()
    assert summary["phases"] == {"train": ledger.totals(["train"]), "test": ledger.totals(["test"])}

    def line(link: str, direction: str, phase: str, kind: str, *counts: int) -> dict[str, Any]:
        names = ("link", "direction", "phase", "kind", "messages", "tensor", "protobuf")
        return dict(zip(names, (link, direction, phase, kind, *counts), strict=True))

    assert summary["links"] == [
        line("active--coordinator", "coordinator->active", "setup", "control", 1, 0, 55),
        line("active--coordinator", "coordinator->active", "train", "control", 2, 0, 180),
        line("active--passive-1", "active->passive-1", "train", "gradient", 20, 8000, 8220),
        line("active--passive-1", "passive-1->active", "test", "embedding", 2, 800, 824),
        line("active--passive-1", "passive-1->active", "train", "embedding", 20, 8000, 8240),
    ]


def test_the_summary_of_some_phases_leaves_out_the_others(ledger: Ledger) -> None:
    summary = ledger.summary(["test"])
    assert {line["phase"] for line in summary["links"]} == set(summary["phases"]) == {"test"}
    assert summary["tensor"] == 800


def test_phases_may_be_any_iterable(ledger: Ledger) -> None:
    assert ledger.summary(iter(["test"])) == ledger.summary(["test"])


# Predictions


def test_a_prediction_that_holds_is_silent(ledger: Ledger) -> None:
    ledger.check_prediction()
    reconcile([told()]).check_prediction()


@pytest.mark.parametrize("predicted", [15999, 16001, 0])
def test_a_phase_that_took_other_bytes_than_predicted_is_an_error(ledger: Ledger, predicted: int) -> None:
    wrong = Ledger(ledger.entries, {"test": 800, "train": predicted})
    with pytest.raises(LedgerError, match=f"train exchanged 16000 tensor bytes, but the cost model says {predicted}"):
        wrong.check_prediction()


def test_a_phase_that_took_place_in_the_prediction_only_is_an_error(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="unlearn exchanged 0 tensor bytes, but the cost model says 8"):
        Ledger(ledger.entries, {"train": 16000, "test": 800, "unlearn": 8}).check_prediction()


def test_tensors_in_a_phase_that_nobody_predicted_are_an_error(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="train"):
        Ledger(ledger.entries, {"test": 800}).check_prediction()


ROWS: dict["Samples.Set", int] = {
    Samples.TRAIN: 1000,
    Samples.VALIDATION: 30,
    Samples.TEST: 200,
    Samples.FORGET: 99,
    Samples.REMAINING: 901,
}


def links(encoding: type[TensorEncoding], passive: int = 1) -> dict[str, Encodings]:
    """Return links that use one encoding for everything."""
    return {f"passive-{number}": Encodings(encoding, encoding, encoding) for number in range(passive)}


def learning(over: Samples, update: Update | None = None) -> Phase:
    return learn("train", 1, over=over, update=update or Update(sgd=Sgd(lr=0.1)), batch_size=64, seed=1)


@pytest.mark.parametrize(
    ("phase", "rows", "directions"),
    [
        (learning(TRAIN), 1000, 2),
        (learning(TRAIN, Update(adam=Adam(lr=0.1))), 1000, 2),
        (learning(FORGET), 99, 2),
        (learning(share(REMAINING, 0.05)), 46, 2),  # 45.05, rounded up
        (learning(share(TRAIN, 0.5)), 500, 2),
        (learning(share(FORGET, 1e-9)), 1, 2),
        (look("test", 1, over=TEST, batch_size=64, loss=CROSS_ENTROPY), 200, 1),
        (look("validation", 1, over=VALIDATION, batch_size=7), 30, 1),
        (look("sample", 1, over=share(TEST, 0.25), batch_size=64), 50, 1),
        (look("influence", 1, over=FORGET, batch_size=64, update=Update(influence=Influence())), 99, 2),
        (look("subtraction", 1, over=FORGET, batch_size=64, update=Update(shift=Shift(by=1))), 99, 1),
    ],
)
@pytest.mark.parametrize(("encoding", "size"), [("float32", 4), ("float16", 2), ("bfloat16", 2)])
@pytest.mark.parametrize(("passive", "embedding"), [(1, 1), (2, 64), (32, 512)])
def test_the_cost_is_rows_by_width_by_size_by_directions_by_passive_parties(
    phase: Phase, rows: int, directions: int, encoding: str, size: int, passive: int, embedding: int
) -> None:
    cost = CostModel(ROWS, embedding, links(ENCODINGS.get(encoding), passive))
    assert cost.predict(phase) == rows * embedding * size * directions * passive


def test_the_cost_goes_by_link_direction_and_what_the_phase_does() -> None:
    both = {"a": Encodings(Int4, Int2, Int8, error_feedback=True), "b": Encodings(Int8, Float32, Int8)}
    cost = CostModel(ROWS, 10, both)
    assert cost.predict(learning(TRAIN)) == 1000 * ((2 + 5) + (2 + 3) + (2 + 10) + 40)
    assert cost.predict(look("test", 1, over=TEST, batch_size=64)) == 200 * (12 + 12)
    # Parameters stand still, and nobody makes up for what is left out: embeddings of `a` travel as in evaluation.
    standing = look("influence", 1, over=FORGET, batch_size=64, update=Update(influence=Influence()))
    assert cost.predict(standing) == 99 * (12 + 5 + 12 + 40)
    standing.offline.append("b")
    assert cost.predict(standing) == 99 * (12 + 5)


def test_the_cost_says_how_many_rows_of_joint_rounds_take_the_bytes_of_one_row_of_training() -> None:
    plain, own = Encodings(Float32, Float32, Float32), Encodings(Float32, Float32, Float32, joint_rounds=Int8)
    assert CostModel(ROWS, 30, {"a": plain}).rows_for_one == 1
    assert CostModel(ROWS, 30, {"a": own}).rows_for_one == 120 / 32
    assert CostModel(ROWS, 30, {"a": own, "b": plain}).rows_for_one == 240 / (32 + 120)
    rounds = Phase(joint=Joint(rounds=5, forget=2, remaining=6), update=Update(joint_rounds=JointRounds()))
    assert CostModel(ROWS, 30, {"a": own}).predict(rounds) == 5 * 2 * 8 * 32


class OneScale(Float32):
    """Whatever the batch, one number more than it has values."""

    @classmethod
    def nbytes(cls, rows: int, width: int) -> int:
        return super().nbytes(rows, width) + 4


@pytest.mark.parametrize(("rows", "batches"), [(640, 10), (641, 11), (63, 1), (0, 0)])
def test_the_cost_model_asks_the_encoding_for_every_batch(rows: int, batches: int) -> None:
    encodings: list[tuple[type[TensorEncoding], int]] = [(Float32, 0), (OneScale, 4 * batches)]
    for encoding, more in encodings:
        cost = CostModel({Samples.TRAIN: rows}, embedding=8, links=links(encoding))
        assert cost.predict(learning(TRAIN)) == 2 * (rows * 8 * 4 + more)


@deterministic
@given(st.integers(1, 2000), st.floats(0, 1, exclude_min=True), st.integers(1, 100))
def test_the_cost_model_counts_the_rows_that_parties_draw(rows: int, part: float, batch_size: int) -> None:
    phase = learn("train", 1, over=share(TRAIN, part), update=Update(sgd=Sgd()), batch_size=batch_size, seed=7)
    drawn = draw(SampleSets.consecutive(rows, 0, 1), phase.over, phase.plan)
    cost = CostModel({Samples.TRAIN: rows}, embedding=1, links=links(Float32))
    assert cost.predict(phase) == sum(len(batch) for batch in drawn) * 4 * 2


# The meter


def labels(meter: Meter) -> list[tuple[str, int, int]]:
    return [(one.phase, count.round, count.messages) for one in meter.close() for count in one.counts]


def test_a_message_is_booked_under_the_phase_its_end_has_entered() -> None:
    meter = Meter()
    packed = Packed(b"12345", Kind.CONTROL)
    meter.count("a", "b", packed)
    meter.enter("train", 2)
    meter.count("a", "b", packed)
    meter.count("a", "b", packed)
    meter.enter("test", 1)
    meter.count("a", "b", packed)
    assert labels(meter) == [("join", 0, 1), ("train", 2, 2), ("test", 1, 1)]


def test_a_message_that_says_where_it_belongs_is_booked_there() -> None:
    meter = Meter()
    meter.enter("train", 2)
    meter.count("a", "b", Packed(b"12345", Kind.CONTROL, phase=("setup", 0)))
    meter.count("a", "b", Packed(b"12345", Kind.CONTROL))
    assert labels(meter) == [("setup", 0, 1), ("train", 2, 1)]


def test_a_message_without_a_kind_is_not_counted() -> None:
    meter = Meter()
    meter.count("a", "b", Packed(b"12345", None))
    meter.count("a", "b", Packed(b"12345", None, 4, ("setup", 0)))
    assert meter.close() == []


def test_messages_of_one_label_are_added_up_and_of_others_kept_apart() -> None:
    meter = Meter()
    meter.enter("train", 1)
    meter.count("a", "b", Packed(bytes(100), Kind.EMBEDDING, 80))
    meter.count("a", "b", Packed(bytes(50), Kind.EMBEDDING, 30))
    meter.count("a", "b", Packed(bytes(10), Kind.CONTROL))
    meter.count("b", "a", Packed(bytes(70), Kind.GRADIENT, 60))
    forth, back = {"sender": "a", "receiver": "b", "round": 1}, {"sender": "b", "receiver": "a", "round": 1}
    assert meter.close() == [
        reading(**forth, kind=Kind.EMBEDDING, messages=2, tensor_bytes=110, protobuf_bytes=150),
        reading(**forth, kind=Kind.CONTROL, messages=1, tensor_bytes=0, protobuf_bytes=10),
        reading(**back, kind=Kind.GRADIENT, messages=1, tensor_bytes=60, protobuf_bytes=70),
    ]
    assert meter.close() == []


def contents(kind: type[Message]) -> list[Any]:
    """Return one message of every content that a stream may carry."""
    messages = []
    for one in kind.DESCRIPTOR.oneofs_by_name["content"].fields:
        message = kind()
        getattr(message, one.name).SetInParent()
        messages.append(message)
    return messages


@pytest.mark.parametrize(
    "message", [*contents(FromParty), *contents(FromCoordinator)], ids=lambda one: str(one).split()[0]
)
def test_a_control_message_is_booked_alike_where_it_is_sent_and_where_it_is_read(
    message: FromParty | FromCoordinator,
) -> None:
    packed = pack_control(message)
    assert packed.data == message.SerializeToString()
    assert packed.tensor_bytes == 0
    assert unpack_control(type(message))(packed.data) == (message, packed)


def test_control_messages_are_booked_where_they_belong_and_what_closes_the_books_nowhere() -> None:
    booked = {
        message.WhichOneof("content"): (packed.kind, packed.phase)
        for message in (*contents(FromParty), *contents(FromCoordinator))
        for packed in [pack_control(message)]
    }
    assert booked == {
        **dict.fromkeys(("hello", "welcome"), (Kind.CONTROL, ("join", 0))),
        **dict.fromkeys(("setup", "ready", "request", "accepted"), (Kind.CONTROL, ("setup", 0))),
        **dict.fromkeys(("drop", "dropped", "restart", "restarted"), (Kind.CONTROL, ("between", 0))),
        **dict.fromkeys(("assess", "assessment", "attest", "statement"), (Kind.CONTROL, ("between", 0))),
        **dict.fromkeys(("commit_only", "committed"), (Kind.CONTROL, ("between", 0))),
        **dict.fromkeys(("rollback", "rolled_back"), (Kind.CONTROL, None)),
        "phase": (Kind.CONTROL, ("", 0)),  # its own name and round, which are empty here
        **dict.fromkeys(("report", "progress", "failure"), (Kind.CONTROL, None)),  # the phase that the end is in
        **dict.fromkeys(("save", "saved", "collect"), (Kind.CONTROL, ("closing", 0))),
        **dict.fromkeys(("readings", "dismiss", "idle", "halt", "halted", "resume", "resumed"), (None, None)),
    }
    named = FromCoordinator(phase=Phase(name="train", round=4))
    assert pack_control(named).phase == ("train", 4)
