"""fedora jobs, follow, cancel, result: what becomes of jobs on a cluster that is up."""

import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fedora_vfl.cli.reaching import (
    PATIENCE,
    QUESTION_SECONDS,
    CertificatesOption,
    CoordinatorOption,
    IdArgument,
    PatienceOption,
    PlaintextOption,
    Reached,
)
from fedora_vfl.errors import SettingsError, in_one_line
from fedora_vfl.process.lifecycle import run_until_done

if TYPE_CHECKING:
    from fedora_vfl.cluster.submission import RemoteJobs
    from protos.fedora.v1.control_pb2 import Happening, JobList, JobSummary

app = typer.Typer(invoke_without_command=True, help="The jobs of a cluster: list, show, prune.")

SHORT = 8  # letters of an id that a list shows; they are enough for every command
DAY = 24 * 3600.0


@app.callback()
def jobs(
    context: typer.Context,
    coordinator: Annotated[str | None, typer.Option(help="Where the coordinator listens.", metavar="HOST:PORT")] = None,
    certificates: CertificatesOption = None,
    plaintext: PlaintextOption = False,
) -> None:
    """List the jobs of a cluster that is up: those that you have submitted, the oldest first.

    With the coordinator's own certificates all operators' jobs are listed.
    """
    if context.invoked_subcommand:
        return

    async def ask(remote: "RemoteJobs", console: Console) -> None:
        _print_list(await remote.list(), console)

    async def refuse() -> None:
        raise SettingsError("say where the coordinator listens: --coordinator HOST:PORT")

    if coordinator is None:
        _run(refuse())
    else:
        _connected(Reached(coordinator, certificates, plaintext), ask)


@app.command()
def show(
    id: IdArgument,
    coordinator: CoordinatorOption,
    certificates: CertificatesOption = None,
    plaintext: PlaintextOption = False,
) -> None:
    """Show a job: its settings, every phase, when it began, how long it took, and how often it was attempted."""

    async def ask(remote: "RemoteJobs", console: Console) -> None:
        found = await remote.show(id)
        _print_summary(found.summary, console)
        console.print(f"\n{found.settings.strip()}\n", soft_wrap=True)
        for one in found.happenings:
            console.print(_line(one), soft_wrap=True)

    _connected(Reached(coordinator, certificates, plaintext), ask)


@app.command()
def prune(
    coordinator: CoordinatorOption,
    ids: Annotated[list[str] | None, typer.Argument(help="Jobs, by their ids.", metavar="[ID]...")] = None,
    older_than: Annotated[float, typer.Option(min=0.0, help="Only those that ended so long ago.", metavar="DAYS")] = 0,
    certificates: CertificatesOption = None,
    plaintext: PlaintextOption = False,
) -> None:
    """Remove jobs that have ended, with their results, from the coordinator: those named, or all of yours."""

    async def ask(remote: "RemoteJobs", console: Console) -> None:
        removed = await remote.prune(ids or [], older=older_than * DAY)
        console.print(f"{len(removed.ids)} {'job was' if len(removed.ids) == 1 else 'jobs were'} removed")

    _connected(Reached(coordinator, certificates, plaintext), ask)


def follow(
    id: IdArgument,
    coordinator: CoordinatorOption,
    out: Annotated[Path | None, typer.Option(help="Folder for the results. [default: none are written]")] = None,
    certificates: CertificatesOption = None,
    plaintext: PlaintextOption = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier result in the same folder.")
    ] = False,
    patience: PatienceOption = PATIENCE,
) -> None:
    """Follow a job from its beginning to its end; Ctrl-C ends the following, and not the job."""
    from fedora_vfl.cli.following import Follower
    from fedora_vfl.cli.submit import goes_on

    console, reached = _console(), Reached(coordinator, certificates, plaintext)

    async def work() -> None:
        async with reached.jobs(console) as remote:
            with goes_on(reached, id, console), Follower(console) as following:
                result = await remote.follow(id, following, patience=patience)
        if out:
            _keep(result, out, console, overwrite=overwrite)
        else:
            console.print(
                f"the job has finished; its results: {reached.command('result', id)} --out DIR", soft_wrap=True
            )

    _run(work())


