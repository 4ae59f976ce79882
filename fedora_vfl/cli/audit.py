"""fedora audit: what an audit of a run's forgetting has found; or the run made again, with one."""

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fedora_vfl.errors import DataError, FedoraError, SettingsError
from fedora_vfl.process.lifecycle import run_until_done

if TYPE_CHECKING:
    from coordinator.job import Job
    from fedora_vfl.settings.federation import Federation

NAME = "audit.html"


def audit(
    run: Annotated[Path, typer.Argument(help="The folder of a run that forgot.", metavar="RUN")],
    again: Annotated[
        Path | None, typer.Option(help="Run the job again into this folder, with an audit.", metavar="OUT")
    ] = None,
    references: Annotated[int, typer.Option(min=0, max=64, help="With --again: reference models to train.")] = 4,
    retrains: Annotated[int, typer.Option(min=0, max=16, help="With --again: Retrains, the yardstick.")] = 3,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="With --again: replace an earlier run in that folder.")
    ] = False,
) -> None:
    """Show what the audit of a run has found, in words, a table and a page, RUN/audit.html.

    An audit is part of a job, as rows that were dropped are looked at by no later one:

    \b
        compare: [{method: retrain, seeds: 3}]    # the yardstick
        audit:   {references: 4}

    A run of `fedora run` that had none is made again, on the same files and from the same seed, so that its models are
    the same, with an audit at the end:

    \b
        fedora audit runs/forget --again runs/audited
    """
    console = Console(highlight=False, markup=False)
    if again:

        async def work() -> None:
            await _again(run, again, references, retrains, console, overwrite=overwrite)

        if code := run_until_done(work()):
            sys.exit(code)
        run = again
    try:
        _show(run, console)
    except FedoraError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _show(run: Path, console: Console) -> None:
    """Print what was found, and write the page."""
    from fedora_vfl.cli.run_report import read_result, write
    from fedora_vfl.documents.document import Document
    from fedora_vfl.documents.webpage import webpage
    from fedora_vfl.run_report.audit import ROWS
    from fedora_vfl.run_report.audit import audit as audit_blocks
    from fedora_vfl.run_report.figures import TITLES
    from fedora_vfl.run_report.words import with_own_words

    result = read_result(run)
    told = result.get("audit")
    if "unlearned" not in result:
        raise SettingsError(f"{run}: the run forgot nothing, so that there is nothing to audit")
    if not isinstance(told, dict):
        remedy = f"run it again with one: fedora audit {run} --again FOLDER"
        raise SettingsError(f"{run}: the job had no audit; add `audit: {{references: 4}}` to it, or {remedy}")
    try:
        result = with_own_words(result, moved=None)
        told = result["audit"]
        forget, method = result["forget"], result["job"]["unlearn"]["method"]
        of_all = f"{forget['rows']:,} of {forget['rows'] + forget['remaining']:,} training rows"
        subtitle = (
            f"Run {run.name}: {of_all}, by {TITLES.get(method, method)}; release {result['versions']['fedora']}. "
            "Figures are result.json's: `fedora report` holds them against the certificate."
        )
        page = webpage(Document("An audit of forgetting", subtitle, audit_blocks(result)))
        table = _table(told["figures"], {name: title for name, (title, _) in ROWS.items()})
        sentences = list(told["verdict"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise DataError(f"{run / 'result.json'}: its audit is not in the form of this release ({error!r})") from None
    for place, sentence in enumerate(sentences):
        console.print(sentence if not place else f"• {sentence}", style="bold" if not place else None)
    console.print(table)
    write(run / NAME, page)
    console.print(f"Written to {run / NAME}", soft_wrap=True)


def _table(figures: dict[str, dict[str, float]], titles: dict[str, str]) -> Table:
    """Lay the models side by side; of several Retrains the least and the most."""
    retrains = [name for name in figures if name.split("-")[0] == "retrain"]
    models = [name for name in figures if name not in retrains]
    table = Table(title="Attacks with reference models", title_justify="left")
    table.add_column("", style="bold")
    for name in (*models, *(["Retrain"] if retrains else [])):
        table.add_column(name, justify="right")
    for name, title in titles.items():
        if any(name in figures[model] for model in models):
            cells = [_cell(figures[model].get(name)) for model in models]
            drawn = [figures[model][name] for model in retrains if name in figures[model]]
            reach = f"{min(drawn):.3f}" + (f" – {max(drawn):.3f}" if len(drawn) > 1 else "") if drawn else "–"
            table.add_row(title, *cells, *([reach] if retrains else []))
    return table


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


async def _again(run: Path, out: Path, references: int, retrains: int, console: Console, *, overwrite: bool) -> None:
    """Run a run's job again into another folder, on the files that were cut for it, with an audit."""
    from fedora_vfl.cli.following import Follower
    from fedora_vfl.cli.run import tell_how_to_resume
    from fedora_vfl.cluster.preparation import JOB_FILE, as_yaml, load_job
    from fedora_vfl.cluster.runs import PLUGINS_FILE, claimed, kept_plugins, replacing, run_prepared
    from fedora_vfl.storage import write_atomically

    _check_folders(run, out)
    plugins = kept_plugins(run)
    job = with_audit(load_job(run / JOB_FILE, plugins), references, retrains, origin=run / JOB_FILE)
    with claimed(out, overwrite=overwrite, marker="federation.yaml"):
        with replacing(out):
            federation = _laid_out(run, out)
            write_atomically(out / JOB_FILE, as_yaml(job))
            write_atomically(out / PLUGINS_FILE, json.dumps([str(file) for file in plugins]))
        console.print(
            "This trains once more on the forgotten rows, in a cluster of its own: its models remember them, so "
            f"delete {out / 'models'} when the audit is done.",
            soft_wrap=True,
        )
        try:
            with Follower(console) as follow:
                await run_prepared(out, federation, plugins, follow)
        except (asyncio.CancelledError, FedoraError) as error:
            tell_how_to_resume(error, out, console)
            raise


def _check_folders(run: Path, out: Path) -> None:
    """Refuse a folder that is no run, and one that is the run itself."""
    from fedora_vfl.cluster.preparation import JOB_FILE

    if not (run / JOB_FILE).exists():
        raise DataError(f"{run}: is not the folder of a run of `fedora run`")
    if out.resolve() == run.resolve():
        raise SettingsError(f"--again: {out} is the run itself, whose files are used; name another folder")


def with_audit(job: "Job", references: int, retrains: int, *, origin: Path) -> "Job":
    """Return a job with an audit at its end, and Retrains to hold it against."""
    from coordinator.job import Job
    from fedora_vfl.settings.files import check

    if job.train.load:
        raise SettingsError(f"{origin}: the run began with another run's model: add `audit` to its job, and run that")
    if job.forget is None:
        raise SettingsError(f"{origin}: the run forgot nothing, so that there is nothing to audit")
    content = job.model_dump(mode="json", by_alias=True, exclude_unset=True)
    others = [one for one in content.get("compare", []) if one.get("method") != "retrain"]
    anew = [{"method": "retrain", "seeds": retrains}] if retrains else []
    return check({**content, "compare": [*anew, *others], "audit": {"references": references}}, Job, origin=str(origin))


def _laid_out(run: Path, out: Path) -> "Federation":
    """Write the files of a new cluster over the data of an earlier one."""
    import yaml

    from fedora_vfl.cluster.local import lay_out, loopback_federation
    from fedora_vfl.settings.federation import load_federation

    earlier = load_federation(run / "federation.yaml")
    files: dict[str, dict[str, Any]] = {}
    for name in earlier.parties:
        path = run / "parties" / f"{name}.yaml"
        try:
            files[name] = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError):
            raise DataError(f"{path}: cannot be read; name the folder of a run of `fedora run`") from None
    federation = loopback_federation(list(earlier.passive), deadlines=earlier.deadlines)
    privacy = {name: one["privacy"] for name, one in files.items() if "privacy" in one}
    lay_out(
        out,
        federation,
        {name: one["data"] for name, one in files.items()},
        threads=files[earlier.active.name].get("threads"),
        privacy=privacy,
    )
    return federation
