"""What a party refuses by its own policy, and what it keeps back, however the questions are put."""

import asyncio
import json
import math
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from typer.testing import CliRunner

from fedora_vfl.cli.__main__ import app
from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.cluster.runs import perform
from fedora_vfl.errors import PartyError, SettingsError, StorageError
from fedora_vfl.settings.files import check
from fedora_vfl.settings.model import Model
from fedora_vfl.wire.learning_rates import learning_rate
from fedora_vfl.wire.meter import Meter, Totals
from party import models
from party.account import Account
from party.batches import SampleSets, draw_joint
from party.budget import DAY_SECONDS, Budget
from party.consent import Consent
from party.context import PartyContext
from party.data.reading import read
from party.data.split import assign
from party.drawn_parts import DrawnParts
from party.metrics import PartyMetrics
from party.phase_bounds import check_phase
from party.policy import Policy
from party.randomness import SECRET_FILE, drawing, load_or_make_secret
from party.settings import PartySettings, load_party
from party.state import assemble
from party.updates import RuleMemory, rule_for
from protos.fedora.v1.control_pb2 import Setup
from protos.fedora.v1.exchange_pb2 import Order
from protos.fedora.v1.phase_pb2 import (
    Adam,
    Ascent,
    Compare,
    CrossEntropy,
    DualAscent,
    Influence,
    Joint,
    JointRounds,
    Loss,
    Observe,
    Phase,
    Plan,
    PrimalDescent,
    Report,
    Residual,
    RoundReport,
    Samples,
    Sgd,
    Shift,
    Soften,
    Uncertainty,
    Update,
)
from tests.conftest import as_job, write_people, write_yaml
from tests.test_attacks import Submit, lay_out, on_cluster

SMALL = {"embedding": 2}  # no wider than the narrowest party's columns


def policy(**rules: Any) -> Policy:
    return check(rules, Policy, origin="party.yaml: policy")


def bottom(embedding: int, **settings: Any) -> torch.nn.Module:
    chosen = Model(embedding=embedding, **settings)
    return models.bottom(chosen.bottom, chosen.bottom_settings, origin="model").build((10,), embedding)


# Randomness of a party's own


def test_a_secret_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    secret = load_or_make_secret(tmp_path / "keys")
    assert load_or_make_secret(tmp_path / "keys") == secret != load_or_make_secret(tmp_path / "others")
    assert (tmp_path / "keys" / SECRET_FILE).stat().st_mode & 0o777 == 0o600
    (tmp_path / "keys" / SECRET_FILE).chmod(0o644)
    with pytest.raises(SettingsError, match="others may read this secret"):
        load_or_make_secret(tmp_path / "keys")


def draw(secret: bytes, seed: int, place: int = 0) -> list[float]:
    with drawing(secret, seed, "bottom", place):
        values: list[float] = torch.randn(64).tolist()
        return values


def test_fresh_parameters_repeat_for_their_owner_and_differ_for_all_else() -> None:
    mine, others = b"m" * 32, b"o" * 32
    assert draw(mine, 0) == draw(mine, 0)
    drawn = [draw(mine, 0), draw(others, 0), draw(mine, 1), draw(mine, 0, place=1), draw(b"", 0)]
    assert len({tuple(one) for one in drawn}) == len(drawn)


def test_a_secret_fills_all_of_the_generator() -> None:
    # torch's own seeding takes 32 bits, which an attacker could try one by one.
    with drawing(b"m" * 32, 0, "top"):
        state = torch.get_rng_state()
    torch.manual_seed(0)
    assert int((state != torch.get_rng_state()).sum()) > 2400


@pytest.mark.parametrize("hidden", [[], [16], [16, 8]], ids=["linear", "one hidden layer", "two hidden layers"])
def test_nobody_else_can_compute_a_bottom_whatever_its_form(hidden: list[int], tmp_path: Path) -> None:
    lay_out(tmp_path, rows=60)
    settings, _ = load_party(tmp_path / "run" / "parties" / "passive-1.yaml")
    records = read(settings.data, with_labels=False)
    order, model = Order(train=records.ids[:50], test=records.ids[50:]), Model.model_validate({"hidden": hidden})

    def weights(seed: int, secret: bytes) -> torch.Tensor:
        made = assemble(
            records,
            order,
            party="passive-1",
            place=0,
            seed=seed,
            model=model,
            own_bottom=None,
            passive=None,
            secret=secret,
        )
        return next(made.networks["bottom"].parameters()).detach()

    mine = weights(5, b"m" * 32)
    assert mine.equal(weights(5, b"m" * 32))  # its owner can repeat it
    for other in (weights(5, b""), weights(5, b"o" * 32), weights(6, b"m" * 32)):
        alike = torch.corrcoef(torch.stack([mine.flatten(), other.flatten()]))[0, 1]
        assert abs(float(alike)) < 0.5


# Rules


@pytest.mark.parametrize(
    ("rules", "settings", "embedding", "refused"),
    [
        ({}, {}, 10, []),
        ({}, {"hidden": [32, 16]}, 10, []),
        ({}, {"hidden": []}, 10, ["linear_bottom", "least_depth"]),
        ({"linear_bottom": True, "least_depth": 1}, {"hidden": []}, 10, []),
        ({"least_depth": 3}, {"hidden": [32]}, 10, ["least_depth"]),
        ({"least_depth": 3}, {"hidden": [32, 16]}, 10, []),
        ({}, {}, 11, ["embedding_share"]),
        ({"embedding_share": 0.5}, {}, 5, []),
        ({"embedding_share": 0.5}, {}, 6, ["embedding_share"]),
    ],
)
def test_bottom_models(rules: dict[str, Any], settings: dict[str, Any], embedding: int, refused: list[str]) -> None:
    found = policy(**rules).about_bottom(bottom(embedding, **settings), (10,), embedding)
    assert [sentence.split(":")[0] for sentence in found] == [f"policy.{name}" for name in refused]


