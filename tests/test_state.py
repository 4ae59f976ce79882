"""A party's state is one thing: saved after any phase and loaded in a new process, the job ends bit-equal."""

import asyncio
import json
import os
import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch
from torch import Tensor

from coordinator.engine import Engine
from coordinator.methods import UnlearningTask
from coordinator.methods.catalogue import METHODS
from coordinator.methods.evaluation import observation
from coordinator.methods.proof import proof
from coordinator.methods.training import training
from coordinator.metrics import CoordinatorMetrics
from coordinator.roster import JOIN, Roster
from coordinator.wire import Wire
from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.cluster.runs import run_on
from fedora_vfl.errors import DataError
from fedora_vfl.process.health import Health
from fedora_vfl.settings.federation import Federation
from fedora_vfl.wire.channels import listen
from fedora_vfl.wire.meter import Totals
from fedora_vfl.wire.protocol import COORDINATOR
from party.state import MODEL_FORMAT
from party.tensor_files import read_tensors, write_tensors
from protos.fedora.v1.control_pb2 import Classes, Request, Setup
from tests.conftest import as_job

DIGITS = {"source": "digits", "limit": 300}
CNN = {"bottom": "cnn", "channels": [4], "embedding": 8, "top": [16]}
FORGET = {"classes": [0, 1], "percent": 50}
PARTIES = ("passive-1", "passive-2", "active")


def content(**more: Any) -> dict[str, Any]:
    """Return a job over digits."""
    train = {"epochs": 2, "batch_size": 64}
    return {"data": DIGITS, "model": CNN, "train": train, "forget": FORGET, "seed": 3, **more}


def run_with(job: dict[str, Any], out: Path, program: list[str]) -> dict[str, Any]:
    """Run a job whose parties are this program."""
    federation = prepare(as_job(job), origin=out / "job.yaml", out=out, threads=1)

    async def work() -> dict[str, Any]:
        async with LocalCluster(out, federation, programs=dict.fromkeys(federation.parties, program)) as cluster:
            return await run_on(cluster, out, lambda event: None)

    return asyncio.run(work())


def models(out: Path) -> dict[str, tuple[dict[str, Tensor], dict[str, Any]]]:
    """Return every party's saved models: parameters and descriptions, but for the jobs that they have honoured."""
    found = {}
    for path in sorted(out.glob("models/*/*.safetensors")):
        tensors, description = read_tensors(path, format=MODEL_FORMAT, what="a saved model")
        del description["lineage"]
        found[str(path.relative_to(out))] = tensors, description
    return found


def assert_same_models(one: Path, other: Path) -> None:
    """Compare every party's saved models of two runs, to the bit."""
    first, second = models(one), models(other)
    assert first.keys() == second.keys() and first
    for name, (tensors, description) in first.items():
        assert description == second[name][1]
        assert tensors.keys() == second[name][0].keys()
        assert all(value.equal(second[name][0][key]) for key, value in tensors.items()), name


JOBS: dict[str, dict[str, Any]] = {
    "every method, one after the other": content(
        unlearn={"method": "fedora", "budget": 0.3, "scales": {"rounds": 8}},
        compare=[
            {"method": "ga", "rounds": 2},
            {"method": "ico", "rounds": 2},
            {"method": "cvfu", "rounds": 2, "offline": "passive-2"},
            "retrain",
        ],
        backdoor={"target": 9},
    ),
    "parameterwise form, SGD with momentum, noise from a seed": content(
        train={"epochs": 2, "batch_size": 64, "optimizer": "sgd", "lr": 0.05},
        unlearn={"steps": "paper", "dual": "parameterwise", "rounds": 3, "delta": 0.2},
        privacy={"passive": {"noise": 0.01}},
    ),
}


@pytest.mark.parametrize("name", JOBS)
def test_parties_that_throw_their_state_away_and_read_it_back_after_every_phase_notice_nothing(
    name: str, tmp_path: Path
) -> None:
    whole = run_with(JOBS[name], tmp_path / "whole", ["party"])
    again = run_with(JOBS[name], tmp_path / "again", ["tests.resuming", "round-trip"])
    assert_same_models(tmp_path / "whole", tmp_path / "again")
    for model in ("original", "unlearned"):
        # Reports tell seconds, whose messages differ by a byte now and then.
        figures = [{**one[model], "seconds": 0, "bytes": one[model]["bytes"]["tensor"]} for one in (whole, again)]
        assert figures[0] == figures[1]
    assert whole["privacy"] == again["privacy"]
    claims = [json.loads((tmp_path / one / "certificate.json").read_text())["final"] for one in ("whole", "again")]
    assert claims[0] == claims[1]


# New processes


