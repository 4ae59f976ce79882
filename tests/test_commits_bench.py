"""What commits cost is measured between neighbours of one run, each as often first as the other."""

import pytest

from fedora_vfl.bench.alternating import BLOCKS, ROUNDS, AlternatingPace, block_of, is_committing
from fedora_vfl.bench.commits import STRETCHES, Cost, pairs


def test_blocks_with_commits_and_without_take_turns_at_being_first() -> None:
    kinds = [is_committing(block) for block in range(BLOCKS)]
    assert kinds == [False, True, False, False, True, True, False, False, True]
    assert [block_of("train", round) for round in (1, ROUNDS["train"])] == [0, BLOCKS - 1]


def test_a_pair_is_two_blocks_that_follow_each_other() -> None:
    rounds = [
        {"phase": "train", "round": round, "seconds": 1.02 if is_committing(block_of("train", round)) else 1.0}
        for round in range(1, ROUNDS["train"] + 1)
    ]
    found = pairs([*rounds, {"phase": "test", "round": 1, "seconds": 9.0}], ["train"])
    assert len(found) == BLOCKS // 2
    cost = Cost(STRETCHES[0], tuple(found))
    assert (cost.with_commits, cost.without) == pytest.approx((1.02, 1.0))
    assert (cost.share, cost.error) == pytest.approx((0.02, 0.0), abs=1e-9)
    assert len(pairs(rounds[:12], ["train"])) == 1, "rounds may end before their time"


def test_a_pace_stands_still_where_no_commits_are_made() -> None:
    now = 0.0
    pace = AlternatingPace(30.0, clock=lambda: now)
    pace.committed(0.01)
    now = 100.0
    assert not pace.due("train 1") and not pace.due("collect")
    assert not pace.due("train 6"), "a block begins as if there had just been a commit"
    now = 102.0
    assert pace.due("train 7") and not pace.due("train 11")
