"""What every command that asks a coordinator has in common: where it is, who asks, and how long that may take."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from rich.console import Console

if TYPE_CHECKING:
    from fedora_vfl.cluster.submission import RemoteJobs

CoordinatorOption: TypeAlias = Annotated[
    str, typer.Option("--coordinator", help="Where the coordinator listens.", metavar="HOST:PORT")
]
CertificatesOption: TypeAlias = Annotated[
    Path | None, typer.Option("--certificates", help="The operator's folder of certificates.", metavar="DIR")
]
PlaintextOption: TypeAlias = Annotated[
    bool, typer.Option("--plaintext", help="Reach another machine without encryption and authentication.")
]
IdArgument: TypeAlias = Annotated[
    str, typer.Argument(help="The job's id, or as much of its beginning as no other has.", metavar="ID")
]
PatienceOption: TypeAlias = Annotated[
    float,
    typer.Option(
        "--patience", min=0.0, help="How many seconds a coordinator that has gone is looked for.", metavar="SECONDS"
    ),
]
PATIENCE = 3600.0  # a machine that restarts is back by then
# A question is answered at once or not at all; a job may be submitted while the cluster starts.
QUESTION_SECONDS = 10.0


@dataclass(frozen=True)
class Reached:
    """How a coordinator is reached, as the command line says."""

    coordinator: str
    certificates: Path | None
    plaintext: bool

    def jobs(self, console: Console, *, within: float | None = None) -> "RemoteJobs":
        """Return the coordinator's jobs, to be entered; it is waited for `within` seconds, or as `join` says."""
        from fedora_vfl.cluster.submission import RemoteJobs
        from fedora_vfl.settings.federation import Deadlines
        from fedora_vfl.wire.addresses import check_address
        from fedora_vfl.wire.tls import Credentials, check_secured

        check_address(self.coordinator, option="--coordinator")
        credentials = Credentials.load(self.certificates) if self.certificates else None
        hint = "name the operator's folder with --certificates"
        check_secured(self.coordinator, credentials, plaintext=self.plaintext, hint=hint)
        deadlines = Deadlines() if within is None else Deadlines(join=within)
        return RemoteJobs(self.coordinator, deadlines=deadlines, credentials=credentials, waiting=console.print)

    def command(self, verb: str, id: str) -> str:
        """Return the words that do something else with a job."""
        words = ["fedora", verb, id[:8], "--coordinator", self.coordinator]
        words += ["--certificates", str(self.certificates)] if self.certificates else []
        return " ".join([*words, *(["--plaintext"] if self.plaintext else [])])