def cancel(
    id: IdArgument,
    coordinator: CoordinatorOption,
    certificates: CertificatesOption = None,
    plaintext: PlaintextOption = False,
) -> None:
    """Stop a job that waits or runs; the cluster goes on with the next one."""

    async def ask(remote: "RemoteJobs", console: Console) -> None:
        cancelled = await remote.cancel(id)
        console.print(f"job {cancelled.id} is cancelled", soft_wrap=True)

    _connected(Reached(coordinator, certificates, plaintext), ask)


def result(
    id: IdArgument,
    coordinator: CoordinatorOption,
    out: Annotated[Path, typer.Option(help="Folder for the results.")],
    certificates: CertificatesOption = None,
    plaintext: PlaintextOption = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier result in the same folder.")
    ] = False,
) -> None:
    """Fetch what a job that has finished has left: result.json, ledger.csv, certificate.json."""

    async def ask(remote: "RemoteJobs", console: Console) -> None:
        fetched = await remote.fetch(id)
        _keep(fetched.result, out, console, overwrite=overwrite)

    _connected(Reached(coordinator, certificates, plaintext), ask)


def _keep(result: Any, out: Path, console: Console, *, overwrite: bool) -> None:
    """Write a result to a folder and print its report."""
    from fedora_vfl.cli.report import finish
    from fedora_vfl.cluster.runs import claimed, keep

    with claimed(out, overwrite=overwrite, marker="result.json"):
        finish(keep(result, out), out, console, also="; each party keeps its own model")


def _console() -> Console:
    return Console(highlight=False, markup=False)  # what members say is text


def _connected(reached: Reached, ask: "Callable[[RemoteJobs, Console], Awaitable[None]]") -> None:
    """Ask a coordinator something that it answers at once."""
    console = _console()

    async def work() -> None:
        async with reached.jobs(console, within=QUESTION_SECONDS) as remote:
            await ask(remote, console)

    _run(work())


def _run(work: Coroutine[Any, Any, None]) -> None:
    if code := run_until_done(work):
        sys.exit(code)


def _print_list(found: "JobList", console: Console) -> None:
    several = len({one.submitted_by for one in found.jobs}) > 1
    table = Table("job", "state", "file", *(["by"] if several else []), "submitted", "ran", "")
    for one in found.jobs:
        by = [in_one_line(one.submitted_by)] if several else []
        origin = Path(in_one_line(one.origin)).name
        table.add_row(one.id[:SHORT], one.state, origin, *by, _clock(one.submitted), _ran(one), _remark(one))
    if found.jobs:
        console.print(table)
    else:
        console.print("there are no jobs of yours")
    if found.others:
        console.print(f"{found.others} {'job' if found.others == 1 else 'jobs'} of other operators under way")


def _print_summary(job: "JobSummary", console: Console) -> None:
    by = f" by {in_one_line(job.submitted_by)}" if job.submitted_by else ""
    lines = {
        "job": job.id,
        "state": f"{job.state}{f': {in_one_line(job.reason)}' if job.reason else ''}",
        "file": in_one_line(job.origin),
        "submitted": _clock(job.submitted) + by,
        "ran": _ran(job),
        "missed": ", ".join(f"{name} since {_clock(since)}" for name, since in sorted(job.missed.items())),
        "waits for": f"{job.waiting} jobs before it" if job.waiting else "",
    }
    for name, text in lines.items():
        if text:
            console.print(f"{name:>10}  {text}", soft_wrap=True)


def _remark(job: "JobSummary") -> str:
    """Say what there is to know of a job beside its state."""
    if job.waiting:
        return f"{job.waiting} before it"
    if job.missed:
        return "misses " + ", ".join(f"{name} since {_clock(since)}" for name, since in sorted(job.missed.items()))
    return in_one_line(job.reason)


def _ran(job: "JobSummary") -> str:
    if not job.HasField("started"):
        return ""
    ended = job.ended if job.HasField("ended") else time.time()
    return _duration(max(0.0, ended - job.started))  # a clock may have been set back


def _line(one: "Happening") -> str:
    """Return one thing that happened as a line."""
    when = _clock(one.time)
    if one.WhichOneof("content") == "note":
        return f"{when}  {in_one_line(one.note)}"
    phase, finished = one.phase, one.phase.finished
    took = f"{finished.seconds:.1f} s" if phase.over else "not over"
    attempts = f", {phase.attempts} attempts" if phase.attempts > 1 else ""
    figures = f", loss {finished.loss:.4f}" if finished.HasField("loss") else ""
    return f"{when}  {in_one_line(finished.name)} {finished.round}/{finished.of_rounds}  {took}{attempts}{figures}"


def _clock(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
