"""Joint rounds: what the parties do together in one exchange equals one process, to the bit, batch statistics too."""

import asyncio
import copy
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from coordinator.methods import MethodResult, PhaseOutcome, UnlearningTask, phases_in, self_scaling
from coordinator.methods.fedora_settings import Fedora
from coordinator.methods.primal_dual import Problem
from coordinator.train import Train
from fedora_vfl.settings.model import Model
from fedora_vfl.wire.choice import Encodings
from fedora_vfl.wire.encodings import Float32, Int8
from fedora_vfl.wire.link import Link
from fedora_vfl.wire.meter import Meter, Packed
from fedora_vfl.wire.tensors import pack, unpack
from party import batches
from party.active import Active
from party.batches import SampleSets
from party.clock import Clock
from party.exchange import TensorExchange
from party.passive import Passive
from party.privacy import Noise
from party.role import Role
from party.state import PartyState
from party.updates import rule_for
from protos.fedora.v1.exchange_pb2 import Order
from protos.fedora.v1.phase_pb2 import Joint, Phase, Progress, Report, Samples
from tests import reference

ROWS, TRAIN, WIDTH = 120, 90, 4
PARTIES = ("passive-1", "passive-2", "active")


class Rows:
    """The inputs of one party."""

    def __init__(self, values: Tensor) -> None:
        self._values, self.shape = values, values.shape[1:]

    def batch(self, rows: Tensor) -> Tensor:
        return self._values[rows]


class Wire:
    """A stream without a network."""

    def __init__(self, out: "asyncio.Queue[bytes]", into: "asyncio.Queue[bytes]") -> None:
        self._out, self._into = out, into

    async def write(self, message: bytes) -> None:
        await self._out.put(message)

    async def read(self) -> bytes:
        return await self._into.get()


class Line(Link[Any, Any]):
    """A link that counts how often its end has waited for an answer to what it sent."""

    turns, _sent = 0, False

    async def post(self, message: Any, *, timeout: float | None = None, phase: tuple[str, int] | None = None) -> None:
        self._sent = True
        await super().post(message, timeout=timeout, phase=phase)

    def take(self, most: int | None = None, unpack: Callable[[bytes], tuple[Any, Packed]] | None = None) -> Any:
        self.turns += self._sent  # what comes with the answer is not waited for again
        self._sent = False
        return super().take(most, unpack)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, WIDTH))


def trained(poisoned: Tensor | None = None) -> reference.Joint:
    """Train a network; poisoned rows have a trigger in the second party's columns, and all the same label."""
    torch.manual_seed(0)
    inputs = [torch.randn(ROWS, 3) for _ in PARTIES]
    labels = ((inputs[0][:, 0] + inputs[1][:, 1] + inputs[2][:, 2]) > 0).long()
    if poisoned is not None:
        inputs[1][poisoned, 2], labels[poisoned] = 12.0, 1
    bottoms = nn.ModuleList(network() for _ in PARTIES)
    top = nn.Sequential(nn.Linear(3 * WIDTH, 8), nn.ReLU(), nn.Linear(8, 2))
    joint = reference.Joint(inputs, list(PARTIES), labels, TRAIN, bottoms, top, ["a", "b"])
    optimizer = torch.optim.Adam([*bottoms.parameters(), *top.parameters()], lr=0.01)
    for _ in range(30):
        optimizer.zero_grad()
        torch.autograd.backward(functional.cross_entropy(joint.logits(torch.arange(TRAIN)), labels[:TRAIN]))
        optimizer.step()
    return joint


def _as_it_is(tensor: Tensor, *_: Any, **__: Any) -> Tensor:
    """Consent to all."""
    return tensor


