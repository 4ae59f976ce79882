"""The fault harness: its draws follow from a seed, it notices what it should, and a few of its trials go well."""

import asyncio
import json
from pathlib import Path

import pytest

from fedora_vfl import fault_points
from fedora_vfl.bench.faults.comparing import Left, differences
from fedora_vfl.bench.faults.plan import (
    IDLE,
    LINES,
    MOST_OF_A_POINT,
    Fault,
    Ground,
    Kind,
    Trial,
    draw,
    every_point,
    possible,
    scenario_of,
    some_of,
    spread,
)
from fedora_vfl.bench.faults.report import LostError, by_job, check_nothing_lost, page, rows
from fedora_vfl.bench.faults.scenarios import SCENARIOS
from fedora_vfl.bench.faults.stage import opened
from fedora_vfl.bench.faults.striking import COUNT, FULL, KILL, Order, Orders, Striker
from fedora_vfl.bench.faults.trials import Series, Verdict, attempt, damage, run_series, undisturbed
from tests.conftest import as_job

GROUND = Ground({name: {"commit.before": 4, "party.send": 9} for name in ("coordinator", "passive-1", "active")})


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_job_of_the_harness_is_one(name: str) -> None:
    assert as_job(SCENARIOS[name]).train.overwrite


def test_faults_follow_from_the_seed() -> None:
    def series(seed: int) -> list[Trial]:
        return [draw(seed, number, "training", GROUND, hosts=True, silence=3) for number in range(300)]

    assert series(1) == series(1) != series(2)
    faults = [fault for trial in series(1) for fault in trial.faults]
    assert {fault.kind for fault in faults} == set(Kind)
    points = [fault for fault in faults if fault.kind == Kind.KILL_AT_POINT]
    assert all(fault.nth <= GROUND.points[fault.members[0]][fault.point] for fault in points)
    kept = {fault.kind for n in range(300) for fault in draw(1, n, "a", GROUND, hosts=False, silence=3).faults}
    assert kept == set(Kind) - set(LINES)
    between = [fault for trial in series(1) for fault in trial.before]
    assert {fault.kind for fault in between} == set(IDLE) and all(fault.between for fault in between)
    assert any(fault.again is not None for fault in between)
    assert {bool(trial.faults) for trial in series(1) if trial.before} == {True, False}, "some jobs are left in peace"
    cuts = [draw(1, n, "a", GROUND, hosts=True, silence=3, kinds=[Kind.KILL_ALL]) for n in range(50)]
    assert {fault.kind for trial in cuts for fault in trial.all_faults} == {Kind.KILL_ALL}
    assert not any(draw(1, n, "a", GROUND, hosts=True, silence=3, kinds=[Kind.TORN]).before for n in range(50))
    assert possible(LINES, hosts=True) and not possible(LINES, hosts=False)
    assert {scenario_of(5, number, list(SCENARIOS)) for number in range(len(SCENARIOS))} == set(SCENARIOS)


def test_every_point_of_every_member_has_its_turn() -> None:
    trials = every_point("training", GROUND)
    faults = [fault for trial in trials for fault in trial.faults]
    places = {(*fault.members, fault.point, fault.nth) for fault in faults}
    assert len(places) == len(faults) == len(GROUND.members) * (4 + MOST_OF_A_POINT)
    assert {("active", "party.send", 1), ("active", "party.send", 9), ("coordinator", "commit.before", 4)} <= places
    assert all(len({fault.members for fault in trial.faults}) == len(trial.faults) for trial in trials)
    assert some_of(trials, None, 1) == trials and len(some_of(trials, 3, 1)) == 3
    assert some_of(trials, 3, 1) == some_of(trials, 3, 1) != some_of(trials, 3, 2)
    assert spread(100, 6) == [1, 20, 40, 60, 80, 100]


