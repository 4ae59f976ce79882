"""What error feedback promises: nothing is left out for good, both ends agree, and dropped rows leave no trace."""

from typing import Any

import pytest
import torch
from torch import Tensor

from coordinator.phases import FORGET, TEST, TRAIN, learn, look
from coordinator.wire import Wire
from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.files import check
from fedora_vfl.wire.choice import STEPPING, Encodings, Way, encodings_of
from fedora_vfl.wire.encodings import Float32, Int4, Int8, TensorEncoding, TopK, encoding_named
from party.codec import Codec, LinkMemories
from party.updates import RULES
from protos.fedora.v1.control_pb2 import LinkEncoding, Setup
from protos.fedora.v1.meter_pb2 import Kind
from protos.fedora.v1.phase_pb2 import Compare, DualAscent, Joint, JointRounds, Phase, Sgd, Update

WIDTH = 16
NAMES = ("int8", "int4", "int3", "int2", "topk", "topk-50%", "float16")


def training(name: str = "train", seed: int = 1) -> Phase:
    return learn(name, 1, over=TRAIN, update=Update(sgd=Sgd(lr=0.1)), batch_size=8, seed=seed)


STANDS = look("unlearning", 1, over=FORGET, batch_size=8, update=Update(dual_ascent=DualAscent()), seed=3)
LOOKS = look("test", 1, over=TEST, batch_size=8)


class Link:
    """Both ends of one link."""

    def __init__(self, encoding: str, *, feedback: bool = True) -> None:
        one = encoding_named(encoding)
        encodings = Encodings(one, one, Int8 if feedback else one, feedback)
        self.memories = {"passive-1": LinkMemories(), "active": LinkMemories()}
        self.passive = Codec(encodings, passive="passive-1", memory=self.memories["passive-1"].of("active"))
        self.active = Codec(encodings, passive="passive-1", memory=self.memories["active"].of("passive-1"))

    def up(self, phase: Phase, step: int, tensor: Tensor, rows: Tensor) -> Tensor:
        data = self.passive.encode(Kind.EMBEDDING, phase, step, tensor, rows)
        return self.active.decode(Kind.EMBEDDING, phase, memoryview(data), rows, WIDTH, lambda _: None)

    def down(self, phase: Phase, step: int, tensor: Tensor, rows: Tensor) -> Tensor:
        data = self.active.encode(Kind.GRADIENT, phase, step, tensor, rows)
        return self.passive.decode(Kind.GRADIENT, phase, memoryview(data), rows, WIDTH, lambda _: None)


