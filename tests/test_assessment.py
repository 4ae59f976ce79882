"""What the figures of a model mean: accuracies, and who can be recognised as a member by whom."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve
from torch import Tensor, nn

from fedora_vfl.errors import PartyError
from party.assessment import Assessor
from party.attack import Attack
from party.batches import SampleSets
from party.predictions import Predictions
from party.rates import area_under_curve, true_positives
from party.state import PartyState
from protos.fedora.v1.exchange_pb2 import Order
from protos.fedora.v1.phase_pb2 import Samples

scores = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=40).map(torch.tensor)


# The two figures of the honest attack


def test_the_area_under_the_curve_is_the_chance_to_order_a_pair_rightly() -> None:
    # Of the six pairs four are in order, one is tied, one is not.
    assert area_under_curve(torch.tensor([3.0, 1.0]), torch.tensor([0.0, 1.0, 2.0])) == pytest.approx(4.5 / 6)


@given(members=scores, others=scores)
def test_ties_count_half_in_the_area_and_turning_scores_round_mirrors_it(members: Tensor, others: Tensor) -> None:
    pairs = members.unsqueeze(1) - others.unsqueeze(0)
    by_hand = float(((pairs > 0).double() + (pairs == 0).double() / 2).mean())
    assert area_under_curve(members, others) == pytest.approx(by_hand)
    assert area_under_curve(-members, -others) == pytest.approx(1 - by_hand)
    is_member = np.repeat([1, 0], [len(members), len(others)])
    assert by_hand == pytest.approx(float(roc_auc_score(is_member, torch.cat([members, others]).numpy())))


def test_at_one_percent_false_positives_one_of_a_hundred_others_may_be_taken_for_a_member() -> None:
    others = torch.arange(100.0)  # the largest is 99; the threshold is 98
    assert true_positives(torch.tensor([98.0, 98.5, 99.5, 200.0]), others) == 3 / 4
    assert true_positives(torch.tensor([99.0]), torch.arange(99.0 + 1)[:50]) == 1.0
    assert true_positives(torch.tensor([98.5, 99.5]), torch.arange(100.0)[1:]) == 1 / 2, "of 99 others none may be"


@given(members=scores, others=st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=300).map(torch.tensor))
def test_no_more_others_than_allowed_are_above_the_threshold_and_no_threshold_does_better(
    members: Tensor, others: Tensor
) -> None:
    found = true_positives(members, others)
    is_member = np.repeat([1, 0], [len(members), len(others)])
    false, true, _ = roc_curve(is_member, torch.cat([members, others]).numpy(), drop_intermediate=False)
    assert found == pytest.approx(float(true[false <= 0.01].max()))


# Predictions


def logits_of(classes: Tensor, certainty: float | Tensor, *, number: int = 4) -> Tensor:
    """Make logits that favour these classes by so much."""
    favour = torch.as_tensor(certainty, dtype=torch.float32).expand(len(classes))
    return nn.functional.one_hot(classes, number).float() * favour.unsqueeze(1)


def test_accuracy_is_the_share_of_right_predictions_and_unknown_of_no_rows() -> None:
    right = Predictions(logits_of(torch.tensor([0, 1, 2, 3]), 1.0), torch.tensor([0, 1, 2, 0]))
    assert right.accuracy() == 3 / 4
    assert right.of(torch.tensor([False] * 4)).accuracy() is None


@dataclass(frozen=True)
class Model4:
    """What a model of four classes says of members and of others: noise beside a certainty for each kind of row."""

    members: float
    others: float
    seed: int = 0

    def predict(self, classes: Tensor, *, member: bool, salt: int = 0) -> Tensor:
        """Return logits that favour the right class by about the certainty."""
        draw = torch.Generator().manual_seed(self.seed + 2 * salt + member)
        noise = torch.randn(len(classes), 4, generator=draw) * 0.5
        return logits_of(classes, self.members if member else self.others) + noise


def some_classes(rows: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 4, (rows,), generator=torch.Generator().manual_seed(seed))


def test_the_paper_s_attack_recognises_rows_that_were_memorised() -> None:
    model = Model4(members=8, others=1)
    classes = some_classes(400)
    attack = Attack.fit(
        Predictions(model.predict(classes, member=True), classes),
        Predictions(model.predict(classes, member=False), classes),
    )
    fresh = some_classes(200, seed=1)
    members = Predictions(model.predict(fresh, member=True, salt=1), fresh)
    others = Predictions(model.predict(fresh, member=False, salt=1), fresh)
    assert attack.success(members, others) > 0.95
    assert attack.success(others, others) == pytest.approx(0.5), "of rows alike as many are caught as are spared"


# A whole assessment

TRAIN, TEST, PROBE = 600, 300, 100


def state_of(labels: Tensor, *, forget: Tensor, truth: Tensor | None = None, probe: int = 0) -> PartyState:
    """Make an active party's state with these labels, the rows in the order train, test, probe."""
    sets = SampleSets.consecutive(TRAIN, 0, len(labels) - TRAIN - probe, probe).forgetting(forget)
    return PartyState(Order(), {}, nn.ModuleDict(), None, labels, truth, sets)


