"""What `fedora bench comms` does, step by step."""

import asyncio
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from fedora_vfl.bench.comms.points import QUICK, WHOLE, Extent, Point, all_points, as_cell, distinct
from fedora_vfl.bench.comms.report import Material, print_tables, write_report
from fedora_vfl.bench.comms.results import Results, read_results
from fedora_vfl.bench.comms.sweep import Sweep
from fedora_vfl.bench.hosts.network import why_not
from fedora_vfl.bench.paper.store import Record, Store, locked


@dataclass(frozen=True)
class Asked:
    """What the user wants measured."""

    out: Path
    page: Path | None = None  # where the page goes besides `out`
    quick: bool = False
    loopback: bool = False
    retry_failed: bool = False

    @property
    def extent(self) -> Extent:
        """How much is measured."""
        return QUICK if self.quick else WHOLE

    @property
    def command(self) -> str:
        """The command that measures the same."""
        chosen = [*(["--quick"] if self.quick else []), *(["--loopback"] if self.loopback else [])]
        return shlex.join(["fedora", "bench", "comms", *chosen])


class Teller:
    """Prints a line for every point that is done."""

    def __init__(self, console: Console, total: int) -> None:
        self._console, self._total, self._done = console, total, 0

    def __call__(self, point: Point, record: Record) -> None:
        """Say what came of a point."""
        self._done += 1
        number = f"{self._done:>{len(str(self._total))}}/{self._total}"
        if not record.done:
            self._console.print(f"{number}  FAILED  {point.describe()}: {record.why}", soft_wrap=True)
            return
        cost = record.cost
        wire = f", {cost['job_wire'] / cost['job_protobuf'] - 1:+.1%} on the wire" if "job_wire" in cost else ""
        sizes = f"{cost['protobuf'] / 1e6:.2f} MB{wire}, {record.seconds['method']:.2f} s"
        self._console.print(f"{number}  {point.describe()}: {sizes}", soft_wrap=True)


async def run(asked: Asked, console: Console) -> None:
    """Measure what is not measured yet, and report."""
    obstacle = "loopback was asked for" if asked.loopback else await asyncio.to_thread(why_not, delay=True)
    hosts = obstacle is None
    with locked(asked.out):
        points = distinct(point for point in all_points(asked.extent) if hosts or not point.needs_hosts)
        if obstacle:
            console.print(f"Bytes on the wire and rates are left out: {obstacle}.", soft_wrap=True)
        await _measure(asked, points, console, hosts=hosts)
        results = read_results(Store(asked.out), asked.extent, points, hosts=hosts)
        _report(asked, results, obstacle, console)


async def _measure(asked: Asked, points: Sequence[Point], console: Console, *, hosts: bool) -> None:
    store = Store(asked.out)
    records = {point: store.read(as_cell(point, asked.extent, hosts=hosts)) for point in points}
    waiting = [point for point, one in records.items() if one is None or (asked.retry_failed and not one.done)]
    console.print(f"{len(points)} points, of which {len(points) - len(waiting)} are done", soft_wrap=True)
    try:
        await Sweep(store, asked.extent, hosts=hosts, tell=Teller(console, len(waiting))).run(waiting)
    except asyncio.CancelledError:
        console.print("Stopped: the same command goes on from there.")
        raise


def _report(asked: Asked, results: Results, obstacle: str | None, console: Console) -> None:
    material = Material(asked.extent, results, obstacle, asked.command)
    pages = [asked.out / "comms.md", *([asked.page] if asked.page else [])]
    for page in pages:
        write_report(material, page, table=page.with_suffix(".csv"))
    print_tables(material, console)
    if model := results.model:
        console.print(
            f"seconds = compute + {model.a:.2f}·bytes·8/rate + {model.b:.2f}·waits·round trip; "
            f"{model.typical_error:.0%} off in the middle, {model.largest_error:.0%} at most",
            soft_wrap=True,
        )
    console.print(f"Report: {' and '.join(map(str, pages))} (tables and plots beside)", soft_wrap=True)
