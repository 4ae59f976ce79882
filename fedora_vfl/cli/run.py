"""fedora run: a job on a local cluster of real processes."""

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedora_vfl.process.lifecycle import run_until_done


def run(
    job: Annotated[
        Path | None, typer.Argument(help="The job file: what to train, forget and compare.", metavar="JOB.yaml")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for results, models and logs. [default: runs/JOB-TIME]")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Take this seed instead of the job's.")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Compute threads of each party. [default: the cores, shared out]")
    ] = None,
    plugin: Annotated[
        list[Path] | None,
        typer.Option(
            "--plugin",
            "--method",
            help="A Python file of your own, with a method, a model, a data source; repeatable.",
            metavar="FILE.py",
        ),
    ] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Secure all connections, with certificates made for it.")] = False,
    alignment: Annotated[
        str, typer.Option(help="How parties find their common rows: plain, as all files are yours, or private.")
    ] = "plain",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run in the same folder.")] = False,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with a run that was interrupted, in its folder.", metavar="DIR")
    ] = None,
) -> None:
    """Start a local cluster, one process per member, run a job on it, and stop it again.

    A job file looks like this; every section but `data` may be left out:

    \b
        data:  {source: income, parties: 2}    # digits, cifar10, medmnist, csv ...
        model: {bottom: mlp, hidden: [128], embedding: 64, top: [128]}
        train: {epochs: 10, batch_size: 256, optimizer: adam, lr: 0.001}
        wire:  {encoding: float32}             # or int8, int4 …: docs/faster.md
        seed:  0

    With `forget` the trained model then forgets, and a certificate is written:

    \b
        forget:   {classes: ["<=50K"], percent: 20}  # {ids: people.txt}, {samples: 50}
        unlearn:  {method: fedora}    # or retrain, ga, ico, cvfu, none
        compare:  [retrain, ga]       # other methods, from the same original model
        backdoor: {target: ">50K"}    # makes forgetting visible: docs/backdoors.md

    OUT then has result.json, ledger.csv, certificate.json (see: fedora verify --help) and rounds.png, the rounds drawn.

    Paths in it are looked for beside the file first, then in the current folder. Every setting: docs/settings.md.
    """
    if resume is not None:
        others = {"JOB.yaml": job, "--out": out, "--seed": seed, "--threads": threads, "--plugin": plugin}
        if given := [name for name, value in others.items() if value is not None]:
            raise typer.BadParameter(f"--resume goes on with the run as it was: leave out {', '.join(given)}")
        resume_run(resume)
        return
    if job is None:
        raise typer.BadParameter("name a job file, or a run to go on with: --resume DIR")
    run_job(
        job,
        out or Path("runs") / f"{job.stem}-{time.strftime('%Y%m%d-%H%M%S')}",
        overwrite=overwrite,
        seed=seed,
        threads=threads,
        plugins=plugin or [],
        tls=tls,
        alignment=alignment,
    )


def resume_run(out: Path) -> None:
    """Go on with a run in its folder and print its report; exit with the code of what went wrong, if something did."""
    from fedora_vfl.cli.following import Follower
    from fedora_vfl.cli.report import finish
    from fedora_vfl.cluster.runs import check_resumable, claimed, resume_locally
    from fedora_vfl.errors import FedoraError

    console = Console(highlight=False, markup=False)  # what members say is text

    async def work() -> None:
        check_resumable(out)
        with claimed(out, overwrite=True, marker="federation.yaml"):
            try:
                with Follower(console) as follow:
                    result = await resume_locally(out, follow)
            except (asyncio.CancelledError, FedoraError) as error:
                tell_how_to_resume(error, out, console)
                raise
            finish(result, out, console, also="")

    if code := run_until_done(work()):
        sys.exit(code)


def tell_how_to_resume(error: BaseException, out: Path, console: Console) -> None:
    """Say how a run goes on that was stopped, or whose members could not go on; one whose job has failed cannot."""
    from fedora_vfl.cluster.runs import is_unfinished

    if isinstance(error, asyncio.CancelledError) or is_unfinished(out):
        console.print(f"To go on with it: fedora run --resume {out}", soft_wrap=True)


def run_job(
    path: Path,
    out: Path,
    *,
    overwrite: bool,
    seed: int | None,
    threads: int | None = None,
    plugins: Sequence[Path] = (),
    tls: bool = False,
    alignment: str = "plain",
) -> None:
    """Run a job file and print its report; exit with the code of what went wrong, if something did.

    Args:
        path: The job file.
        out: The folder of the run.
        overwrite: Whether an earlier run in that folder is replaced.
        seed: Takes the place of the job's seed, if given.
        threads: Compute threads of each party; the cores are shared out unless told.
        plugins: Python files of the user's own, which every member runs.
        tls: Whether connections are secured, with certificates made for this run.
        alignment: How the parties find their common rows.
    """
    from fedora_vfl.cli.following import Follower
    from fedora_vfl.cli.report import finish
    from fedora_vfl.cluster.preparation import load_job
    from fedora_vfl.cluster.runs import claimed, run_locally
    from fedora_vfl.errors import FedoraError

    console = Console(highlight=False, markup=False)  # what members say is text

    async def work() -> None:
        job = load_job(path, plugins)
        if seed is not None:
            job = job.model_copy(update={"seed": seed})
        with claimed(out, overwrite=overwrite, marker="federation.yaml"):
            try:
                with Follower(console) as follow:
                    result = await run_locally(
                        job,
                        origin=path,
                        out=out,
                        follow=follow,
                        threads=threads,
                        plugins=plugins,
                        tls=tls,
                        alignment=alignment,
                    )
            except (asyncio.CancelledError, FedoraError) as error:
                tell_how_to_resume(error, out, console)
                raise
            folders = [name for name in ("models", "data", "logs", "certificates") if (out / name).is_dir()]
            finish(result, out, console, also=f", and folders {', '.join(folders)}")

    if code := run_until_done(work()):
        sys.exit(code)