def recorded(state: PartyState, logits: Tensor) -> dict[Samples.Set, tuple[Tensor, Tensor]]:
    """Record the predictions of every set that has rows."""
    wanted = (Samples.TEST, Samples.FORGET, Samples.REMAINING, Samples.PROBE)
    return {one: (rows, logits[rows]) for one in wanted if len(rows := state.sets.rows[one])}


def outputs(labels: Tensor, forget: Tensor, *, members: float, forgotten: float, others: float) -> Tensor:
    """Return a model's outputs, of such certainty for rows that it knows, for those to forget, and for all others."""
    certainty = torch.full((len(labels),), others)
    certainty[:TRAIN] = members
    certainty[forget] = forgotten
    noise = torch.randn(len(labels), 4, generator=torch.Generator().manual_seed(3)) * 0.5
    return logits_of(labels, certainty) + noise


def test_a_uniform_output_beats_the_paper_s_attack_and_loses_to_the_honest_one() -> None:
    labels, forget = some_classes(TRAIN + TEST), torch.arange(0, 200)
    state = state_of(labels, forget=forget)
    assessor = Assessor(state)
    original = recorded(state, outputs(labels, forget, members=8, forgotten=8, others=2))
    fitted = assessor.fit_attack(original)
    assert fitted["attack_on_remaining"] > 0.9
    before = assessor.figures(original)
    assert before["mia_asr"] > 0.9 and before["mia_auc"] > 0.9, "the original model remembers"
    assert before["forget_entropy"] < 0.1

    uncertain = assessor.figures(recorded(state, outputs(labels, forget, members=8, forgotten=0, others=2)))
    assert uncertain["mia_asr"] < 0.55, "the paper's attack takes uncertain rows for rows never seen"
    assert uncertain["mia_auc"] < 0.3, "but they are less certain than those, and that gives them away"
    assert uncertain["mia_tpr_at_1_fpr"] < 0.02 < uncertain["mia_tpr_at_1_fpr_reversed"]
    assert uncertain["forget_entropy"] > 1.1

    as_retrained = assessor.figures(recorded(state, outputs(labels, forget, members=8, forgotten=2, others=2)))
    assert abs(as_retrained["mia_auc"] - 0.5) < 0.08
    assert abs(as_retrained["mia_asr"] - 0.5) < 0.08


def test_attacks_compare_with_held_out_rows_of_the_same_classes_only() -> None:
    labels = some_classes(TRAIN + TEST)
    forget = torch.nonzero(labels[:TRAIN] == 2).flatten()[:50]
    state = state_of(labels, forget=forget)
    logits = outputs(labels, forget, members=2, forgotten=2, others=2)
    strange = torch.arange(len(labels)) >= TRAIN
    logits[strange & (labels != 2)] = 0  # of other classes the model knows nothing
    assert abs(Assessor(state).figures(recorded(state, logits))["mia_auc"] - 0.5) < 0.12


def test_when_a_class_is_forgotten_whole_its_test_rows_count_apart() -> None:
    labels = some_classes(TRAIN + TEST)
    forget = torch.nonzero(labels[:TRAIN] == 1).flatten()
    state = state_of(labels, forget=forget)
    test = torch.arange(TRAIN, TRAIN + TEST)
    gone = labels[test] == 1
    logits = logits_of(labels, 5.0)
    wrong = test[gone][:10]  # these are now taken for class 0, all others are right
    logits[wrong] = logits_of(torch.zeros(10, dtype=torch.int64), 5.0)
    figures = Assessor(state).figures(recorded(state, logits))
    assert figures["test_accuracy"] == 1.0
    assert figures["forgotten_classes_accuracy"] == pytest.approx(1 - 10 / int(gone.sum()))
    assert figures["all_classes_accuracy"] == pytest.approx(1 - 10 / TEST)
    assert figures["remaining_accuracy"] == figures["forget_accuracy"] == 1.0


