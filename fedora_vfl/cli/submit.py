"""fedora submit: a job on a cluster that is already up."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedora_vfl.process.lifecycle import run_until_done


def submit(
    job: Annotated[Path, typer.Argument(help="The job file.", metavar="JOB.yaml")],
    coordinator: Annotated[str, typer.Option(help="Where the coordinator listens.", metavar="HOST:PORT")],
    out: Annotated[Path | None, typer.Option(help="Folder for the results. [default: runs/JOB-TIME]")] = None,
    certificates: Annotated[
        Path | None, typer.Option(help="The operator's folder of certificates (fedora certs).", metavar="DIR")
    ] = None,
    plaintext: Annotated[
        bool, typer.Option("--plaintext", help="Reach another machine without encryption and authentication.")
    ] = False,
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
) -> None:
    """Run a job on a cluster that is already up, and follow it; Ctrl-C stops the job, not the cluster.

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
    from fedora_vfl.cluster.runs import claimed, keep
    from fedora_vfl.cluster.submission import submit as submit_job
    from fedora_vfl.settings.federation import Deadlines
    from fedora_vfl.wire.addresses import check_address
    from fedora_vfl.wire.tls import Credentials, check_secured

    console = Console(highlight=False, markup=False)  # what members say is text
    folder = out or Path("runs") / f"{job.stem}-{time.strftime('%Y%m%d-%H%M%S')}"

    async def work() -> None:
        settings = load_job(job, plugin or [])
        check_address(coordinator, option="--coordinator")
        credentials = Credentials.load(certificates) if certificates else None
        check_secured(
            coordinator, credentials, plaintext=plaintext, hint="name the operator's folder with --certificates"
        )
        with claimed(folder, overwrite=overwrite, marker="result.json"):
            for section in ("data", "backdoor", "privacy"):
                if getattr(settings, section):
                    console.print(f"note: the job's {section} section is not used: the parties have their own files")
            with Follower(console) as follow:
                result = await submit_job(
                    coordinator,
                    as_yaml(settings),
                    origin=str(job),
                    follow=follow,
                    deadlines=Deadlines(),
                    credentials=credentials,
                )
            finish(keep(result, folder), folder, console, also="; each party keeps its own model")

    if code := run_until_done(work()):
        sys.exit(code)