def role_of(place: int, joint: reference.Joint, forget: Tensor, queues: dict[tuple[str, str], Any]) -> Role:
    """Return a party that is set up, as far as its rounds go."""
    name = PARTIES[place]
    active = name == "active"
    networks = nn.ModuleDict({"bottom": copy.deepcopy(joint.bottoms[place])})
    if active:
        networks["top"] = copy.deepcopy(joint.top)
    description = {"model": Model(embedding=WIDTH).model_dump(), "classes": {"classes": ["a", "b"] if active else []}}
    sets = SampleSets.consecutive(TRAIN, 0, ROWS - TRAIN).forgetting(forget).dropping()
    labels = joint.labels if active else None
    inputs: Any = Rows(joint.inputs[place])
    state = PartyState(Order(), description, networks, inputs, labels, None, sets)
    state.begin()
    role: Any = object.__new__(Active if active else Passive)
    clock = Clock()
    deadlines = SimpleNamespace(step=5.0)
    role.context = SimpleNamespace(
        federation=SimpleNamespace(deadlines=deadlines, active=SimpleNamespace(name="active")),
        metrics=SimpleNamespace(clock=clock),
        settings=SimpleNamespace(name=name),
    )
    lines = [
        Line(Wire(queues[name, peer], queues[peer, name]), me=name, peer=peer, meter=Meter(), pack=pack, unpack=unpack)
        for peer in (PARTIES[:2] if active else ("active",))
    ]
    encodings = Encodings(Float32, Float32, Float32, joint_rounds=Int8)
    role.exchanges = [TensorExchange(line, encodings, clock, passive=line.peer if active else name) for line in lines]
    for exchange in role.exchanges:
        exchange.width = WIDTH
    role.kept, role.late = [], deque()
    role.consent = SimpleNamespace(gradient=_as_it_is, embedding=_as_it_is, sendable=_as_it_is, may_fail=True)
    role._state, role._noise = state, Noise(None, party=name)
    assert isinstance(role, Role)
    return role


async def run_phase(role: Role, phase: Phase) -> Report:
    state, joint = role.state, phase.HasField("joint")
    draw = batches.draw_joint(state.sets, phase.joint, phase.plan.seed) if joint else None
    drawn = batches.draw(state.sets, phase.over, phase.plan) if draw is None else draw
    rule = rule_for(phase.update, state.networks.parameters(), state.memory)
    assert phase.forward_only != rule.needs_gradients
    state.networks.train(phase.train_mode)
    report = Report(rows=sum(map(len, drawn)), steps=len(drawn))

    async def tell(_: Progress) -> None: ...

    if joint:
        await role.run_rounds(phase, rule, drawn, report, tell)
    else:
        await role.run_batches(phase, rule, drawn, report, tell)
    await rule.exchange(role.end_of(phase, report))
    report.figures.update(state.finish(rule))
    return report


def outcome(report: Report) -> PhaseOutcome:
    within = report.within_bounds if report.HasField("within_bounds") else None
    loss = report.loss_sum / max(1, report.rows)
    return PhaseOutcome(report.rows, loss, 0.0, 0.0, 0.0, {"active": dict(report.figures)}, within_bounds=within)


async def unlearn(
    settings: dict[str, Any], *, poisoned: bool = False, rows_for_one: float = 1.0
) -> tuple[list[Phase], list[Role], MethodResult]:
    """Run a method at three parties and, phase by phase, in one process; hold one against the other."""
    forget = torch.arange(0, TRAIN, 9)
    joint = trained(forget if poisoned else None)
    queues: dict[tuple[str, str], Any] = {(one, two): asyncio.Queue() for one in PARTIES for two in PARTIES}
    roles = [role_of(place, joint, forget, queues) for place in range(3)]
    plain = reference.Unlearning(joint, forget)
    task = UnlearningTask(
        Train(epochs=10, batch_size=32),
        classes=2,
        forget=len(forget),
        remaining=TRAIN - len(forget),
        seed=7,
        test=30,
        rows_for_one=rows_for_one,
    )
    here, there = (self_scaling.auto(Problem(Fedora(**settings), task)) for _ in range(2))
    phases: list[Phase] = []
    step, other = next(here), next(there)
    try:
        while True:
            found, plain_found = [], []
            for phase, same in zip(phases_in(step), phases_in(other), strict=True):
                phases.append(phase)
                phase.number = len(phases)
                with torch.set_grad_enabled(not phase.forward_only):  # it is the whole process's, and so all parties'
                    reports = await asyncio.gather(*(run_phase(role, phase) for role in roles))
                found.append(outcome(reports[2]))
                plain_found.append(plain._run(same))
                check_same(roles, joint, after=phase.name)
            last, plain_last = (replace(one[-1], earlier=tuple(one[:-1])) for one in (found, plain_found))
            assert last.within_bounds == plain_last.within_bounds
            try:
                step = here.send(last)
            except StopIteration as stop:
                with pytest.raises(StopIteration) as ended:
                    there.send(plain_last)
                assert ended.value.value == stop.value
                return phases, roles, stop.value
            other = there.send(plain_last)
    finally:
        here.close()


