"""The sweep: cluster by cluster, an original for every width and batch, then one job per point."""

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fedora_vfl.bench.comms.points import ALIGNMENT, Extent, Point, as_cell, distinct
from fedora_vfl.bench.comms.stage import Stage, open_stage
from fedora_vfl.bench.hosts.network import Counters
from fedora_vfl.bench.paper.store import DONE, Record, Store
from fedora_vfl.bench.paper.sweep import WORK, failed
from fedora_vfl.errors import FedoraError, StoppedError
from fedora_vfl.wire.masking import alignment_bytes

ACTIVE, PASSIVE = "active", "passive-1"


class Sweep:
    """Measures points and keeps each as soon as it is done."""

    def __init__(self, store: Store, extent: Extent, *, hosts: bool, tell: Callable[[Point, Record], None]) -> None:
        self._store, self._extent, self._hosts, self._tell = store, extent, hosts, tell

    async def run(self, points: Iterable[Point]) -> None:
        """Measure points, those of a cluster together."""
        for _, members in itertools.groupby(distinct(points), key=lambda point: point.place):
            await self._run_place(list(members))

    async def _run_place(self, points: Sequence[Point]) -> None:
        """Measure the points of one cluster; when one fails, those after it get a new cluster, if there can be one."""
        left, opened = list(points), False
        while left:
            try:
                async with open_stage(left[0], self._extent, self._store.out / WORK, hosts=self._hosts) as stage:
                    opened = True
                    await self._measure_some(stage, left)
            except StoppedError:
                raise
            except FedoraError as error:
                hit, left = ([left[0]], left[1:]) if opened else (left, [])
                for point in hit:
                    self._keep(point, failed(as_cell(point, self._extent, hosts=self._hosts), str(error)))

    async def _measure_some(self, stage: Stage, left: list[Point]) -> None:
        """Measure points, and take them from the list, until one fails or none is left."""
        trained: set[str] = set()
        while left:
            point = left[0]
            stage.limit(None)
            if not point.aligns and _original(point) not in trained:
                await stage.submit(_training(point, self._extent))
                trained.add(_original(point))
            stage.limit(point.rate)
            record = await self._measure(stage, point)
            self._keep(left.pop(0), record)

    async def _measure(self, stage: Stage, point: Point) -> Record:
        """Run one point's job, a few times where its time matters, and keep the fastest."""
        tries = [await self._try(stage, point) for _ in range(self._extent.times(point))]
        return min(tries, key=lambda record: record.seconds["method"])

    async def _try(self, stage: Stage, point: Point) -> Record:
        """Run one point's job between two looks at the counters."""
        cell = as_cell(point, self._extent, hosts=self._hosts)
        forgetting = {
            "train": {"from": _original(point), "overwrite": True},  # every point saves under the same names
            "forget": cell.forget,
            "unlearn": {**cell.unlearn, "overwrite": True},
            "wire": {"encoding": point.dtype},
            "certificate": False,
        }
        job = _training(point, self._extent) if point.aligns else forgetting
        before = await asyncio.to_thread(stage.counters)
        began = time.perf_counter()
        result = await stage.submit(job)
        seconds = time.perf_counter() - began
        after = await asyncio.to_thread(stage.counters)
        counted = {host: after[host] - before[host] for host in after}
        made = _of_alignment(result) if point.aligns else result["unlearned"]
        return Record(
            cell=cell.content,
            digest=cell.digest,
            method=point.method,
            settings=result["job"].get("unlearn") or {},
            status=DONE,
            why="",
            figures={},
            original={},
            cost={**_of_method(made["bytes"]), **_of_job(result["bytes"], counted), "load": os.getloadavg()[0]},
            seconds={"method": made["seconds"], "job": result["seconds"], "cell": seconds},
            versions={name: str(value) for name, value in result["versions"].items()},
        )

    def _keep(self, point: Point, record: Record) -> None:
        self._store.keep(as_cell(point, self._extent, hosts=self._hosts), record)
        self._tell(point, record)


def _original(point: Point) -> str:
    return f"original-{point.embedding}-{point.batch}"


def _training(point: Point, extent: Extent) -> dict[str, Any]:
    return {
        "model": {"embedding": point.embedding},
        "train": {"epochs": extent.epochs, "batch_size": point.batch, "save": _original(point), "overwrite": True},
    }


def _of_alignment(result: dict[str, Any]) -> dict[str, Any]:
    """Return what the alignment of a job took, in the form of a method's: all of the job's time but its rounds."""
    lines = [line for line in result["bytes"]["links"] if line["kind"] == ALIGNMENT]
    sizes = {name: sum(line[name] for line in lines) for name in ("tensor", "protobuf")}
    rows = {name: one["own_rows"] for name, one in result["parties"].items()}
    passive = [count for name, count in rows.items() if name != ACTIVE]
    told = sum(result["rows"][name] for name in ("train", "validation", "test"))
    predicted = alignment_bytes(rows[ACTIVE], passive, told=told, masking=True)
    seconds = result["seconds"] - sum(one["seconds"] for one in result["rounds"])
    return {"bytes": {"predicted": predicted, **sizes, "links": lines}, "seconds": seconds}


def _of_method(counted: dict[str, Any]) -> dict[str, float]:
    """Return what the method itself exchanged, and how often one party had to wait for another's answer."""
    waits = [
        line["messages"]
        for line in counted["links"]
        if line["direction"] in (f"{ACTIVE}->{PASSIVE}", f"coordinator->{PASSIVE}")
    ]
    return {**{name: counted[name] for name in ("predicted", "tensor", "protobuf")}, "waits": sum(waits)}


def _of_job(counted: dict[str, Any], wire: dict[str, Counters]) -> dict[str, float]:
    """Return what the whole job exchanged, all kinds of messages: by the ledger and, where it can tell, the kernel."""
    ledger = {"job_protobuf": sum(line["protobuf"] for line in counted["links"])}
    if not wire:
        return ledger
    # Every frame leaves one host.
    sent = {"job_wire": sum(one.sent_bytes for one in wire.values())}
    return {**ledger, **sent, "job_packets": sum(one.sent_packets for one in wire.values())}
