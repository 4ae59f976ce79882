"""What the measurement of leaks promises: attacks that find what is there and nothing else, on runs that are real."""

import asyncio
import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional

from coordinator.job import Job
from coordinator.methods.training import training
from fedora_vfl.bench.attacks import features, labels, membership, outsiders, properties
from fedora_vfl.bench.attacks.command import Asked
from fedora_vfl.bench.attacks.command import run as run_command
from fedora_vfl.bench.attacks.defences import DEFENCES, NONE, Defence, distance_correlation
from fedora_vfl.bench.attacks.report import Material, figures_csv, print_tables, write_report
from fedora_vfl.bench.attacks.results import Figure, Results, read_results
from fedora_vfl.bench.attacks.scenes import QUICK, WHOLE, Extent, as_cell, points
from fedora_vfl.bench.attacks.sweep import WORK, sweep
from fedora_vfl.bench.one_process.joining import join
from fedora_vfl.bench.one_process.parties import Step
from fedora_vfl.bench.paper.store import Record, Store
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.files import check
from fedora_vfl.wire.protocol import VERSION
from party.rates import area_under_curve

TINY: Extent = replace(QUICK, income_rows=200, epochs=1, seeds=(0,), defences=(NONE, DEFENCES[3]), targets=4, steps=3)


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# Labels


def gradients_of(labels_of_rows: Tensor, *, width: int = 16) -> Tensor:
    """Return ∂L/∂h of a linear top model on random embeddings, as cross-entropy has it: (p − y)·W."""
    classes = int(labels_of_rows.max()) + 1
    embeddings = torch.randn(len(labels_of_rows), width, generator=draws(1), requires_grad=True)
    weights = torch.randn(width, classes, generator=draws(2)) / 4
    shares = torch.bincount(labels_of_rows) / len(labels_of_rows)
    loss = functional.cross_entropy(embeddings @ weights + shares.log(), labels_of_rows, reduction="sum")
    (found,) = torch.autograd.grad(loss, [embeddings])
    return found


@pytest.fixture
def rare() -> Tensor:
    """One row in ten is of the rarer class."""
    return (torch.rand(1000, generator=draws(3)) < 0.1).long()


def test_longer_gradients_give_the_rarer_class_away(rare: Tensor) -> None:
    lengths = labels.by_norm(gradients_of(rare))
    assert area_under_curve(lengths[rare == 1], lengths[rare == 0]) > 0.95


def test_directions_give_every_label_away(rare: Tensor) -> None:
    known = labels.draw_known(rare, 2, 2, draws())
    guessed = labels.by_direction(gradients_of(rare), known, rare[known], 2)
    assert labels.balanced_accuracy(guessed, rare) == 1.0


def test_clusters_give_labels_away_with_nothing_known(rare: Tensor) -> None:
    found = labels.by_clusters(gradients_of(rare), 2, seed=0)
    assert labels.balanced_accuracy(labels.named_by_truth(found, rare, 2), rare) > 0.99


def test_gradients_of_other_rows_say_nothing(rare: Tensor) -> None:
    shuffled = gradients_of(rare)[torch.randperm(len(rare), generator=draws(4))]
    lengths = labels.by_norm(shuffled)
    assert abs(area_under_curve(lengths[rare == 1], lengths[rare == 0]) - 0.5) < 0.1
    known = labels.draw_known(rare, 2, 2, draws())
    for guessed in (
        labels.by_direction(shuffled, known, rare[known], 2),
        labels.named_by_truth(labels.by_clusters(shuffled, 2, seed=0), rare, 2),
    ):
        assert abs(labels.balanced_accuracy(guessed, rare) - 0.5) < 0.1


def test_completion_learns_from_few_labels_what_the_inputs_hold_and_no_more() -> None:
    truth = torch.randint(0, 3, (600,), generator=draws(5))
    telling = functional.one_hot(truth, 3) * 3 + torch.randn(600, 3, generator=draws(6))
    known = labels.draw_known(truth, 10, 3, draws(7))
    for inputs, least, most in ((telling, 0.85, 1.0), (torch.randn(600, 3, generator=draws(8)), 0.2, 0.47)):
        guessed = labels.completed(inputs.double().numpy(), known.numpy(), truth[known].numpy())
        assert least <= labels.balanced_accuracy(torch.from_numpy(guessed), truth) <= most