def check_same(roles: list[Role], joint: reference.Joint, *, after: str) -> None:
    """Hold all parties' networks against those of one process."""
    for place, role in enumerate(roles):
        expected = joint.bottoms[place].state_dict()
        for name, value in role.state.networks["bottom"].state_dict().items():
            assert value.equal(expected[name]), f"{PARTIES[place]} {name} differs after {after}"
    for name, value in roles[2].state.networks["top"].state_dict().items():
        assert value.equal(joint.top.state_dict()[name]), f"top {name} differs after {after}"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"dual": "parameterwise", "audit": True},
        {"goal": "uncertain"},
        {"goal": "uncertain", "dual": "parameterwise"},
        {"rho": 0.1, "scales": {"decay": False}},
    ],
    ids=["as retrained", "parameterwise", "uncertain", "both", "without its parts"],
)
def test_joint_rounds_equal_one_process(settings: dict[str, Any]) -> None:
    phases, roles, result = asyncio.run(unlearn(settings))
    assert any(phase.joint.forget for phase in phases)
    assert roles[2].state.memory.of("compare").get("carrier") is None
    if settings.get("goal") == "uncertain":
        assert result.constraint_held and result.stopped.endswith("unsure enough")


def test_what_brings_accuracy_back_equals_one_process() -> None:
    phases, _, result = asyncio.run(unlearn({"scales": {"step": 12.0}}, rows_for_one=300.0))
    names = [phase.name for phase in phases]
    assert names[names.index("recovery") + 2] == "recovery" and names.count("retreat") > 1
    assert "had fallen" in result.stopped


@pytest.mark.parametrize("settings", [{}, {"dual": "parameterwise"}], ids=["scalar", "parameterwise"])
def test_rounds_that_mix_rows_equal_one_process(settings: dict[str, Any]) -> None:
    few_held_out_rows = {"scales": {"carried": 4.0}}
    phases, roles, _ = asyncio.run(unlearn(settings | few_held_out_rows, poisoned=True))
    assert roles[2].state.memory.of("compare")["carrier"] == 1, "the trigger is in the second party's columns"
    assert any(phase.joint.forget for phase in phases)


def test_a_passive_party_waits_once_a_round() -> None:
    phases, roles, _ = asyncio.run(unlearn({}))
    rounds = sum(phase.joint.rounds for phase in phases if phase.update.HasField("joint_rounds"))
    for role in roles[:2]:
        line: Any = role.exchanges[0].link
        assert line.turns == rounds, "both gradients and Ω come as one answer"


def test_a_joint_phase_that_asks_for_more_rows_than_there_are_is_the_coordinator_s_fault() -> None:
    sets = SampleSets.consecutive(10, 0, 5).forgetting(torch.tensor([1, 2]))
    joint = Phase().joint
    joint.rounds, joint.forget = 1, 3
    with pytest.raises(Exception, match="asked for 3 rows of a set that has fewer"):
        batches.draw_joint(sets, joint, 1)
    joint.forget, joint.held_out, joint.held_out_set = 1, 2, Samples.TRAIN
    with pytest.raises(Exception, match="of a set that is not held out"):
        batches.draw_joint(sets, joint, 1)


def test_no_row_comes_again_before_all_others_that_fill_a_round() -> None:
    sets = SampleSets.consecutive(23, 0, 5).forgetting(torch.arange(7))
    drawn = batches.draw_joint(sets, Joint(rounds=7, forget=3, remaining=5), 1)
    assert [len(rows) for rows in drawn] == [8] * 7
    for first in (0, 2, 4):  # 7 rows of D_u fill two rounds
        assert len({*torch.cat([rows[:3] for rows in drawn[first : first + 2]]).tolist()}) == 6
    for first in (0, 3):  # and 16 of D_r three
        assert len({*torch.cat([rows[3:] for rows in drawn[first : first + 3]]).tolist()}) == 15
    assert not drawn[0].equal(drawn[3]), "each time in another order"
