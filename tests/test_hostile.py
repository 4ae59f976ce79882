"""What a member can do to a job that runs: end it, and be named for it. Nothing else."""

import asyncio
import re
import sqlite3
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import torch

from coordinator.agreement import agreed
from coordinator.blame import heard_from
from coordinator.reports import check_reports
from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.errors import DataError, FedoraError, PartyError, TooLargeError
from fedora_vfl.process.exhaustion import exhausted
from fedora_vfl.wire.link import Link
from fedora_vfl.wire.meter import Meter, Packed
from fedora_vfl.wire.pieces import PIECE_BYTES, cut, is_piece, read_piece
from fedora_vfl.wire.protocol import COORDINATOR
from fedora_vfl.wire.tensors import MalformedError
from party.budget import Budget
from protos.fedora.v1.control_pb2 import Event
from protos.fedora.v1.exchange_pb2 import Parcel, Piece
from protos.fedora.v1.failure_pb2 import Failure
from protos.fedora.v1.meter_pb2 import Kind
from protos.fedora.v1.phase_pb2 import CrossEntropy, DualAscent, Loss, Phase, Plan, Report, Samples, Sgd, Update
from tests.fuzzing.laying_out import for_jobs
from tests.fuzzing.running import MEMBERS, attack
from tests.fuzzing.services import GROWTH_BYTES, memory
from tests.stalls import STALL_SECONDS
from tests.test_attacks import Submit, longest_stall, on_cluster
from tests.two_faced_coordinator import CHANGES

SECONDS = 4.0

# Pieces


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 7])
def test_a_parcel_is_put_together_as_it_was_cut(size: int) -> None:
    whole = np.random.default_rng(size).bytes(size)
    sent = list(cut(whole))
    assert max(map(len, sent)) <= PIECE_BYTES + 32
    if size <= PIECE_BYTES:
        assert sent == [whole]
        return
    assert all(Parcel.FromString(one).piece.of == size == read_piece(one)[0] for one in sent)  # any library reads them
    assert b"".join(read_piece(one)[1] for one in sent) == whole


@pytest.mark.parametrize(
    "message",
    [
        b"\x4a",
        b"\x4a\x00",
        b"\x4a\x02\x08",
        Parcel(piece=Piece(of=10)).SerializeToString(),
        Parcel(piece=Piece(data=b"abc")).SerializeToString(),
        Parcel(piece=Piece(of=2, data=b"abc")).SerializeToString(),
        Parcel(piece=Piece(of=9, data=b"abc")).SerializeToString() + b"x",
        Parcel(piece=Piece(of=9, data=b"abc")).SerializeToString()[:-1],
    ],
)
def test_what_is_no_piece_is_refused(message: bytes) -> None:
    assert is_piece(message)
    with pytest.raises(MalformedError):
        read_piece(message)


class Line:
    """A stream without a network, of which one sees how much was read."""

    def __init__(self, incoming: list[bytes]) -> None:
        self.incoming, self.read_bytes = list(incoming), 0

    async def read(self) -> object:
        await asyncio.sleep(0)
        if not self.incoming:
            return grpc.aio.EOF
        self.read_bytes += len(self.incoming[0])
        return self.incoming.pop(0)

    async def write(self, message: bytes) -> None:
        self.incoming.append(message)


async def received(line: Line, *most: int | None) -> list[bytes]:
    """Receive a message for each bound."""
    link: Link[bytes, bytes] = Link(
        line,
        me="active",
        peer="passive-1",
        meter=Meter(),
        pack=lambda data: Packed(data, Kind.EMBEDDING),
        unpack=lambda data: (data, Packed(data, Kind.EMBEDDING)),
        in_pieces=True,
    )
    try:
        return [await link.receive(timeout=5, most=one) for one in most]
    finally:
        link.close()


def test_a_large_message_is_read_if_it_is_due() -> None:
    small, large = b"small", bytes(2 * PIECE_BYTES + 5)
    line = Line([small, *cut(large), small])
    assert asyncio.run(received(line, 100, len(large), None)) == [small, large, small]