def test_a_linear_network_of_several_layers_is_linear() -> None:
    deep = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.Dropout(), torch.nn.Linear(32, 4))
    assert policy().about_bottom(deep, (10,), 4) == ["policy.linear_bottom: is false, and the bottom model is linear"]
    assert deep.training  # as it was


def test_who_may_submit_and_who_may_ask_to_forget() -> None:
    closed = policy(submit=["bank"], forget=["regulator"])
    assert closed.about_operator("bank") is None and closed.about_forgetting("regulator") is None
    assert closed.about_operator("stranger") == "policy.submit: takes jobs of bank, not of 'stranger'"
    assert "requests to forget of regulator, not of 'bank'" in (closed.about_forgetting("bank") or "")
    assert "without a certificate" in (closed.about_operator("") or "")
    assert policy().about_operator("anybody") is None


@pytest.mark.parametrize(
    ("load", "owner", "allowed"),
    [
        ("own", "bank", True),
        ("own", "stranger", False),
        ("own", None, False),
        ("any", "stranger", True),
        ("any", None, True),
        ("none", "bank", False),
    ],
)
def test_whose_models_a_job_starts_from(load: str, owner: str | None, allowed: bool) -> None:
    assert (policy(load=load).about_loading("spring", "bank", owner) is None) == allowed


def test_whose_models_a_job_replaces() -> None:
    for load in ("own", "none"):
        assert policy(load=load).about_replacing("spring", "bank", "bank") is None
        for owner in ("stranger", None):
            assert f"policy.load: is {load}" in (policy(load=load).about_replacing("spring", "bank", owner) or "")
    assert policy(load="any").about_replacing("spring", "bank", "stranger") is None


def test_a_model_is_replaced_for_its_owner_alone(asked: Consent) -> None:
    asked.save("ours", replaces=False)
    asked.saved("ours")
    asked.save("ours", replaces=True)
    with pytest.raises(SettingsError, match="saved for somebody else"):
        asked.save("theirs", replaces=True)


def test_learning_rates_and_a_model_that_stands_still() -> None:
    rules = policy()
    assert rules.about_lr(1.0) is None and "policy.most_lr: is 1" in (rules.about_lr(1.5) or "")
    assert rules.about_learning(0.001) is None and "policy.least_learning" in (rules.about_learning(1e-9) or "")
    assert rules.about_phases(2000) is None and "policy.most_phases" in (rules.about_phases(2001) or "")


@pytest.mark.parametrize(
    ("update", "rate"),
    [
        (Update(sgd=Sgd(lr=0.5)), 0.5),
        (Update(adam=Adam(lr=0.25)), 0.25),
        (Update(ascent=Ascent(lr=2)), 2),
        (Update(primal_descent=PrimalDescent(tau=3)), 3),
        (Update(observe=Observe()), None),
    ],
)
def test_every_rule_that_learns_has_a_rate(update: Update, rate: float | None) -> None:
    assert learning_rate(update) == rate


def test_noise_that_is_required() -> None:
    assert policy(noise=2).about_noise(2.0, 1.0) is None
    assert "policy.noise: is 2" in (policy(noise=2).about_noise(1.0, 1.0) or "")
    assert policy(noise=2).about_noise(100.0, None) is not None  # rows without a largest norm hide nothing
    assert policy().about_noise(0.0, None) is None


def test_a_policy_that_is_left_empty_is_not_an_open_one(tmp_path: Path) -> None:
    content = {"name": "p", "federation": "f", "data": {"path": "rows.csv"}}
    assert check(content, PartySettings, origin="party.yaml").policy == Policy()
    assert check({**content, "policy": "open"}, PartySettings, origin="party.yaml").policy is None
    for wrong in (None, "opne", {"smallest_group": 1}, {"smalest_group": 20}):
        with pytest.raises(SettingsError, match="policy"):
            check({**content, "policy": wrong}, PartySettings, origin="party.yaml")


def test_a_job_cannot_open_a_policy() -> None:
    with pytest.raises(SettingsError, match="policy: unknown setting"):
        as_job({"policy": "open", "train": {"epochs": 1}})


# The budget


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0 * DAY_SECONDS

    def __call__(self) -> float:
        return self.now


def reopened(folder: Path, clock: Clock) -> Budget:
    """Open a party's budget as a new process would."""
    return Budget(folder, b"s" * 32, clock=clock)


def test_a_full_disk_is_something_that_a_job_waits_for(tmp_path: Path) -> None:
    budget = reopened(tmp_path, Clock())
    budget._file.execute("PRAGMA max_page_count = 1")
    with pytest.raises(StorageError, match="cannot be kept there: database or disk is full"):
        budget.numbers([f"row-{number}" for number in range(5000)])


def test_jobs_and_releases_are_counted_by_day_over_restarts(tmp_path: Path) -> None:
    clock, rows = Clock(), np.array([1, 2, 3])
    assert [reopened(tmp_path, clock).enter_job(job) for job in ("a", "b", "b")] == [1, 2, 2]
    assert [reopened(tmp_path, clock).release(rows, most=2) for _ in range(3)] == [True, True, False]
    assert reopened(tmp_path, clock).release(np.array([4]), most=2)
    clock.now += DAY_SECONDS
    assert reopened(tmp_path, clock).enter_job("c") == 1 and reopened(tmp_path, clock).release(rows, most=2)
    assert (tmp_path / "budget.sqlite").stat().st_mode & 0o777 == 0o600


def test_rows_keep_their_numbers_when_the_data_file_changes(tmp_path: Path) -> None:
    before = reopened(tmp_path, Clock()).numbers(["ann", "bob", "eve"])
    after = reopened(tmp_path, Clock()).numbers(["zoe", "eve", "ann"])
    assert after[1] == before[2] and after[2] == before[0] and after[0] not in before
    assert b"ann" not in (tmp_path / "budget.sqlite").read_bytes()


