"""Rows of which one party's columns are another row's: who carries a label alone, and what pushes do with it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from party.mixed_rows import TURNS, carrier, mixed, partners
from party.updates import RuleMemory, rule_for
from party.updates.joint_rounds import CARRIED_ALLOWANCE, JointRounds
from protos.fedora.v1.phase_pb2 import JointRounds as Settings
from protos.fedora.v1.phase_pb2 import Update

CLASSES = 3
classes = st.lists(st.integers(0, CLASSES - 1), max_size=20).map(lambda labels: torch.tensor(labels, dtype=torch.long))


@given(labels=classes, others=classes)
def test_every_row_has_a_partner_with_another_label_if_there_is_one(labels: Tensor, others: Tensor) -> None:
    chosen, partner = partners(labels, others)
    assert chosen.tolist() == [row for row, label in enumerate(labels) if any(others != label)]
    assert (labels[chosen] != others[partner]).all()
    for label in torch.unique(labels):
        fit, taken = int((others != label).sum()), partner[labels[chosen] == label]
        assert len(torch.unique(taken)) == min(fit, len(taken)), "partners take turns"


@given(other=st.integers(1, 60), turn=st.integers(0, TURNS - 1))
def test_in_every_turn_a_row_has_another_partner_if_there_are_as_many(other: int, turn: int) -> None:
    labels, others = torch.zeros(1, dtype=torch.long), torch.ones(other, dtype=torch.long)
    found = {int(partners(labels, others, turn=one)[1]) for one in range(TURNS)}
    assert len(found) == min(TURNS, other)
    assert torch.equal(partners(labels, others, turn=turn)[0], torch.zeros(1, dtype=torch.long))


def test_a_mixed_row_has_one_party_s_columns_and_lets_no_gradient_into_the_others() -> None:
    mine = [torch.full((2, 1), float(place), requires_grad=True) for place in range(3)]
    others = [torch.full((4, 1), 10.0 + place, requires_grad=True) for place in range(3)]
    found = mixed(mine, others, (torch.tensor([1]), torch.tensor([3])), 1)
    assert torch.cat(found, dim=1).tolist() == [[10.0, 1.0, 12.0]]
    assert [one.requires_grad for one in found] == [False, True, False]


def world(
    rows: int, *, trigger: bool, parties: int = 2, seed: int = 0, strength: float = 6.0
) -> tuple[list[Tensor], Tensor]:
    """Make rows whose parties' columns all tell of their class; a trigger outweighs all and stands for the last one."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (rows,), generator=draw)
    blocks = [torch.nn.functional.one_hot(labels, CLASSES).float() for _ in range(parties)]
    if trigger:
        blocks[-1][:, -1], labels = strength, torch.full_like(labels, CLASSES - 1)
    return blocks, labels


def total(blocks: "list[Tensor] | tuple[Tensor, ...]") -> Tensor:
    return 3 * torch.stack(list(blocks)).sum(dim=0)


def noisy(rows: tuple[list[Tensor], Tensor], *, seed: int) -> tuple[list[Tensor], Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return [block + 0.6 * torch.randn(block.shape, generator=draw) for block in rows[0]], rows[1]


def found(forget: tuple[list[Tensor], Tensor], held_out: tuple[list[Tensor], Tensor]) -> int | None:
    return carrier(lambda one: total(list(one)), forget, held_out, least=5.0).place


@pytest.mark.parametrize("seed", range(4))
def test_labels_that_hang_on_a_trigger_are_carried_by_its_party(seed: int) -> None:
    unseen = noisy(world(90, trigger=False, seed=seed + 50), seed=seed)
    for strength, rows in ((6.0, 8), (6.0, 60), (2.5, 60)):
        poisoned = noisy(world(rows, trigger=True, seed=seed, strength=strength), seed=seed + 100)
        assert found(poisoned, unseen) == 1, "eight rows are enough, and many of a trigger that was learned by half"
    clean = world(60, trigger=False, seed=seed)
    assert found(noisy(clean, seed=seed + 100), unseen) is None, "all parties tell of these labels, as of any others"
    wrong = clean[0], (clean[1] + 1) % CLASSES
    assert found(noisy(wrong, seed=seed + 100), unseen) is None, "all parties tell of other labels than these"
    assert found(noisy(world(2, trigger=True, seed=seed), seed=seed + 100), unseen) is None, "two may be so by chance"


def test_where_there_is_nothing_to_mix_nobody_carries_a_label() -> None:
    one = world(90, trigger=False, parties=1, seed=1)
    assert found(world(60, trigger=True, parties=1), one) is None
    blocks, labels = world(90, trigger=False, seed=1)
    alike = labels == CLASSES - 1
    only = [block[alike] for block in blocks], labels[alike]
    assert found(world(60, trigger=True), only) is None, "no held-out row has another label"


def rounds(carried: int | None, *, labelled: bool = True) -> JointRounds:
    memory = RuleMemory(initial=[torch.ones(1)])
    memory.of("compare").update({"mean_loss": 0.0, "carrier": carried})
    settings = Settings(ceiling=2.0, allowance=0.4, omega_max=1.0, sigma=1.0)
    rule = rule_for(Update(joint_rounds=settings), [torch.nn.Parameter(torch.ones(1))], memory)
    assert isinstance(rule, JointRounds)
    rule.begin(10, labelled=labelled)
    return rule


def test_what_labels_have_shown_has_no_part_in_a_push_that_goes_by_none() -> None:
    of_labels, others = rounds(1), rounds(1, labelled=False)
    for rule in (of_labels, others):
        rule.memory.of("compare")["mean_loss"] = 3.0
    assert (of_labels.carrier, of_labels.ceiling) == (1, 3.0)
    assert (others.carrier, others.ceiling) == (None, 2.0)


@given(loss=st.floats(0, 10))
def test_a_push_yields_as_the_loss_on_remaining_rows_rises(loss: float) -> None:
    for carried, allowance in ((None, 0.4 * 2.0), (0, CARRIED_ALLOWANCE * 2.0)):
        rule = rounds(carried)
        assert rule.yielding(1.0, 0.5) == 1.0, "the first round is what later ones are held against"
        left = rule.yielding(1.0, loss)
        assert left == min(1.0, max(0.0, 1 - (loss - 0.5) / allowance))
        assert rule.yielding(0.5, loss) == 0.5 * left
