"""A cluster that stays up holds no more after many jobs than after a few."""

import asyncio
from pathlib import Path

import pytest

from fedora_vfl.bench.standing import Held, NotFlatError, check_flat, growth, measure, write


def test_a_few_jobs_two_at_once_leave_a_cluster_as_it_was(tmp_path: Path) -> None:
    """The whole of it: fedora bench standing --count 200."""
    told: list[int] = []
    held = asyncio.run(measure(6, seed=0, told=lambda done, of: told.append(done)))
    assert told == [2, 4, 6]
    assert [one.jobs for one in held if one.member == "active"] == [2, 4, 6]
    check_flat(growth(held))
    write(held, tmp_path / "standing.csv")
    assert len((tmp_path / "standing.csv").read_text().splitlines()) == 1 + 3 * 4


def looks(*, memory: int = 0, files: int = 0, disk: int = 0) -> list[Held]:
    """Describe a process that takes so much more with every job."""
    return [
        Held(jobs, "active", 200_000_000 + memory * jobs, 20 + files * jobs, 9, 1_000_000 + disk * jobs)
        for jobs in range(2, 202, 2)
    ]


def test_what_grows_with_every_job_is_found() -> None:
    check_flat(growth(looks()))
    for grown, said in (
        (looks(memory=200_000), "active: memory grew"),
        (looks(files=1), "active: open files grew"),
        (looks(disk=50_000), "active: disk grew"),
    ):
        with pytest.raises(NotFlatError, match=said):
            check_flat(growth(grown))
