"""Whatever goes wrong ends the job in time, with one sentence that names who, and leaves no process behind."""

import asyncio
import math
import os
import signal
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from coordinator.blame import best_reason
from fedora_vfl.cluster import local
from fedora_vfl.cluster.local import MOST_RESTARTS, LocalCluster, Restarts, free_address
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.cluster.runs import run_on
from fedora_vfl.errors import DataError, FedoraError, LedgerError, PartyError, PortError, SettingsError
from fedora_vfl.settings.federation import Deadlines, Federation
from fedora_vfl.wire.channels import path
from fedora_vfl.wire.protocol import COORDINATOR, PROTOCOL
from party.clock import Clock
from party.passive import OPEN
from party.updates import PhaseEnd
from party.updates.dual_messages import DualMessages
from protos.fedora.v1 import exchange_pb2, tensor_pb2
from protos.fedora.v1.control_pb2 import Event
from protos.fedora.v1.exchange_pb2 import Greeting, Parcel
from protos.fedora.v1.failure_pb2 import Failure
from protos.fedora.v1.phase_pb2 import Phase, Report
from tests.conftest import Training, as_job, write_people, write_yaml

# Shorter than the defaults, so that the tests are; long enough for a busy machine.
# What is missed for longer than `absence` ends a job that gets no further though all are there.
DEADLINES = Deadlines(join=40, step=3, silence=4, absence=1)

LONG = {"epochs": 100_000, "batch_size": 32}


# Rounds that forget, for as long as a test may need.
FORGETTING = {"steps": "paper", "rounds": 100_000, "patience": 100_000, "delta": 0.01}


async def failing_job(
    folder: Path,
    *,
    programs: Mapping[str, Sequence[str]] | None = None,
    train: Mapping[str, Any] = LONG,
    more: Mapping[str, Any] | None = None,
    deadlines: Deadlines = DEADLINES,
) -> tuple[FedoraError, float]:
    """Run a job that must fail; return the error, and the seconds until then; `more` are further sections of it."""
    data = {"source": "csv", "path": str(write_people(folder / "people.csv")), "id": "person"}
    out = folder / "run"
    job = as_job({"data": data, "train": dict(train), **(more or {})})
    federation = prepare(job, origin=out / "job.yaml", out=out, threads=1, deadlines=deadlines)
    began = time.monotonic()
    async with LocalCluster(out, federation, programs=programs) as cluster:
        with pytest.raises(FedoraError) as caught:
            await run_on(cluster, out, Training())
        took = time.monotonic() - began
        pids = [process.pid for process in cluster.processes.values()]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    return caught.value, took


class Heard:
    """Follows a job and tells when a sentence was said."""

    def __init__(self, sentence: str) -> None:
        self._sentence, self.heard = sentence, asyncio.Event()
        self.begun = asyncio.Event()

    def __call__(self, event: Event) -> None:
        if event.WhichOneof("content") == "finished":
            self.begun.set()
        if self._sentence in event.note:
            self.heard.set()


@pytest.mark.parametrize(
    ("victim", "number", "said", "within"),
    [
        ("passive-1", signal.SIGKILL, "passive-1 is gone", 3.0),
        ("active", signal.SIGKILL, "active is gone", 3.0),
        ("passive-1", signal.SIGSTOP, "passive-1 is gone", 4.0 + 4.0),  # silence, and time to agree on the reason
        ("active", signal.SIGSTOP, "active is gone", 4.0 + 4.0),
        ("passive-2", signal.SIGTERM, "passive-2 was stopped by a signal", 3.0),
    ],
)
def test_whoever_is_lost_is_named_in_time_and_the_job_goes_on(
    victim: str, number: signal.Signals, said: str, within: float, tmp_path: Path
) -> None:
    data = {"source": "csv", "path": str(write_people(tmp_path / "people.csv")), "id": "person"}
    out, watch = tmp_path / "run", Heard(said)
    job = as_job({"data": data, "train": LONG})
    federation = prepare(job, origin=out / "job.yaml", out=out, threads=1, deadlines=Deadlines(silence=4, step=20))

    async def work() -> None:
        async with LocalCluster(out, federation) as cluster:
            job = asyncio.create_task(run_on(cluster, out, watch))
            await asyncio.wait([job, asyncio.create_task(watch.begun.wait())], return_when=asyncio.FIRST_COMPLETED)
            process = cluster.processes[victim]
            os.kill(process.pid, number)
            await asyncio.wait_for(watch.heard.wait(), within)
            if process.returncode is None and number == signal.SIGSTOP:
                os.kill(process.pid, signal.SIGCONT)
            watch.begun.clear()
            await asyncio.wait_for(watch.begun.wait(), 60)
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)

    asyncio.run(work())