@pytest.mark.parametrize(
    ("group", "told"),
    [
        (range(100, 109), False),  # nine rows
        (range(100, 110), True),
        (range(50), True),  # the same again
        (range(49), False),
        (range(51), False),
        (range(1, 51), False),  # one row in the place of another
        (range(59), False),
        (range(60), True),
        (range(5, 55), True),
    ],
)
def test_no_two_groups_differ_by_a_few_rows(group: range, told: bool, tmp_path: Path) -> None:
    rules, clock = {"smallest": 10, "most": 5}, Clock()
    assert reopened(tmp_path, clock).may_tell(np.arange(50), **rules) is None
    clock.now += DAY_SECONDS  # a new day forgives nothing
    assert (reopened(tmp_path, clock).may_tell(np.array(group), **rules) is None) == told


def test_figures_about_so_many_groups_are_told_in_a_day(tmp_path: Path) -> None:
    clock = Clock()
    groups = [np.arange(start, start + 20) for start in (0, 20, 40)]
    told = [reopened(tmp_path, clock).may_tell(one, smallest=10, most=2) for one in groups]
    assert told[:2] == [None, None] and "policy.groups_per_day is 2" in (told[2] or "")
    clock.now += DAY_SECONDS
    assert reopened(tmp_path, clock).may_tell(groups[2], smallest=10, most=2) is None


# What a coordinator could ask for that no method of ours does


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Consent]:
    """An active party with default rules, in a job whose model has learned enough to be looked at."""
    lay_out(tmp_path, rows=60, policy=None)
    settings, federation = load_party(tmp_path / "run" / "parties" / "active.yaml")
    records = read(settings.data, with_labels=True)
    order = Order(train=records.ids[:50], test=records.ids[50:])
    context = PartyContext(settings, federation, records, Meter(Totals()), PartyMetrics(60), secret=b"s" * 32)
    state = assemble(
        records, order, party="active", place=2, seed=0, model=Model(), own_bottom=None, passive=["passive-1"]
    )
    consent = Consent(context, Setup(job="one"), active=True)
    consent.begin()
    consent.networks(state, order)
    ask(consent, Update(sgd=Sgd(lr=0.1)), CrossEntropy(), rows=50)
    yield consent
    consent.close()


def ask(
    consent: Consent,
    update: Update,
    loss: CrossEntropy | Uncertainty,
    *,
    rows: int,
    share: float = 1,
    of: "Samples.Set" = Samples.FORGET,
) -> Report:
    """Run a phase as far as consent goes; its report says that every row was a miss."""
    form = Loss(cross_entropy=loss) if isinstance(loss, CrossEntropy) else Loss(uncertainty=loss)
    phase = Phase(name="asked", update=update, loss=form, over=Samples(set=of, share=share))
    drawn = [torch.arange(rows)] if rows else []
    sets = SampleSets.consecutive(50, 0, 10).forgetting(torch.arange(rows))
    consent.phase(phase, drawn, sets)
    report = Report(rows=rows, loss_sum=9.0 * rows, change_squared=4.0, figures={"gradient_squared": 2.0})
    consent.screen(phase, drawn, report, classes=2, sets=sets)
    return report


def test_a_bit_about_one_row_never_depends_on_its_label(asked: Consent) -> None:
    for update in (Update(dual_ascent=DualAscent(level=1.0)), Update(observe=Observe()), Update(ascent=Ascent(lr=0.1))):
        report = ask(asked, update, CrossEntropy(), rows=1)
        assert not report.HasField("within_bounds") and not report.figures
        assert report.loss_sum == report.correct == report.change_squared == 0
        assert set(report.left_out) == {"loss", "accuracy", "change", "figures"}


def test_the_uncertainty_of_one_row_cannot_be_searched_for(asked: Consent) -> None:
    for level in (1.0, 2.0, 1.0, 2.0):
        report = ask(asked, Update(dual_ascent=DualAscent(level=level)), Uncertainty(omega=2), rows=1)
        assert report.within_bounds is True
    with pytest.raises(SettingsError, match="at most 2 levels"):
        ask(asked, Update(dual_ascent=DualAscent(level=1.5)), Uncertainty(omega=2), rows=1)


def test_the_uncertainty_of_one_row_cannot_be_searched_for_by_another_weight_or_other_rows(asked: Consent) -> None:
    update = Update(dual_ascent=DualAscent(level=1.0))
    for weight in (2.0, 3.0):
        assert ask(asked, update, Uncertainty(omega=weight), rows=1).within_bounds is True
    with pytest.raises(SettingsError, match="at most 2 levels"):
        ask(asked, update, Uncertainty(omega=2.5), rows=1)
    with pytest.raises(SettingsError, match="at most 2 levels"):
        ask(asked, update, Uncertainty(omega=2), rows=2)


def test_a_move_along_one_row_s_gradient_is_about_that_row(asked: Consent) -> None:
    ask(asked, Update(influence=Influence()), CrossEntropy(), rows=20)
    assert not ask(asked, Update(shift=Shift(by=1)), CrossEntropy(), rows=0, share=0).left_out
    ask(asked, Update(influence=Influence()), CrossEntropy(), rows=1)
    assert "change" in ask(asked, Update(shift=Shift(by=1)), CrossEntropy(), rows=0, share=0).left_out


@pytest.mark.parametrize("update", [Update(ascent=Ascent(lr=0.1)), Update(sgd=Sgd(lr=0.1)), Update(adam=Adam(lr=0.1))])
def test_nothing_is_told_of_a_model_that_follows_from_one_row_s_label(update: Update, asked: Consent) -> None:
    test = torch.arange(50, 60)
    assert asked.keeps_back("test_accuracy", [test]) is None
    ask(asked, update, Uncertainty(omega=1), rows=1)
    assert asked.keeps_back("test_accuracy", [test]) is None  # no label decides that
    ask(asked, update, CrossEntropy(), rows=1)
    assert "the labels of 1 rows" in (asked.keeps_back("test_accuracy", [test]) or "")
    assert "loss" in ask(asked, Update(sgd=Sgd(lr=0.1)), CrossEntropy(), rows=50).left_out
    asked.saved("probe")
    asked.restart()
    assert asked.keeps_back("test_accuracy", [test]) is None
    asked.load("probe")  # also in another job: the budget's file has it
    assert asked.keeps_back("test_accuracy", [test])


