"""How long one training step takes: in one process, over raw sockets, over bare gRPC streams, and in this system.

All four do the same arithmetic with the same two bottom models and top model, one compute thread per process, and
exchange the same tensors. The bare ones have no metering, no checks, no protobuf and no deadlines: they are the floor.
The four are repeated several times in one run, because two shared cores are noisy: compare the ratios, not the times.

    python -m fedora_vfl.bench.step [--repeat 3]
"""

import argparse
import asyncio
import multiprocessing
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
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

INPUTS, CLASSES, HIDDEN, PASSIVE = 20, 10, 128, 2
SHAPES = {"tabular": (256, 64, 1200), "wide": (1024, 512, 120)}  # batch, embedding, steps
warnings.filterwarnings("ignore", message="The given buffer is not writable")
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class PassiveWork:
    """A passive party's arithmetic."""

    def __init__(self, batch: int, embedding: int) -> None:
        torch.set_num_threads(1)
        self.network = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, embedding))
        self.optimizer = torch.optim.SGD(self.network.parameters(), 0.01, momentum=0.9)
        self.rows = torch.randn(batch, INPUTS)

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

    def __init__(self, batch: int, embedding: int) -> None:
        torch.set_num_threads(1)
        widths = nn.Linear(PASSIVE * embedding, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)
        self.network = nn.Sequential(nn.ReLU(), *widths)
        self.optimizer = torch.optim.SGD(self.network.parameters(), 0.01, momentum=0.9)
        self.labels = torch.randint(0, CLASSES, (batch,))

    def learn(self, embeddings: Sequence[Tensor]) -> list[Tensor]:
        """Take a step and return ∂L/∂h of every party."""
        leaves = [embedding.requires_grad_() for embedding in embeddings]
        torch.autograd.backward(functional.cross_entropy(self.network(torch.cat(leaves, dim=1)), self.labels))
        self.optimizer.step()
        self.optimizer.zero_grad()
        return [leaf.grad for leaf in leaves if leaf.grad is not None]


def one_process(batch: int, embedding: int, steps: int) -> list[float]:
    """Run all parties' arithmetic here; return the seconds of each step."""
    active, passive = ActiveWork(batch, embedding), [PassiveWork(batch, embedding) for _ in range(PASSIVE)]
    times = [time.perf_counter()]
    for _ in range(steps):
        for party, gradient in zip(passive, active.learn([party.embed() for party in passive]), strict=True):
            party.learn(gradient)
        times.append(time.perf_counter())
    return list(np.diff(times))


def _to_bytes(tensor: Tensor) -> bytes:
    return tensor.numpy().tobytes()


def _from_bytes(data: Any, batch: int, embedding: int) -> Tensor:
    return torch.frombuffer(data, dtype=torch.float32).view(batch, embedding)


def sockets(batch: int, embedding: int, steps: int) -> list[float]:
    """Exchange over pairs of connected Unix sockets."""
    active = ActiveWork(batch, embedding)
    with _Processes(_socket_passive, batch, embedding, steps) as ends:
        times = [time.perf_counter()]
        for _ in range(steps):
            received = [_from_bytes(bytearray(end.recv_bytes()), batch, embedding) for end in ends]
            for end, gradient in zip(ends, active.learn(received), strict=True):
                end.send_bytes(_to_bytes(gradient))
            times.append(time.perf_counter())
    return list(np.diff(times))


def _socket_passive(end: Connection, batch: int, embedding: int, steps: int) -> None:
    work = PassiveWork(batch, embedding)
    for _ in range(steps):
        end.send_bytes(_to_bytes(work.embed()))
        work.learn(_from_bytes(bytearray(end.recv_bytes()), batch, embedding))


def bare_grpc(batch: int, embedding: int, steps: int) -> list[float]:
    """Exchange raw bytes over gRPC's bidirectional streams."""
    active, address, times = ActiveWork(batch, embedding), free_address(), list[float]()

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
        for _ in range(steps):
            messages = await asyncio.gather(*(stream.read() for stream in streams))
            gradients = active.learn([_from_bytes(message, batch, embedding) for message in messages])
            pairs = zip(streams, gradients, strict=True)
            await asyncio.gather(*(stream.write(_to_bytes(gradient)) for stream, gradient in pairs))
            times.append(time.perf_counter())
        over.set()
        await server.stop(1)

    with _Processes(_grpc_passive, batch, embedding, steps) as ends:
        asyncio.run(serve(ends))
    return list(np.diff(times))