def test_a_member_that_dies_again_and_again_is_started_a_few_times() -> None:
    told: list[str] = []
    restarts = Restarts(told.append)
    pauses = [restarts.pause("active", -signal.SIGKILL) for _ in range(MOST_RESTARTS + 1)]
    assert pauses[0] == 0 and pauses[-1] is None and pauses[1:-1] == sorted(filter(None, pauses))
    restarts.progress()
    assert restarts.pause("active", -signal.SIGKILL) == 0
    for code in (SettingsError.exit_code, DataError.exit_code, PortError.exit_code, 0):
        assert restarts.pause("passive-1", code) is None, "starting it again would not help"


def test_no_two_members_are_told_to_listen_at_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "PORTS", range(20_000, 20_040))
    assert len({free_address() for _ in range(20)}) == 20


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("nan", "with values that are not finite"),
        ("infinity", "with values that are not finite"),
        ("rows", "it should be (32, 64) in float32"),
        ("width", "with shape (32, 63) in float32"),
        ("encoding", "with shape (32, 64) in float16"),
        ("step", "sent an embedding for step 3 of phase 1 where an embedding for step 2 of train round 1"),
        ("phase", "sent an embedding for step 2 of phase 2 where an embedding for step 2 of train round 1"),
        ("kind", "sent a gradient for step 2"),
        ("garbage", "sent a message that cannot be read"),
        ("hang", "sent nothing for 3 s"),
        ("unreported", "did not report within 3 s of the first party that did"),
        ("protocol", f"speaks protocol 99, but protocol {PROTOCOL} is spoken here"),
        ("greeting", f"speaks protocol 99, but protocol {PROTOCOL} is spoken here"),
    ],
)
def test_a_party_that_breaks_a_rule_is_named_with_what_it_did(fault: str, said: str, tmp_path: Path) -> None:
    error, _ = asyncio.run(failing_job(tmp_path, programs={"passive-1": ["tests.rogue", fault]}))
    assert isinstance(error, PartyError)
    assert error.culprit == "passive-1"
    assert said in error.reason


@pytest.mark.parametrize(
    ("culprit", "fault", "unlearn", "said"),
    [
        ("active", "nan-omega", {}, "sent nan as dual variable; it should be from 0 to"),
        ("passive-1", "audit", {"dual": "parameterwise", "audit": True}, "says its dual variable has norm"),
        ("passive-1", "dual-phase", {"dual": "parameterwise"}, "sent a dual variable of phase"),
        ("active", "disorder", {}, "asked to forget rows that are not an ascending part of the"),
    ],
)
def test_a_party_that_breaks_a_rule_of_forgetting_is_named_with_what_it_did(
    culprit: str, fault: str, unlearn: dict[str, Any], said: str, tmp_path: Path
) -> None:
    work = failing_job(
        tmp_path,
        programs={culprit: ["tests.rogue", fault]},
        train={"epochs": 1},
        more={"forget": {"samples": 20}, "unlearn": {**FORGETTING, **unlearn}},
    )
    error, _ = asyncio.run(work)
    assert isinstance(error, PartyError)
    assert error.culprit == culprit
    assert said in error.reason


class Told:
    """A link whose other end has sent one parcel."""

    peer = "passive-1"

    def __init__(self, parcel: Parcel) -> None:
        self._parcel = parcel

    async def receive(self, *, timeout: float, most: int | None = None) -> Parcel:
        return self._parcel


def hear(dual: exchange_pb2.Dual, *, scalar: bool = False, audit: bool = False) -> None:
    """Receive a dual message in the phase that it is for."""
    link: Any = Told(Parcel(phase=7, dual=dual))
    messages = DualMessages(PhaseEnd(Phase(number=7), Report(), [link], not scalar, Clock(), timeout=1))
    asyncio.run(messages.agree(None, most=1.0)) if scalar else asyncio.run(
        messages.summarise({}, [] if audit else None)
    )


@pytest.mark.parametrize("omega", [math.nan, math.inf, -math.inf, -1e-9])
def test_what_a_dual_variable_cannot_be_is_refused(omega: float) -> None:
    hear(exchange_pb2.Dual(omega=0.0), scalar=True)
    with pytest.raises(PartyError) as caught:
        hear(exchange_pb2.Dual(omega=omega), scalar=True)
    assert str(caught.value) == f"passive-1 sent {omega:g} as dual variable; it should be from 0 to 1"


