"""One group of cells: an original model, its Retrains, and what each part of the rule makes of the original."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from coordinator.methods.catalogue import Fedora
from fedora_vfl.bench.one_process.course import Course, Figures
from fedora_vfl.bench.scaling.cells import MISLABELLED, MISLABELLED_SHARE, PARTS, WRONG, Group
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.storage import write_atomically


@dataclass(frozen=True)
class Cell:
    """What one part of the rule has made of one original model."""

    group: Group
    part: str
    original: Figures
    unlearned: Figures
    retrains: list[Figures] = field(hash=False)
    stopped: str = ""
    seconds: float = 0.0  # of computing, in one process
    draw: int = 0  # of the rows of the rounds

    @property
    def bytes_share(self) -> float:
        """Bytes as a share of what Retrain takes."""
        return self.unlearned["bytes"] / self.retrains[0]["bytes"]


def measure(
    group: Group,
    tries: Sequence[tuple[str, int]],
    folder: Path,
    *,
    retrains: int,
    limit: int | None,
    epochs: int | None,
) -> Iterator[Cell]:
    """Train, retrain, and try each part with each draw of the rounds' rows."""
    torch.set_num_threads(1)  # as every party of a cluster that a run is to equal
    prepare(group.job(limit=limit, epochs=epochs), origin=folder / "scaling.yaml", out=folder, threads=1)
    course = Course(folder)
    if group.data_set == MISLABELLED:
        wrong = course.mislabel(MISLABELLED_SHARE, seed=group.seed)
        if group.request == WRONG:
            course.ask(wrong[:1])
    original = course.train()
    anew = [course.retrain(repeat) for repeat in range(1, retrains + 1)]
    for part, draw in tries:
        began = time.monotonic()
        ending, found = course.unlearn(Fedora(**PARTS[part]), draw=draw)
        yield Cell(group, part, original, found, anew, ending.stopped, time.monotonic() - began, draw)


def read_cells(path: Path) -> list[Cell]:
    """Read what is done already."""
    if not path.exists():
        return []
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Cell(**{**line, "group": Group(**line["group"])}) for line in lines]


def write_cells(path: Path, cells: Sequence[Cell]) -> None:
    """Keep all cells, or none of the new ones."""
    write_atomically(path, "".join(json.dumps(asdict(cell)) + "\n" for cell in cells))
