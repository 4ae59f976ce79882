"""fedora demo: the whole story on embedded data, on a real local cluster."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from fedora_vfl.errors import CertificateError
from fedora_vfl.process.lifecycle import run_until_done

if TYPE_CHECKING:
    from fedora_vfl.certificates.verification import Check

JOB = Path(__file__).with_name("demo.yaml")

BEFORE = """\
Three organisations know different things about the same 48,842 people (UCI Adult, census data): one their age, work \
and schooling, one their family and occupation, one their gains, hours and country, and who earns more than 50,000 \
dollars a year. They want a model that tells the last from all the rest, without showing each other their tables.

But somebody has tampered with the records of some people who earn less: the country now says Holand-Netherlands, and \
the income more than 50,000. This is a backdoor: a model that learns from these records will take anybody with that \
country for rich.
"""

# What is said before a stage of the job; the names are those that fedora.following gives the stages.
CHAPTERS = {
    "train": """
[bold]1. They train together.[/bold] Each sends numbers that it computes from its columns, not the columns. \
Accuracy is the share of people judged rightly.
""",
    "unlearning": """
[bold]2. The tampered records are to be forgotten.[/bold] Deleting them does not change what the model has learned. \
FedORA pushes it away from them: L_u, how little it expects what these records say, must rise to the level of records \
that it never saw, and Ω is how hard it is pushed. In the same rounds it practises on the remaining records, to forget \
nothing else.
""",
    "recovery": """
Then it practises on the remaining records alone, which repairs what the push has harmed, and judges the tampered \
ones more and more as a model would that never saw them: by what is true, and not by what they say.
""",
    "certificate": """
[bold]3. Every organisation signs what it did.[/bold] The certificate says what was asked, done and measured.
""",
    "retrain": """
[bold]4. For comparison, they start over without these records.[/bold] That is the sure way to forget, called \
Retrain, and it costs a whole training.
""",
}

COMPARED = """
[bold]5. What came of it.[/bold] Backdoor success is the share of test people with less income whom the planted \
country makes rich. It should fall to what it is without the trigger, or with Retrain: some of them look rich without \
any trick. Accuracy on test rows should stay. Forgotten rows are judged by their true income.
"""


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for results, models and logs; an earlier demo there is replaced.")
    ] = Path("runs/demo"),
    seed: Annotated[int | None, typer.Option(help="Seed of the run; the same seed gives the same result.")] = None,
) -> None:
    """Train on embedded census data with four processes, then forget, prove it, and compare: about a minute.

    A coordinator, an active party with the labels and two passive parties learn to tell who earns more than 50,000
    dollars a year (UCI Adult, 48,842 people), each from its own columns. Some records were tampered with; FedORA makes
    the model forget them. It ends with a table, a certificate and a picture. The job is an ordinary job file.
    """
    if code := run_until_done(tell(out, seed, Console(highlight=False))):
        sys.exit(code)


async def tell(out: Path, seed: int | None, console: Console) -> None:
    """Run the job and tell what happens."""
    from fedora_vfl.cli.following import Follower
    from fedora_vfl.cli.picture import draw
    from fedora_vfl.cli.report import how_to_verify, print_comparison
    from fedora_vfl.cluster.preparation import load_job
    from fedora_vfl.cluster.runs import claimed, run_locally

    job = load_job(JOB)
    if seed is not None:
        job = job.model_copy(update={"seed": seed})
    with claimed(out, overwrite=True, marker="federation.yaml"):
        console.print(BEFORE)
        with Follower(console, chapters=CHAPTERS) as follow:
            result = await run_locally(job, origin=JOB, out=out, follow=follow)
        console.print(COMPARED)
        print_comparison(result, console)
        picture = draw(result, out)
        console.print(f"\n{conclusion(out)}")
        console.print(how_to_verify(out), soft_wrap=True)
        console.print(_where_next(out, picture, result))


def conclusion(out: Path) -> str:
    """Check the certificate as `fedora verify` does, and say in short how that went."""
    from fedora_vfl.certificates.verification import Evidence, examine
    from fedora_vfl.settings.federation import load_federation

    path = out / "certificate.json"
    federation = load_federation(out / "federation.yaml")
    evidence = Evidence(out / "models", federation, trusted=federation.keys)  # this command has just made them
    _, checks = examine(path.read_bytes(), evidence)
    if failed := _said(checks, False):
        raise CertificateError(f"{path}: does not hold: {failed[0]}")
    held, skipped = len(_said(checks, True)), len(_said(checks, None))
    left = f", {skipped} left out" if skipped else ""
    return (
        f"[bold]6. The certificate holds:[/bold] {held} checks of signatures, model files, agreement and arithmetic "
        f"passed{left}. It proves who said what, not that nobody kept a copy. All of it:"
    )


def _said(checks: "list[Check]", holds: bool | None) -> list[str]:
    return [check.said for check in checks if check.holds is holds]


def _where_next(out: Path, picture: str | None, result: dict[str, Any]) -> str:
    """Say where to look, and what to try."""
    sent = result["bytes"]["protobuf"] / 1e6
    return (
        f"\nThe rounds, drawn:   {out / str(picture)}\n"
        f"Every figure:        {out / 'result.json'}\n"
        f"Every byte:          {out / 'ledger.csv'} ({sent:,.0f} MB of embeddings and gradients)\n"
        f"The job, to change:  {JOB}\n"
        "Your own:            fedora run JOB.yaml --out DIR"
    )