def test_known_rows_have_one_of_every_class(rare: Tensor) -> None:
    known = labels.draw_known(rare, 10, 2, draws())
    assert len(known) == len(set(known.tolist())) == 10
    assert set(rare[known].tolist()) == {0, 1}


def test_always_naming_one_class_is_a_guess(rare: Tensor) -> None:
    assert labels.balanced_accuracy(torch.zeros_like(rare), rare) == 0.5


# Rows


def test_a_linear_bottom_that_is_known_gives_rows_away_exactly() -> None:
    rows = torch.randn(20, 8, generator=draws(1))
    torch.manual_seed(2)
    bottom = nn.Linear(8, 12)
    guess = features.with_bottom(bottom, bottom(rows).detach(), features.Prior.of(rows), noise=0, steps=20)
    assert features.explained(guess, rows) > 0.9999


def test_a_deep_bottom_that_is_known_gives_rows_away() -> None:
    rows = torch.randn(20, 6, generator=draws(1))
    torch.manual_seed(2)
    bottom = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 32))
    guess = features.with_bottom(bottom, bottom(rows).detach(), features.Prior.of(rows), noise=0, steps=25)
    assert features.explained(guess, rows) > 0.98


def test_known_rows_are_enough_to_invert_a_bottom_that_is_not_known() -> None:
    rows = torch.randn(400, 6, generator=draws(1))
    torch.manual_seed(2)
    with torch.no_grad():
        embeddings = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 32))(rows)
    fitted = embeddings[:200], rows[:200], embeddings[200:]
    assert features.explained(features.linear_inverse(*fitted), rows[200:]) > 0.9
    assert features.explained(features.network_inverse(*fitted, seed=0), rows[200:]) > 0.8


@pytest.mark.parametrize("shape", [(8,), (3, 4, 5)])
def test_a_constant_embedding_gives_nothing_away(shape: tuple[int, ...]) -> None:
    rows = torch.randn(60, *shape, generator=draws(1))
    linear = nn.Linear(rows[0].numel(), 4)
    nn.init.zeros_(linear.weight)
    bottom = nn.Sequential(nn.Flatten(), linear)
    sent = bottom(rows).detach()
    fitted = sent[:30], rows[:30], sent[30:]
    for guess in (
        features.with_bottom(bottom, sent[30:], features.Prior.of(rows), noise=0, steps=5),
        features.linear_inverse(*fitted),
        features.network_inverse(*fitted, seed=0),
    ):
        assert guess.shape == rows[30:].shape
        assert features.explained(guess, rows[30:]) < 0.05


def test_r_squared_is_1_for_the_rows_0_for_their_mean_and_less_for_worse() -> None:
    rows = torch.randn(50, 3, generator=draws(1))
    mean = rows.mean(dim=0).expand(50, 3)
    assert features.explained(rows, rows) == 1
    assert features.explained(mean, rows) == pytest.approx(0, abs=1e-6)
    assert features.explained(mean + 1, rows) < -0.5


# Membership, properties, outsiders


def test_membership_is_found_where_a_model_fits_its_members_better() -> None:
    truth = torch.randint(0, 3, (400,), generator=draws(1))
    fitted = functional.one_hot(truth, 3) * 4.0 + torch.randn(400, 3, generator=draws(2))
    unseen = functional.one_hot(truth, 3) * 1.0 + torch.randn(400, 3, generator=draws(3))
    assert area_under_curve(membership.by_loss(fitted, truth), membership.by_loss(unseen, truth)) > 0.8
    assert (
        abs(
            area_under_curve(
                membership.by_loss(unseen[:200], truth[:200]), membership.by_loss(unseen[200:], truth[200:])
            )
            - 0.5
        )
        < 0.1
    )