def test_a_figure_without_rows_is_left_out() -> None:
    labels = torch.cat([some_classes(TRAIN), torch.ones(TEST, dtype=torch.int64)])
    state = state_of(labels, forget=torch.nonzero(labels[:TRAIN] == 1).flatten())
    figures = Assessor(state).figures(recorded(state, logits_of(labels, 5.0)))
    assert "test_accuracy" not in figures and "test_loss" not in figures, "every test row is of the forgotten class"
    assert figures["forgotten_classes_accuracy"] == 1.0


def test_while_rows_of_a_class_remain_all_test_rows_count_together() -> None:
    labels = some_classes(TRAIN + TEST)
    forget = torch.nonzero(labels[:TRAIN] == 1).flatten()[1:]
    figures = Assessor(state := state_of(labels, forget=forget)).figures(recorded(state, logits_of(labels, 5.0)))
    assert not {"forgotten_classes_accuracy", "all_classes_accuracy"} & set(figures)


def test_a_backdoor_is_measured_by_its_target_and_everything_else_by_the_truth() -> None:
    truth = some_classes(TRAIN + TEST + PROBE)
    labels, forget = truth.clone(), torch.nonzero(truth[:TRAIN] == 1).flatten()
    labels[forget] = 3  # poisoned
    labels[TRAIN + TEST :] = 3
    state = state_of(labels, forget=forget, truth=truth, probe=PROBE)
    logits = logits_of(truth, 5.0)  # a model that sees through it ...
    logits[forget[:30]] = logits_of(torch.full((30,), 3), 5.0)  # ... but not in thirty of the poisoned rows
    fooled = torch.arange(TRAIN + TEST, TRAIN + TEST + 20)
    logits[fooled] = logits_of(torch.full((20,), 3), 5.0)  # ... and in twenty of the triggered test rows
    assessor = Assessor(state)
    assert assessor.fit_attack(recorded(state, logits)) == {}
    figures = assessor.figures(recorded(state, logits))
    assert figures["test_accuracy"] == figures["remaining_accuracy"] == 1.0
    assert figures["forget_accuracy"] == pytest.approx(1 - 30 / len(forget))
    assert figures["forget_poisoned_accuracy"] == pytest.approx(30 / len(forget))
    target = int((truth[TRAIN + TEST + 20 :] == 3).sum())
    assert figures["backdoor_asr"] == pytest.approx((20 + target) / PROBE)
    assert not [name for name in figures if name.startswith("mia_")], "poisoned rows differ from all others anyway"


def test_a_model_can_be_measured_when_few_rows_are_held_out() -> None:
    labels = some_classes(TRAIN + 1)
    state = state_of(labels, forget=torch.nonzero(labels[:TRAIN] != labels[TRAIN]).flatten()[:5])
    assessor, kept = Assessor(state), recorded(state, logits_of(labels, 5.0))
    assert assessor.fit_attack(kept) == {}
    figures = assessor.figures(kept)
    assert figures["test_accuracy"] == 1.0
    assert "mia_asr" not in figures and "mia_auc" not in figures, "no held-out row of these classes"


@pytest.mark.parametrize(("smallest_group", "told"), [(0, True), (5, True), (6, False)])
def test_few_rows_to_forget_are_not_shown_to_be_the_last_of_a_class(smallest_group: int, told: bool) -> None:
    labels = some_classes(TRAIN + TEST)
    labels[:TRAIN][labels[:TRAIN] == 3] = 2
    labels[:5] = 3
    state = state_of(labels, forget=torch.arange(5))
    kept = recorded(state, logits_of(labels, 5.0))
    assessor = Assessor(state, smallest_group=smallest_group)
    assert ("forgotten_classes_accuracy" in assessor.figures(kept)) == told
    (about,) = assessor.about("test_accuracy", kept)
    assert (len(about) < TEST) == told


def test_figures_over_rows_that_were_not_recorded_are_the_coordinator_s_fault() -> None:
    labels = some_classes(TRAIN + TEST)
    state = state_of(labels, forget=torch.arange(5))
    kept = recorded(state, logits_of(labels, 5.0))
    del kept[Samples.TEST]
    with pytest.raises(PartyError) as caught:
        Assessor(state).figures(kept)
    assert caught.value.culprit == "coordinator"
