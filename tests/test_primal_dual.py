"""FedORA's update rules do what the paper's formulas say; the step sizes follow its rule; a round can be undone."""

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import Parameter, functional

from coordinator.methods import MethodResult, PhaseOutcome, UnlearningTask, phases_in, self_scaling
from coordinator.methods.fedora_settings import Fedora, Scales
from coordinator.methods.primal_dual import RECOVERY, Problem
from coordinator.methods.step_sizes import StepSizes
from coordinator.train import Train
from fedora_vfl.errors import PartyError, SettingsError
from party import losses
from party.batches import SampleSets
from party.state import PartyState
from party.unseen import Standing
from party.updates import RuleMemory, rule_for
from party.updates.joint_rounds import JointRounds, in_own_units
from party.updates.primal_dual import Dual, DualAscent
from protos.fedora.v1 import phase_pb2
from protos.fedora.v1.exchange_pb2 import Order
from protos.fedora.v1.phase_pb2 import Loss, PrimalDescent, Residual, Uncertainty, Update

SCALAR, PARAMETERWISE = phase_pb2.DualAscent.SCALAR, phase_pb2.DualAscent.PARAMETERWISE


def parameters(*values: list[float]) -> list[Parameter]:
    return [Parameter(torch.tensor(one)) for one in values]


def ascent(
    memory: RuleMemory, own: list[Parameter], gradients: list[list[float]], *, fresh: bool = False, **settings: Any
) -> DualAscent:
    """Run an unlearning phase in which the gradients add up to these."""
    rule = rule_for(Update(dual_ascent=phase_pb2.DualAscent(**settings), fresh=fresh), own, memory)
    assert isinstance(rule, DualAscent)
    for one, gradient in zip(own, gradients, strict=True):
        one.grad = torch.tensor(gradient)
    return rule


def descend(memory: RuleMemory, own: list[Parameter], gradients: list[Tensor] | None, **settings: Any) -> None:
    """Run a remaining phase of one batch with these gradients, or of none."""
    rule = rule_for(Update(primal_descent=PrimalDescent(**settings)), own, memory)
    if gradients is not None:
        for one, gradient in zip(own, gradients, strict=True):
            one.grad = gradient.clone()
        rule.step()
    rule.finish()


# The dual ascent


def test_the_scalar_dual_variable_rises_by_sigma_times_what_the_loss_falls_short() -> None:
    memory, own = RuleMemory(), parameters([1.0, 2.0])
    # Ω + (1 − L_u)/4, and never below 0
    for loss, omega in [(-1.0, 0.5), (0.5, 0.625), (9.0, 0.0), (0.6, 0.1)]:
        rule = ascent(memory, own, [[0.5, -1.0]], form=SCALAR, sigma=0.25, gamma=1.0)
        told = rule.ascend(loss)
        assert told == pytest.approx(omega)
        dual = rule.settle(told)
        assert dual.push[0].tolist() == pytest.approx([0.5 * omega, -1.0 * omega])


def test_the_parameterwise_dual_variable_rises_by_sigma_times_gamma_less_the_gradient() -> None:
    memory, own = RuleMemory(), parameters([0.0, 0.0, 0.0], [0.0])
    first = ascent(memory, own, [[0.2, 1.0, 3.0], [-1.0]], form=PARAMETERWISE, sigma=0.5, gamma=1.0).settle(None)
    assert isinstance(first.omega, list)
    assert first.omega[0].tolist() == pytest.approx([0.4, 0.0, 0.0])
    assert first.omega[1].tolist() == pytest.approx([1.0])
    assert first.push[0].tolist() == pytest.approx([0.08, 0.0, 0.0])
    assert first.push[1].tolist() == pytest.approx([-1.0])
    second = ascent(memory, own, [[1.4, 0.0, 0.8], [1.0]], form=PARAMETERWISE, sigma=0.5, gamma=1.0).settle(None)
    assert isinstance(second.omega, list)
    assert second.omega[0].tolist() == pytest.approx([0.2, 0.5, 0.1])
    assert second.omega[1].tolist() == pytest.approx([1.0])
    assert second.push[0].tolist() == pytest.approx([0.28, 0.0, 0.08])


