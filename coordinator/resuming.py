"""Where a job goes on after a loss: a decision without sockets, from what is journalled and what parties hold."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ResumePoint:
    """A request after which all parties can be brought to the same moment."""

    number: int  # of the request; 0: the job begins again
    commits: Mapping[str, int]  # by party, the commit to go back to; 0 for none


def resume_point(asked: Sequence[Collection[str]], held: Mapping[str, Collection[int]]) -> ResumePoint:
    """Return the latest moment that every party holds a commit of.

    A commit stands for all moments until its party was asked again: a request that left a party out has not changed it.

    Args:
        asked: Whom each journalled request went to, the first one's first.
        held: The commits that each party holds, whole, by the numbers of the requests that they were written after.
    """
    for number in range(len(asked), 0, -1):
        commits = {party: _commit_at(number, party, asked, numbers) for party, numbers in held.items()}
        if all(commits.values()):
            return ResumePoint(number, commits)
    return ResumePoint(0, dict.fromkeys(held, 0))


def _commit_at(number: int, party: str, asked: Sequence[Collection[str]], held: Collection[int]) -> int:
    """Return the commit that a party's state at a moment is in; 0 if it holds none."""
    last = next((one for one in range(number, 0, -1) if party in asked[one - 1]), 0)
    return last if last in held else 0
