"""The command line: one command, one module per verb."""

import sys

import typer

from fedora_vfl.cli import (
    audit,
    bench,
    certs,
    data,
    demo,
    dropped,
    health,
    jobs,
    policy,
    request,
    run,
    run_report,
    submit,
    verify,
)
from fedora_vfl.process.lifecycle import exit_codes, reader_gone
from fedora_vfl.wire.protocol import VERSION

app = typer.Typer(
    name="fedora",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Train one neural network among organisations that hold different columns about the same people, without "
    "sharing rows: every member a process, nothing between them but protobuf over gRPC, every byte counted."
    "\n\nStart with: fedora demo",
    epilog="Exit codes:\n\n\b\n" + exit_codes(),
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(VERSION)
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the release."),
) -> None:
    """Hold the options that stand before a verb."""


app.command("demo")(demo.demo)
app.command("run")(run.run)
app.command("submit")(submit.submit)
app.add_typer(jobs.app, name="jobs")
app.command("follow")(jobs.follow)
app.command("cancel")(jobs.cancel)
app.command("result")(jobs.result)
app.add_typer(data.app, name="data")
app.command("verify")(verify.verify)
app.command("report")(run_report.report)
app.command("audit")(audit.audit)
app.command("dropped")(dropped.dropped)
app.command("request")(request.request)
app.command("health")(health.health)
app.add_typer(certs.app, name="certs")
app.add_typer(policy.app, name="policy")
app.add_typer(bench.app, name="bench")


def main() -> None:
    """Run the command line."""
    try:
        app()
    except BrokenPipeError:
        sys.exit(reader_gone())


if __name__ == "__main__":
    main()