def ask_jointly(consent: Consent, update: Update, joint: Joint, *, forget: int, labelled: bool = True) -> Report:
    """Run a joint phase over some of 40 training rows and 20 test rows, as far as consent goes."""
    sets = SampleSets.consecutive(40, 0, 20).forgetting(torch.arange(forget))
    loss = Loss(cross_entropy=CrossEntropy()) if labelled else Loss(uncertainty=Uncertainty(omega=1))
    phase = Phase(name="asked", update=update, loss=loss, joint=joint, plan=Plan(seed=joint.rounds))
    drawn = draw_joint(sets, joint, phase.plan.seed)
    consent.phase(phase, drawn, sets)
    rows = sum(len(one) for one in drawn)
    figures = {"dual_norm": 2.0, "accuracy_kept": 1.0, "carried": 1.0, "all_classes": 1.0, "unseen_rows": 9.0}
    report = Report(rows=rows, change_squared=4.0, figures=figures, within_bounds=True)
    report.rounds.extend([RoundReport(change_squared=4.0, omega=2.0)] * len(drawn))
    consent.screen(phase, drawn, report, classes=2, sets=sets)
    return report


ROUNDS = Update(joint_rounds=JointRounds(step=0.1, ceiling=1.0, allowance=0.4))


@pytest.mark.parametrize(
    ("joint", "forget", "labelled", "told", "silent"),
    [
        (Joint(rounds=1, forget=20, remaining=20), 20, True, True, False),
        (Joint(rounds=2, forget=1, remaining=20), 1, True, False, True),
        (Joint(rounds=2, forget=1, remaining=20), 1, False, False, False),  # by no label
        (Joint(rounds=1, forget=20, remaining=1), 20, True, False, True),  # somebody who stays
        (Joint(rounds=1, forget=20, remaining=1), 20, False, False, True),
        (Joint(rounds=30, remaining=1), 0, True, False, False),  # each round a row, all together many
        (
            Joint(rounds=2, forget=19, remaining=20),
            20,
            True,
            False,
            False,
        ),  # all but one, all but another
    ],
)
def test_a_round_tells_of_as_few_rows_as_its_smallest_part_has(
    joint: Joint, forget: int, labelled: bool, told: bool, silent: bool, asked: Consent
) -> None:
    report = ask_jointly(asked, ROUNDS, joint, forget=forget, labelled=labelled)
    assert ("figures" not in report.left_out) == told == ("dual_norm" in report.figures)
    assert all((one.change_squared > 0) == told == one.HasField("omega") for one in report.rounds)
    assert bool(asked.silence) == silent


@pytest.mark.parametrize(("held_out", "told"), [(1, False), (19, False), (20, True)])
def test_a_comparison_s_bits_are_about_many_held_out_rows(held_out: int, told: bool, asked: Consent) -> None:
    assert asked.keeps_back("test_accuracy", [torch.arange(40, 60)]) is None
    compare = Update(compare=Compare(errors=2.0, carried=3.0))
    joint = Joint(rounds=1, forget=20, held_out=held_out, held_out_set=Samples.TEST)
    report = ask_jointly(asked, compare, joint, forget=20)
    assert report.HasField("within_bounds") == told
    assert {*report.figures} == ({"dual_norm", "accuracy_kept", "carried", "all_classes"} if told else set())


def test_a_comparison_tells_nothing_of_a_model_that_one_label_has_moved(asked: Consent) -> None:
    compare = Update(compare=Compare(errors=2.0, carried=3.0))
    joint = Joint(rounds=1, forget=1, held_out=20, held_out_set=Samples.TEST)
    first = ask_jointly(asked, compare, joint, forget=1)
    assert {*first.figures} == {"accuracy_kept"} and not first.HasField("within_bounds"), "no bit of the one row"
    ask_jointly(asked, ROUNDS, Joint(rounds=4, forget=1, remaining=20), forget=1)
    assert not ask_jointly(asked, compare, joint, forget=1).figures


def test_the_value_behind_a_comparison_cannot_be_searched_for(asked: Consent) -> None:
    joint = Joint(rounds=1, forget=20, held_out=20, held_out_set=Samples.TEST)
    for errors in (2.0, 1.0, 2.0):
        ask_jointly(asked, Update(compare=Compare(errors=errors, carried=3.0)), joint, forget=20)
    for another in (Compare(errors=1.5, carried=3.0), Compare(errors=2.0, carried=2.0)):
        with pytest.raises(SettingsError, match="at most 2 kinds of comparison"):
            ask_jointly(asked, Update(compare=another), joint, forget=20)


def soften(consent: Consent, level: float, *, rows: int, change: float = 1.0) -> Report:
    """Make predictions less sure by the first training rows, as far as consent goes."""
    sets = SampleSets.consecutive(40, 0, 20).forgetting(torch.arange(rows))
    loss = Loss(uncertainty=Uncertainty(omega=2))
    phase = Phase(
        name="asked", update=Update(soften=Soften(level=level)), loss=loss, over=Samples(set=Samples.FORGET, share=1)
    )
    check_phase(phase, passive=[])
    drawn = [torch.arange(rows)]
    consent.phase(phase, drawn, sets)
    report = Report(rows=rows, loss_sum=1.0, change_squared=change)
    consent.screen(phase, drawn, report, classes=2, sets=sets)
    return report


def test_how_unsure_one_row_is_cannot_be_searched_for_by_softening(asked: Consent) -> None:
    for level in (1.0, 1.2, 1.0):
        soften(asked, level, rows=1)
    with pytest.raises(SettingsError, match="at most 2 levels that predictions are softened to"):
        soften(asked, 1.1, rows=1)


