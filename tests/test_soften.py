"""Making all predictions less sure, by no more than is asked for."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from party.updates import RuleMemory, rule_for
from party.updates.soften import LEAST, scale
from protos.fedora.v1.phase_pb2 import Soften, Update


def unsure(logits: Tensor) -> float:
    """Return the mean of 2·H(P) − log C."""
    p = logits.double().softmax(dim=1)
    return float(2 * torch.special.entr(p).sum(dim=1).mean()) - math.log(logits.shape[1])


@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 40),
    classes=st.integers(2, 12),
    size=st.floats(0, 60),
    share=st.floats(-1, 0.999),
)
def test_predictions_are_as_sure_as_the_level_allows(
    seed: int, rows: int, classes: int, size: float, share: float
) -> None:
    logits = size * torch.randn(rows, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    level = share * math.log(classes)
    s = scale(logits, level)
    assert LEAST <= s <= 1
    assert unsure(s * logits) >= level - 1e-9
    assert s == 1 or unsure((s + 3e-6) * logits) < level + 1e-9, "no less sure than is asked for"


def test_a_level_that_no_prediction_reaches_is_guessing() -> None:
    assert 0 < scale(torch.tensor([[9.0, 0.0, 0.0]], dtype=torch.float64), 2 * math.log(3)) == LEAST < 1e-5


def test_predictions_that_are_no_numbers_are_left_as_they_are() -> None:
    assert scale(torch.tensor([[9.0, math.nan, 0.0]], dtype=torch.float64), math.log(2)) == 1


@pytest.mark.parametrize("seen", [True, False], ids=["active party", "a passive one"])
def test_the_last_layer_is_scaled_at_the_party_that_sees_predictions_and_no_other(seen: bool) -> None:
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4))
    x = 20 * torch.randn(30, 5)
    before = {name: one.clone() for name, one in network.state_dict().items()}
    likeliest, memory = network(x).argmax(dim=1), RuleMemory()
    rule = rule_for(Update(soften=Soften(level=0.8 * math.log(4)), fresh=True), network.parameters(), memory)
    for batch in torch.split(x, 7) if seen else []:
        rule.see(network(batch))
    assert rule.finish() == {}, "how far it went is not told: it would be about the rows"
    assert not memory.of("soften"), "nor is anything kept"
    after = network.state_dict()
    assert all(after[name].equal(before[name]) for name in ("0.weight", "0.bias"))
    assert network(x).argmax(dim=1).equal(likeliest)
    if seen:
        assert unsure(network(x).detach()) == pytest.approx(0.8 * math.log(4), abs=1e-4)
    else:
        assert after["2.weight"].equal(before["2.weight"])
