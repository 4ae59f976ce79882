"""How long one training step takes: in one process, over raw sockets, over bare gRPC streams, and in this system.

All four do the same arithmetic with the same bottom models and top model, one compute thread per process, and exchange
the same tensors. The bare ones have no metering, no checks, no protobuf and no deadlines: they are the floor. The four
are repeated several times in one run, because two shared cores are noisy: compare the ratios, not the times.

    python -m fedora_vfl.bench.step [--repeat 3] [--parties 2 --parties 8] [--shape wide-linear] [--json]

With --json one object is printed: for each shape, number of parties and way the milliseconds of a step (the median of
every repetition), the bytes and the messages that cross for it, both ways and all parties together, and its time as a
share of bare gRPC's.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

from coordinator.job import Job
from fedora_vfl.cluster.local import free_address
from fedora_vfl.cluster.runs import run_locally
from fedora_vfl.settings.files import check
from fedora_vfl.wire.meter import TENSOR_KINDS
from fedora_vfl.wire.protocol import VERSION

CLASSES, VALUE_BYTES = 10, 4


@dataclass(frozen=True)
class Shape:
    """The sizes of a step."""

    batch: int
    embedding: int
    steps: int  # that are measured
    inputs: int = 20  # columns of each passive party
    hidden: int | None = 128  # width of the one hidden layer of every network; None: linear networks
    parties: int = 2  # passive ones

    def bottom(self) -> nn.Module:
        """Make a passive party's network."""
        if self.hidden is None:
            return nn.Linear(self.inputs, self.embedding)
        return nn.Sequential(nn.Linear(self.inputs, self.hidden), nn.ReLU(), nn.Linear(self.hidden, self.embedding))

    def top(self) -> nn.Module:
        """Make the active party's network."""
        width = self.parties * self.embedding
        if self.hidden is None:
            return nn.Sequential(nn.ReLU(), nn.Linear(width, CLASSES))
        return nn.Sequential(nn.ReLU(), nn.Linear(width, self.hidden), nn.ReLU(), nn.Linear(self.hidden, CLASSES))


SHAPES = {
    "tabular": Shape(256, 64, 1200),
    "wide": Shape(1024, 512, 120),
    "wide-linear": Shape(1024, 512, 240, inputs=64, hidden=None),
}


@dataclass(frozen=True)
class Measured:
    """Seconds of some steps, and what crossed in each."""

    seconds: list[float]
    bytes: float
    messages: float


warnings.filterwarnings("ignore", message="The given buffer is not writable")
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class PassiveWork:
    """A passive party's arithmetic."""

    def __init__(self, shape: Shape) -> None:
        torch.set_num_threads(1)
        self.network = shape.bottom()
        self.optimizer = torch.optim.SGD(self.network.parameters(), 0.01, momentum=0.9)
        self.rows = torch.randn(shape.batch, shape.inputs)

    def embed(self) -> Tensor:
        """Return h."""
        self.embedding: Tensor = self.network(self.rows)
        detached: Tensor = self.embedding.detach()
        return detached

    def learn(self, gradient: Tensor) -> None:
        """Take a step along ∂L/∂h."""
        torch.autograd.backward(self.embedding, gradient)
        self.optimizer.step()
        self.optimizer.zero_grad()


class ActiveWork:
    """The active party's arithmetic."""

    def __init__(self, shape: Shape) -> None:
        torch.set_num_threads(1)
        self.network = shape.top()
        self.optimizer = torch.optim.SGD(self.network.parameters(), 0.01, momentum=0.9)
        self.labels = torch.randint(0, CLASSES, (shape.batch,))

    def learn(self, embeddings: Sequence[Tensor]) -> list[Tensor]:
        """Take a step and return ∂L/∂h of every party."""
        leaves = [embedding.requires_grad_() for embedding in embeddings]
        torch.autograd.backward(functional.cross_entropy(self.network(torch.cat(leaves, dim=1)), self.labels))
        self.optimizer.step()
        self.optimizer.zero_grad()
        return [leaf.grad for leaf in leaves if leaf.grad is not None]


def one_process(shape: Shape) -> list[float]:
    """Run all parties' arithmetic here; return the seconds of each step."""
    active, passive = ActiveWork(shape), [PassiveWork(shape) for _ in range(shape.parties)]
    times = [time.perf_counter()]
    for _ in range(shape.steps):
        for party, gradient in zip(passive, active.learn([party.embed() for party in passive]), strict=True):
            party.learn(gradient)
        times.append(time.perf_counter())
    return list(np.diff(times))


