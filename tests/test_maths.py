"""What local maths promises: batches, losses, update rules, learning rates, augmentation, seeds and models."""

import math
from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import Parameter

from coordinator.methods import Method, PhaseOutcome, phases_in
from coordinator.methods.training import learning_rate, training
from coordinator.train import Train
from fedora_vfl.errors import PartyError, SettingsError
from fedora_vfl.sampling.rows import rows_drawn
from fedora_vfl.sampling.seeds import derive
from party import models
from party.augmentation import augment
from party.batches import SampleSets, draw
from party.given_gradient import go_back, gradients_given
from party.losses import of_batch, per_sample, reduce, uncertainty
from party.models import perceptrons
from party.updates import RULES, RuleMemory, rule_for
from protos.fedora.v1.phase_pb2 import (
    Adam,
    Augmentation,
    CrossEntropy,
    Loss,
    Observe,
    Phase,
    Plan,
    Samples,
    Sgd,
    Uncertainty,
    Update,
)
from tests.conftest import as_job

deterministic = hypothesis.settings(derandomize=True, deadline=None)

SEEDS = st.integers(0, 2**63 - 1)


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


# Batches

TRAIN = Samples(set=Samples.TRAIN, share=1)


def rows_of(batches: list[Tensor]) -> list[int]:
    rows: list[int] = torch.cat(batches).tolist()
    return rows


@deterministic
@given(st.integers(1, 200), st.integers(1, 60), SEEDS)
def test_every_row_is_in_exactly_one_batch(rows: int, batch_size: int, seed: int) -> None:
    batches = draw(SampleSets.consecutive(rows, 3, 4), TRAIN, Plan(seed=seed, batch_size=batch_size, shuffle=True))
    assert sorted(rows_of(batches)) == list(range(rows))
    assert all(len(batch) == batch_size for batch in batches[:-1])
    assert 0 < len(batches[-1]) <= batch_size


@deterministic
@given(st.integers(1, 200), st.floats(0, 1, exclude_min=True), st.booleans(), SEEDS)
def test_the_same_plan_gives_every_party_the_same_batches(rows: int, share: float, shuffle: bool, seed: int) -> None:
    def at_a_party() -> list[list[int]]:
        torch.rand(3)  # a party's other random numbers have no part in it
        plan = Plan(seed=seed, batch_size=7, shuffle=shuffle)
        over = Samples(set=Samples.TRAIN, share=share)
        return [batch.tolist() for batch in draw(SampleSets.consecutive(rows, 0, 1), over, plan)]

    assert at_a_party() == at_a_party()


def test_another_seed_gives_other_batches() -> None:
    sets = SampleSets.consecutive(50, 0, 1)
    first, other = (rows_of(draw(sets, TRAIN, Plan(seed=seed, batch_size=8, shuffle=True))) for seed in (1, 2))
    assert first != other


@deterministic
@given(st.integers(1, 300), st.floats(0, 1, exclude_min=True, exclude_max=True), st.booleans(), SEEDS)
def test_a_share_draws_so_many_different_rows_rounded_up(rows: int, share: float, shuffle: bool, seed: int) -> None:
    over = Samples(set=Samples.TRAIN, share=share)
    drawn = rows_of(draw(SampleSets.consecutive(rows, 0, 1), over, Plan(seed=seed, batch_size=16, shuffle=shuffle)))
    assert len(drawn) == len(set(drawn)) == rows_drawn(share, rows)
    assert set(drawn) <= set(range(rows))


@pytest.mark.parametrize(("share", "rows", "drawn"), [(0.07, 100, 7), (0.05, 101, 6), (1, 9, 9), (1e-300, 5, 1)])
def test_a_share_is_rounded_up_to_whole_rows_and_not_by_a_rounding_error(share: float, rows: int, drawn: int) -> None:
    assert rows_drawn(share, rows) == drawn


def test_a_share_is_drawn_even_without_shuffling() -> None:
    over = Samples(set=Samples.TRAIN, share=0.5)
    drawn = rows_of(draw(SampleSets.consecutive(100, 0, 1), over, Plan(seed=3, batch_size=100)))
    assert sorted(drawn) != list(range(50))


