"""Running a job on a local cluster: start the processes, submit, follow, keep the result."""

import asyncio
import contextlib
import hashlib
import json
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from coordinator.job import Job
from fedora_vfl.cluster.local import LocalCluster, Restarts, until_free
from fedora_vfl.cluster.preparation import JOB_FILE, prepare
from fedora_vfl.cluster.submission import TOKEN_BYTES, RemoteJobs, submit
from fedora_vfl.errors import FedoraError, PartyError, SettingsError
from fedora_vfl.plugins import load_plugin
from fedora_vfl.settings.federation import Deadlines, Federation, load_federation
from fedora_vfl.storage import held, remove_unfinished, write_atomically
from fedora_vfl.wire.protocol import COORDINATOR
from fedora_vfl.wire.tls import Credentials
from protos.fedora.v1.control_pb2 import Event, Result
from protos.fedora.v1.failure_pb2 import Failure

Follow = Callable[[Event], None]

# The coordinator mostly knows better what the end of a process meant for the job: so long it is waited for.
EXPLANATION_SECONDS = 2.0

FEDERATION_FILE, PLUGINS_FILE = "federation.yaml", "plugins.json"
LOCK_FILE, EARLIER = ".lock", ".earlier"  # in a run's folder: whose it is; a run that is being replaced
SECRET_FILE = ".submission"  # in a folder for results: what the coordinator knows the job by that was submitted from it


@contextlib.contextmanager
def claimed(out: Path, *, overwrite: bool, marker: str) -> Iterator[None]:
    """Have a folder for one run alone; another process that has it, or other files in it, are refused.

    Args:
        out: The folder, which is made if there is none.
        overwrite: Whether an earlier run in it may be replaced.
        marker: A file by which earlier runs of the same kind are known.
    """
    if out.exists() and not out.is_dir():
        raise SettingsError(f"{out}: is a file; --out wants a folder")
    with contextlib.ExitStack() as claim:
        try:
            out.mkdir(parents=True, exist_ok=True)
            claim.enter_context(held(out / LOCK_FILE, wait=False))
        except BlockingIOError:
            raise SettingsError(f"{out}: another run is writing there; choose another folder, or wait for it") from None
        except OSError as error:
            raise SettingsError(f"{out}: cannot be written to: {error.strerror}") from None
        _check_folder(out, overwrite=overwrite, marker=marker)
        yield


def _check_folder(out: Path, *, overwrite: bool, marker: str) -> None:
    """Refuse to mix new results with other files."""
    there = {path.name for path in out.iterdir()} - {LOCK_FILE, SECRET_FILE}
    if there and not overwrite:
        said = "is not empty; choose another folder or add --overwrite"
        if is_unfinished(out):
            said = f"holds a run that was interrupted; go on with it by --resume {out}, or replace it with --overwrite"
        raise SettingsError(f"{out}: {said}")
    # A run that was killed while it was prepared may not have come as far as its marker.
    if there and not (out / marker).exists() and EARLIER not in there:
        raise SettingsError(f"{out}: does not look like an earlier run, so it is not overwritten")


@contextlib.contextmanager
def submission(out: Path, settings: str) -> Iterator[bytes]:
    """Hand out a token for a job whose results go to a claimed folder: the same one until that job has ended.

    Whoever was killed while it submitted or followed a job finds it again, and does not submit a second.
    """
    path = out / SECRET_FILE
    if not path.exists():
        write_atomically(path, secrets.token_bytes(TOKEN_BYTES), mode=0o600)
    try:
        yield hashlib.sha256(path.read_bytes() + settings.encode()).digest()
    except PartyError as error:
        if error.culprit != COORDINATOR or error.kind not in (Failure.LOST, Failure.SILENT):
            path.unlink()
        raise  # one that cannot be reached has the job, perhaps
    except FedoraError:
        path.unlink()
        raise
    path.unlink()


@contextlib.contextmanager
def replacing(out: Path) -> Iterator[None]:
    """Put an earlier run aside while a new one is prepared in its place; bring it back if that fails."""
    out.mkdir(parents=True, exist_ok=True)
    earlier = out / EARLIER
    if earlier.exists():  # a run that was killed here has left it: what lies beside it is not whole
        _clear(out)
    else:
        there = _content(out)
        earlier.mkdir()
        for path in there:
            path.rename(earlier / path.name)
    try:
        yield
    except BaseException:
        _clear(out)
        for path in list(earlier.iterdir()):
            path.rename(out / path.name)
        earlier.rmdir()
        raise
    shutil.rmtree(earlier)


def _content(out: Path) -> list[Path]:
    """Return what a run has left in its folder."""
    return [path for path in out.iterdir() if path.name not in (LOCK_FILE, EARLIER)]