@pytest.mark.parametrize("rows", [1, 20])
def test_whether_softening_has_moved_a_model_is_not_to_be_told_from_what_is_left_out(
    rows: int, asked: Consent, tmp_path: Path
) -> None:
    ask(asked, Update(observe=Observe()), CrossEntropy(), rows=rows + 1)
    moved, still = (soften(asked, 1.0, rows=rows, change=change) for change in (1.0, 0.0))
    assert dict(moved.left_out) == dict(still.left_out)
    assert moved.change_squared == still.change_squared or not moved.left_out


@pytest.mark.parametrize("over", [Samples(set=Samples.TRAIN, share=1), Samples(set=Samples.FORGET, share=0.5)])
def test_predictions_are_softened_by_all_rows_to_forget_and_no_others(over: Samples) -> None:
    phase = Phase(name="asked", update=Update(soften=Soften(level=1.0)), over=over)
    with pytest.raises(PartyError, match="by other rows than all those to forget"):
        check_phase(phase, passive=[])


def test_a_comparison_and_a_level_of_the_uncertainty_are_questions_of_two_kinds(asked: Consent) -> None:
    joint = Joint(rounds=1, forget=20, held_out=20, held_out_set=Samples.TEST)
    for errors in (2.0, 1.0):
        ask_jointly(asked, Update(compare=Compare(errors=errors, carried=3.0)), joint, forget=20)
    for level in (1.0, 2.0):
        ask(asked, Update(dual_ascent=DualAscent(level=level)), Uncertainty(omega=2), rows=1)
        soften(asked, level, rows=1)


def test_norms_of_a_model_that_one_label_has_moved_are_kept_back(asked: Consent) -> None:
    ask(asked, Update(ascent=Ascent(lr=0.1)), CrossEntropy(), rows=1)
    sets = SampleSets.consecutive(50, 0, 10)
    phase = Phase(name="certificate", update=Update(residual=Residual()), over=Samples(set=Samples.TRAIN, share=1))
    report = Report(rows=50, figures={"moved_squared": 3.0, "residual_squared": 2.0})
    asked.phase(phase, [torch.arange(50)], sets)
    asked.screen(phase, [torch.arange(50)], report, classes=2, sets=sets)
    assert not report.figures  # how far one ascent has moved it is how wrong it was about the row


@pytest.mark.parametrize(("rows", "told"), [(1, False), (20, True)])
def test_how_far_a_model_was_pushed_is_told_if_many_rows_have_pushed_it(rows: int, told: bool, asked: Consent) -> None:
    ask(asked, Update(dual_ascent=DualAscent(level=1.0)), Uncertainty(omega=1.0), rows=rows)
    sets = SampleSets.consecutive(50, 0, 10).forgetting(torch.arange(rows))
    phase = Phase(name="certificate", update=Update(residual=Residual()), over=Samples(set=Samples.TRAIN, share=1))
    report = Report(rows=50, figures={"moved_squared": 3.0, "residual_squared": 2.0})
    asked.phase(phase, [torch.arange(50)], sets)
    asked.screen(phase, [torch.arange(50)], report, classes=2, sets=sets)
    assert ("moved_squared" in report.figures) == ("residual_squared" in report.figures) == told


def test_two_models_of_one_start_that_a_few_rows_tell_apart_are_not_both_told_of(asked: Consent) -> None:
    sgd, test = Update(sgd=Sgd(lr=0.1)), torch.arange(50, 60)

    def told(rows: int) -> bool:
        ask(asked, sgd, CrossEntropy(), rows=rows, of=Samples.TRAIN)
        return asked.keeps_back("test_accuracy", [test]) is None

    asked.restart(1)
    assert told(40)
    asked.saved("tuned")
    asked.restart(2)
    assert told(39)  # it began elsewhere
    asked.restart(1)
    assert not told(39)
    asked.load("tuned")
    assert told(40) and told(20)
    asked.load("tuned")
    assert not told(41)
    asked.saved("probe")
    asked.load("probe")
    assert asked.silence


def test_two_models_that_have_forgotten_almost_the_same_rows_are_not_both_told_of(asked: Consent) -> None:
    ask(asked, Update(ascent=Ascent(lr=0.1)), CrossEntropy(), rows=12)
    assert not asked.silence
    ask(asked, Update(ascent=Ascent(lr=0.1)), CrossEntropy(), rows=13)
    assert "differ by fewer" in asked.silence


@pytest.mark.parametrize("rows", [1, 12])
def test_no_value_that_one_label_leads_to_ends_a_job(rows: int, asked: Consent) -> None:
    ask(asked, Update(ascent=Ascent(lr=0.1)), CrossEntropy(), rows=rows)
    phase = Phase(name="ascent", loss=Loss(cross_entropy=CrossEntropy(), reduction=Loss.SUM))
    long, wild = torch.full((1, 4), 1e6), torch.tensor([[float("nan"), float("inf"), 1e30, 1.0]])
    if rows > 1:
        with pytest.raises(PartyError, match="most_gradient is 1000") as caught:
            asked.gradient(long, phase, rows=1, sender="active")
        assert "1e+06" not in str(caught.value)  # nor does its text say anything of a row
        with pytest.raises(PartyError, match="most_embedding is 1000"):
            asked.embedding(long, phase, sender="passive-1")
        assert asked.sendable(wild) is wild and asked.may_fail
    else:
        assert float(asked.gradient(long, phase, rows=1, sender="active").norm()) == pytest.approx(1000)
        assert float(asked.embedding(long, phase, sender="passive-1").max()) == 1000
        assert asked.sendable(wild).tolist() == [[0, 1000, 1000, 1]] and not asked.may_fail


