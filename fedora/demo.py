"""fedora demo: the whole story on embedded data, on a real local cluster."""

from pathlib import Path
from typing import Annotated

import typer

from fedora.run import run_job

JOB = Path(__file__).with_name("demo.yaml")


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for results, models and logs; an earlier demo there is replaced.")
    ] = Path("runs/demo"),
    seed: Annotated[int | None, typer.Option(help="Seed of the run; the same seed gives the same result.")] = None,
) -> None:
    """Train on embedded census data with four processes, in under a minute.

    A coordinator, an active party with the labels and two passive parties learn to tell who earns more than 50,000
    dollars a year (UCI Adult, 48,842 people), each from its own columns. The job is an ordinary job file.
    """
    run_job(JOB, out, overwrite=True, seed=seed)
    typer.echo(f"The job was {JOB}; try your own: fedora run JOB.yaml --out DIR")