@pytest.mark.parametrize("encoding", NAMES)
def test_an_embedding_that_comes_again_arrives_closer_and_closer(encoding: str) -> None:
    link, rows = Link(encoding), torch.tensor([4, 1, 9])
    tensor = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(0))
    errors = [float((link.up(training(), step, tensor, rows) - tensor).norm()) for step in range(30)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-3 * float(tensor.norm())


@pytest.mark.parametrize("encoding", NAMES)
def test_both_ends_remember_the_same_embeddings_to_the_bit(encoding: str) -> None:
    link, generator = Link(encoding), torch.Generator().manual_seed(1)
    for step in range(10):
        rows = torch.randperm(20, generator=generator)[:7]
        arrived = link.up(training(), step, torch.randn(7, WIDTH, generator=generator), rows)
        assert link.passive.memory.embeddings.equal(link.active.memory.embeddings)
        assert link.active.memory.embeddings[rows].equal(arrived)
        arrived += 1.0
        assert not link.active.memory.embeddings[rows].equal(arrived)


@pytest.mark.parametrize("encoding", NAMES)
def test_gradients_of_a_row_add_up_to_what_they_should_but_for_the_last_error(encoding: str) -> None:
    link, generator, rows = Link(encoding), torch.Generator().manual_seed(2), torch.tensor([3, 0])
    sent, arrived = torch.zeros(2, WIDTH), torch.zeros(2, WIDTH)
    for step in range(200):
        gradient = torch.randn(2, WIDTH, generator=generator)
        sent += gradient
        arrived += link.down(training(), step, gradient, rows)
    assert (sent - arrived - link.active.memory.errors[rows]).abs().max() < 1e-3
    assert link.active.memory.errors[rows].norm() < 0.5 * sent.norm() + 20


def test_errors_of_one_loss_are_not_made_up_for_in_gradients_of_another() -> None:
    link, rows = Link("int4"), torch.arange(3)
    gradient = torch.randn(3, WIDTH)
    fresh = Link("int4").down(training("recovery"), 0, gradient, rows)
    link.down(training("train"), 0, torch.randn(3, WIDTH), rows)
    assert link.down(training("recovery"), 0, gradient, rows).equal(fresh)


def test_phases_in_which_parameters_stand_still_neither_use_nor_change_the_memory() -> None:
    link, rows, tensor = Link("topk"), torch.arange(3), torch.randn(3, WIDTH)
    before = link.up(training(), 0, tensor, rows)
    kept = link.passive.memory.embeddings.clone()
    for phase in (STANDS, LOOKS):
        assert link.passive.way(Kind.EMBEDDING, phase).encoding is Int8
        assert (link.up(phase, 0, tensor, rows) - tensor).abs().max() < 0.02 * tensor.abs().max()
    link.down(STANDS, 0, tensor, rows)
    assert link.passive.memory.embeddings.equal(kept)
    assert not link.active.memory.errors.numel()
    assert (before != 0).sum() == 2 * 3


def test_rules_with_error_feedback_get_gradients_and_move_parameters() -> None:
    rules = [RULES[name] for name in STEPPING]
    assert all(rule.needs_gradients and not rule.parameters_frozen for rule in rules)


def test_without_feedback_rounding_is_drawn_from_phase_party_direction_and_step() -> None:
    tensor, rows = torch.randn(8, WIDTH), torch.arange(8)

    def sent(passive: str = "passive-1", kind: Kind = Kind.EMBEDDING, seed: int = 1, step: int = 0) -> bytes:
        codec = Codec(Encodings(Int4, Int4, Int4), passive=passive)
        return bytes(codec.encode(kind, training(seed=seed), step, tensor, rows))

    assert sent() == sent()
    others = [sent("passive-2"), sent(kind=Kind.GRADIENT), sent(seed=2), sent(step=1)]
    assert len({sent(), *others}) == 5
    nearest = Codec(Encodings(Int4, Int4, Int4), passive="passive-1").encode(Kind.EMBEDDING, LOOKS, 0, tensor, rows)
    assert bytes(nearest) == bytes(Int4().encode(tensor))


def test_dropped_rows_leave_no_trace_and_the_others_stay() -> None:
    link, rows = Link("topk"), torch.arange(6)
    link.up(training(), 0, torch.randn(6, WIDTH), rows)
    link.down(training(), 0, torch.randn(6, WIDTH), rows)
    gone, stay = torch.tensor([1, 4, 99]), torch.tensor([0, 2, 3, 5])
    for name, memories in link.memories.items():
        before = memories.state_dict()
        kept = {key: value.clone() for one in before.values() for key, value in one.items() if torch.is_tensor(value)}
        memories.forget(gone)
        for one in memories.state_dict().values():
            for what in ("embeddings", "errors"):
                if len(one[what]):
                    assert not one[what][gone[:2]].any(), name
                    assert one[what][stay].equal(kept[what][stay])
                    assert one[what][stay].any()


def test_the_memory_goes_through_a_state_dict_and_comes_back() -> None:
    link, rows = Link("topk"), torch.arange(6)
    link.down(training(), 0, torch.randn(6, WIDTH), rows)
    saved = link.memories["active"].state_dict()
    again = LinkMemories(saved)
    assert again.of("passive-1").errors.equal(link.active.memory.errors)
    assert again.of("passive-1").phase == "train"
    again.clear()
    assert not again.of("passive-1").errors.numel()


# Settings


def wire(content: dict[str, Any]) -> Wire:
    return check(content, Wire, origin="job.yaml")


@pytest.mark.parametrize(
    ("content", "embeddings", "gradients", "evaluation", "feedback"),
    [
        ({}, "float32", "float32", "float32", False),
        ({"encoding": "int4"}, "int4", "int4", "int4", False),
        ({"encoding": "int4", "error_feedback": True}, "int4", "int4", "int8", True),
        ({"gradients": "int2"}, "float32", "int2", "float32", False),
        ({"encoding": "int8", "embeddings": "topk-5%", "evaluation": "float16"}, "topk-5%", "int8", "float16", False),
        ({"encoding": "int8", "parties": {"a": {"gradients": "int2"}}}, "int8", "int2", "int8", False),
        ({"embeddings": "int8", "parties": {"a": {"encoding": "int4"}}}, "int4", "int4", "int4", False),
        (
            {"encoding": "int4", "error_feedback": True, "parties": {"a": {"error_feedback": False}}},
            "int4",
            "int4",
            "int4",
            False,
        ),
    ],
)
def test_what_a_party_does_not_say_the_job_says(
    content: dict[str, Any], embeddings: str, gradients: str, evaluation: str, feedback: bool
) -> None:
    expected = LinkEncoding(embeddings=embeddings, gradients=gradients, evaluation=evaluation, error_feedback=feedback)
    found = wire(content).link("a")
    found.ClearField("joint_rounds")
    assert found == expected


@pytest.mark.parametrize(
    ("content", "joint_rounds"),
    [
        ({}, "int8"),
        ({"encoding": "bfloat16"}, "int8"),
        ({"encoding": "int8"}, ""),
        ({"gradients": "int4"}, ""),
        ({"joint_rounds": "float32"}, "float32"),
        ({"parties": {"a": {"joint_rounds": "int4"}, "b": {"joint_rounds": "int3"}}}, "int4"),
        ({"encoding": "int4", "parties": {"a": {"encoding": "float32"}}}, "int8"),
    ],
)
def test_joint_rounds_take_a_byte_a_value_unless_the_job_has_fewer_or_says_otherwise(
    content: dict[str, Any], joint_rounds: str
) -> None:
    assert wire(content).link("a").joint_rounds == joint_rounds


def test_joint_rounds_travel_in_their_own_encoding_both_ways_and_without_feedback() -> None:
    link = Encodings(Int4, Float32, Float32, error_feedback=True, joint_rounds=Int8)
    rounds = Phase(joint=Joint(rounds=1), update=Update(joint_rounds=JointRounds()))
    compared = Phase(joint=Joint(rounds=1), update=Update(compare=Compare()), forward_only=True)
    assert link.way(Kind.EMBEDDING, rounds) == link.way(Kind.GRADIENT, rounds) == Way(Int8, random=True)
    assert link.way(Kind.EMBEDDING, compared) == Way(Int8), "what is only looked at is rounded to the nearest"


def test_a_party_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(SettingsError, match=r"wire.parties: 'b' is no passive party; allowed: a, c"):
        wire({"parties": {"b": {"encoding": "int4"}}}).links(["a", "c"])


def test_links_that_a_setup_does_not_name_use_its_one_encoding() -> None:
    links = {"a": LinkEncoding(embeddings="int4", gradients="topk-5%", evaluation="int8", error_feedback=True)}
    found = encodings_of(Setup(passive=["a", "b"], encoding="float32", links=links))
    assert found["b"] == Encodings(Float32, Float32, Float32)
    assert found["a"] == Encodings(Int4, encoding_named("topk-5%"), Int8, error_feedback=True)
    assert issubclass(found["a"].gradients, TopK)


class Remembering(Float32):
    """A user's own encoding that keeps something from batch to batch."""

    def __init__(self) -> None:
        self.calls = list[str]()

    def encode(self, values: Tensor) -> bytes | memoryview:
        self.calls.append("encode")
        return super().encode(values)


def test_one_object_of_an_encoding_serves_one_end_for_the_whole_job() -> None:
    made: list[TensorEncoding] = []

    class Counted(Remembering):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    codec, rows = Codec(Encodings(Counted, Counted, Counted), passive="a"), torch.arange(2)
    for step in range(3):
        data = codec.encode(Kind.EMBEDDING, training(), step, torch.ones(2, WIDTH), rows)
        codec.decode(Kind.GRADIENT, training(), memoryview(data), rows, WIDTH, lambda _: None)
    assert len(made) == 1


def test_a_plain_embedding_is_looked_at_where_it_arrived_and_a_gradient_is_copied() -> None:
    link, rows = Link("float32", feedback=False), torch.arange(3)
    sent = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(0))
    data = bytes(link.passive.encode(Kind.EMBEDDING, training(), 1, sent, rows))

    def arrives(codec: Codec, kind: Kind) -> Tensor:
        return codec.decode(kind, training(), memoryview(data), rows, WIDTH, lambda _: None)

    embedding, gradient = arrives(link.active, Kind.EMBEDDING), arrives(link.passive, Kind.GRADIENT)
    assert torch.equal(embedding, sent) and torch.equal(gradient, sent)
    assert embedding.data_ptr() == torch.frombuffer(data, dtype=torch.float32).data_ptr()
    assert gradient.data_ptr() != embedding.data_ptr()
    assert gradient.data_ptr() % 64 == 0