@pytest.mark.parametrize(
    "wrong",
    [
        {"norm": math.nan},
        {"norm": math.inf},
        {"norm": -1.0},
        {"largest": math.nan},
        {"largest": math.inf},
        {"largest": -1.0},
        {"positive_share": math.nan},
        {"positive_share": 1.1},
        {"positive_share": -0.1},
    ],
)
def test_a_summary_that_cannot_be_one_is_refused(wrong: dict[str, float]) -> None:
    right: dict[str, Any] = {"norm": 1.0, "largest": 0.5, "positive_share": 1.0}
    hear(exchange_pb2.Dual(**right))
    with pytest.raises(PartyError) as caught:
        hear(exchange_pb2.Dual(**{**right, **wrong}))
    assert str(caught.value) == "passive-1 sent a summary of its dual variable that cannot be one"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (struct.pack("<2f", 3, 5), "says its dual variable has norm 5, but sent one of 5.83095"),
        (struct.pack("<2f", 3, math.nan), "says its dual variable has norm 5, but sent one of nan"),
        (b"\0\0\0", "sent a dual variable whose bytes are not float32"),
        (b"", "says its dual variable has norm 5, but sent one of 0"),
    ],
)
def test_values_that_an_audit_asked_for_must_have_the_norm_that_was_told(data: bytes, said: str) -> None:
    def shown(content: bytes) -> exchange_pb2.Dual:
        values = [tensor_pb2.Tensor(encoding=tensor_pb2.FLOAT32, shape=[2], data=content)]
        return exchange_pb2.Dual(norm=5.0, largest=4.0, positive_share=1.0, values=values)

    hear(shown(struct.pack("<2f", 3, 4)), audit=True)
    with pytest.raises(PartyError) as caught:
        hear(shown(data), audit=True)
    assert caught.value.reason == said and caught.value.culprit == "passive-1"


def test_ends_that_count_differently_fail_the_job(tmp_path: Path) -> None:
    programs = {"passive-2": ["tests.rogue", "miscount"]}
    error, _ = asyncio.run(failing_job(tmp_path, programs=programs, train={"epochs": 1}))
    assert isinstance(error, LedgerError)
    assert "the books differ on the embedding messages from passive-2 to active in train round 1" in str(error)


def test_what_an_earlier_job_left_in_one_party_s_books_is_not_in_the_next_job_s(tmp_path: Path) -> None:
    federation = prepare_people(tmp_path)

    async def after_another() -> dict[str, Any]:
        programs = {"active": ["tests.rogue", "earlier-job"]}
        async with LocalCluster(tmp_path / "run", federation, programs=programs) as cluster:
            return await run_on(cluster, tmp_path / "run", Training())

    asyncio.run(after_another())  # or the books would differ


def test_a_missing_party_is_named_after_the_join_deadline(tmp_path: Path) -> None:
    short = DEADLINES.model_copy(update={"join": 12})
    error, took = asyncio.run(failing_job(tmp_path, programs={"passive-2": []}, deadlines=short))
    assert str(error) == "passive-2 has not joined within 12 s"
    assert took < 12 + 40  # of which a busy machine takes most to start the processes


def test_a_stranger_s_greeting_for_another_job_is_in_no_book(tmp_path: Path) -> None:
    federation = prepare_people(tmp_path)
    greeting = Parcel(greeting=Greeting(protocol=1, party="passive-1", job="another"))

    async def with_a_stranger() -> dict[str, Any]:
        async with (
            LocalCluster(tmp_path / "run", federation) as cluster,
            grpc.aio.insecure_channel(federation.active.address) as channel,
        ):
            await channel.channel_ready()
            open_stream: Any = channel.stream_stream(path(OPEN))
            await open_stream().write(greeting.SerializeToString())
            return await run_on(cluster, tmp_path / "run", Training())

    assert asyncio.run(with_a_stranger())["rows"]["train"] > 0


def test_an_address_that_leads_to_somebody_else_is_said(tmp_path: Path) -> None:
    federation = prepare_people(tmp_path)
    wrong = federation.model_dump() | {"coordinator": {"address": federation.active.address}}
    write_yaml(tmp_path / "run" / "wrong.yaml", wrong)
    party = tmp_path / "run" / "parties" / "passive-1.yaml"
    party.write_text(party.read_text().replace("federation.yaml", "wrong.yaml"))
    error = asyncio.run(failure_of(tmp_path, federation))
    assert isinstance(error, PartyError)
    assert f"coordinator is not what answers at {federation.active.address}" in str(error)


