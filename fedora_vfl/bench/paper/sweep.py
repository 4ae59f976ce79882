"""The sweep: group by group, a cluster of real processes trains the original, then runs one job per cell."""

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import yaml

from coordinator.job import Job
from fedora_vfl.bench.paper import originals
from fedora_vfl.bench.paper.cells import Cell, Group
from fedora_vfl.bench.paper.store import DONE, FAILED, Record, Store, finite
from fedora_vfl.bench.paper.trimming import trim
from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.cluster.runs import perform
from fedora_vfl.errors import FedoraError, StoppedError
from fedora_vfl.settings.federation import Federation
from fedora_vfl.settings.files import check, load
from fedora_vfl.storage import write_atomically
from fedora_vfl.wire.protocol import VERSION
from protos.fedora.v1.control_pb2 import Event

WORK = "work"


class Watcher(Protocol):
    """Whoever wants to know how the sweep goes."""

    def training(self, group: Group) -> None:
        """Hear that an original is being trained."""

    def measuring(self, cell: Cell) -> None:
        """Hear that a cell is being run."""

    def finished(self, cell: Cell, record: Record) -> None:
        """Hear what came of a cell."""


class Sweep:
    """Runs cells and keeps each as soon as it is done."""

    def __init__(
        self, store: Store, watcher: Watcher, *, threads: int | None = None, device: str | None = None
    ) -> None:
        self._store, self._watcher, self._threads, self._device = store, watcher, threads, device

    async def run(self, cells: Iterable[Cell]) -> None:
        """Run cells, those of a group together."""
        groups: dict[str, list[Cell]] = {}
        for cell in cells:
            groups.setdefault(cell.group.digest, []).append(cell)
        for members in groups.values():
            await self._run_group(members[0].group, members)

    async def _run_group(self, group: Group, cells: Sequence[Cell]) -> None:
        """Run the cells of one original; one that fails is kept as failed, and the others go on."""
        left = list(cells)
        with _folders(self._store.out / WORK / group.digest) as (kept, run):
            self._watcher.training(group)
            try:
                federation = self._prepare(group, run)
                job = load(run / "job.yaml", Job)
                while left:
                    # A cluster in which a job has failed is not used again.
                    async with LocalCluster(run, federation) as cluster:
                        await _have_original(group, kept, run, cluster)
                        await self._measure_some(left, cluster, job)
            except StoppedError:
                raise
            except FedoraError as error:
                for cell in left:
                    self._keep(cell, failed(cell, f"there is no original model: {error}"))

    def _prepare(self, group: Group, run: Path) -> Federation:
        """Cut the data."""
        asked = check(group.job(), Job, origin=f"{group.data_set}, seed {group.seed}")
        origin = Path(f"{group.data_set}.yaml")
        # Every cell forgets the same rows, from the same original.
        federation = prepare(asked, origin=origin, out=run, threads=self._threads, drops="for-the-job")
        if group.content["test_rows"]:
            trim(run / "data", group.content["test_rows"], seed=group.seed)
        if self._device:
            _compute_on(self._device, run / "parties")
        return federation

    async def _measure_some(self, left: list[Cell], cluster: LocalCluster, job: Job) -> None:
        """Run cells, and take them from the list, until one fails."""
        while left:
            record = await self._measure(left[0], cluster, job)
            self._keep(left.pop(0), record)
            if not record.done:
                return

    async def _measure(self, cell: Cell, cluster: LocalCluster, job: Job) -> Record:
        """Run one cell."""
        self._watcher.measuring(cell)
        began = time.perf_counter()
        # The rows that carry a trigger are known by their ids: their labels no longer tell which they are.
        forget = job.forget.model_dump(exclude_none=True) if job.forget else cell.forget
        content = {
            "train": {"from": originals.NAME},
            "forget": forget,
            "unlearn": {**cell.unlearn, "overwrite": True},  # every cell saves under the same name
            "certificate": False,
            "seed": cell.group.seed,
        }
        try:
            result = await _submit(cluster, content)
        except StoppedError:
            raise
        except FedoraError as error:
            return failed(cell, str(error))
        return done(cell, result, time.perf_counter() - began)

    def _keep(self, cell: Cell, record: Record) -> None:
        self._store.keep(cell, record)
        self._watcher.finished(cell, record)


def _compute_on(device: str, parties: Path) -> None:
    """Have all parties compute on a device."""
    for path in parties.glob("*.yaml"):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        write_atomically(path, yaml.safe_dump({**content, "device": device}, sort_keys=False))


async def _have_original(group: Group, kept: Path, run: Path, cluster: LocalCluster) -> None:
    """Have the original in the parties' folders: the kept one, or one that is trained now."""
    if original := originals.find(group, kept):
        originals.bring(original, kept, run)
        return
    train = {**group.content["train"], "save": originals.NAME, "overwrite": True}
    await _submit(cluster, {"model": group.content["model"], "train": train, "seed": group.seed})
    originals.keep(group, run, kept, cluster.federation.parties)


async def _submit(cluster: LocalCluster, content: dict[str, Any]) -> dict[str, Any]:
    result = await perform(cluster, yaml.safe_dump(content), origin="cell", follow=_ignore)
    figures: dict[str, Any] = json.loads(result.result_json)
    return figures


def _ignore(_: Event) -> None:
    """Say nothing of single rounds."""


def done(cell: Cell, result: dict[str, Any], seconds: float) -> Record:
    """Return what is kept of a job's result."""
    unlearned = result["unlearned"]
    figures = finite(unlearned)
    if figures["test_accuracy"] is None:
        return failed(cell, "the unlearned model's figures are not finite numbers")
    return Record(
        cell=cell.content,
        digest=cell.digest,
        method=cell.method,
        settings=result["job"]["unlearn"],
        status=DONE,
        why="",
        figures=figures,
        original=finite(result["original"]),
        cost={
            **{name: unlearned["bytes"][name] for name in ("predicted", "tensor", "protobuf")},
            "rounds": result["unlearning"]["rounds"],
            "forgotten_rows": result["forget"]["rows"],
            "remaining_rows": result["forget"]["remaining"],
        },
        seconds={"method": unlearned["seconds"], "cell": seconds},
        versions={name: str(value) for name, value in result["versions"].items()} | {"date": _today()},
    )


def failed(cell: Cell, why: str) -> Record:
    """Return what is kept of a cell that failed."""
    return Record(
        cell=cell.content,
        digest=cell.digest,
        method=cell.method,
        settings=cell.unlearn,
        status=FAILED,
        why=why,
        figures={},
        original={},
        cost={},
        seconds={},
        versions={"fedora": VERSION, "date": _today()},
    )


def _today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


@contextlib.contextmanager
def _folders(group: Path) -> Iterator[tuple[Path, Path]]:
    """Return where a group's original is kept, and a new folder for its cluster, which goes when the group is done.

    Processes of a sweep that was killed may still be ending, so their folder is not used again.
    """
    for earlier in group.glob("run-*"):
        shutil.rmtree(earlier, ignore_errors=True)
    group.mkdir(parents=True, exist_ok=True)
    run = Path(tempfile.mkdtemp(prefix="run-", dir=group))
    try:
        yield group / "original", run
    finally:
        shutil.rmtree(run, ignore_errors=True)