def _to_bytes(tensor: Tensor) -> bytes:
    return tensor.numpy().tobytes()


def _from_bytes(data: Any, shape: Shape) -> Tensor:
    return torch.frombuffer(data, dtype=torch.float32).view(shape.batch, shape.embedding)


def sockets(shape: Shape) -> list[float]:
    """Exchange over pairs of connected Unix sockets."""
    active = ActiveWork(shape)
    with _Processes(_socket_passive, shape) as ends:
        times = [time.perf_counter()]
        for _ in range(shape.steps):
            received = [_from_bytes(bytearray(end.recv_bytes()), shape) for end in ends]
            for end, gradient in zip(ends, active.learn(received), strict=True):
                end.send_bytes(_to_bytes(gradient))
            times.append(time.perf_counter())
    return list(np.diff(times))


def _socket_passive(end: Connection, shape: Shape) -> None:
    work = PassiveWork(shape)
    for _ in range(shape.steps):
        end.send_bytes(_to_bytes(work.embed()))
        work.learn(_from_bytes(bytearray(end.recv_bytes()), shape))


def bare_grpc(shape: Shape) -> list[float]:
    """Exchange raw bytes over gRPC's bidirectional streams."""
    active, address, times = ActiveWork(shape), free_address(), list[float]()

    async def serve(ends: list[Connection]) -> None:
        arrived: asyncio.Queue[Any] = asyncio.Queue()
        over = asyncio.Event()

        async def open_stream(_: object, context: Any) -> None:
            await arrived.put(context)
            await over.wait()

        server = grpc.aio.server(options=OPTIONS)
        handlers: dict[str, Any] = {"Open": grpc.stream_stream_rpc_method_handler(open_stream)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench", handlers),))
        server.add_insecure_port(address)
        await server.start()
        for end in ends:
            end.send(address)
        streams = [await arrived.get() for _ in ends]
        times.append(time.perf_counter())
        for _ in range(shape.steps):
            messages = await asyncio.gather(*(stream.read() for stream in streams))
            gradients = active.learn([_from_bytes(message, shape) for message in messages])
            pairs = zip(streams, gradients, strict=True)
            await asyncio.gather(*(stream.write(_to_bytes(gradient)) for stream, gradient in pairs))
            times.append(time.perf_counter())
        over.set()
        await server.stop(1)

    with _Processes(_grpc_passive, shape) as ends:
        asyncio.run(serve(ends))
    return list(np.diff(times))


def _grpc_passive(end: Connection, shape: Shape) -> None:
    work = PassiveWork(shape)

    async def exchange() -> None:
        async with grpc.aio.insecure_channel(end.recv(), options=OPTIONS) as channel:
            await channel.channel_ready()
            stream: Any = channel.stream_stream("/bench/Open")()
            for _ in range(shape.steps):
                await stream.write(_to_bytes(work.embed()))
                work.learn(_from_bytes(await stream.read(), shape))

    asyncio.run(exchange())


class _Processes:
    """The passive parties of a floor, each a process with a socket to this one."""

    def __init__(self, target: Callable[[Connection, Shape], None], shape: Shape) -> None:
        context = multiprocessing.get_context("spawn")
        pairs = [context.Pipe() for _ in range(shape.parties)]
        self._ends = [ours for ours, _ in pairs]
        self._processes = [context.Process(target=target, args=(theirs, shape)) for _, theirs in pairs]

    def __enter__(self) -> list[Connection]:
        for process in self._processes:
            process.start()
        return self._ends

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.join(timeout=30)
            process.kill()


def this_system(shape: Shape) -> Measured:
    """Run a real job on a real local cluster; return the seconds per step of each epoch after the first."""
    epochs = 6
    rows = max(1, shape.steps // epochs) * shape.batch
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        draw = np.random.default_rng(0)
        columns = {f"x{number}": draw.normal(size=rows + 100) for number in range(shape.parties * shape.inputs)}
        labels = draw.integers(0, CLASSES, rows + 100)
        _write_table(out / "table.parquet", columns, labels, rows)
        table = {"source": "parquet", "path": str(out / "table.parquet"), "format": "parquet"}
        hidden = [] if shape.hidden is None else [shape.hidden]
        content = {
            "data": {**table, "parties": shape.parties},
            "model": {"bottom": "mlp", "hidden": hidden, "embedding": shape.embedding, "top": hidden},
            "train": {"epochs": epochs, "batch_size": shape.batch, "optimizer": "sgd", "lr": 0.01},
        }
        job = check(content, Job, origin="bench")
        result = asyncio.run(run_locally(job, origin=out / "job", out=out / "run", threads=1))
    trained = [one for one in result["rounds"] if one["phase"] == "train"]
    steps = sum(one["rows"] for one in trained) / shape.batch
    counted = [one for one in result["original"]["bytes"]["links"] if one["kind"] in TENSOR_KINDS]
    crossed = (sum(one[what] for one in counted) / steps for what in ("protobuf", "messages"))
    return Measured([one["seconds"] * shape.batch / one["rows"] for one in trained[1:]], *crossed)


def _write_table(path: Path, columns: dict[str, Any], labels: Any, train: int) -> None:
    import pyarrow
    import pyarrow.parquet

    split = ["train"] * train + ["test"] * (len(labels) - train)
    pyarrow.parquet.write_table(pyarrow.table({**columns, "label": labels, "split": split}), path)


WARM_UP = 5  # steps that the floors take before they are measured


def _floor(measure: Callable[[Shape], list[float]], *, crosses: bool) -> Callable[[Shape], Measured]:
    """Return a way that exchanges nothing but values, if it exchanges anything."""

    def way(shape: Shape) -> Measured:
        messages = 2 * shape.parties if crosses else 0
        size = messages * shape.batch * shape.embedding * VALUE_BYTES
        return Measured(measure(shape)[WARM_UP:], size, messages)

    return way


WAYS: dict[str, Callable[[Shape], Measured]] = {
    "one process": _floor(one_process, crosses=False),
    "raw sockets": _floor(sockets, crosses=True),
    "bare gRPC": _floor(bare_grpc, crosses=True),
    "this system": this_system,
}


def compare(name: str, shape: Shape, repeat: int) -> list[dict[str, Any]]:
    """Measure all ways in turn, several times; return a line for each."""
    runs = {way: list[Measured]() for way in WAYS}
    for _ in range(repeat):
        for way, measure in WAYS.items():
            runs[way].append(measure(shape))
    times = {way: [1000 * statistics.median(one.seconds) for one in some] for way, some in runs.items()}
    floor = statistics.median(times["bare gRPC"])
    return [
        {
            "shape": name,
            "batch": shape.batch,
            "embedding": shape.embedding,
            "parties": shape.parties,
            "way": way,
            "step_ms": [round(one, 4) for one in times[way]],
            "median_ms": round(statistics.median(times[way]), 4),
            "of_bare_grpc": round(statistics.median(times[way]) / floor, 3),
            "bytes": round(some[0].bytes),
            "messages": round(some[0].messages, 2),
        }
        for way, some in runs.items()
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, help="how often each way is measured")
    parser.add_argument("--parties", type=int, action="append", help="passive parties; repeatable; 2 unless told")
    parser.add_argument("--shape", choices=SHAPES, action="append", help="repeatable; all unless told")
    parser.add_argument("--json", action="store_true", help="print JSON, and nothing else")
    asked = parser.parse_args()
    lines = [
        line
        for name in asked.shape or SHAPES
        for parties in asked.parties or [2]
        for line in compare(name, replace(SHAPES[name], parties=parties), asked.repeat)
    ]
    if asked.json:
        print(json.dumps({"software": f"fedora {VERSION}", "cores": os.cpu_count(), "steps": lines}, indent=2))
        return
    table = Table(title="One training step, median of each repetition, in milliseconds", title_justify="left")
    for column in ("step", "way", "times", "median", "of bare gRPC", "kB", "messages"):
        table.add_column(column, justify="left" if column in ("step", "way") else "right")
    for place, line in enumerate(lines):
        label = f"{line['shape']}: batch {line['batch']}, embedding {line['embedding']}, {line['parties']} passive"
        shown = " ".join(f"{one:.2f}" for one in line["step_ms"])
        figures = (f"{line['median_ms']:.2f}", f"{line['of_bare_grpc']:.2f}", f"{line['bytes'] / 1000:.1f}")
        table.add_row(label, line["way"], shown, *figures, f"{line['messages']:g}", end_section=place % 4 == 3)
    Console().print(table)


if __name__ == "__main__":
    main()
