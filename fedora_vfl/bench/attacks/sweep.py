"""Running the points that are not done yet, each cut of the data made once, and keeping what comes of them."""

import asyncio
import itertools
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from coordinator.job import Job
from fedora_vfl.bench.attacks.scenes import Extent, Point, as_cell
from fedora_vfl.bench.paper.cells import Cell
from fedora_vfl.bench.paper.store import DONE, FAILED, Record, Store, finite
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.errors import FedoraError
from fedora_vfl.settings.files import check
from fedora_vfl.wire.protocol import VERSION

WORK = ".work"  # in the output folder: the parties' files, as long as they are needed

Tell = Callable[[Point, Record], None]


async def sweep(points: Sequence[Point], extent: Extent, store: Store, tell: Tell) -> None:
    """Measure points one after the other; a signal is heeded between two of them."""
    folder = store.out / WORK
    try:
        for (scene, _), members in itertools.groupby(points, key=lambda one: (one.scene, one.seed)):
            shutil.rmtree(folder, ignore_errors=True)
            for point in members:
                record = await asyncio.to_thread(_measured, point, extent, folder / scene.name)
                store.keep(as_cell(point, extent), record)
                tell(point, record)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measured(point: Point, extent: Extent, folder: Path) -> Record:
    """Cut the data unless that is done, run one point, and return what came of it."""
    from fedora_vfl.bench.attacks.measuring import measure

    began, cell = time.perf_counter(), as_cell(point, extent)
    try:
        if not folder.exists():
            job = check(point.scene.job(point.defence, point.seed), Job, origin="bench attacks")
            prepare(job, origin=Path("bench attacks"), out=folder)
        figures = measure(point, extent, folder)
    except FedoraError as error:
        return _record(cell, {}, FAILED, str(error), 0.0)
    return _record(cell, finite(figures), DONE, "", time.perf_counter() - began)


def _record(cell: Cell, figures: dict[str, float | None], status: str, why: str, seconds: float) -> Record:
    return Record(
        cell=cell.content,
        digest=cell.digest,
        method=cell.method,
        settings={},
        status=status,
        why=why,
        figures=figures,
        original={},
        cost={},
        seconds={"cell": seconds},
        versions={"fedora": VERSION},
    )
