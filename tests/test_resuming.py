"""Where a job goes on after a loss, driven through thousands of histories without a socket or a file.

A party's state is modelled as the list of requests that it has done; a cluster that forgets one, does one twice, or has
parties at different moments would show it.
"""

from collections.abc import Collection

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from coordinator.resuming import ResumePoint, resume_point
from party.commits import KEPT, obsolete

PARTIES = ("passive-1", "passive-2", "active")
SOME = st.sets(st.sampled_from(PARTIES), min_size=1)
Done = tuple[int, ...]


class Cluster(RuleBasedStateMachine):
    """All members: what is in memory, and what is on disks."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: dict[str, Done] = dict.fromkeys(PARTIES, ())
        self.disks: dict[str, dict[int, Done]] = {party: {} for party in PARTIES}
        self.journal: list[set[str]] = []  # on the coordinator's disk: whom each request went to
        self.unwritten: list[set[str]] = []
        self.confirmed = 0
        self.damaged: set[tuple[str, int]] = set()

    def expected(self, party: str, number: int) -> Done:
        """Return what a party that is right has done after a request."""
        asked = [*self.journal, *self.unwritten]
        return tuple(one for one in range(1, number + 1) if party in asked[one - 1])

    @rule(parties=SOME, commit=st.booleans(), fate=st.sampled_from(["well", "well", "lost", "unjournalled"]), by=SOME)
    def request(self, parties: set[str], commit: bool, fate: str, by: set[str]) -> None:
        """Ask some parties something; in the middle of it everything may be lost.

        With `lost` only the parties `by` had committed, with `unjournalled` all had, and the coordinator had not
        written it down.
        """
        number = len(self.journal) + len(self.unwritten) + 1
        asked = set(PARTIES) if number == 1 else set(parties)
        commit = commit or number == 1
        if commit:  # whoever has done something since its last commit is asked to commit too
            asked |= {one for one in PARTIES if self.memory[one] and self.memory[one][-1] not in self.disks[one]}
        for party in asked:
            self.memory[party] += (number,)
            if commit and (fate != "lost" or party in by):
                self.disks[party][number] = self.memory[party]
                for one in obsolete(self.disks[party], confirmed=self.confirmed):
                    del self.disks[party][one]
        if fate != "well":
            self.lose(set(PARTIES) if fate == "unjournalled" else by)
            return
        self.unwritten.append(asked)
        if commit:
            self.journal, self.unwritten, self.confirmed = [*self.journal, *self.unwritten], [], number

    @rule(parties=SOME)
    def lose(self, parties: set[str]) -> None:
        """Lose some parties' memory, or the coordinator's, which comes to the same: all go back to one moment."""
        held = {
            party: [number for number in disk if (party, number) not in self.damaged]
            for party, disk in self.disks.items()
        }
        point = resume_point(self.journal, held)
        before, self.unwritten = self.confirmed, []
        self.check(point, before)
        self.journal = self.journal[: point.number]
        self.confirmed = point.number
        for party in PARTIES:
            commit = point.commits[party]
            self.memory[party] = self.disks[party][commit] if commit else ()
            self.disks[party] = {one: done for one, done in self.disks[party].items() if one <= commit}
        self.damaged.clear()

    @rule(party=st.sampled_from(PARTIES), newest=st.booleans())
    def damage(self, party: str, newest: bool) -> None:
        """Flip a byte of one commit."""
        if len(self.disks[party]) > 1 and not self.damaged:
            self.damaged.add((party, sorted(self.disks[party])[-1 if newest else 0]))

    def check(self, point: ResumePoint, confirmed: int) -> None:
        """Whatever was confirmed is not lost, unless its file was damaged; then the one before it is used."""
        assert point.number <= confirmed
        if not self.damaged:
            assert point.number == confirmed
        assert not confirmed or point.number or self.damaged

    @invariant()
    def all_are_at_the_same_moment(self) -> None:
        """Every party has done what it was asked, once and in order."""
        now = len(self.journal) + len(self.unwritten)
        for party in PARTIES:
            assert self.memory[party] == self.expected(party, now)

    @invariant()
    def disks_hold_few_commits(self) -> None:
        """Two that all have, and those that are on their way to be."""
        for disk in self.disks.values():
            assert len([one for one in disk if one <= self.confirmed]) <= KEPT + 1


TestHistories = Cluster.TestCase
TestHistories.settings = hypothesis.settings(
    max_examples=300, stateful_step_count=30, deadline=None, derandomize=True, database=None
)


def at(number: int, **commits: int) -> ResumePoint:
    """Name parties by letters."""
    return ResumePoint(number, commits)


def asked(*requests: str) -> list[Collection[str]]:
    """Return whom requests went to, a letter for each party."""
    return [set(one) for one in requests]


def test_a_job_without_commits_begins_again() -> None:
    assert resume_point([], {"a": [], "b": []}) == at(0, a=0, b=0)
    assert resume_point(asked("ab", "ab"), {"a": [1, 2], "b": []}) == at(0, a=0, b=0)


def test_all_go_back_to_the_last_commit_that_all_have() -> None:
    assert resume_point(asked("ab", "ab", "ab"), {"a": [2, 3], "b": [1, 2]}) == at(2, a=2, b=2)


def test_a_commit_that_the_coordinator_has_not_journalled_does_not_count() -> None:
    assert resume_point(asked("ab", "ab"), {"a": [2, 3], "b": [2, 3]}) == at(2, a=2, b=2)


def test_a_party_that_was_left_out_is_where_it_was() -> None:
    assert resume_point(asked("ab", "a", "a"), {"a": [1, 3], "b": [1]}) == at(3, a=3, b=1)
    assert resume_point(asked("ab", "a", "ab"), {"a": [1, 2], "b": [1]}) == at(2, a=2, b=1)


def test_a_damaged_commit_is_none() -> None:
    assert resume_point(asked("ab", "ab", "ab"), {"a": [1], "b": [1, 3]}) == at(1, a=1, b=1)
