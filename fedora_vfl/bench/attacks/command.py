"""What `fedora bench attacks` does, step by step."""

import asyncio
import shlex
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from fedora_vfl.bench.attacks.report import Material, print_tables, write_report
from fedora_vfl.bench.attacks.results import read_results
from fedora_vfl.bench.attacks.scenes import IMAGES, QUICK, WHOLE, Extent, Point, as_cell, points
from fedora_vfl.bench.attacks.sweep import sweep
from fedora_vfl.bench.paper.store import Record, Store, locked
from fedora_vfl.errors import SettingsError


@dataclass(frozen=True)
class Asked:
    """What the user wants measured."""

    out: Path
    data: Path | None = None  # folder with image data sets
    page: Path | None = None  # where the page goes besides `out`
    quick: bool = False
    report_only: bool = False
    retry_failed: bool = False

    @property
    def extent(self) -> Extent:
        """How much is measured."""
        return QUICK if self.quick else WHOLE

    @property
    def command(self) -> str:
        """The command that measures the same."""
        chosen = [*(["--quick"] if self.quick else []), *(["--data", "FOLDER"] if self.data else [])]
        return shlex.join(["fedora", "bench", "attacks", *chosen])


class Teller:
    """Prints a line for every run that is done."""

    def __init__(self, console: Console, total: int) -> None:
        self._console, self._total, self._done = console, total, 0

    def __call__(self, point: Point, record: Record) -> None:
        """Say what came of a run."""
        self._done += 1
        number = f"{self._done:>{len(str(self._total))}}/{self._total}"
        said = f"{record.seconds['cell']:.0f} s" if record.done else f"FAILED: {record.why}"
        self._console.print(f"{number}  {point.describe()}: {said}", soft_wrap=True)


async def run(asked: Asked, console: Console) -> None:
    """Measure what is not measured yet, and report."""
    if asked.data is not None and not any((asked.data / f"{name}.npz").is_file() for name in IMAGES):
        wanted = " nor ".join(f"{name}.npz" for name in IMAGES)
        raise SettingsError(f"--data: {asked.data} holds neither {wanted}, images in MedMNIST's layout")
    with locked(asked.out):
        store, wanted_points = Store(asked.out), points(asked.extent, asked.data)
        if not asked.report_only:
            await _measure(asked, store, wanted_points, console)
        material = Material(asked.extent, read_results(store, asked.extent, wanted_points), asked.command)
        pages = [asked.out / "attacks.md", *([asked.page] if asked.page else [])]
        for page in pages:
            write_report(material, page)
        print_tables(material, console)
        console.print(f"Report: {' and '.join(map(str, pages))} (table and picture beside)", soft_wrap=True)


async def _measure(asked: Asked, store: Store, wanted: list[Point], console: Console) -> None:
    records = {point: store.read(as_cell(point, asked.extent)) for point in wanted}
    waiting = [point for point, one in records.items() if one is None or (asked.retry_failed and not one.done)]
    console.print(f"{len(wanted)} runs, of which {len(wanted) - len(waiting)} are done", soft_wrap=True)
    try:
        await sweep(waiting, asked.extent, store, Teller(console, len(waiting)))
    except asyncio.CancelledError:
        console.print("Stopped: the same command goes on from there.")
        raise