class Interrupted:
    """A coordinator in this process, whose parties it replaces by new processes after some phases."""

    def __init__(self, out: Path, federation: Federation, cut_after: set[int]) -> None:
        self._federation, self._cut_after = federation, cut_after
        programs: dict[str, list[str]] = {
            COORDINATOR: [],
            **{name: ["tests.resuming", "resume"] for name in federation.parties},
        }
        self._cluster = LocalCluster(out, federation, programs=programs)
        self._roster = Roster(federation, CoordinatorMetrics(federation.parties), Health(), Totals())
        self._setup = Setup()
        self._ran = 0
        self.engine: Engine

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Interrupted"]:
        """Listen for the parties and run them."""
        join: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(self._roster.join)
        server = await listen(
            self._federation.coordinator.address, {JOIN: join}, self._federation.deadlines.silence, credentials=None
        )
        try:
            async with self._cluster:
                yield self
        finally:
            await server.stop(grace=0)

    async def set_up(self, setup: Setup) -> None:
        """Begin a job with the parties that are there."""
        self._setup = setup
        self.engine = await self._new_engine()

    async def perform(self, method: Any) -> Any:
        """Run a method's phases, some of them followed by an interruption."""
        engine = self.engine
        run = engine._run

        async def run_and_cut(phase: Any, rounds: int, following: Any = None) -> Any:
            outcome = await run(phase, rounds)  # the next one is not sent ahead to parties that may be replaced
            self._ran += 1
            if self._ran in self._cut_after:
                await self._replace_parties()
                # The engine's own part of the job lives on; only whom it talks to is new.
                engine._connections = (await self._new_engine())._connections
            return outcome

        engine._run = run_and_cut  # type: ignore[method-assign]
        try:
            return await engine.perform(method)
        finally:
            engine._run = run  # type: ignore[method-assign]

    async def _new_engine(self) -> Engine:
        async def tell(event: object) -> None:
            pass

        engine = Engine(self._federation, await self._roster.complete(), tell)
        await engine.setup(self._setup)
        return engine

    async def _replace_parties(self) -> None:
        for name in self._federation.parties:
            process = self._cluster.processes[name]
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()
        await asyncio.gather(*(connection.link.ended() for connection in self.engine._connections))
        for name in self._federation.parties:
            await self._cluster.start(name)


async def forget_with(unlearn: dict[str, Any], out: Path, cut_after: set[int]) -> None:
    """Train, measure, forget, measure what a certificate says, save."""
    job = as_job(content(unlearn=unlearn))
    federation = prepare(job, origin=out / "job.yaml", out=out, threads=1)
    async with Interrupted(out, federation, cut_after).serving() as cluster:
        assert job.model is not None
        setup = Setup(job="job", seed=job.seed, passive=federation.passive, encoding="float32", alignment="plain")
        setup.model = job.model.model_dump_json()
        # What error feedback remembers goes through the file, too.
        few_bits = Wire(encoding="int4", gradients="int2", error_feedback=True)
        for name, link in few_bits.links(list(federation.passive)).items():
            setup.links[name].CopyFrom(link)
        await cluster.set_up(setup)
        engine = cluster.engine
        accepted = await engine.request(Request(classes=Classes(classes=["0", "1"], percent=50), seed=job.seed))
        await cluster.perform(training(job.train, seed=job.seed))
        await cluster.perform(observation(1, rows=engine.rows, batch_size=256, seed=1))
        await engine.assess("original", fit_attack=True)
        await engine.drop()
        task = UnlearningTask(
            job.train,
            classes=10,
            forget=accepted.rows,
            remaining=accepted.remaining,
            seed=5,
            passive=tuple(federation.passive),
        )
        ended = await cluster.perform(METHODS.get(job.unlearn.method).run(task, job.unlearn))
        await cluster.perform(observation(2, rows=engine.rows, batch_size=256, seed=2))
        figures = dict((await engine.assess("unlearned")).figures)
        await cluster.perform(proof(task, job.unlearn, pushed=ended.pushed))
        await engine.save("unlearned", training="{}")
        (out / "figures.json").write_text(json.dumps([figures, engine.identity], sort_keys=True))


@pytest.mark.parametrize(
    "unlearn",
    [
        {"method": "fedora", "budget": 0.3, "scales": {"rounds": 7}},
        {"method": "cvfu", "rounds": 3, "offline": "passive-1"},
    ],
    ids=lambda unlearn: str(unlearn["method"]),
)
def test_new_processes_that_load_the_state_go_on_and_end_bit_equal(unlearn: dict[str, Any], tmp_path: Path) -> None:
    asyncio.run(forget_with(unlearn, tmp_path / "whole", set()))
    cut_after = set(random.Random(0).sample(range(1, 10), 3))
    asyncio.run(forget_with(unlearn, tmp_path / "cut", cut_after))
    assert_same_models(tmp_path / "whole", tmp_path / "cut")
    assert (tmp_path / "whole" / "figures.json").read_text() == (tmp_path / "cut" / "figures.json").read_text()


# Files


def damaged(data: bytes, place: int, change: Callable[[int], int]) -> bytes:
    """Change one byte."""
    return data[:place] + bytes([change(data[place])]) + data[place + 1 :]


def test_no_damaged_byte_of_a_file_goes_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    tensors = {"a/0": torch.arange(6.0).view(2, 3), "b": torch.tensor([1, 2]), "c": torch.tensor(0.5)}
    write_tensors(path, tensors, {"names": ["x", "y"], "rate": 0.1}, format="test-1")
    whole = path.read_bytes()
    read, description = read_tensors(path, format="test-1", what="a test")
    assert all(read[name].equal(value) for name, value in tensors.items())
    assert description == {"names": ["x", "y"], "rate": 0.1}
    for place in range(len(whole)):
        path.write_bytes(damaged(whole, place, lambda byte: byte ^ 1 << place % 8))  # noqa: B023 (called at once)
        with pytest.raises(DataError):
            read_tensors(path, format="test-1", what="a test")
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError):
            read_tensors(path, format="test-1", what="a test")