def test_figures_have_few_digits(asked: Consent) -> None:
    assert asked.rounded(0.123456) == 0.123 and asked.rounded(98765.4321) == 98800
    phase = Phase(name="test", update=Update(observe=Observe()), over=Samples(set=Samples.TEST, share=1))
    report, sets = Report(rows=10, loss_sum=1.23456789, correct=7), SampleSets.consecutive(50, 0, 10)
    asked.screen(phase, [torch.arange(50, 60)], report, classes=2, sets=sets)
    assert report.loss_sum == pytest.approx(1.23, abs=1e-12) and report.correct == 7


def test_fresh_models_are_counted_by_day(asked: Consent, tmp_path: Path) -> None:
    clock = Clock()
    assert [reopened(tmp_path, clock).enter_start() for _ in range(3)] == [1, 2, 3]
    clock.now += DAY_SECONDS
    assert reopened(tmp_path, clock).enter_start() == 1
    for seed in range(99):
        asked.restart(seed)
    with pytest.raises(SettingsError, match="starts_per_day: is 100"):
        asked.restart(99)


def test_going_back_does_not_make_a_job_longer(asked: Consent) -> None:
    state = asked.state_dict()
    observe, asked._told.phases = Update(observe=Observe()), 3999  # begun in this job, and most of them done again
    for _ in range(2):
        asked.load_state_dict(state, Order())
        asked._numbers = np.arange(60)
        if asked._told.phases == 4000:
            with pytest.raises(SettingsError, match="with those done again the job has 4001"):
                ask(asked, observe, CrossEntropy(), rows=50)
        else:
            ask(asked, observe, CrossEntropy(), rows=50)


def test_a_job_does_not_fill_the_disk_with_models(asked: Consent) -> None:
    for number in range(128):
        asked.save(f"model-{number}", replaces=False)
    asked.save("model-0", replaces=False)
    with pytest.raises(PartyError, match="more than 128 models in one job"):
        asked.save("model-128", replaces=False)


def test_a_job_does_not_begin_again_as_another(asked: Consent) -> None:
    context = asked._context
    Consent(context, Setup(job="one"), active=True).close()
    with pytest.raises(PartyError, match="again with other settings") as caught:
        Consent(context, Setup(job="one", seed=7), active=True)
    assert caught.value.culprit == "coordinator"
    asked._told.ended = True
    with pytest.raises(PartyError, match="again after its end"):
        Consent(context, Setup(job="one"), active=True)


def test_norms_about_two_groups_that_differ_by_one_row_are_told_once(asked: Consent) -> None:
    for rows, told in ((30, True), (29, False), (30, True), (15, True)):
        report = ask(asked, Update(dual_ascent=DualAscent(level=1.0)), Uncertainty(omega=2), rows=rows)
        assert ("figures" not in report.left_out) == told, rows


def test_norms_about_drawn_parts_that_differ_by_one_row_are_told_once(asked: Consent) -> None:
    sgd = Update(sgd=Sgd(lr=0.1))
    for rows, told in ((30, True), (29, False), (20, True), (49, False)):  # all rows were told of before
        asked.restart(rows)
        report = ask(asked, sgd, CrossEntropy(), rows=rows, share=rows / 50, of=Samples.TRAIN)
        assert ("change" not in report.left_out) == told, rows
    assert "loss" in ask(asked, Update(observe=Observe()), CrossEntropy(), rows=31).left_out


