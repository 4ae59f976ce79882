"""How many rounds a request has, of how many rows: what they may cost, and what a long line leaves of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.methods import UnlearningTask
from coordinator.methods.fedora_settings import Fedora
from coordinator.methods.primal_dual import Problem
from coordinator.methods.self_scaling import CARRIED_ROWS, LEAST_EPOCHS, LEAST_ROWS, Pace, looks, pace, part_of
from coordinator.train import Train

ROUND_TRIPS = st.floats(0.0, 5.0)


def problem_of(
    forget: int, *, settings: Fedora | None = None, round_trip: float = 0.0, rows: int = 8192, batch: int = 256
) -> Problem:
    task = UnlearningTask(
        Train(epochs=10, batch_size=batch),
        classes=2,
        forget=forget,
        remaining=rows - forget,
        seed=1,
        test=1000,
        round_trip=round_trip,
    )
    return Problem(settings or Fedora(), task)


def paced(problem: Problem, *, all_classes: bool = True, carried: bool = False) -> Pace:
    return pace(problem, problem.settings.scales, looks(problem), all_classes=all_classes, carried=carried)


def rounds(pace: Pace) -> int:
    return pace.push + pace.recovery


@pytest.mark.parametrize(
    ("forget", "all_classes", "carried", "share"),
    [
        (1, True, False, 0.01),
        (50, True, False, 0.01),
        (50, False, False, 0.01),
        (50, False, True, CARRIED_ROWS / (LEAST_EPOCHS * 8142)),  # a backdoor: 1.5 % of these
        (819, True, False, 0.05),
        (819, False, False, 0.08),
        (819, False, True, 0.08),
    ],
)
def test_cost_follows_the_request(forget: int, all_classes: bool, carried: bool, share: float) -> None:
    problem = problem_of(forget)
    found, compared = paced(problem, all_classes=all_classes, carried=carried), looks(problem)
    exchanged = rounds(found) * (found.forget + found.remaining) + compared.forget + compared.held_out
    assert 0.8 * share < exchanged / (LEAST_EPOCHS * (8192 - forget)) <= share


@pytest.mark.parametrize(("rows", "share"), [(2000, 0.05), (8192, 0.0147), (32768, 0.01)])
def test_what_few_poisoned_rows_cost_is_rows_and_not_a_share(rows: int, share: float) -> None:
    assert part_of(problem_of(50, rows=rows), all_classes=False, carried=True) == pytest.approx(share, rel=0.01)


@given(forget=st.integers(1, 4000), round_trip=ROUND_TRIPS, batch=st.sampled_from([16, 128, 1024]))
def test_a_long_line_takes_a_few_rounds_less_of_more_rows(forget: int, round_trip: float, batch: int) -> None:
    near = paced(problem_of(forget, batch=batch))
    far = paced(problem_of(forget, batch=batch, round_trip=round_trip))
    assert 4 <= rounds(far) <= rounds(near) <= rounds(far) + 4
    assert far.forget + far.remaining >= near.forget + near.remaining >= LEAST_ROWS
    if round_trip < 0.07:
        assert far == near, "lines that are not long decide nothing"


@pytest.mark.parametrize(
    ("forget", "round_trip", "expected"), [(50, 0.05, 6), (50, 0.1, 6), (50, 0.2, 4), (200, 0.1, 7)]
)
def test_rounds_of_a_small_set_take_a_second_on_a_long_line(forget: int, round_trip: float, expected: int) -> None:
    assert rounds(paced(problem_of(forget, round_trip=round_trip, rows=2000, batch=1024))) == expected


@given(measured=ROUND_TRIPS, told=ROUND_TRIPS)
def test_what_a_record_tells_of_the_line_counts_for_more_than_the_line(measured: float, told: float) -> None:
    recorded = Fedora.model_validate({"scales": {"round_trip": told}})
    again = problem_of(400, settings=recorded, round_trip=measured)
    assert paced(again) == paced(problem_of(400, round_trip=told))