@pytest.mark.parametrize(("size", "least", "most"), [(3.0, 0.9, 1.0), (1.0, 0.35, 0.65)])
def test_membership_is_found_in_embeddings_that_members_have_longer(size: float, least: float, most: float) -> None:
    members, others = (torch.randn(400, 8, generator=draws(seed)) for seed in (1, 2))
    found, spared = membership.by_embedding(size * members[:200], others[:200], size * members[200:], others[200:])
    assert least <= area_under_curve(found, spared) <= most


def test_a_property_is_found_where_embeddings_follow_it() -> None:
    truth = torch.rand(500, generator=draws(1)) < 0.5
    inputs = torch.randn(500, 6, generator=draws(2))
    known = torch.arange(100)
    blind = properties.inferred(inputs, known, truth)[100:]
    assert abs(labels.balanced_accuracy(blind, truth[100:].long()) - 0.5) < 0.1
    inputs[:, 3] += 4 * truth
    seen = properties.inferred(inputs, known, truth)[100:]
    assert labels.balanced_accuracy(seen, truth[100:].long()) > 0.9


def test_an_accuracy_about_one_row_is_its_label_and_about_many_is_not(rare: Tensor) -> None:
    majority = float((rare == 0).double().mean())
    assert outsiders.told_by_group_accuracy(rare == 1, 1, draws()) == 1.0
    assert outsiders.told_by_group_accuracy(rare == 1, 50, draws()) == pytest.approx(majority, abs=0.01)


def test_sizes_of_messages_tell_rows_and_no_values() -> None:
    batches = [torch.randn(rows, 64, generator=draws(rows)) for rows in (128, 128, 77)]
    sizes = outsiders.message_sizes(batches)
    assert outsiders.rows_from_sizes(sizes, 64) == [128, 128, 77]
    assert outsiders.message_sizes([torch.zeros_like(one) for one in batches]) == sizes


# Defences


def test_the_label_shield_hides_labels_and_leaves_other_directions_alone(rare: Tensor) -> None:
    gradient = torch.randn(len(rare), 8, generator=draws(1)) * 0.1
    gradient[:, 0] = rare.float() * 2 - 1
    # The means of both classes should differ in the first value alone.
    for one in (0, 1):
        gradient[rare == one, 1:] -= gradient[rare == one, 1:].mean(dim=0)
    shielded = Defence("shield", label_shield=8.0).shielded(gradient, rare, seed=0)
    assert torch.allclose(shielded[:, 1:], gradient[:, 1:], atol=1e-5)
    assert abs(area_under_curve(shielded[rare == 1, 0], shielded[rare == 0, 0]) - 0.5) < 0.35
    assert area_under_curve(gradient[rare == 1, 0], gradient[rare == 0, 0]) == 1.0


def test_distance_correlation_is_1_for_copies_and_small_for_strangers() -> None:
    rows, others = (torch.randn(300, 3, generator=draws(seed)) for seed in (1, 2))
    assert float(distance_correlation(rows, 2 * rows + 1)) == pytest.approx(1, abs=1e-3)
    assert float(distance_correlation(rows, others)) < 0.25


def test_experiments_are_not_taken_for_settings() -> None:
    assert {one.name for one in DEFENCES if not one.is_setting} == {
        "gradients withheld", "label shield 4", "label shield 16", "distance corr. 0.3", "distance corr. 3",
    }  # fmt: skip


# Runs


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, list[Record]]:
    """Attack a run without a defence and one with noise, on data small enough to wait for."""
    store, kept = Store(tmp_path_factory.mktemp("attacks")), []
    asyncio.run(sweep(points(TINY, None), TINY, store, lambda _, record: kept.append(record)))
    return store, kept


