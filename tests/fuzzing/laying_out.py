"""The members that are fuzzed: a small federation whose files lie in a folder."""

from pathlib import Path

from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.settings.federation import Deadlines, Federation
from tests.conftest import as_job, write_people


def laid_out(folder: Path, *, seconds: float, tls: bool) -> Federation:
    """Prepare members that wait for each other longer than the fuzzing lasts."""
    data = {"source": "csv", "path": str(write_people(folder / "people.csv", rows=60)), "id": "person"}
    deadlines = Deadlines(join=seconds + 60)
    out = folder / "run"
    return prepare(as_job({"data": data}), origin=out / "job.yaml", out=out, threads=1, deadlines=deadlines, tls=tls)


def for_jobs(folder: Path, *, alignment: str = "plain") -> Federation:
    """Prepare members for jobs one of them disturbs: what does not come is not waited for long."""
    data = {"source": "csv", "path": str(write_people(folder / "people.csv", rows=120)), "id": "person"}
    out, deadlines = folder / "run", Deadlines(join=40, step=8, silence=8, setup=20, absence=10)
    return prepare(
        as_job({"data": data}),
        origin=out / "job.yaml",
        out=out,
        threads=1,
        deadlines=deadlines,
        drops="for-the-job",
        alignment=alignment,
    )
