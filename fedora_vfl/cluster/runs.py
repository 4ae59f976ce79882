"""Running a job on a local cluster: start the processes, submit, follow, keep the result."""

import asyncio
import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from coordinator.job import Job
from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.cluster.preparation import JOB_FILE, prepare
from fedora_vfl.cluster.submission import submit
from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.federation import Deadlines
from fedora_vfl.storage import write_atomically
from fedora_vfl.wire.protocol import COORDINATOR
from protos.fedora.v1.control_pb2 import Event, Result

Follow = Callable[[Event], None]

# The coordinator mostly knows better what the end of a process meant for the job: so long it is waited for.
EXPLANATION_SECONDS = 2.0


def check_folder(out: Path, *, overwrite: bool, marker: str) -> None:
    """Refuse to mix new results with other files; `marker` is a file that earlier ones of the same kind have."""
    if out.exists() and not out.is_dir():
        raise SettingsError(f"{out}: is a file; --out wants a folder")
    if out.is_dir() and any(out.iterdir()):
        if not overwrite:
            raise SettingsError(f"{out}: is not empty; choose another folder or add --overwrite")
        if not (out / marker).exists():
            raise SettingsError(f"{out}: does not look like an earlier run, so it is not overwritten")
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        raise SettingsError(f"{out}: cannot be written to: {error.strerror}") from None


@contextlib.contextmanager
def replacing(out: Path) -> Iterator[None]:
    """Put an earlier run aside while a new one is prepared in its place; bring it back if that fails."""
    if not out.exists():
        yield
        return
    earlier = out.with_name(f".{out.name}.earlier")
    shutil.rmtree(earlier, ignore_errors=True)
    out.rename(earlier)
    try:
        yield
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        earlier.rename(out)
        raise
    shutil.rmtree(earlier)


async def run_locally(
    job: Job,
    *,
    origin: Path,
    out: Path,
    follow: Follow = lambda event: None,
    threads: int | None = None,
    deadlines: Deadlines | None = None,
    plugins: Sequence[Path] = (),
    tls: bool = False,
) -> dict[str, Any]:
    """Run a job with one process per member; return its result, which is also written to `out`.

    Args:
        job: What to do; its `data` section says what is cut for the parties.
        origin: The job's file. Errors name it, and paths in the job start at its folder.
        out: The folder of the run. An earlier run there is replaced once the new one is prepared.
        follow: Is handed every event of the job; nobody is unless told.
        threads: Compute threads of each party; the cores are shared out unless told.
        deadlines: How long members wait for each other.
        plugins: Python files of the user's own, which every member runs.
        tls: Whether connections are secured, with certificates made for this run.
    """
    with replacing(out):
        federation = prepare(job, origin=origin, out=out, threads=threads, deadlines=deadlines, tls=tls)
    follow(Event(note=f"starting coordinator, {', '.join(federation.parties)}: one process each"))
    own = [word for file in plugins for word in ("--plugin", str(file.absolute()))]
    programs = {COORDINATOR: ["coordinator", *own], **{name: ["party", *own] for name in federation.parties}}
    async with LocalCluster(out, federation, programs=programs) as cluster:
        return await run_on(cluster, out, follow)


async def run_on(cluster: LocalCluster, out: Path, follow: Follow) -> dict[str, Any]:
    """Submit a prepared folder's job and keep its result there."""
    path = out / JOB_FILE
    return keep(await perform(cluster, path.read_text(), origin=str(path), follow=follow), out)


async def perform(cluster: LocalCluster, settings: str, *, origin: str, follow: Follow) -> Result:
    """Submit a job and watch the processes meanwhile; one that ends by itself ends the job.

    Args:
        cluster: The processes, which are up.
        settings: The job, as YAML.
        origin: The file name that errors speak of.
        follow: Is handed every event of the job.
    """
    address, deadlines = cluster.federation.coordinator.address, cluster.federation.deadlines
    work = submit(address, settings, origin=origin, follow=follow, deadlines=deadlines, credentials=cluster.operator)
    job = asyncio.create_task(work)
    watch = asyncio.create_task(cluster.first_to_end())
    try:
        await asyncio.wait([job, watch], return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            await asyncio.wait([job], timeout=EXPLANATION_SECONDS)
        if job.done():
            return job.result()
        raise watch.result()
    finally:
        for task in (job, watch):
            task.cancel()
        await asyncio.gather(job, watch, return_exceptions=True)


def keep(result: Result, out: Path) -> dict[str, Any]:
    """Write a job's result to a folder and return its figures."""
    write_atomically(out / "result.json", result.result_json + "\n")
    write_atomically(out / "ledger.csv", result.ledger_csv)
    if result.certificate_json:
        write_atomically(out / "certificate.json", result.certificate_json)
    else:
        (out / "certificate.json").unlink(missing_ok=True)  # of an earlier job, which this one replaces
    figures: dict[str, Any] = json.loads(result.result_json)
    return figures