def test_without_shuffling_rows_come_in_the_common_order() -> None:
    sets = SampleSets.consecutive(5, 3, 4)
    plan = Plan(seed=9, batch_size=3, shuffle=False)
    wanted = {
        Samples.TRAIN: [[0, 1, 2], [3, 4]],
        Samples.VALIDATION: [[5, 6, 7]],
        Samples.TEST: [[8, 9, 10], [11]],
        Samples.REMAINING: [[0, 1, 2], [3, 4]],
    }
    for name, batches in wanted.items():
        assert [batch.tolist() for batch in draw(sets, Samples(set=name, share=1), plan)] == batches


@pytest.mark.parametrize("empty", [Samples.SET_UNSPECIFIED, Samples.VALIDATION, Samples.FORGET])
def test_a_phase_over_an_empty_set_is_refused_by_the_sets_name(empty: Samples.Set) -> None:
    with pytest.raises(PartyError, match=f"coordinator asked for a phase over {Samples.Set.Name(empty)}"):
        draw(SampleSets.consecutive(5, 0, 4), Samples(set=empty, share=1), Plan(batch_size=3))


def test_a_phase_over_a_set_of_a_later_version_is_refused() -> None:
    later = Samples.FromString(b"\x08\x63")  # set: 99
    later.share = 1
    with pytest.raises(PartyError, match="99"):
        draw(SampleSets.consecutive(5, 0, 4), later, Plan(batch_size=3))


@pytest.mark.parametrize(("share", "size"), [(-0.1, 3), (1.001, 3), (math.nan, 3), (math.inf, 3), (1, 0)])
def test_a_share_or_a_batch_size_that_cannot_be_is_refused(share: float, size: int) -> None:
    with pytest.raises(PartyError, match=f"coordinator asked for a share of {float(share)} in batches of {size}"):
        draw(SampleSets.consecutive(5, 0, 4), Samples(set=Samples.TRAIN, share=share), Plan(batch_size=size))


# Losses

CROSS_ENTROPY = Loss(cross_entropy=CrossEntropy())
LOSSES = [CROSS_ENTROPY, Loss(uncertainty=Uncertainty(omega=2.5))]


