"""How often parties wait for the coordinator: phases that do not depend on reports are there before they are due."""

import asyncio
from typing import Any, cast

import pytest

from coordinator.cost import CostModel
from coordinator.engine import Engine
from coordinator.methods import Method, UnlearningTask, self_scaling
from coordinator.methods.evaluation import observation
from coordinator.methods.fedora_settings import Fedora
from coordinator.methods.primal_dual import Problem
from coordinator.methods.proof import proof
from coordinator.methods.training import Looks, training
from coordinator.roster import Connection
from coordinator.train import Train
from fedora_vfl.cluster.local import loopback_federation
from fedora_vfl.sampling.rows import rows_and_steps
from fedora_vfl.wire.meter import Meter
from protos.fedora.v1.control_pb2 import Event, FromCoordinator, FromParty
from protos.fedora.v1.meter_pb2 import Kind
from protos.fedora.v1.phase_pb2 import Report, RoundReport, Samples

ROWS = {Samples.TRAIN: 100, Samples.REMAINING: 90, Samples.FORGET: 10, Samples.TEST: 50}
TASK = UnlearningTask(Train(), classes=2, forget=10, remaining=90, seed=1)


class Counting:
    """A control link to a party that does what it is asked for, and counts how often it has nothing to do."""

    def __init__(self) -> None:
        self.asked: list[FromCoordinator] = []
        self.answered = self.waits = 0

    async def send(self, message: FromCoordinator, timeout: float | None = None) -> None:
        self.asked.append(message)

    async def receive(self, timeout: float | None = None, most: int | None = None) -> FromParty:
        phase = self.asked[self.answered].phase
        self.answered += 1
        self.waits += len(self.asked) == self.answered
        rows, steps = rows_and_steps(phase, ROWS[phase.over.set])
        if phase.steps:
            steps, partial = phase.first_step + phase.steps, phase.first_step + phase.steps < steps
            if partial:
                return FromParty(report=Report(phase=phase.number, steps=steps, partial=True))
        told = [RoundReport()] * phase.joint.rounds if phase.update.HasField("joint_rounds") else []
        return FromParty(report=Report(phase=phase.number, rows=rows, steps=steps, rounds=told))


def performed(method: Method[Any]) -> tuple[dict[str, Counting], Engine]:
    """Run a method at three parties."""
    lines = {name: Counting() for name in ("passive-1", "passive-2", "active")}
    connections = [Connection(name, cast(Any, line), Meter()) for name, line in lines.items()]

    async def ignore(event: Event) -> None:
        pass

    engine = Engine(loopback_federation(["passive-1", "passive-2"]), connections, ignore)
    engine.rows, engine._cost = dict(ROWS), CostModel(ROWS, 4, {})
    asyncio.run(engine.perform(method))
    return lines, engine


@pytest.mark.parametrize(
    ("method", "phases", "waits"),
    [
        (training(Train(epochs=5, batch_size=32), seed=1), 5, 1),
        (training(Train(epochs=5, batch_size=32), seed=1, looks=Looks(1, 32)), 10, 1),
        # How long a step takes is found out with the first eight of many.
        (training(Train(epochs=5, batch_size=4), seed=1), 6, 2),
        (observation(1, rows=ROWS, batch_size=32, seed=1), 3, 1),
        (proof(TASK, Fedora(), pushed=True), 2, 1),
        # What the first comparison finds decides how many rounds there are.
        (self_scaling.auto(Problem(Fedora(), TASK)), 4, 2),
    ],
)
def test_parties_wait_for_the_coordinator_once(method: Method[Any], phases: int, waits: int) -> None:
    lines, _ = performed(method)
    for line in lines.values():
        assert (len(line.asked), line.waits) == (phases, waits)
        assert [one.number for one in line.asked] == list(range(1, phases + 1))
        assert not line.asked[0].ahead


def test_a_phase_that_was_sent_ahead_is_booked_as_its_own() -> None:
    lines, engine = performed(training(Train(epochs=3, batch_size=32), seed=1))
    sent = [one for one in engine.journal.books.readings() if one.receiver == "active" and one.kind == Kind.CONTROL]
    assert [(one.phase, [count.round for count in one.counts]) for one in sent] == [("train", [2, 3])]
    ahead = [len(one.SerializeToString()) for one in lines["active"].asked[1:]]  # the first crosses no real link here
    assert [count.protobuf_bytes for one in sent for count in one.counts] == ahead
