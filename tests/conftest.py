"""What many tests need: small data, jobs, and clusters of real processes that are always stopped again."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hypothesis import settings

from coordinator.job import Job
from fedora_vfl.bench.warm import WarmStart
from fedora_vfl.certificates.trust import as_options
from fedora_vfl.cluster import local
from fedora_vfl.cluster.runs import run_locally
from fedora_vfl.settings.federation import Deadlines, load_federation
from fedora_vfl.settings.files import check
from protos.fedora.v1.control_pb2 import Event

# A machine that is busy with other things takes its time: that is no failure of what is tested.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

# Equal to the bit needs equal threads: one here, and one in every party that the local launcher starts on few cores.
torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def warm() -> Iterator[None]:
    """Start the members of clusters from a process that has imported what they need."""
    warm_start = WarmStart()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "start_process", warm_start)
        yield
    warm_start.close()


class Training:
    """Follows a job and tells when its first epoch is over."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    def __call__(self, event: Event) -> None:
        if event.WhichOneof("content") == "finished":
            self.begun.set()


def as_job(content: dict[str, Any]) -> Job:
    """Check a job written as a mapping."""
    return check(content, Job, origin="test job")


def run(content: dict[str, Any], out: Path, *, deadlines: Deadlines | None = None) -> dict[str, Any]:
    """Run a job on a local cluster of real processes, one compute thread each."""
    origin = out / "job.yaml"
    work = run_locally(as_job(content), origin=origin, out=out, threads=1, deadlines=deadlines)
    return asyncio.run(work)


def write_people(path: Path, *, rows: int = 400, seed: int = 0) -> Path:
    """Write a small table whose label follows from columns that end up at different parties."""
    draw = np.random.default_rng(seed)
    age, income = draw.integers(18, 90, rows), draw.normal(size=rows)
    city, colour = draw.choice(["Bonn", "Rome", "Oslo"], rows), draw.choice(["red", "blue"], rows)
    label = ((age > 50).astype(int) + (income > 0) + (city == "Rome")) >= 2
    lines = ["person,age,income,city,colour,label"]
    for row in range(rows):
        shown = "" if row % 17 == 0 else f"{income[row]:.6f}"
        outcome = "yes" if label[row] else "no"
        lines.append(f"p{row:04d},{age[row]},{shown},{city[row]},{colour[row]},{outcome}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """A small table of a user's own."""
    return write_people(tmp_path / "people.csv")


def write_yaml(path: Path, content: object) -> Path:
    """Write a settings file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


def pinned_keys(folder: Path) -> list[str]:
    """Return the words that have `fedora verify` trust the keys of a run that was made here."""
    return as_options(load_federation(folder / "federation.yaml").keys).split()
