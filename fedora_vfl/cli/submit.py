"""fedora submit: a job on a cluster that is already up."""

import asyncio
import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedora_vfl.cli.reaching import (
    PATIENCE,
    CertificatesOption,
    CoordinatorOption,
    PatienceOption,
    PlaintextOption,
    Reached,
)
from fedora_vfl.errors import SettingsError
from fedora_vfl.process.lifecycle import run_until_done


def submit(
    job: Annotated[Path, typer.Argument(help="The job file.", metavar="JOB.yaml")],
    coordinator: CoordinatorOption,
    out: Annotated[Path | None, typer.Option(help="Folder for the results. [default: runs/JOB-TIME]")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Print the job's id and do not follow it.")] = False,
    certificates: CertificatesOption = None,
    plaintext: PlaintextOption = False,
    plugin: Annotated[
        list[Path] | None,
        typer.Option(
            "--plugin",
            "--method",
            help="A Python file of your own, which the cluster's members were started with too; repeatable.",
            metavar="FILE.py",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier result in the same folder.")
    ] = False,
    patience: PatienceOption = PATIENCE,
) -> None:
    """Run a job on a cluster that is already up, and follow it; Ctrl-C ends the following, and not the job.

    Jobs run one after the other. A job is stopped with `fedora cancel`, and followed again, from anywhere, with
    `fedora follow`; `fedora result` fetches what it left, `fedora jobs` lists all.

    The parties use the data files that their own party files name, so the job's sections `data`, `backdoor` and
    `privacy` are not used. Models stay with the parties, saved under `train.save`; `train.from` is such a name here. A
    job that forgets people by their ids, from the model that an earlier job has left:

    \b
        train:   {from: original}
        forget:  {ids: people.txt}    # one id per line; or classes, samples
        unlearn: {method: fedora}     # or retrain, ga, ico, cvfu, none

    OUT gets result.json and ledger.csv, and of a job that forgets certificate.json and rounds.png, the rounds drawn.
    """
    from fedora_vfl.cli.following import Follower
    from fedora_vfl.cli.report import finish
    from fedora_vfl.cluster.preparation import as_yaml, load_job
    from fedora_vfl.cluster.runs import claimed, keep, submission

    # What members say is text. With --detach standard output has the id alone, for scripts.
    console = Console(highlight=False, markup=False, stderr=detach)
    folder = out or Path("runs") / f"{job.stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    reached = Reached(coordinator, certificates, plaintext)

    async def work() -> None:
        if detach and (out or overwrite):
            raise SettingsError("--detach: nothing is written then; fetch the result later: fedora result ID --out DIR")
        settings = load_job(job, plugin or [])
        content, token = as_yaml(settings), None
        jobs = reached.jobs(console)
        with contextlib.ExitStack() as claim:
            if not detach:
                claim.enter_context(claimed(folder, overwrite=overwrite, marker="result.json"))
            for section in ("data", "backdoor", "privacy"):
                if getattr(settings, section):
                    console.print(f"note: the job's {section} section is not used: the parties have their own files")
            if not detach:
                token = claim.enter_context(submission(folder, content))
            async with jobs:
                submitted = await jobs.submit(content, origin=str(job), token=token)
                if detach:
                    print(submitted.id)
                    return
                console.print(f"job {submitted.id}", soft_wrap=True)
                with goes_on(reached, submitted.id, console), Follower(console) as follow:
                    result = await jobs.follow(submitted.id, follow, patience=patience)
            finish(keep(result, folder), folder, console, also="; each party keeps its own model")

    if code := run_until_done(work()):
        sys.exit(code)


@contextlib.contextmanager
def goes_on(reached: Reached, id: str, console: Console) -> Iterator[None]:
    """Say how to come back to a job, or to stop it, if its follower is stopped."""
    try:
        yield
    except asyncio.CancelledError:
        console.print("the job goes on at the coordinator:")
        for verb, what in (("follow", "follow it again"), ("cancel", "stop it")):
            console.print(f"  {reached.command(verb, id)}    # {what}", soft_wrap=True)
        raise