def _grpc_passive(end: Connection, batch: int, embedding: int, steps: int) -> None:
    work = PassiveWork(batch, embedding)

    async def exchange() -> None:
        async with grpc.aio.insecure_channel(end.recv(), options=OPTIONS) as channel:
            await channel.channel_ready()
            stream: Any = channel.stream_stream("/bench/Open")()
            for _ in range(steps):
                await stream.write(_to_bytes(work.embed()))
                work.learn(_from_bytes(await stream.read(), batch, embedding))

    asyncio.run(exchange())


class _Processes:
    """The passive parties of a floor, each a process with a socket to this one."""

    def __init__(self, target: Callable[..., None], *arguments: int) -> None:
        context = multiprocessing.get_context("spawn")
        pairs = [context.Pipe() for _ in range(PASSIVE)]
        self._ends = [ours for ours, _ in pairs]
        self._processes = [context.Process(target=target, args=(theirs, *arguments)) for _, theirs in pairs]

    def __enter__(self) -> list[Connection]:
        for process in self._processes:
            process.start()
        return self._ends

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.join(timeout=30)
            process.kill()


def this_system(batch: int, embedding: int, steps: int) -> list[float]:
    """Run a real job on a real local cluster; return the seconds per step of each epoch after the first."""
    epochs = 6
    rows = max(1, steps // epochs) * batch
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        draw = np.random.default_rng(0)
        columns = {f"x{number}": draw.normal(size=rows + 100) for number in range(PASSIVE * INPUTS)}
        labels = draw.integers(0, CLASSES, rows + 100)
        _write_table(out / "table.parquet", columns, labels, rows)
        content = {
            "data": {"source": "parquet", "path": str(out / "table.parquet"), "parties": PASSIVE, "format": "parquet"},
            "model": {"bottom": "mlp", "hidden": [HIDDEN], "embedding": embedding, "top": [HIDDEN]},
            "train": {"epochs": epochs, "batch_size": batch, "optimizer": "sgd", "lr": 0.01},
        }
        job = check(content, Job, origin="bench")
        result = asyncio.run(run_locally(job, origin=out / "job", out=out / "run", threads=1))
    epochs_run = [one for one in result["rounds"] if one["phase"] == "train"][1:]
    return [one["seconds"] * batch / one["rows"] for one in epochs_run]


def _write_table(path: Path, columns: dict[str, Any], labels: Any, train: int) -> None:
    import pyarrow
    import pyarrow.parquet

    split = ["train"] * train + ["test"] * (len(labels) - train)
    pyarrow.parquet.write_table(pyarrow.table({**columns, "label": labels, "split": split}), path)


WAYS: dict[str, Callable[[int, int, int], list[float]]] = {
    "one process": one_process,
    "raw sockets": sockets,
    "bare gRPC": bare_grpc,
    "this system": this_system,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, help="how often each way is measured")
    repeat = parser.parse_args().repeat
    table = Table(title="One training step, median of each repetition, in milliseconds", title_justify="left")
    for name in ("step", "way", "times", "median", "of bare gRPC"):
        table.add_column(name, justify="left" if name in ("step", "way") else "right")
    for shape, (batch, embedding, steps) in SHAPES.items():
        medians: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(repeat):
            for way, measure in WAYS.items():
                medians[way].append(
                    statistics.median(measure(batch, embedding, steps)[5 if way != "this system" else 0 :])
                )
        floor = statistics.median(medians["bare gRPC"])
        for way, times in medians.items():
            shown = " ".join(f"{1000 * one:.2f}" for one in times)
            middle = statistics.median(times)
            label = f"{shape}: batch {batch}, embedding {embedding}"
            table.add_row(label, way, shown, f"{1000 * middle:.2f}", f"{middle / floor:.2f}")
        table.add_section()
    Console().print(table)


if __name__ == "__main__":
    main()