def test_a_member_counts_its_instants_and_finds_its_disk_full(tmp_path: Path) -> None:
    orders = Orders(tmp_path, "active")
    strike = Striker(orders)
    strike("commit.before")
    counting = orders.give(Order(COUNT))
    never = orders.give(Order(KILL, "never"))
    for name in ("commit.before", "commit.after", "commit.before"):
        strike(name)
    assert orders.log(counting) == ["commit.before", "commit.after", "commit.before"]
    orders.take_back()
    full = orders.give(Order(FULL, until=2e12))
    strike("commit.before")
    with pytest.raises(OSError, match="No space left"):
        strike("file.before-write")
    assert len(orders.log(full)) == 1 and not orders.log(never)
    orders.take_back()
    strike("file.before-write")
    assert fault_points.strike is None, "nobody strikes unless told"


def test_what_is_not_as_in_peace_is_found(tmp_path: Path) -> None:
    peace = Left({"a/m": "0"}, {"original": {"loss": 1.0}, "rounds": [1, 2]}, None, {("a--b", "train"): 5})
    assert not list(differences(peace, peace))
    other = Left({"a/m": "1"}, {"original": {"loss": 1.1}, "rounds": [1]}, {}, {("a--b", "train"): 6})
    assert list(differences(peace, other)) == [
        "model a/m",
        "result: original.loss",
        "result: rounds",
        "certificate: ",
        "ledger: a--b train",
    ]
    path = tmp_path / "commit"
    for torn in (True, False):
        path.write_bytes(whole := json.dumps(list(range(1000))).encode())
        damage(path, torn=torn)
        assert path.read_bytes() != whole and (len(path.read_bytes()) < len(whole)) == torn


def test_a_report_counts_what_came_to_pass_and_names_what_was_lost() -> None:
    killed, stopped = Fault(Kind.KILL, ("active",), 0.5), Fault(Kind.STOP, ("passive-1",), 0.1, lasts=2.0)
    well = Verdict(Trial(0, "training", (killed, stopped)), (), ((killed, 1.5), (stopped, 3.0)), 9.0, 1)
    ill = Verdict(Trial(1, "training", (killed,)), ("model active/original.safetensors",), ((killed, None),), 9.0, 1)
    series = Series(7, [well])
    check_nothing_lost(series)
    assert "Lost: nothing." in page(series, hosts=False)
    series.verdicts.append(ill)
    assert rows(series) == [
        (Kind.KILL, "2", "1", "1.5", "1.5"),
        (Kind.STOP, "1", "0", "3.0", "3.0"),
        ("all", "3", "1", "2.2", "3.0"),
    ]
    assert by_job(series) == [("training", "2", "3", "1")]
    assert "LOST: model active/original.safetensors" in page(series, hosts=False)
    with pytest.raises(LostError, match="1 of 2 jobs"):
        check_nothing_lost(series)


def test_members_that_are_killed_again_and_again_between_jobs_do_the_next_one_right(tmp_path: Path) -> None:
    everybody = ("passive-2", "coordinator", "active", "passive-1")
    twice = Fault(Kind.KILL, ("coordinator",), between=True, again=0.1)
    power_cut = Fault(Kind.KILL_ALL, everybody, between=True)

    async def work() -> list[Verdict]:
        async with opened(tmp_path / "between", SCENARIOS["forgetting"], hosts=False) as stage:
            peace = await undisturbed(stage)
            faults = ((twice,), (power_cut,), (power_cut, twice))
            trials = [Trial(number, "forgetting", (), before=before) for number, before in enumerate(faults)]
            return [await attempt(stage, trial, peace) for trial in trials]

    series = Series(0, asyncio.run(work()))
    check_nothing_lost(series)
    assert sum(one.restarts for one in series.verdicts) == 2 + 4 + 6
    names = [f"{kind}, between jobs" for kind in (Kind.KILL, Kind.KILL_ALL)]
    assert [line[:2] for line in rows(series)] == [(names[0], "2"), (names[1], "2"), ("all", "4")]


def test_a_few_faults_lose_nothing() -> None:
    """Many more: fedora bench faults --count 1000."""
    series = Series(3)
    asyncio.run(run_series(series, 3, hosts=False, scenarios=["scalar", "training"], at_once=2))
    assert {one.trial.scenario for one in series.verdicts} == {"scalar", "training"}
    assert len(series.verdicts) == 3
    check_nothing_lost(series)
