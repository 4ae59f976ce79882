"""Pending requests: their rows are dropped, but a model has not honoured them; a later job takes them up."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedora_vfl.certificates.statement import committed_ids
from fedora_vfl.errors import SettingsError
from party.dropped import DropList


def pending_rows(
    jobs: Sequence[str], dropped: DropList, *, keys: Path, training: Sequence[str]
) -> dict[str, list[int]]:
    """Return the training rows of pending requests, by job.

    A party goes by its list. A request that never reached its list, as the party failed while others wrote, it has
    committed to all the same, before anybody was asked to drop rows.

    Args:
        jobs: The requests, each by the job that brought it.
        dropped: The party's list.
        keys: The folder with the requests that the party has committed to.
        training: Ids of the training rows in common.
    """
    listed = {request.job: request.marks for request in dropped.requests}
    places = {dropped.mark(one): row for row, one in enumerate(training)}
    found = {}
    for job in jobs:
        marks = listed[job] if job in listed else list(map(dropped.mark, committed_ids(keys, job=job)))
        found[job] = _found(job, marks, places)
    return found


def _found(job: str, marks: Sequence[str], places: Mapping[str, int]) -> list[int]:
    """Return the rows of one request, if all are there: a model that forgets some of them has not honoured it."""
    rows = sorted(places[mark] for mark in marks if mark in places)
    if not rows or len(rows) < len(marks):
        held = f"of the {len(marks)} rows of job {job} {len(rows)} are among the training rows in common"
        raise SettingsError(f"forget.pending: {held}, and what is not there cannot be unlearned: train anew")
    return rows