def test_in_its_own_units_a_gradient_s_scale_is_gone_and_none_is_divided_by_zero() -> None:
    for scale in (1.0, 1000.0):
        unit = math.sqrt((9 + 16) / 2)
        assert in_own_units(torch.tensor([3.0, 4.0]) * scale).tolist() == pytest.approx([3 / unit, 4 / unit])
    assert in_own_units(torch.zeros(2)).tolist() == [0.0, 0.0]


@given(
    sigma=st.floats(0, 100),
    gamma=st.floats(-10, 10),
    rounds=st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=8),
)
def test_the_dual_variable_is_never_negative(sigma: float, gamma: float, rounds: list[float]) -> None:
    scalar, parameterwise, own = RuleMemory(), RuleMemory(), parameters([0.0])
    settings: dict[str, Any] = {"sigma": sigma, "gamma": gamma}
    for value in rounds:
        rule = ascent(scalar, own, [[value]], form=SCALAR, **settings)
        omega = rule.ascend(value)
        rule.settle(omega)
        assert omega >= 0
        dual = ascent(parameterwise, own, [[value]], form=PARAMETERWISE, **settings).settle(None)
        assert isinstance(dual.omega, list)
        assert float(dual.omega[0]) >= 0


@pytest.mark.parametrize("form", [SCALAR, PARAMETERWISE])
def test_the_dual_variable_lives_on_until_a_phase_starts_afresh(form: phase_pb2.DualAscent.Form) -> None:
    memory, own = RuleMemory(), parameters([0.0])

    def norm(*, fresh: bool) -> float:
        rule = ascent(memory, own, [[0.5]], fresh=fresh, form=form, sigma=1.0, gamma=1.0)
        return rule.settle(rule.ascend(0.5) if rule.scalar else None).summary()["dual_norm"]

    assert [norm(fresh=one) for one in (False, False, True, False)] == pytest.approx([0.5, 1.0, 0.5, 1.0])


def test_parameters_stand_still_in_the_unlearning_phase_and_its_gradients_are_gone_afterwards() -> None:
    own = parameters([1.0, 2.0])
    rule = ascent(RuleMemory(), own, [[0.5, -1.0]], form=SCALAR, sigma=1.0, gamma=1.0)
    assert rule.parameters_frozen and rule.needs_gradients
    rule.step()
    rule.settle(3.0)
    assert own[0].tolist() == [1.0, 2.0] and own[0].grad is None


def test_what_is_told_of_a_dual_variable_is_norm_largest_value_and_positive_share() -> None:
    dual = Dual([torch.tensor([[3.0, 0.0]]), torch.tensor([4.0, 0.0])], [], [])
    assert dual.summary() == {"dual_norm": 5.0, "dual_largest": 4.0, "dual_positive_share": 0.5}
    assert Dual(2.5, [], []).summary() == {"dual_norm": 2.5, "dual_largest": 2.5, "dual_positive_share": 1.0}
    assert Dual(0.0, [], []).summary()["dual_positive_share"] == 0.0


def test_a_report_of_the_unlearning_phase_has_norms_only() -> None:
    rule = ascent(RuleMemory(), parameters([3.0, 4.0]), [[0.6, 0.8]], form=SCALAR, sigma=1.0, gamma=1.0)
    rule.settle(2.0)
    assert rule.finish() == pytest.approx(
        {
            "dual_norm": 2.0,
            "dual_largest": 2.0,
            "dual_positive_share": 1.0,
            "gradient_squared": 1.0,
            "parameters_squared": 25.0,
        }
    )


# The primal descent