def test_parts_of_many_rows_need_not_be_remembered() -> None:
    few, many = DrawnParts(10), DrawnParts(10)
    for parts, of in ((few, 40), (many, 100_000)):
        assert parts.may_tell(np.arange(of // 20 + 15), of=of)
    assert few.resembles(np.arange(18)) and not many.resembles(np.arange(5014))


@pytest.mark.parametrize(
    ("reduction", "length", "taken"),
    [(Loss.SUM, 999.0, True), (Loss.SUM, 1001.0, False), (Loss.BATCH_MEAN, 99.0, True), (Loss.BATCH_MEAN, 1e18, False)],
)
def test_a_gradient_that_would_ruin_a_model_is_held_against_its_sender(
    reduction: Any, length: float, taken: bool, asked: Consent
) -> None:
    gradient, phase = (
        torch.zeros(10, 4),
        Phase(name="train", loss=Loss(cross_entropy=CrossEntropy(), reduction=reduction)),
    )
    gradient[3, 2] = length
    if taken:
        asked.gradient(gradient, phase, rows=10, sender="active")
        return
    with pytest.raises(PartyError, match="most_gradient is 1000") as caught:
        asked.gradient(gradient, phase, rows=10, sender="active")
    assert caught.value.culprit == "active"


@pytest.mark.parametrize(
    "update",
    [
        Update(sgd=Sgd(lr=-0.1)),
        Update(sgd=Sgd(lr=float("nan"))),
        Update(sgd=Sgd(lr=0.1, momentum=1.5)),
        Update(sgd=Sgd(lr=0.1, weight_decay=-1)),
        Update(adam=Adam(lr=0.1, beta2=1.0)),
        Update(ascent=Ascent(lr=-0.1, clip=1)),
        Update(ascent=Ascent(lr=0.1, clip=-1)),
        Update(primal_descent=PrimalDescent(tau=-1)),
        Update(primal_descent=PrimalDescent(tau=1, rho=-2)),
        Update(dual_ascent=DualAscent(sigma=-1)),
        Update(dual_ascent=DualAscent(gamma=float("inf"))),
        Update(shift=Shift(by=float("nan"))),
    ],
    ids=str,
)
def test_a_coordinator_that_asks_for_steps_backwards_is_refused(update: Update) -> None:
    with pytest.raises(PartyError, match="it should be from") as caught:
        check_phase(Phase(name="train", update=update), passive=["passive-1"])
    assert caught.value.culprit == "coordinator"


def test_rows_of_joint_rounds_are_counted_before_they_are_drawn() -> None:
    phase = Phase(name="rounds", update=ROUNDS, joint=Joint(rounds=100_000, remaining=30_000))
    with pytest.raises(PartyError, match="asked for 100000 rounds of 30000 rows in phase rounds"):
        check_phase(phase, passive=["passive-1"])


def test_a_group_is_remembered_from_the_last_time_that_it_was_told_of(tmp_path: Path) -> None:
    rules, clock = {"smallest": 10, "most": 5}, Clock()
    for days in (0, 29):
        clock.now += days * DAY_SECONDS
        assert reopened(tmp_path, clock).may_tell(np.arange(50), **rules) is None
    clock.now += 29 * DAY_SECONDS
    assert reopened(tmp_path, clock).may_tell(np.arange(100, 120), **rules) is None  # which tidies up
    assert reopened(tmp_path, clock).may_tell(np.arange(49), **rules) is not None


def test_a_budget_of_an_earlier_release_is_gone_on_with(tmp_path: Path) -> None:
    file = sqlite3.connect(tmp_path / "budget.sqlite")
    file.executescript(
        """
        CREATE TABLE models (name TEXT PRIMARY KEY, operator TEXT NOT NULL);
        INSERT INTO models VALUES ('m', 'bank');
        CREATE TABLE groups (
            digest BLOB PRIMARY KEY, day INTEGER NOT NULL, size INTEGER NOT NULL, members BLOB NOT NULL
        );
        """
    )
    file.close()
    budget = reopened(tmp_path, Clock())
    assert (budget.owner("m"), budget.silent("m")) == ("bank", "")
    assert budget.may_tell(np.arange(20), smallest=10, most=5) is None


def test_of_parts_drawn_anew_only_a_bit_is_told(asked: Consent) -> None:
    report = ask(asked, Update(sgd=Sgd(lr=0.1)), CrossEntropy(), rows=30, share=0.6)
    assert set(report.left_out) == {"loss", "accuracy"} and report.within_bounds is False
    assert report.change_squared == 4


# On a cluster


def refusals(folder: Path, jobs: list[dict[str, Any]], rules: object) -> list[str]:
    """Submit jobs that must be refused; return what their user is told."""

    async def scenario(cluster: LocalCluster, submit: Submit) -> list[str]:
        told = []
        for job in jobs:
            with pytest.raises(SettingsError) as caught:
                await submit(job)
            told.append(str(caught.value))
            party, rule = told[-1].split(": ")[:2]
            assert rule in cluster.log_path(party).read_text(), "the party's own log says so too"
        return told

    return on_cluster(folder, scenario, policy=rules)


def check_sentences(told: list[str], rules: list[str]) -> None:
    """Hold every refusal to its form: the party, the rule, and one line."""
    assert [sentence.split(": ")[1] for sentence in told] == [f"policy.{rule}" for rule in rules]
    for sentence in told:
        assert sentence.split(": ")[0] in ("active", "passive-1", "passive-2") and "\n" not in sentence


def test_the_defaults_refuse_jobs_that_are_made_to_look_at_rows(tmp_path: Path) -> None:
    jobs: dict[str, dict[str, Any]] = {
        "embedding_share": {"model": {"embedding": 64}},
        "linear_bottom": {"model": {"hidden": [], **SMALL}},
        "least_learning": {"model": SMALL, "train": {"epochs": 1, "lr": 1e-12}},
        "most_lr": {"model": SMALL, "train": {"epochs": 1, "lr": 7.0, "optimizer": "sgd"}},
    }
    untrained = {"model": SMALL, "train": {"epochs": 0}}
    told = refusals(tmp_path, [*jobs.values(), untrained], None)
    check_sentences(told, [*jobs, "least_learning"])


def test_a_party_file_sets_its_own_limits(tmp_path: Path) -> None:
    jobs: list[dict[str, Any]] = [
        {"model": SMALL, "forget": {"samples": 20}},
        {"model": SMALL, "train": {"epochs": 9}},
        {"model": SMALL, "train": {"epochs": 1}},
    ]
    told = refusals(tmp_path, jobs, {"forget": ["bank"], "releases_per_day": 3, "jobs_per_day": 2})
    check_sentences(told, ["forget", "releases_per_day", "jobs_per_day"])


def test_an_operator_is_known_by_the_certificate(tmp_path: Path) -> None:
    data = {"source": "csv", "path": str(write_people(tmp_path / "people.csv")), "id": "person"}
    out = tmp_path / "run"
    federation = prepare(as_job({"data": data}), origin=out / "job.yaml", out=out, threads=1, tls=True)
    for name in federation.parties:
        file = out / "parties" / f"{name}.yaml"
        allowed = "bank" if name == "passive-2" else "operator"
        write_yaml(file, {**yaml.safe_load(file.read_text()), "policy": {"submit": [allowed]}})

    async def play() -> None:
        async with LocalCluster(out, federation) as cluster:
            await perform(cluster, yaml.safe_dump({"model": SMALL}), origin="job", follow=lambda event: None)

    with pytest.raises(SettingsError) as caught:
        asyncio.run(play())
    assert str(caught.value) == "passive-2: policy.submit: takes jobs of bank, not of 'operator'"


def test_under_the_default_policy_a_sample_is_forgotten_as_under_none_and_the_certificate_says_so(
    tmp_path: Path,
) -> None:
    async def scenario(cluster: LocalCluster, submit: Submit) -> list[tuple[str, int]]:
        result = await submit({"model": SMALL, "train": {"epochs": 1}, "forget": {"samples": 80}})
        assert isinstance(result["unlearning"]["constraint_held"], bool)
        rounds = [one for one in result["rounds"] if one["phase"] in ("unlearning", "recovery") and one["round"] == 1]
        return [(one["phase"], one["rows"]) for one in rounds]

    found = []
    for policy in (None, "open"):
        folder = tmp_path / f"{policy}"
        folder.mkdir()
        found.append(on_cluster(folder, scenario, policy=policy, rows=1500))
        made = json.loads((folder / "run" / "certificate.json").read_text())
        unseen = made["final"]["unseen"]
        assert (unseen["forgotten_level"] is None) == (policy is None) and isinstance(unseen["alike"], bool)
        assert made["final"]["uncertainty"]["gamma"] is None, "the constraint is the comparison's"
        sentences = [*made["claims"], *made["does_not_claim"]]
        assert any("rows never seen" in one and ("policy" in one) == (policy is None) for one in sentences)
    assert found[0] == found[1] and [phase for phase, _ in found[0]] == ["unlearning", "recovery"]


def test_what_is_not_told_of_a_few_rows_is_said_to_be_kept_back_and_no_more(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster, submit: Submit) -> dict[str, Any]:
        return await submit({"model": SMALL, "train": {"epochs": 1}, "forget": {"samples": 3}})

    result = on_cluster(tmp_path, scenario, policy=None)
    stopped = result["unlearning"]["stopped"]
    assert result["unlearning"]["constraint_held"] is None and "it is not told whether the rows look" in stopped
    assert "nothing could be taken back" in stopped
    assert not any("Nothing was changed" in one for one in result["verdict"])
    made = json.loads((tmp_path / "run" / "certificate.json").read_text())
    assert made["final"]["unseen"]["alike"] is None and made["final"]["no_slackness"] == "No dual variable was stated."
    assert not any("Constraint residual" in one for one in made["claims"]), "none of the three is told"


def test_a_loss_that_rounding_takes_beyond_its_range_is_stated_within_it() -> None:
    account = Account(commitment="", dropped=50, remaining=100, began="now")
    phase = Phase(name="certificate", update=Update(observe=Observe()), loss=Loss(uncertainty=Uncertainty(omega=2)))
    phase.loss.reduction = Loss.SET_MEAN
    for loss, largest in ((-1.39, -2 * math.log(2)), (1.39, 2 * math.log(2)), (-0.5, -0.5)):
        rule = rule_for(phase.update, [torch.nn.Parameter(torch.ones(1))], RuleMemory(initial=[torch.ones(1)]))
        account.add(phase, rule, Report(rows=50, loss_sum=50 * loss), classes=2)
        assert account.uncertainty is not None and account.uncertainty["loss"] == pytest.approx(largest)


def test_one_person_is_forgotten_without_a_figure_about_that_person(tmp_path: Path) -> None:
    lines = write_people(tmp_path / "all.csv").read_text().splitlines()[1:]
    labels = {line.split(",")[0]: line.split(",")[-1] for line in lines}
    parts = dict(zip(labels, assign(list(labels), None, 0.2), strict=True))
    training = [person for person, part in parts.items() if part == "train"]

    async def scenario(cluster: LocalCluster, submit: Submit) -> list[dict[str, Any]]:
        trained = await submit({"model": SMALL, "train": {"epochs": 1}})
        found = [trained]
        requests: list[tuple[list[str], dict[str, Any]]] = [
            (training[:1], {"method": "fedora", "rounds": 2}),
            (training[:1], {"method": "ga"}),
            (training[:12], {"method": "none"}),
            (training[:13], {"method": "none"}),  # the same people and one more
        ]
        for number, (ids, method) in enumerate(requests):
            unlearn = {**method, "save": f"forgotten-{number}"}
            train = {"from": "original", "save": f"same-{number}"}
            found.append(await submit({"train": train, "forget": {"ids": ids}, "unlearn": unlearn}))
        return found

    trained, fedora, ascent, dozen, one_more = on_cluster(tmp_path, scenario, policy=None, drops="for-the-job")
    assert trained["original"]["test_accuracy"] is not None and not trained["original"]["left_out"]
    assert not any(party["repeatable_start"] for party in trained["parties"].values())
    for result in (fedora, ascent):
        # A step from one person's label: how the model fares on others would tell it.
        assert result["original"]["test_accuracy"] is not None and result["unlearned"]["test_accuracy"] is None
        assert "labels of 1 rows" in result["unlearned"]["left_out"]["test_accuracy"]
        figures = result["original"]
        kept_back = {"forget_accuracy", "held_out_loss", "forget_entropy", "mia_auc"}
        assert all(figures[name] is None and "1 rows" in figures["left_out"][name] for name in kept_back)
        for phase in (one for one in result["rounds"] if one["rows"] == 1):
            assert phase["loss"] is phase["accuracy"] is phase["change"] is None
            assert not {"dual_largest", "gradient_squared"} & set(phase["figures"].get("passive-1", {}))
    assert fedora["unlearning"]["constraint_held"] is None, "of one row it is not told"
    assert dozen["unlearned"]["forget_accuracy"] is not None
    assert one_more["unlearned"]["forget_accuracy"] is None
    assert "differ by fewer" in one_more["unlearned"]["left_out"]["forget_accuracy"]


def test_policy_check_says_all_that_a_party_would_refuse(tmp_path: Path) -> None:
    lay_out(tmp_path, policy={"submit": ["bank"]})
    party, runner = tmp_path / "run" / "parties" / "passive-1.yaml", CliRunner()
    wrong = {"model": {"hidden": [], "embedding": 64}, "train": {"epochs": 1, "lr": 1e-12}}
    words = ["policy", "check", str(write_yaml(tmp_path / "wrong.yaml", wrong)), "--party", str(party)]
    told = runner.invoke(app, words)
    rules = ("submit", "least_learning", "linear_bottom", "least_depth", "embedding_share")
    assert told.exit_code == 2
    assert [line.split(": ")[1] for line in told.stdout.splitlines()] == [f"policy.{rule}" for rule in rules]
    right = write_yaml(tmp_path / "right.yaml", {"model": SMALL, "train": {"epochs": 1}})
    told = runner.invoke(app, ["policy", "check", str(right), "--party", str(party), "--operator", "bank"])
    assert (told.exit_code, told.stdout) == (0, "passive-1 would refuse nothing\n")
    assert load_party(party)[0].policy == policy(submit=["bank"])
