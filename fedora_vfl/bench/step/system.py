"""The step as this system takes it: a real job on a real local cluster."""

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coordinator.job import Job
from fedora_vfl.bench.step.shapes import CLASSES, EPOCHS, LEARNING_RATE, MOMENTUM, Shape
from fedora_vfl.cluster.runs import run_locally
from fedora_vfl.settings.files import check
from fedora_vfl.wire.meter import TENSOR_KINDS

TEST_ROWS = 100


@dataclass(frozen=True)
class Measured:
    """The seconds of a step in each epoch, and what crosses for it."""

    seconds: list[float]
    bytes: float
    messages: float
    # Of phases in which parameters stand still: how long they took, as a share of the slowest party's computing.
    standing: dict[str, float] = field(default_factory=dict)


def this_system(shape: Shape, *, tls: bool) -> Measured:
    """Train on a local cluster."""
    rows = shape.steps * shape.batch
    result = _run(shape, rows=rows, test=TEST_ROWS, tls=tls)
    trained = [one for one in result["rounds"] if one["phase"] == "train"]
    steps = sum(one["rows"] for one in trained) / shape.batch
    counted = [one for one in result["original"]["bytes"]["links"] if one["kind"] in TENSOR_KINDS]
    crossed = (sum(one[what] for one in counted) / steps for what in ("protobuf", "messages"))
    return Measured([one["seconds"] / shape.steps for one in trained], *crossed)


def standing_still(shape: Shape, *, tls: bool) -> Measured:
    """Look at many rows, and forget some, on a local cluster: how close passes come to what must be computed."""
    rows = shape.steps * shape.batch
    more = {"forget": {"samples": rows // 2}, "unlearn": {"method": "fedora", "steps": "paper", "rounds": 2}}
    result = _run(shape, rows=rows, test=rows, tls=tls, **more)
    passes: dict[str, list[float]] = {}
    for one in result["rounds"]:
        computing = max(one["compute_seconds"].values())
        if one["phase"] != "train" and computing and one["rows"] >= rows // 2:
            passes.setdefault(one["phase"], []).append(one["seconds"] / computing)
    return Measured([], 0, 0, {name: float(np.median(found)) for name, found in passes.items()})


def _run(shape: Shape, *, rows: int, test: int, tls: bool, **more: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out, draw = Path(folder), np.random.default_rng(0)
        columns = {f"x{number}": draw.normal(size=rows + test) for number in range(shape.parties * shape.inputs)}
        _write_table(out / "table.parquet", columns, draw.integers(0, CLASSES, rows + test), rows)
        table = {"source": "parquet", "path": str(out / "table.parquet"), "format": "parquet"}
        hidden = [] if shape.hidden is None else [shape.hidden]
        train = {"epochs": EPOCHS, "batch_size": shape.batch, "optimizer": "sgd", "lr": LEARNING_RATE}
        content = {
            "data": {**table, "parties": shape.parties},
            "model": {"bottom": "mlp", "hidden": hidden, "embedding": shape.embedding, "top": hidden},
            "train": {**train, "momentum": MOMENTUM},
            **more,
        }
        job = check(content, Job, origin="bench")
        return asyncio.run(run_locally(job, origin=out / "job", out=out / "run", threads=1, tls=tls))


def _write_table(path: Path, columns: dict[str, Any], labels: Any, train: int) -> None:
    import pyarrow
    import pyarrow.parquet

    split = ["train"] * train + ["test"] * (len(labels) - train)
    pyarrow.parquet.write_table(pyarrow.table({**columns, "label": labels, "split": split}), path)
