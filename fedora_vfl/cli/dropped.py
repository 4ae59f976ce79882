"""fedora dropped: what a party has dropped for good, for its own operator to see."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedora_vfl.errors import FedoraError, SettingsError
from fedora_vfl.settings.matching import Matching

if TYPE_CHECKING:
    from party.dropped import DropList
    from party.settings import PartySettings


def dropped(
    party: Annotated[Path, typer.Argument(help="The party file.", metavar="PARTY.yaml")],
    check: Annotated[str | None, typer.Option(help="Say whether this id is on the list.", metavar="ID")] = None,
    readmit: Annotated[
        str | None, typer.Option(help="Take this id off the list: a person who comes back.", metavar="ID")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why; it is kept with the list.", metavar="TEXT")] = None,
) -> None:
    """Show which requests a party has dropped rows for, for good: jobs, times, numbers of rows; the list has no ids.

    A request is pending as long as the newest model in the party's folder of models has not honoured it.
    Every later job leaves these rows out, whatever file they are in. It is run where the party is, by its operator; no
    job can change the list. A row that is readmitted takes part again from the next job on, once all parties have
    readmitted it; models that predate the request stay refused, as it may have named others too.

    \b
        fedora dropped hospital.yaml
        fedora dropped hospital.yaml --check person-0817
        fedora dropped hospital.yaml --readmit person-0817 --reason "new contract, signed 2026-03-01"
    """
    from party.dropped import read_list
    from party.dropped import readmit as take_off
    from party.settings import load_party

    try:
        if (readmit is None) != (reason is None):
            raise SettingsError("--readmit and --reason are given together")
        settings, federation = load_party(party)
        readmit, check = (
            None if one is None else _as_compared(one, federation.matching, settings.data.date_format)
            for one in (readmit, check)
        )
        if readmit is not None and reason is not None:
            take_off(settings.keys, readmit, reason=reason)
            print(f"{readmit} is off the list: later jobs may use this row again, once all parties have readmitted it")
        elif check is not None:
            print(f"{check} is {'' if check in read_list(settings.keys) else 'not '}on the list")
        else:
            for line in _lines(settings):
                print(line)
    except FedoraError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _as_compared(one: str, matching: Matching, written: str | None) -> str:
    """Return an id in the form in which it stands for a row; parts of one stand between tabs."""
    try:
        return matching.of_written(one, date_format=written)
    except ValueError as error:
        raise SettingsError(f"the id {error}; parts of an id stand between tabs") from None


def _lines(settings: "PartySettings") -> list[str]:
    """Return the list in words."""
    from party.dropped import read_list

    known = read_list(settings.keys)
    pending = _pending(settings.models, known)
    lines = [f"{one.time}  job {one.job}  {one.rows} rows{pending.get(one.job, '')}" for one in known.requests]
    lines += [f"{one.time}  job {one.job}  1 row readmitted: {one.reason}" for one in known.readmitted]
    return sorted(lines) or ["nothing has been dropped"]


def _pending(models: Path, known: "DropList") -> dict[str, str]:
    """Return what there is to say of requests that the newest saved model has not honoured, by job."""
    from party.state import model_lineage

    newest = max(models.glob("*.safetensors"), key=lambda path: path.stat().st_mtime_ns, default=None)
    if newest is None:
        return {}
    said = f", pending: the newest saved model, {newest.stem}, has not honoured it"
    return {one.job: said for one in known.lacking(model_lineage(newest).honoured)}