def test_a_substep_follows_the_gradient_less_the_push_and_the_pull_towards_the_trained_model() -> None:
    own, init = parameters([1.0, 2.0], [3.0]), [torch.tensor([0.5, 2.5]), torch.tensor([3.0])]
    memory = RuleMemory(initial=init)
    ascent(memory, own, [[0.4, -0.2], [1.0]], form=SCALAR, sigma=1.0, gamma=1.0).settle(2.0)
    gradients = [torch.tensor([0.3, 0.1]), torch.tensor([-1.0])]
    descend(memory, own, gradients, tau=0.1, rho=0.5)
    assert own[0].tolist() == pytest.approx([1.0 - 0.1 * (0.3 - 0.8 + 0.5 * 0.5), 2.0 - 0.1 * (0.1 + 0.4 + 0.5 * -0.5)])
    assert own[1].tolist() == pytest.approx([3.0 - 0.1 * (-1.0 - 2.0)])
    assert own[0].grad is None


def test_the_push_is_the_same_in_every_substep_of_a_round() -> None:
    own = parameters([0.0])
    memory = RuleMemory(initial=[torch.zeros(1)])
    ascent(memory, own, [[1.0]], form=SCALAR, sigma=1.0, gamma=1.0).settle(3.0)
    rule = rule_for(Update(primal_descent=PrimalDescent(tau=0.1)), own, memory)
    for _ in range(4):
        own[0].grad = torch.zeros(1)
        rule.step()
    rule.finish()
    assert own[0].tolist() == pytest.approx([4 * 0.1 * 3.0])


def test_without_remaining_rows_there_is_one_substep_by_push_and_pull_alone() -> None:
    own = parameters([1.0])
    memory = RuleMemory(initial=[torch.tensor([0.0])])
    ascent(memory, own, [[1.0]], form=SCALAR, sigma=1.0, gamma=1.0).settle(2.0)
    descend(memory, own, None, tau=0.1, rho=1.0)
    assert own[0].tolist() == pytest.approx([1.0 - 0.1 * (-2.0 + 1.0)])


def test_a_phase_may_leave_the_push_out() -> None:
    own = parameters([0.0])
    memory = RuleMemory(initial=[torch.zeros(1)])
    ascent(memory, own, [[1.0]], form=SCALAR, sigma=1.0, gamma=1.0).settle(2.0)
    descend(memory, own, [torch.tensor([1.0])], tau=0.1, push=PrimalDescent.NONE)
    assert own[0].tolist() == pytest.approx([-0.1])


def test_the_first_rounds_take_shorter_steps_and_one_phase_goes_on_where_another_ended() -> None:
    own, memory, lengths = parameters([1.0]), RuleMemory(initial=[torch.ones(1)]), []
    for rounds in (2, 5):
        rule = rule_for(Update(joint_rounds=phase_pb2.JointRounds(step=0.1)), own, memory)
        assert isinstance(rule, JointRounds)
        rule.begin(rounds, labelled=True)
        for _ in range(rounds):
            before = float(own[0].detach())
            rule.descend([], [torch.tensor([3.0])], 0.0)
            lengths.append(before - float(own[0].detach()))
    assert lengths == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1, 0.1, 0.1], rel=1e-5)


def test_a_row_counts_in_the_push_however_sure_the_model_is_of_it() -> None:
    logits, labels = torch.tensor([[0.0, 1.0], [-40.0, 40.0]], requires_grad=True), torch.tensor([1, 1])
    odds = losses.log_odds(logits, labels)
    assert odds.tolist() == pytest.approx([1.0, 80.0])
    (gradient,) = torch.autograd.grad(odds.sum(), logits)
    assert gradient.tolist() == [[-1.0, 1.0]] * 2
    p = functional.softmax(torch.randn(5, 4, dtype=torch.double), dim=1)
    expected = [math.log(float(row[2] / (1 - row[2]))) for row in p]
    assert losses.log_odds(p.log(), torch.full((5,), 2)).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("update", [Update(primal_descent=PrimalDescent(tau=0.1)), Update(residual=Residual(rho=0.0))])