def test_every_run_is_attacked_from_every_role(tiny: tuple[Store, list[Record]]) -> None:
    store, kept = tiny
    assert [one.why for one in kept] == [""] * 4
    results = read_results(store, TINY, points(TINY, None))
    assert (results.runs, results.missing, results.scenes) == (4, 0, ["income", "digits"])
    for scene in results.scenes:
        found = results.figures[scene, "none"]
        kinds = {name.partition(".")[0] for name in found}
        assert {"label", "features", "property", "membership", "coordinator", "outsider", "test_accuracy"} <= kinds
        for name, figure in found.items():
            assert figure.guess is not None or name.startswith("accuracy"), f"{name} stands without what guessing gets"
    one, other = (results.figure("income", name, "features.linear.200") for name in ("none", DEFENCES[3].name))
    assert one and other and one.mean > other.mean + 0.3
    assert not (store.out / WORK).exists()


def test_the_same_command_goes_on_where_it_was(tiny: tuple[Store, list[Record]]) -> None:
    store, _ = tiny
    assert all(store.read(as_cell(point, TINY)) is not None for point in points(TINY, None))
    changed = replace(points(TINY, None)[0], seed=7)
    assert store.read(as_cell(changed, TINY)) is None


def test_the_report_has_every_figure_beside_guessing(tiny: tuple[Store, list[Record]], tmp_path: Path) -> None:
    material = Material(TINY, read_results(tiny[0], TINY, points(TINY, None)), "fedora bench attacks")
    write_report(material, tmp_path / "attacks.md")
    page = (tmp_path / "attacks.md").read_text(encoding="utf-8")
    assert "](attacks.svg)" in page and (tmp_path / "attacks.svg").stat().st_size > 1000
    assert f"4 runs (4 by release {VERSION})" in page
    for part in ("Labels", "Rows", "Properties", "Membership", "Coordinator and outsider", "Defences", "The attacks"):
        assert f"## {part}" in page
    lines = list(csv.DictReader(io.StringIO((tmp_path / "attacks.csv").read_text(encoding="utf-8"))))
    assert lines == list(csv.DictReader(io.StringIO(figures_csv(material.results))))
    assert all(float(line["guessing"]) < 1 for line in lines if line["guessing"])


def test_tables_fit_a_terminal_of_80_columns(tiny: tuple[Store, list[Record]]) -> None:
    real = read_results(tiny[0], TINY, points(TINY, None))
    four = {(scene, "none"): real.figures["income", "none"] for scene in ("income", "digits", "cifar10", "pathmnist")}
    results = Results(real.figures | four, {}, 0, 8)
    out = io.StringIO()
    print_tables(Material(TINY, results, ""), Console(file=out, width=80))
    tables = out.getvalue().partition("\n- ")[0].splitlines()
    assert max(len(line) for line in tables) <= 80
    assert not any("…" in line for line in tables if not line.startswith("… "))


def test_advantage_is_the_way_from_guessing_to_certainty() -> None:
    assert Figure(0.75, 0, 0.5, 1).advantage == 0.5
    assert Figure(0.5, 0, 0.5, 1).advantage == 0
    assert Figure(0.2, 0, None, 1).advantage is None


def test_whole_covers_what_quick_does() -> None:
    quick, whole = ({(one.scene.name, one.defence.name) for one in points(extent, None)} for extent in (QUICK, WHOLE))
    assert quick <= whole
    assert {defence for _, defence in whole} == {one.name for one in DEFENCES}


def test_a_folder_without_images_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"holds neither cifar10\.npz nor pathmnist\.npz"):
        asyncio.run(run_command(Asked(tmp_path / "out", data=tmp_path), Console()))


def test_gradients_that_are_withheld_are_zeros_and_bottoms_stay(tmp_path: Path) -> None:
    content = {"data": {"source": "digits", "parties": 2}, "train": {"epochs": 1}}
    job = check(content, Job, origin="test")
    prepare(job, origin=Path("test"), out=tmp_path / "cut")
    process = join(tmp_path / "cut", job, Defence("withheld", withheld=True))
    before = {name: process.states[name].snapshot() for name in process.states}
    steps: list[Step] = []
    process.watch = steps.append
    process.perform(training(job.train, seed=job.seed))
    assert all(not gradient.any() for step in steps for gradient in step.gradients.values())
    moved = {name: state.change_squared(before[name]) for name, state in process.states.items()}
    assert moved["passive-1"] == moved["passive-2"] == 0 < moved["active"]