def test_of_a_message_that_is_larger_than_due_the_first_piece_alone_is_read() -> None:
    line = Line([b"small", *cut(bytes(25 * PIECE_BYTES))])
    with pytest.raises(TooLargeError, match="passive-1 sent 104857600 bytes where at most 100 were due"):
        asyncio.run(received(line, 100, 100))
    assert line.read_bytes < PIECE_BYTES + 100


@pytest.mark.parametrize("second", [b"something else", Parcel(piece=Piece(of=9, data=b"abc")).SerializeToString()])
def test_a_message_between_the_pieces_of_another_is_refused(second: bytes) -> None:
    first, *_ = cut(bytes(2 * PIECE_BYTES))
    with pytest.raises(PartyError, match="is not the next piece") as caught:
        asyncio.run(received(Line([first, second]), None))
    assert caught.value.culprit == "passive-1"


# Who is named


def test_the_one_that_stands_alone_is_named() -> None:
    assert agreed({"passive-1": 5, "passive-2": 5, "active": 5}, what="rows") == 5
    for odd in ("passive-1", "passive-2", "active"):
        told = {name: 6 if name == odd else 5 for name in ("passive-1", "passive-2", "active")}
        with pytest.raises(PartyError) as caught:
            agreed(told, what="rows")
        assert caught.value.culprit == odd
    with pytest.raises(PartyError, match="passive-1 and active do not agree on rows"):
        agreed({"passive-1": 5, "active": 6}, what="rows")


def test_a_coordinator_that_sent_the_same_knows_that_a_party_lies_about_it() -> None:
    told = Failure(kind=Failure.DIVERGED, culprit=COORDINATOR, reason="sent another phase", other="passive-1")
    error = heard_from("active", told, active="active")
    assert isinstance(error, PartyError) and error.culprit == "passive-1"
    error = heard_from("passive-2", told, active="active")  # which has no connection to it
    assert isinstance(error, PartyError) and error.culprit == "passive-2"


PHASE = Phase(
    number=1,
    name="train",
    over=Samples(set=Samples.TRAIN, share=1),
    plan=Plan(batch_size=10),
    loss=Loss(cross_entropy=CrossEntropy()),
    update=Update(sgd=Sgd(lr=0.1)),
)
DUAL = Update(dual_ascent=DualAscent(form=DualAscent.SCALAR))


@pytest.mark.parametrize(
    ("update", "lie", "said"),
    [
        (PHASE.update, {"loss_sum": -5.0}, "loss_sum"),
        (PHASE.update, {"left_out": {"change": "few"}, "change_squared": 1.0}, "keeps it back"),
        (Update(observe={}), {"change_squared": 1.0}, "stand still"),
        (DUAL, {"figures": {"dual_norm": 1, "dual_largest": 2, "dual_positive_share": 1}}, "do not fit"),
        (DUAL, {"figures": {"dual_norm": 1, "dual_largest": 1, "dual_positive_share": 0}}, "do not fit"),
    ],
)
def test_a_report_that_contradicts_itself_is_refused(update: Update, lie: dict[str, Any], said: str) -> None:
    phase = Phase()
    phase.CopyFrom(PHASE)
    phase.update.CopyFrom(update)
    honest = Report(phase=1, rows=20, steps=2)
    reports = {"passive-1": honest, "active": Report(phase=1, rows=20, steps=2, **lie)}
    with pytest.raises(PartyError, match=said) as caught:
        check_reports(phase, reports, set_rows=20, active="active", seconds=1)
    assert caught.value.culprit == "active"
    check_reports(phase, {"passive-1": honest, "active": honest}, set_rows=20, active="active", seconds=1)


def test_a_dual_variable_of_a_party_s_own_is_held_against_it() -> None:
    phase = Phase()
    phase.CopyFrom(PHASE)
    phase.update.CopyFrom(DUAL)

    def report(omega: float) -> Report:
        figures = {"dual_norm": omega, "dual_largest": omega, "dual_positive_share": 1.0}
        return Report(phase=1, rows=20, steps=2, figures=figures)

    reports = {"passive-1": report(2.0), "passive-2": report(1.0), "active": report(1.0)}
    with pytest.raises(PartyError) as caught:
        check_reports(phase, reports, set_rows=20, active="active", seconds=1)
    assert caught.value.culprit == "passive-1"