def test_a_step_towards_the_trained_model_before_rows_were_dropped_is_the_coordinator_s_fault(update: Update) -> None:
    with pytest.raises(PartyError) as caught:
        rule_for(update, parameters([0.0]), RuleMemory()).finish()
    assert caught.value.culprit == "coordinator"


# The residual, and D_u in micro-batches, on a real network


def network(seed: int = 0) -> nn.Module:
    """Make a small network with batch statistics."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def some_rows(rows: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 6, generator=draw), torch.randint(0, 3, (rows,), generator=draw)


def lagrangian(one: nn.Module, init: list[Tensor], omega: float, rho: float) -> Tensor:
    """L_r + ρ/2·‖Θ − Θ_init‖² − Ω·L_u, by autograd."""
    (x_r, y_r), (x_u, _) = some_rows(50, seed=1), some_rows(20, seed=2)
    pull = sum(((θ - start) ** 2).sum() for θ, start in zip(one.parameters(), init, strict=True))
    return functional.cross_entropy(one(x_r), y_r) + rho / 2 * pull - omega * losses.uncertainty(one(x_u), 2.0).mean()


def run_phase(
    one: nn.Module, update: Update, memory: RuleMemory, loss: Loss, rows: tuple[Tensor, Tensor], size: int
) -> Any:
    """Run the batches of a phase over which parameters stand still; return its rule."""
    one.eval()
    rule = rule_for(update, one.parameters(), memory)
    x, y = rows
    for part_x, part_y in zip(torch.split(x, size), torch.split(y, size), strict=True):
        each = losses.per_sample(loss, one(part_x), part_y)
        torch.autograd.backward(losses.reduce(loss, each, len(x)))
        rule.step()
    return rule


UNCERTAINTY = Loss(uncertainty=Uncertainty(omega=2.0), reduction=Loss.SET_MEAN)
CROSS_ENTROPY = Loss(cross_entropy={}, reduction=Loss.SET_MEAN)


@pytest.mark.parametrize("size", [7, 50])
def test_the_residual_is_the_gradient_of_the_lagrangian(size: int) -> None:
    one = network()
    init = [θ.detach() + 0.1 for θ in one.parameters()]
    memory = RuleMemory(initial=init)
    ascend = Update(dual_ascent=phase_pb2.DualAscent(form=SCALAR, sigma=1.0, gamma=1.0))
    run_phase(one, ascend, memory, UNCERTAINTY, some_rows(20, seed=2), size).settle(1.5)
    rule = run_phase(one, Update(residual=Residual(rho=0.3)), memory, CROSS_ENTROPY, some_rows(50, seed=1), size)
    figures = rule.finish()
    gradient = torch.autograd.grad(lagrangian(one, init, 1.5, 0.3), list(one.parameters()))
    assert figures["residual_squared"] == pytest.approx(sum(float(g.square().sum()) for g in gradient), rel=1e-4)
    count = sum(θ.numel() for θ in one.parameters())
    assert figures["moved_squared"] == pytest.approx(0.01 * count, rel=1e-4)


@pytest.mark.parametrize("form", [SCALAR, PARAMETERWISE])
@pytest.mark.parametrize("reduction", [Loss.SET_MEAN, Loss.SUM])
def test_however_d_u_is_cut_the_push_is_the_same_and_no_statistic_of_it_is_left(
    form: phase_pb2.DualAscent.Form, reduction: Loss.Reduction
) -> None:
    update = Update(dual_ascent=phase_pb2.DualAscent(form=form, sigma=0.5, gamma=0.7))
    loss = Loss(uncertainty=Uncertainty(omega=2.0), reduction=reduction)
    pushes = []
    for size in (1, 3, 23):
        one = network()
        before = copy.deepcopy(one.state_dict())
        rule = run_phase(one, update, RuleMemory(initial=[]), loss, some_rows(23), size)
        pushes.append(rule.settle(1.25 if form == SCALAR else None).push)
        for name, value in one.state_dict().items():
            assert value.equal(before[name]), f"{name} has changed"
    for push in pushes[1:]:
        for value, first in zip(push, pushes[0], strict=True):
            assert torch.allclose(value, first, rtol=1e-4, atol=1e-6)


# Undoing a round


def trained_state() -> PartyState:
    """Make a state whose networks and update rules have a past."""
    networks = nn.ModuleDict({"bottom": network()})
    state = PartyState(Order(), {}, networks, None, None, None, SampleSets.consecutive(60, 0, 10))
    train(state, Update(adam=phase_pb2.Adam(lr=0.01, beta1=0.9, beta2=0.999, epsilon=1e-8)), 1)
    state.begin()
    return state


def train(state: PartyState, update: Update, seed: int) -> None:
    """Run three batches in train mode: parameters, batch statistics and memory all change."""
    state.networks.train()
    rule = rule_for(update, state.networks.parameters(), state.memory)
    for step in range(3):
        x, y = some_rows(16, seed=100 * seed + step)
        torch.autograd.backward(functional.cross_entropy(state.networks["bottom"](x), y))
        rule.step()
    rule.finish()


def forget_a_little(state: PartyState, seed: int, *, lr: float = 0.01, checkpoint: bool = True) -> None:
    """Run one round, ascent and descent."""
    if checkpoint:
        state.checkpoint()
    ascend = Update(dual_ascent=phase_pb2.DualAscent(form=PARAMETERWISE, sigma=0.5, gamma=1.0))
    run_phase(state.networks["bottom"], ascend, state.memory, UNCERTAINTY, some_rows(20, seed=seed), 8).settle(None)
    train(state, Update(primal_descent=PrimalDescent(tau=lr)), seed)


def content(state: PartyState) -> Any:
    """Return a copy of all that a phase may change."""
    return copy.deepcopy((dict(state.networks.state_dict()), state.memory.kept, state.memory.initial))


def same(one: Any, other: Any) -> bool:
    """Compare nested values to the bit."""
    if isinstance(one, Tensor):
        return one.equal(other)
    if isinstance(one, Dual):
        return same((one.omega, one.push, one.lengths), (other.omega, other.push, other.lengths))
    if isinstance(one, dict):
        return set(one) == set(other) and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.mark.parametrize("checkpoints", [1, 2])
def test_a_round_that_is_taken_back_leaves_no_bit_changed_and_what_follows_is_as_if_it_had_never_been(
    checkpoints: int,
) -> None:
    state, undisturbed = trained_state(), trained_state()
    for seed in (1, 2):
        forget_a_little(state, seed)
        forget_a_little(undisturbed, seed)
    before = content(state)
    for seed in range(checkpoints):
        forget_a_little(state, 50 + seed, lr=10.0)
    assert not same(content(state), before)
    state.rollback(checkpoints)
    assert same(content(state), before)
    for one in (state, undisturbed):
        forget_a_little(one, 3)
    assert same(content(state), content(undisturbed)), "moments, dual variables and batch statistics went back too"


@pytest.mark.parametrize("checkpoints", [0, 2, 3])
def test_more_marks_than_are_kept_cannot_be_taken_back(checkpoints: int) -> None:
    state = trained_state()
    for seed in (1, 2, 3):
        forget_a_little(state, seed)
    state.rollback(1)  # two are kept, so that one is left
    before = content(state)
    with pytest.raises(PartyError) as caught:
        state.rollback(checkpoints)
    assert caught.value.culprit == "coordinator"
    assert same(content(state), before)


def test_a_new_beginning_takes_the_model_as_it_is_for_the_trained_one_and_forgets_the_rest() -> None:
    state = trained_state()
    forget_a_little(state, 1)
    state.begin()
    assert state.memory.kept == {}
    assert same(state.memory.initial, state.snapshot())
    with pytest.raises(PartyError):
        state.rollback(1)


def problem(**settings: Any) -> Problem:
    case = UnlearningTask(Train(epochs=20), classes=10, forget=100, remaining=2000, seed=1)
    return Problem(Fedora(**settings), case)


def played(
    task: Problem, found: Callable[[phase_pb2.Phase], dict[str, float]], held: Iterable[bool] = ()
) -> tuple[list[phase_pb2.Phase], MethodResult]:
    """Run the self-scaling rule with what the active party finds in each phase; return its phases and its result."""
    method, looks, phases = self_scaling.auto(task), iter(held), []
    step = next(method)
    try:
        while True:
            phases += phases_in(step)
            figures = {"active": found(phases[-1])}
            step = method.send(PhaseOutcome(0, 0.0, 0.0, 0.0, 0.0, figures, within_bounds=next(looks, False)))
    except StopIteration as stop:
        result: MethodResult = stop.value
        return phases, result


@given(
    held=st.lists(st.booleans(), max_size=5),
    kept=st.lists(st.booleans(), max_size=7) | st.just([False] * 7),
    spare=st.booleans(),
)
def test_however_comparisons_come_out_a_run_ends_and_says_whether_it_did_harm(
    held: list[bool], kept: list[bool], spare: bool
) -> None:
    backs, bytes_left = iter(kept), 3.8 if spare else 1.0
    task = replace(problem().task, remaining=20_000, rows_for_one=bytes_left)
    phases, result = played(Problem(Fedora(), task), lambda _: {"accuracy_kept": float(next(backs, True))}, held)
    rules = [one.update.WhichOneof("rule") for one in phases]
    assert rules[0] == rules[-1] == "compare" and rules.count("retreat") <= 4
    looks = 5 + spare  # before and after anything that may bring accuracy back
    assert ("retrain instead" in result.stopped) == (kept[1 : 1 + looks] == [False] * looks)
    assert result.rounds == sum(one.joint.rounds for one in phases if one.update.HasField("joint_rounds"))
    again = [one.joint.rounds for one in phases if (one.name, one.round) == (RECOVERY, 2)]
    assert bool(again) == (spare and kept[1:2] == [False]), "what the budget has left comes before any step back"
    exchanged = sum(one.joint.rounds * (one.joint.forget + one.joint.remaining) for one in phases)
    assert exchanged <= 0.02 * 20 * task.remaining * bytes_left


@pytest.mark.parametrize("rows_for_one", [0.8, 1.0, 1.7, 3.8])
@pytest.mark.parametrize("rows", [1437, 30_000])
@pytest.mark.parametrize(
    ("part", "all_classes", "share"),
    [(0.0, 0.0, 0.01), (50, 1.0, 0.01), (0.1, 1.0, 0.05), (0.1, 0.0, 0.08), (0.4, 0.0, 0.08), (0.4, 1.0, 0.05)],
)
def test_what_a_run_exchanges_follows_the_request(
    rows: int, part: float, all_classes: float, share: float, rows_for_one: float
) -> None:
    """`part` are the rows asked for, as a share of all or a number."""
    forget = round(part) if part > 1 else max(1, round(part * rows))
    epochs = 10 if rows > 2000 else 25
    train = Train(epochs=epochs, batch_size=128)
    task = UnlearningTask(
        train, classes=10, forget=forget, remaining=rows - forget, seed=1, test=rows // 4, rows_for_one=rows_for_one
    )
    phases, _ = played(Problem(Fedora(), task), lambda _: {"all_classes": all_classes})
    exchanged = 0.0
    for one in phases:
        both_ways = 0 if one.forward_only else one.joint.forget + one.joint.remaining
        a_round = one.joint.forget + one.joint.remaining + one.joint.held_out + both_ways
        exchanged += one.joint.rounds * a_round / 2
    retrained = epochs * task.remaining
    assert exchanged <= share * retrained * max(1.0, rows_for_one), "the bytes are no more than their share"
    assert exchanged <= 2 * share * retrained + 2000, "nor is the time: twice its share, and about a second"
    training = epochs * math.ceil(task.remaining / train.batch_size)
    assert sum(one.joint.rounds for one in phases) <= 2 * share * training + 8 + 2


def test_the_more_layers_a_network_has_the_shorter_are_the_steps_in_each() -> None:
    shallow, deep = (
        played(Problem(Fedora(), replace(problem().task, layers=layers)), lambda _: {})[0] for layers in (3, 24)
    )
    (whole,), (part,) = ({one.update.joint_rounds.step for one in phases} - {0.0} for phases in (shallow, deep))
    assert part == pytest.approx(whole * self_scaling.STEP_LAYERS / 24)


@pytest.mark.parametrize(
    ("rows", "forget", "told", "push_share", "most", "passes"),
    [
        (30_000, 3000, {"all_classes": 0.0, "carried": 0.0}, None, 0.6, math.inf),  # half a class
        (30_000, 3000, {"all_classes": 0.0, "carried": 1.0}, None, 0.45, math.inf),  # poisoned
        (30_000, 3000, {"all_classes": 1.0, "carried": 0.0}, None, 0.45, 2),
        (30_000, 50, {"all_classes": 1.0, "carried": 0.0}, None, 0.45, 2),
        (30_000, 50, {"all_classes": 0.0, "carried": 0.0}, None, 0.45, 2),
        (30_000, 5, {}, None, 0.45, 2),  # of so few nothing is told
        (1437, 300, {"all_classes": 0.0, "carried": 0.0}, None, 0.6, math.inf),
        (1437, 140, {"all_classes": 1.0, "carried": 0.0}, None, 0.45, 2),
        (
            1437,
            140,
            {"all_classes": 1.0, "carried": 0.0},
            1.0,
            1.0,
            math.inf,
        ),  # what a job says holds for every request
    ],
)
def test_no_more_rounds_push_than_rows_that_look_like_others_bear(
    rows: int, forget: int, told: dict[str, float], push_share: float | None, most: float, passes: float
) -> None:
    task = UnlearningTask(
        Train(epochs=25), classes=10, forget=forget, remaining=rows - forget, seed=1, test=2000, rows_for_one=3.8
    )
    phases, result = played(Problem(Fedora(scales=Scales(push_share=push_share)), task), lambda _: told)
    (pushing,) = (one.joint for one in phases if one.update.HasField("joint_rounds") and one.joint.forget)
    bound = math.ceil(most * result.rounds)
    if most == self_scaling.PUSH_SHARE:
        assert 2 <= pushing.rounds <= min(self_scaling.PUSH_ROUNDS, bound)
    else:
        assert pushing.rounds == bound
    assert (pushing.rounds - 1) * pushing.forget < passes * forget


@pytest.mark.parametrize("batch_size", [1, 4, 32, 256])
@pytest.mark.parametrize("remaining", [2, 20, 228, 400])
def test_a_table_whose_comparisons_take_all_of_the_budget_is_forgotten_from_too(
    remaining: int, batch_size: int
) -> None:
    train = Train(epochs=3, batch_size=batch_size)
    task = UnlearningTask(train, classes=2, forget=12, remaining=remaining, seed=1, test=60)
    _, result = played(Problem(Fedora(), task), lambda _: {})
    assert result.rounds >= self_scaling.FEW_ROUNDS


# Comparisons, and the level that a push goes to


def compared(right: list[bool]) -> Standing:
    return Standing(0.0, None, 0.0, 0, 0.0, torch.tensor(right), all_classes=False)


@pytest.mark.parametrize(
    ("rows", "lost", "won", "kept"),
    [(34, 2, 0, True), (34, 6, 0, False), (400, 15, 0, True), (400, 30, 0, False), (400, 60, 50, True)],
)
def test_accuracy_counts_as_lost_beyond_two_per_cent_and_two_errors_of_the_rows_that_turned(
    rows: int, lost: int, won: int, kept: bool
) -> None:
    first = torch.tensor([True] * (rows - won) + [False] * won)
    now = compared([False] * lost + [True] * (rows - lost))
    assert now.keeps(first, phase_pb2.Compare(errors=2.0, loss_of_accuracy=0.02)) == kept


def test_the_dual_variable_rises_until_the_loss_has_reached_its_level_and_is_0_from_there_on() -> None:
    memory = RuleMemory(initial=[torch.ones(2)])

    def risen(loss: float) -> float:
        settings = phase_pb2.JointRounds(form=SCALAR, sigma=1.0, ceiling=1.0, omega_max=1.0)
        rule = rule_for(Update(joint_rounds=settings), parameters([1.0, 1.0]), memory)
        assert isinstance(rule, JointRounds)
        rule.begin(1, labelled=True)
        return rule.ascend(loss)

    assert [risen(loss) for loss in (0.75, 0.0, 1.0)] == pytest.approx([0.25, 1.0, 0.0])
    memory.of("compare").update(mean_loss=2.0)
    assert risen(1.0) == pytest.approx(0.5), "rows never seen have a larger loss than guessing has"


# Step sizes


def step_sizes(**changes: float) -> StepSizes:
    values = {"tau": 0.01, "sigma": 1.0, "tau_max": 0.1, "sigma_max": 10.0}
    return StepSizes(**{**values, "alpha": 1.5, "beta": 0.8, "shrink": 0.7, "grow": 1.2, **changes})


@pytest.mark.parametrize(
    ("ratio", "factor"), [(0.0, 1.2), (0.79, 1.2), (0.8, 1.0), (1.0, 1.0), (1.5, 1.0), (1.51, 0.7), (100.0, 0.7)]
)
def test_steps_grow_while_the_model_hardly_moves_and_shrink_when_it_jumps(ratio: float, factor: float) -> None:
    first = step_sizes().adapt(2.0)
    assert (first.tau, first.sigma) == (0.01, 1.0), "the first change has none to compare with"
    second = first.adapt(2.0 * ratio)
    assert (second.tau, second.sigma) == pytest.approx((0.01 * factor, 1.0 * factor))


@given(changes=st.lists(st.floats(0, 1e12), max_size=200))
def test_steps_stay_between_a_floor_above_zero_and_their_caps(changes: list[float]) -> None:
    steps = step_sizes()
    for change in changes:
        steps = steps.adapt(change)
        assert 0 < steps.tau <= steps.tau_max and 0 < steps.sigma <= steps.sigma_max
        assert steps.tau >= 1e-12 and steps.sigma >= 1e-12


def test_caps_hold_and_a_long_calm_brings_a_step_back_from_the_floor() -> None:
    steps = step_sizes()
    change = 1.0
    for _ in range(300):
        change *= 2
        steps = steps.adapt(change)
    assert steps.tau < 1e-10
    for _ in range(1000):
        change /= 2
        steps = steps.adapt(change)
    assert (steps.tau, steps.sigma) == (0.1, 10.0)


# The problem


@pytest.mark.parametrize(("reduction", "largest"), [("mean", 2 * math.log(10)), ("sum", 200 * math.log(10))])
def test_a_level_that_no_model_can_reach_is_refused_with_the_largest_that_one_can(
    reduction: str, largest: float
) -> None:
    def paper(**settings: Any) -> Problem:
        return problem(steps="paper", reduction=reduction, **settings)

    assert paper(gamma=largest * 0.999).gamma == largest * 0.999
    with pytest.raises(SettingsError) as caught:
        paper(gamma=largest * 1.01)
    assert f"the largest value that L_u takes here is {largest:.6g}" in str(caught.value)
    assert paper(gamma=largest * 1.01, dual="parameterwise").gamma > largest, "a growth rate"