def test_cross_entropy_is_what_it_says() -> None:
    logits, labels = random(64, 5, scale=3), torch.arange(64) % 5
    losses = per_sample(CROSS_ENTROPY, logits, labels)
    assert torch.equal(losses, torch.nn.CrossEntropyLoss(reduction="none")(logits, labels))
    chances = logits.double().exp() / logits.double().exp().sum(dim=1, keepdim=True)
    torch.testing.assert_close(losses.double(), -chances[torch.arange(64), labels].log(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
@pytest.mark.parametrize("omega", [0.5, 2.0])
def test_uncertainty_is_omega_times_entropy_less_divergence_from_uniform(classes: int, omega: float) -> None:
    logits = random(50, classes, scale=2)
    p = torch.softmax(logits.double(), dim=1)
    entropy = -(p * p.log()).sum(dim=1)
    divergence = (p * (p / (1 / classes)).log()).sum(dim=1)
    found = per_sample(Loss(uncertainty=Uncertainty(omega=omega)), logits, torch.zeros(50, dtype=torch.long))
    torch.testing.assert_close(found.double(), omega * (entropy - divergence), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("classes", [2, 7])
def test_uncertainty_is_largest_where_the_prediction_is_uniform(classes: int) -> None:
    uniform = torch.full((1, classes), 4.0, requires_grad=True)
    peak = uncertainty(uniform, 3.0).sum()
    assert peak.item() == pytest.approx(3.0 * math.log(classes), rel=1e-6)
    (slope,) = torch.autograd.grad(peak, uniform)
    assert slope.abs().max().item() < 1e-6
    elsewhere = uncertainty(uniform.detach() + random(200, classes, scale=0.5), 3.0)
    assert bool((elsewhere < peak).all())
    certain = uncertainty(torch.eye(classes) * 1000, 3.0)
    torch.testing.assert_close(certain, torch.full((classes,), -3.0 * math.log(classes)))


@pytest.mark.parametrize("size", [50.0, 200.0, 1e4, 1e30])
def test_uncertainty_and_its_gradient_stay_finite_where_the_prediction_is_certain(size: float) -> None:
    logits = torch.tensor([[size, -size, 0.0], [0.0, size, size], [-size, -size, -size]], requires_grad=True)
    losses = uncertainty(logits, 2.0)
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    assert bool(losses.isfinite().all())
    assert bool(gradient.isfinite().all())
    assert losses[0].item() == pytest.approx(-2 * math.log(3))
    assert losses[2].item() == pytest.approx(2 * math.log(3))


def test_uncertainty_does_not_look_at_labels() -> None:
    logits = random(8, 3)
    loss = LOSSES[1]
    assert torch.equal(per_sample(loss, logits, torch.zeros(8).long()), per_sample(loss, logits, torch.ones(8).long()))


@pytest.mark.parametrize("rows", [1, 2, 7, 50, 256, 999])
def test_the_loss_of_a_batch_is_that_of_its_samples_to_the_bit_and_so_is_its_gradient(rows: int) -> None:
    logits, labels = random(rows, 10, scale=3).requires_grad_(), torch.arange(rows) % 10
    for reduction in (Loss.BATCH_MEAN, Loss.SET_MEAN, Loss.SUM):
        for loss in LOSSES:
            asked = with_reduction(loss, reduction)
            each = per_sample(asked, logits, labels)
            summed, reduced = of_batch(asked, logits, labels, 2000)
            assert torch.equal(summed, each.sum())
            (found,), (expected,) = (
                torch.autograd.grad(one, logits, retain_graph=True) for one in (reduced, reduce(asked, each, 2000))
            )
            assert torch.equal(found, expected)


def with_reduction(loss: Loss, reduction: Loss.Reduction) -> Loss:
    changed = Loss(reduction=reduction)
    changed.MergeFrom(loss)
    return changed


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("reduction", "rows_in_mean"), [(Loss.SET_MEAN, 50), (Loss.SUM, 1)])
def test_losses_and_gradients_of_micro_batches_add_up(loss: Loss, reduction: Loss.Reduction, rows_in_mean: int) -> None:
    logits, labels = random(50, 4).requires_grad_(), torch.arange(50) % 4
    whole = per_sample(loss, logits, labels).sum() / rows_in_mean
    (gradient,) = torch.autograd.grad(whole, logits)
    added, total = torch.zeros_like(gradient), 0.0
    for rows in torch.split(torch.arange(50), 16):
        part = reduce(with_reduction(loss, reduction), per_sample(loss, logits[rows], labels[rows]), 50)
        added += torch.autograd.grad(part, logits)[0]
        total += part.item()
    assert total == pytest.approx(whole.item(), rel=1e-5)
    torch.testing.assert_close(added, gradient)


def test_a_batch_mean_is_the_mean_over_the_batch() -> None:
    losses = torch.tensor([1.0, 2.0, 6.0])
    assert reduce(with_reduction(CROSS_ENTROPY, Loss.BATCH_MEAN), losses, 1000).item() == 3.0


def test_a_loss_that_is_not_named_is_refused() -> None:
    with pytest.raises(PartyError, match="a loss that is not known here"):
        per_sample(Loss(), random(2, 3), torch.zeros(2).long())


# Update rules

SHAPES = [(3, 4), (4,), (2, 2, 3), ()]
RATES = [0.1, 0.1, 0.03, 0.007]  # one a phase


def parameters() -> list[Parameter]:
    return [Parameter(random(*shape, seed=place)) for place, shape in enumerate(SHAPES)]


def gradients(step: int) -> list[Tensor]:
    return [random(*shape, seed=1000 + 10 * step + place) for place, shape in enumerate(SHAPES)]


def run_phase(update: Update, ours: list[Parameter], memory: RuleMemory, *, first: int, steps: int = 3) -> None:
    """Do what a party does in one phase."""
    rule = rule_for(update, ours, memory)
    for step in range(first, first + steps):
        for parameter, gradient in zip(ours, gradients(step), strict=True):
            parameter.grad = gradient
        rule.step()
    assert rule.finish() == {}


def run_torch(
    optimizer: torch.optim.Optimizer, theirs: list[Parameter], lr: float, *, first: int, steps: int = 3
) -> None:
    """Do the same the usual way."""
    optimizer.param_groups[0]["lr"] = lr
    for step in range(first, first + steps):
        for parameter, gradient in zip(theirs, gradients(step), strict=True):
            parameter.grad = gradient
        optimizer.step()


def equal(one: list[Parameter], other: list[Parameter]) -> bool:
    return all(torch.equal(ours, theirs) for ours, theirs in zip(one, other, strict=True))


Make = Callable[..., Update]


def sgd(**options: Any) -> tuple[Make, Callable[..., torch.optim.Optimizer], dict[str, Any]]:
    return lambda lr, fresh=False: Update(sgd=Sgd(lr=lr, **options), fresh=fresh), torch.optim.SGD, options


def adam(
    betas: tuple[float, float], eps: float, weight_decay: float = 0.0
) -> tuple[Make, Callable[..., torch.optim.Optimizer], dict[str, Any]]:
    def make(lr: float, fresh: bool = False) -> Update:
        rule = Adam(lr=lr, beta1=betas[0], beta2=betas[1], epsilon=eps, weight_decay=weight_decay)
        return Update(adam=rule, fresh=fresh)

    return make, torch.optim.Adam, {"betas": betas, "eps": eps, "weight_decay": weight_decay}


OPTIMIZERS = {
    "sgd": sgd(),
    "sgd with momentum": sgd(momentum=0.9),
    "sgd with decay": sgd(weight_decay=0.01),
    "sgd with all": sgd(momentum=0.8, weight_decay=0.05, nesterov=True),
    "adam": adam((0.9, 0.999), 1e-8),
    "adam with all": adam((0.7, 0.95), 1e-4, weight_decay=0.05),
}
WITH_STATE = ["sgd with momentum", "sgd with all", "adam", "adam with all"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_rule_equals_torch_to_the_bit_over_phases_of_changing_rates(name: str) -> None:
    make, torch_class, options = OPTIMIZERS[name]
    ours, theirs, memory = parameters(), parameters(), RuleMemory()
    optimizer = torch_class(theirs, lr=1, **options)
    for phase, lr in enumerate(RATES):
        run_phase(make(lr, fresh=phase == 0), ours, memory, first=3 * phase)
        run_torch(optimizer, theirs, lr, first=3 * phase)
        assert equal(ours, theirs)
    assert not equal(ours, parameters())


@pytest.mark.parametrize("name", WITH_STATE)
def test_fresh_forgets_what_earlier_phases_left(name: str) -> None:
    make, torch_class, options = OPTIMIZERS[name]
    ours, kept, memory, kept_memory = parameters(), parameters(), RuleMemory(), RuleMemory()
    run_phase(make(0.1), ours, memory, first=0)
    run_phase(make(0.1), kept, kept_memory, first=0)
    theirs = [Parameter(parameter.detach().clone()) for parameter in ours]
    run_phase(make(0.1, fresh=True), ours, memory, first=3)
    run_phase(make(0.1, fresh=False), kept, kept_memory, first=3)
    run_torch(torch_class(theirs, lr=1, **options), theirs, 0.1, first=3)
    assert equal(ours, theirs)
    assert not equal(kept, theirs)


@pytest.mark.parametrize("name", WITH_STATE)
def test_what_a_rule_remembers_survives_phases_of_other_rules(name: str) -> None:
    make, torch_class, options = OPTIMIZERS[name]
    other = OPTIMIZERS["adam" if name.startswith("sgd") else "sgd with momentum"][0]
    ours, theirs, memory = parameters(), parameters(), RuleMemory()
    optimizer = torch_class(theirs, lr=1, **options)
    run_phase(make(0.1, fresh=True), ours, memory, first=0)
    run_torch(optimizer, theirs, 0.1, first=0)
    run_phase(Update(observe=Observe(), fresh=True), ours, memory, first=3)
    run_phase(other(0.0, fresh=True), ours, memory, first=3)  # a rate of zero moves nothing
    run_phase(make(0.1), ours, memory, first=6)
    run_torch(optimizer, theirs, 0.1, first=6)
    assert equal(ours, theirs)


def test_observing_changes_nothing_and_asks_for_no_gradients() -> None:
    ours, memory = parameters(), RuleMemory()
    run_phase(Update(observe=Observe()), ours, memory, first=0)
    assert equal(ours, parameters())
    assert memory == RuleMemory()
    without = {name for name, rule in RULES.items() if not rule.needs_gradients}
    assert without == {"observe", "shift", "retreat", "compare", "soften"}
    frozen = {name for name, rule in RULES.items() if rule.parameters_frozen}
    assert frozen == {"observe", "dual_ascent", "residual", "influence", "compare"}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_gradients_from_before_a_phase_and_from_the_batch_before_have_no_part_in_a_step(name: str) -> None:
    make = OPTIMIZERS[name][0]
    ours, memory = parameters(), RuleMemory()
    for parameter in ours:
        parameter.grad = torch.full_like(parameter, 1e6)
    rule = rule_for(make(0.1), ours, memory)
    assert rule.with_gradients() == ([], [], [])
    for parameter, gradient in zip(ours, gradients(0), strict=True):
        parameter.grad = gradient
    rule.step()
    assert rule.with_gradients() == ([], [], [])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_parameter_without_a_gradient_stays_as_it_is(name: str) -> None:
    make, torch_class, options = OPTIMIZERS[name]
    ours, theirs = parameters(), parameters()
    rule, optimizer = rule_for(make(0.1), ours, RuleMemory()), torch_class(theirs, lr=0.1, **options)
    for place in (0, 2, 3):
        ours[place].grad = theirs[place].grad = gradients(0)[place]
    rule.step()
    optimizer.step()
    assert equal(ours, theirs)


def test_a_phase_without_a_rule_is_refused_with_the_list() -> None:
    with pytest.raises(SettingsError, match="no update rule; known are observe, sgd, adam"):
        rule_for(Update(), [], RuleMemory())


# Learning rates


def train(**settings: Any) -> Train:
    return as_job({"train": settings}).train


def rates(**settings: Any) -> list[float]:
    chosen = train(**settings)
    return [learning_rate(chosen, epoch) for epoch in range(chosen.rounds)]


def test_a_constant_rate_is_the_one_given_or_the_optimizers_usual_one() -> None:
    assert rates(epochs=3, lr=0.2) == [0.2] * 3
    assert rates(epochs=2, optimizer="sgd") == [0.05] * 2
    assert rates(epochs=2, optimizer="adam") == [0.001] * 2


def test_a_stepped_rate_decays_every_so_many_epochs() -> None:
    found = rates(epochs=7, lr=8.0, schedule="step", decay_every=3, decay=0.5)
    assert found == [8.0, 8.0, 8.0, 4.0, 4.0, 4.0, 2.0]


def test_a_cosine_rate_falls_from_full_towards_zero() -> None:
    found = rates(epochs=10, lr=2.0, schedule="cosine")
    assert found[0] == 2.0
    assert found[5] == pytest.approx(1.0)
    assert found == sorted(found, reverse=True)
    assert found[-1] == pytest.approx(1 + math.cos(0.9 * math.pi))
    assert found[-1] > 0


@pytest.mark.parametrize("schedule", ["constant", "step", "cosine"])
def test_a_warm_up_grows_evenly_to_the_full_rate_and_the_schedule_follows(schedule: str) -> None:
    common: dict[str, Any] = {"lr": 4.0, "schedule": schedule, "decay_every": 2}
    assert rates(epochs=10, warmup=4, **common) == [1.0, 2.0, 3.0, 4.0, *rates(epochs=6, **common)]
    assert rates(epochs=2, warmup=4, **common) == [1.0, 2.0]


def test_without_epochs_a_loaded_model_is_not_trained_and_a_new_one_is() -> None:
    assert train().rounds == 10
    assert train(**{"from": "earlier"}).rounds == 0
    assert train(**{"from": "earlier", "epochs": 2}).rounds == 2


def phases_of(method: Method[None]) -> list[Phase]:
    """Run a method with parties that always say the same."""
    phases: list[Phase] = []
    try:
        step = next(method)
        while True:
            phases += phases_in(step)
            step = method.send(PhaseOutcome(rows=1, loss=0.0, accuracy=1.0, change=0.0, seconds=0.0))
    except StopIteration:
        return phases


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_training_is_one_phase_per_epoch_and_the_first_starts_afresh(optimizer: str) -> None:
    settings = train(epochs=4, lr=1.0, optimizer=optimizer, schedule="cosine", batch_size=32, augment={"shift": 2})
    phases = phases_of(training(settings, seed=5))
    assert [(phase.name, phase.round) for phase in phases] == [("train", number) for number in (1, 2, 3, 4)]
    assert [phase.update.fresh for phase in phases] == [True, False, False, False]
    assert [getattr(phase.update, optimizer).lr for phase in phases] == rates(epochs=4, lr=1.0, schedule="cosine")
    assert len({phase.plan.seed for phase in phases}) == 4
    assert all(phase.train_mode and phase.plan.shuffle and phase.plan.batch_size == 32 for phase in phases)
    assert all(phase.over == TRAIN and phase.augmentation == Augmentation(shift=2) for phase in phases)
    assert phases == phases_of(training(settings, seed=5))
    assert not {phase.plan.seed for phase in phases} & {
        phase.plan.seed for phase in phases_of(training(settings, seed=6))
    }


# Augmentation

COUNT = 64


def single_pixel(channels: int, height: int, width: int, line: int, column: int) -> Tensor:
    """Return images that are dark but for one place."""
    images = torch.zeros(COUNT, channels, height, width)
    images[:, :, line, column] = 1
    return images


def place(images: Tensor) -> Tensor:
    """Return line and column of each image's one bright place."""
    assert torch.equal(images.sum(dim=(1, 2, 3)), torch.full((COUNT,), float(images.shape[1])))
    brightest = images.amax(dim=1).flatten(1).argmax(dim=1)
    return torch.stack([brightest // images.shape[3], brightest % images.shape[3]], dim=1)


def test_two_stripes_of_one_image_move_alike() -> None:
    both = Augmentation(flip=True, shift=3)
    left, right = single_pixel(3, 9, 7, 4, 3), single_pixel(1, 9, 15, 4, 7)  # bright in the middle, which flips keep
    moves = [
        place(augment(images, both, seed=11, step=2)) - torch.tensor(middle)
        for images, middle in ((left, [4, 3]), (right, [4, 7]))
    ]
    assert torch.equal(moves[0], moves[1])
    assert set(moves[0].flatten().tolist()) == {-3, -2, -1, 0, 1, 2, 3}


def test_two_stripes_of_one_image_are_flipped_together_each_in_itself() -> None:
    flip = Augmentation(flip=True)
    columns = [
        place(augment(single_pixel(1, 4, width, 2, 0), flip, seed=5, step=0))[:, 1] / (width - 1) for width in (4, 9)
    ]
    assert torch.equal(columns[0], columns[1])
    assert set(columns[0].tolist()) == {0.0, 1.0}


def test_a_flip_is_the_mirror_image_for_about_half_of_the_samples() -> None:
    images = random(COUNT, 3, 5, 4)
    found = augment(images, Augmentation(flip=True), seed=1, step=0)
    flipped = [torch.equal(one, image.flip(2)) for one, image in zip(found, images, strict=True)]
    kept = [torch.equal(one, image) for one, image in zip(found, images, strict=True)]
    assert [not one for one in kept] == flipped
    assert COUNT / 4 < sum(flipped) < COUNT * 3 / 4


@pytest.mark.parametrize(("reach", "width"), [(1, 5), (2, 5), (2, 1), (3, 2)])
def test_a_shift_moves_up_to_so_many_pixels_and_fills_with_zero(reach: int, width: int) -> None:
    images = random(COUNT, 2, 6, width)
    found = augment(images, Augmentation(shift=reach), seed=3, step=7)
    assert found.shape == images.shape
    padded = torch.nn.functional.pad(images, (reach,) * 4)
    span = range(2 * reach + 1)
    for one, image in zip(found, padded, strict=True):
        assert any(torch.equal(one, image[:, y : y + 6, x : x + width]) for y in span for x in span)


def test_switching_one_change_off_leaves_the_other_as_it_was() -> None:
    images = random(COUNT, 1, 6, 6)
    together = augment(images, Augmentation(flip=True, shift=2), seed=8, step=1)
    flipped = augment(images, Augmentation(flip=True), seed=8, step=1)
    assert torch.equal(augment(flipped, Augmentation(shift=2), seed=8, step=1), together)
    assert not torch.equal(flipped, together)


def test_without_augmentation_images_stay_as_they_are() -> None:
    images = random(COUNT, 3, 4, 5)
    assert torch.equal(augment(images, Augmentation(), seed=1, step=0), images)


def test_every_step_and_every_seed_moves_images_anew() -> None:
    images = random(COUNT, 1, 8, 8)
    both = Augmentation(flip=True, shift=2)
    first = augment(images, both, seed=1, step=0)
    assert torch.equal(first, augment(images, both, seed=1, step=0))
    assert not torch.equal(first, augment(images, both, seed=1, step=1))
    assert not torch.equal(first, augment(images, both, seed=2, step=0))


# Seeds


def test_seeds_are_the_same_on_every_machine_and_in_every_release() -> None:
    assert derive(0, "train", 1) == 4584875657143905542
    assert derive(2**63 - 1, "bottom", 0) == 4615705322652736077


@deterministic
@given(SEEDS, st.lists(st.text(max_size=5) | st.integers(), max_size=3))
def test_a_derived_seed_fits_torch_and_protobuf(seed: int, purpose: list[str | int]) -> None:
    derived = derive(seed, *purpose)
    assert Plan(seed=derived).seed == torch.Generator().manual_seed(derived).initial_seed() == derived


def test_different_purposes_get_different_seeds() -> None:
    purposes: list[tuple[str | int, ...]] = [(), ("top",), ("batches",), ("augmentation", 0), ("augmentation", 1)]
    purposes += [(name, number) for name in ("train", "retrain", "bottom") for number in range(200)]
    assert len({derive(seed, *purpose) for seed in range(10) for purpose in purposes}) == 10 * len(purposes)


# Models


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("cnm", {}, "model: bottom: there is no bottom model 'cnm'; allowed: cnn, densenet121, mlp"),
        (
            "cnn",
            {"chanels": [4]},
            "model (cnn): chanels: unknown setting; did you mean `channels`? allowed here: channels",
        ),
        ("mlp", {"hidden": [64, 0]}, "model (mlp): hidden.1: should be greater than 0 (got 0)"),
        ("mlp", {"hidden": 64}, "model (mlp): hidden: should be a valid tuple (got 64)"),
        ("mlp", {"channels": [4]}, "model (mlp): channels: unknown setting; allowed here: hidden"),
    ],
)
def test_a_bottom_model_that_is_described_wrongly_is_refused(
    name: str, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        models.bottom(name, settings, origin="model")
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("channels", [[], [1] * 9])
def test_a_network_has_one_to_eight_blocks(channels: list[int]) -> None:
    with pytest.raises(SettingsError, match=r"^model \(cnn\): channels: "):
        models.bottom("cnn", {"channels": channels}, origin="model")


def test_a_network_for_images_is_refused_for_a_table() -> None:
    with pytest.raises(SettingsError, match="`cnn` needs images, but this party's rows are a table: use `mlp`"):
        models.bottom("cnn", {}, origin="model").build((12,), 4)


@pytest.mark.parametrize("shape", [(1, 8, 1), (3, 32, 1), (1, 1, 8), (1, 1, 1), (3, 9, 5), (1, 28, 14)])
@pytest.mark.parametrize("channels", [[4], [4, 8], [2] * 8])
def test_a_convolutional_network_takes_stripes_as_narrow_as_one_pixel(
    shape: tuple[int, ...], channels: list[int]
) -> None:
    network = models.bottom("cnn", {"channels": channels}, origin="model").build(shape, 6)
    embedding = network(random(5, *shape))
    assert embedding.shape == (5, 6)
    torch.autograd.backward(embedding.square().sum())
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize("hidden", [[], [7], [7, 5]])
def test_a_perceptron_takes_tables_and_images_and_ends_without_a_bend(hidden: list[int]) -> None:
    for shape in ((12,), (3, 2, 2)):
        network = models.bottom("mlp", {"hidden": hidden}, origin="model").build(shape, 4)
        assert network(random(5, *shape)).shape == (5, 4)
    linear = [layer for layer in network.modules() if isinstance(layer, torch.nn.Linear)]
    assert [layer.out_features for layer in linear] == [*hidden, 4]
    assert linear[-1] is list(network.modules())[-1]


def test_a_top_model_sees_only_what_is_positive_in_embeddings() -> None:
    network = perceptrons.top(6, [5], 3)
    embeddings = random(4, 6)
    assert network(embeddings).shape == (4, 3)
    assert torch.equal(network(embeddings), network(embeddings.clamp(min=0)))


def test_going_back_from_a_gradient_that_was_sent_is_torchs_own_way_to_the_bit() -> None:
    network, batch, gradient = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU()), random(9, 5), random(9, 7)
    parameters, beside = list(network.parameters()), torch.zeros(3, requires_grad=True)
    torch.autograd.backward(network(batch), gradient)
    wanted = [one.grad for one in parameters]
    output = network(batch)
    *found, unreached = gradients_given([*parameters, beside], output, gradient)
    assert unreached is None
    for one in parameters:
        one.grad = None
    go_back(output, gradient)
    for first, other, direct in zip(wanted, found, [one.grad for one in parameters], strict=True):
        assert first is not None and other is not None and direct is not None
        assert torch.equal(first, other) and torch.equal(first, direct)
