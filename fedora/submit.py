"""fedora submit: a job on a cluster that is already up."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from wire.process import run_until_done


def submit(
    job: Annotated[Path, typer.Argument(help="The job file.", metavar="JOB.yaml")],
    coordinator: Annotated[str, typer.Option(help="Where the coordinator listens.", metavar="HOST:PORT")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for result.json and ledger.csv. [default: runs/JOB-TIME]")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier result in the same folder.")
    ] = False,
) -> None:
    """Run a job on a cluster that is already up, and follow it; Ctrl-C stops the job, not the cluster.

    The parties use the data files that their own party files name, so the job's `data` section is not used. Models
    stay with the parties, saved under `train.save`; `train.from` is such a name here.
    """
    from deploy.submission import submit as submit_job
    from fedora.following import Follower
    from fedora.report import print_report
    from fedora.running import as_yaml, check_folder, keep, load_job
    from settings.federation import Deadlines, check_address

    console = Console(highlight=False)
    folder = out or Path("runs") / f"{job.stem}-{time.strftime('%Y%m%d-%H%M%S')}"

    async def work() -> None:
        settings = load_job(job)
        check_address(coordinator)
        check_folder(folder, overwrite=overwrite, marker="result.json")
        if settings.data:
            console.print("note: the job's data section is not used: the parties have their own files")
        with Follower(console) as follow:
            result = await submit_job(
                coordinator, as_yaml(settings), origin=str(job), follow=follow, deadlines=Deadlines()
            )
        print_report(keep(result, folder), console)
        console.print(f"Written to {folder}: result.json, ledger.csv; each party keeps its own model", soft_wrap=True)

    if code := run_until_done(work()):
        sys.exit(code)