def _clear(out: Path) -> None:
    for path in _content(out):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


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
    alignment: str = "plain",
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
        alignment: How the parties find their common rows.
    """
    with replacing(out):
        federation = prepare(
            job, origin=origin, out=out, threads=threads, deadlines=deadlines, tls=tls, alignment=alignment
        )
        write_atomically(out / PLUGINS_FILE, json.dumps([str(file.absolute()) for file in plugins]))
    follow(Event(note=f"starting coordinator, {', '.join(federation.parties)}: one process each"))
    return await run_prepared(out, federation, plugins, follow)


async def resume_locally(out: Path, follow: Follow) -> dict[str, Any]:
    """Go on with a run that was interrupted, in whatever way, from what its members have kept in its folder."""
    federation, plugins = load_federation(out / FEDERATION_FILE), kept_plugins(out)
    for file in plugins:
        load_plugin(file)
    remove_unfinished(out)
    await until_free(federation.coordinator.address, federation.active.address)
    follow(Event(note=f"starting coordinator, {', '.join(federation.parties)} again: one process each"))
    return await run_prepared(out, federation, plugins, follow)


async def run_prepared(out: Path, federation: Federation, plugins: Sequence[Path], follow: Follow) -> dict[str, Any]:
    """Start the cluster of a prepared folder and do its job, or what is left of it."""
    async with LocalCluster(out, federation, programs=_programs(federation, plugins)) as cluster:
        result = await run_on(cluster, out, follow, resumable=True)
    for party in federation.parties:
        # One that was just being started again has not heard that the job is over, and never will.
        shutil.rmtree(out / "keys" / party / "commits", ignore_errors=True)
    return result


def check_resumable(out: Path) -> None:
    """Refuse to go on with what is no run, or was not prepared to its end."""
    if not (out / FEDERATION_FILE).exists() or not (out / JOB_FILE).exists():
        raise SettingsError(f"--resume: {out} is not the folder of a run")
    if (out / EARLIER).exists() or not (out / PLUGINS_FILE).exists():
        raise SettingsError(f"--resume: {out} was interrupted before its run began; run the job again with --overwrite")


def is_unfinished(out: Path) -> bool:
    """Tell whether members have kept in a run's folder what its job can go on from."""
    return any((out / "keys").glob("*/commits/*/*.safetensors"))


def _programs(federation: Federation, plugins: Sequence[Path]) -> dict[str, list[str]]:
    """Return the programs of all members, with the user's own plug-in files."""
    own = [word for file in plugins for word in ("--plugin", str(file.absolute()))]
    return {COORDINATOR: ["coordinator", *own], **{name: ["party", *own] for name in federation.parties}}


def kept_plugins(out: Path) -> list[Path]:
    """Return the user's own plug-in files that a run was started with."""
    try:
        return [Path(one) for one in json.loads((out / PLUGINS_FILE).read_text())]
    except (OSError, ValueError) as error:
        raise SettingsError(f"{out / PLUGINS_FILE}: cannot be read: {error}") from None


async def run_on(cluster: LocalCluster, out: Path, follow: Follow, *, resumable: bool = False) -> dict[str, Any]:
    """Submit a prepared folder's job, or find the one that was submitted before, and keep its result there."""
    path = out / JOB_FILE
    result = await perform(cluster, path.read_text(), origin=str(path), follow=follow, resumable=resumable)
    return keep(result, out)


async def perform(
    cluster: LocalCluster, settings: str, *, origin: str, follow: Follow, resumable: bool = False
) -> Result:
    """Submit a job and watch the processes meanwhile; one that dies is started again.

    Args:
        cluster: The processes, which are up.
        settings: The job, as YAML.
        origin: The file name that errors speak of.
        follow: Is handed every event of the job.
        resumable: Whether a caller that is cancelled leaves the job as it is, and goes on with one that was left so.
    """
    restarts = Restarts(lambda said: follow(Event(note=said)))

    farthest = (0, 0)  # phase and step

    def watched(event: Event) -> None:
        nonlocal farthest
        content = event.WhichOneof("content")
        place = (event.progress.phase, event.progress.steps)
        if content == "finished" or (content == "progress" and place > farthest):
            farthest = max(place, farthest)
            restarts.progress()
        follow(event)

    address, deadlines = cluster.federation.coordinator.address, cluster.federation.deadlines
    patience, operator = deadlines.absence, cluster.operator
    work = (
        _resumed(address, settings, origin=origin, follow=watched, deadlines=deadlines, credentials=operator)
        if resumable
        else submit(
            address,
            settings,
            origin=origin,
            follow=watched,
            deadlines=deadlines,
            credentials=operator,
            patience=patience,
        )
    )
    job = asyncio.create_task(work)
    watch = asyncio.create_task(cluster.keep_running(restarts))
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


async def _resumed(
    address: str,
    settings: str,
    *,
    origin: str,
    follow: Follow,
    deadlines: Deadlines,
    credentials: Credentials | None,
) -> Result:
    """Follow the coordinator's one job to its end; submit it if it has none."""

    def say(note: str) -> None:
        follow(Event(note=note))

    async with RemoteJobs(address, deadlines=deadlines, credentials=credentials, waiting=say) as jobs:
        known = (await jobs.list(patiently=True)).jobs
        id = known[-1].id if known else (await jobs.submit(settings, origin=origin)).id
        return await jobs.follow(id, follow, patience=deadlines.absence)


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