def test_parties_that_are_sent_different_phases_blame_the_coordinator(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, submit: Submit) -> dict[str, str]:
        for number in range(len(CHANGES)):
            with pytest.raises(FedoraError):
                await submit({"train": {"epochs": 1, "batch_size": 32}, "seed": number})
        return {name: cluster.log_path(name).read_text() for name in cluster.federation.parties}

    logs = on_cluster(tmp_path, scenario, programs={COORDINATOR: ["tests.two_faced_coordinator"]})
    found = re.findall(r"ERROR coordinator sent passive-1 another phase \d+ \(train\) than active", logs["active"])
    assert len(found) == len(CHANGES)
    for name, log in logs.items():
        errors = [line for line in log.splitlines() if " ERROR " in line]
        blamed = [line for line in errors if "coordinator" not in line]
        assert not blamed, (name, blamed)


# What a machine runs out of


def test_a_full_disk_or_memory_is_told_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(MemoryError) as no_memory:
        bytearray(2**62)
    assert "not enough memory" in (exhausted(no_memory.value) or "")
    with pytest.raises(RuntimeError) as no_tensor:
        torch.empty(2**50)
    assert "not enough memory for 4294967296 MiB" in (exhausted(no_tensor.value) or "")
    with Path("/dev/full").open("wb", buffering=0) as full, pytest.raises(OSError, match="No space left") as no_disk:
        full.write(b"x")
    assert exhausted(no_disk.value) == "a file: No space left on device"
    assert exhausted(sqlite3.OperationalError("database or disk is full"))
    assert exhausted(ValueError("of another kind")) is None


def test_a_budget_on_a_full_disk_is_told_with_its_file(tmp_path: Path) -> None:
    budget = Budget(tmp_path, b"s" * 32)
    (pages,) = budget._file.execute("PRAGMA page_count").fetchone()
    budget._file.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(DataError, match=re.escape(f"{tmp_path / 'budget.sqlite'}: what this party has given")):
        budget.numbers([f"p{number}" for number in range(10_000)])


# Jobs that run


@pytest.mark.parametrize("fault", ["huge", "huge-at-once", "tiny-fields"])
def test_a_huge_message_in_a_running_job_is_held_against_its_sender(fault: str, tmp_path: Path) -> None:
    processes, before, failures = list[int](), list[int](), list[FedoraError]()

    def follow(event: Event) -> None:
        if event.WhichOneof("content") == "finished":
            before.append(memory(processes[0]))  # when all that a phase needs has been loaded

    async def scenario(cluster: LocalCluster, submit: Submit) -> tuple[float, int]:
        processes.append(cluster.processes["active"].pid)

        async def work() -> None:
            with pytest.raises(FedoraError) as caught:
                await submit({"train": {"epochs": 3, "batch_size": 32}})
            failures.append(caught.value)

        longest = await longest_stall(cluster, "active", work())
        return longest, memory(processes[0]) - before[0]

    programs = {"passive-1": ["tests.rogue", fault]}
    longest, growth = on_cluster(tmp_path, scenario, programs=programs, follow=follow)
    (error,) = failures
    assert isinstance(error, PartyError) and error.culprit == "passive-1"
    assert longest < STALL_SECONDS
    assert growth < 64 * 1024 * 1024


@pytest.mark.parametrize("hostile", MEMBERS)
def test_a_member_that_changes_its_messages_disturbs_nothing_but_its_own_jobs(hostile: str, tmp_path: Path) -> None:
    federation = for_jobs(tmp_path)
    found = asyncio.run(attack(tmp_path / "run", federation, hostile, seconds=SECONDS, seed=1))
    assert found.failures
    assert not found.misplaced and not found.unforeseen
    assert found.longest_stall < STALL_SECONDS
    assert max(found.growth.values()) < GROWTH_BYTES
    assert found.same_result
