"""What a series of trials has shown: faults by kind, what was lost, how long jobs took to go on."""

from collections import Counter
from collections.abc import Collection, Sequence
from statistics import median

from fedora_vfl.bench.faults.plan import Fault, Kind
from fedora_vfl.bench.faults.trials import Series, Verdict, told_of
from fedora_vfl.errors import FedoraError


class LostError(FedoraError):
    """A job did not leave what it should have left."""


HEADER = ("fault", "came to pass", "trials with a loss", "seconds to go on, median", "longest")
HEADER_BY_JOB = ("job", "runs", "faults", "trials with a loss")


def rows(series: Series) -> list[tuple[str, ...]]:
    """Return a line of the table for each kind of fault that came to pass, and one for all."""
    found = {fault.name for one in series.verdicts for fault, _ in one.struck}
    names = [name for kind in Kind for between in (False, True) if (name := _name(kind, between)) in found]
    lines = [_row(name, series.verdicts, {name}) for name in names]
    return [*lines, _row("all", series.verdicts, found)]


def by_job(series: Series) -> list[tuple[str, ...]]:
    """Return a line for each kind of job: how many ran, with how many faults, and how many left something else."""
    counts: dict[str, Counter[str]] = {}
    for one in series.verdicts:
        counts.setdefault(one.trial.scenario, Counter()).update(
            runs=one.trial.jobs, faults=len(one.struck), lost=int(bool(one.lost))
        )
    return [(name, *(str(found[what]) for what in ("runs", "faults", "lost"))) for name, found in counts.items()]


def _name(kind: Kind, between: bool) -> str:
    return Fault(kind, (), between=between).name


def _row(name: str, verdicts: Sequence[Verdict], names: Collection[str]) -> tuple[str, ...]:
    struck = [(one, seconds) for one in verdicts for fault, seconds in one.struck if fault.name in names]
    waits = [seconds for _, seconds in struck if seconds is not None]
    lost = {(one.trial.scenario, one.trial.number) for one, _ in struck if one.lost}
    return (
        name,
        str(len(struck)),
        str(len(lost)),
        f"{median(waits):.1f}" if waits else "–",
        f"{max(waits):.1f}" if waits else "–",
    )


def _table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *lines)]


def page(series: Series, *, hosts: bool) -> str:
    """Return the report as Markdown."""
    where = "every member on a host of its own" if hosts else "all members on one machine"
    lines = [
        "# Faults",
        "",
        f"Seed {series.seed}, {len(series.verdicts)} trials, {where}. After each job models, figures, certificate and "
        "ledger were compared with those of the same job left in peace.",
        "",
        *_table(HEADER, rows(series)),
        "",
        *_table(HEADER_BY_JOB, by_job(series)),
        "",
        f"Lost: {f'{len(series.lost)} jobs' if series.lost else 'nothing'}.",
        "",
        *(f"- {told_of(one)}" for one in series.lost),
    ]
    return "\n".join(lines).rstrip() + "\n"


def check_nothing_lost(series: Series) -> None:
    """Refuse a series in which a job left something else than in peace."""
    if series.lost:
        raise LostError(f"{len(series.lost)} of {len(series.verdicts)} jobs did not leave what they should have left")