def prepare_people(folder: Path) -> Federation:
    """Lay out a run over a small table."""
    data = {"source": "csv", "path": str(write_people(folder / "people.csv")), "id": "person"}
    return prepare(as_job({"data": data}), origin=folder / "job.yaml", out=folder / "run", threads=1)


async def failure_of(folder: Path, federation: Federation) -> FedoraError:
    """Run what was laid out, which must fail, and return why."""
    async with LocalCluster(folder / "run", federation) as cluster:
        with pytest.raises(FedoraError) as caught:
            await run_on(cluster, folder / "run", Training())
    return caught.value


def test_a_party_whose_file_vanished_ends_the_job_with_its_own_words(tmp_path: Path) -> None:
    federation = prepare_people(tmp_path)
    (tmp_path / "run" / "data" / "passive-1.csv").unlink()
    error = asyncio.run(failure_of(tmp_path, federation))
    assert isinstance(error, DataError)
    assert str(error).startswith("passive-1: ") and "passive-1.csv" in str(error)


def test_a_port_in_use_is_said_with_its_address(tmp_path: Path) -> None:
    federation = prepare_people(tmp_path)

    async def with_the_port_taken() -> FedoraError:
        async with await asyncio.start_server(lambda _, __: None, *federation.active.address.split(":")):
            return await failure_of(tmp_path, federation)

    error = asyncio.run(with_the_port_taken())
    assert isinstance(error, PortError)
    assert f"{federation.active.address} is in use by another process" in str(error)


def test_ids_without_overlap_are_said(tmp_path: Path) -> None:
    tables = {
        "active": "id,label,split\na,0,train\nb,1,test\n",
        "passive-1": "id,x\na,1\nb,2\n",
        "passive-2": "id,y\nc,1\nd,2\n",
    }
    for name, text in tables.items():
        (tmp_path / f"{name}.csv").write_text(text)
    data = {"source": "files", "files": {name: str(tmp_path / f"{name}.csv") for name in tables}}
    federation = prepare(as_job({"data": data}), origin=tmp_path / "job.yaml", out=tmp_path / "run", threads=1)
    error = asyncio.run(failure_of(tmp_path, federation))
    assert isinstance(error, DataError)
    assert "no sample id is held by all parties: passive-2 shares none" in str(error)


def test_a_party_without_a_coordinator_gives_up_after_the_join_deadline(tmp_path: Path) -> None:
    federation = prepare_people(tmp_path)
    content = federation.model_dump() | {"coordinator": {"address": free_address()}, "deadlines": {"join": 1}}
    write_yaml(tmp_path / "run" / "federation.yaml", content)

    async def alone() -> tuple[int, str]:
        programs: dict[str, list[str]] = {COORDINATOR: [], "active": [], "passive-2": []}
        async with LocalCluster(tmp_path / "run", federation, programs=programs) as cluster:
            code = await cluster.processes["passive-1"].wait()
            return code, cluster.log_path("passive-1").read_text().splitlines()[-1]

    code, said = asyncio.run(alone())
    assert code == PartyError.exit_code
    assert said.startswith("error: coordinator cannot be reached at 127.0.0.1:")
    assert said.endswith(" within 1 s: nobody listens there")


def test_federation_files_that_differ_are_said(tmp_path: Path) -> None:
    federation = prepare_people(tmp_path)
    another = federation.model_dump() | {"passive": ["passive-1", "passive-2", "passive-3"]}
    write_yaml(tmp_path / "run" / "another.yaml", another)
    party = tmp_path / "run" / "parties" / "passive-1.yaml"
    party.write_text(party.read_text().replace("../federation.yaml", "../another.yaml"))
    error = asyncio.run(failure_of(tmp_path, federation))
    assert str(error) == (
        "coordinator runs jobs with the passive parties passive-1, passive-2, and the file here has passive-1, "
        "passive-2, passive-3: give all members the same federation file, and start them again"
    )


def test_the_party_that_everybody_waits_for_is_named_not_the_one_that_waits_for_it() -> None:
    waits = {
        "passive-1": PartyError("active", "sent nothing for 5 s", Failure.SILENT),
        "passive-2": PartyError("active", "sent nothing for 5 s", Failure.SILENT),
        "active": PartyError("passive-1", "sent nothing for 5 s", Failure.SILENT),
    }
    assert str(best_reason({**waits})) == "passive-1 sent nothing for 5 s"
    del waits["passive-2"]
    assert str(best_reason({**waits})) == "passive-1 sent nothing for 5 s"
