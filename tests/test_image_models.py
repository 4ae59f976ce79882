"""What ResNet and DenseNet promise: torchvision's networks, at any width, for stripes of any size."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from fedora_vfl.errors import SettingsError
from party import models
from party.models import image_networks
from tests import reference
from tests.conftest import as_job, run

torchvision_models = pytest.importorskip("torchvision.models")

NAMES = ["resnet18", "resnet50", "densenet121"]
HALF = (3, 32, 16)  # half of a CIFAR image


def build(name: str, shape: tuple[int, ...] = HALF, *, width: int = 4, embedding: int = 6, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return models.bottom(name, {"width": width}, origin="model").build(shape, embedding)


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def size(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


# The same networks


@pytest.mark.parametrize("name", NAMES)
def test_at_full_width_all_but_the_stem_and_the_last_layer_is_torchvision_s(name: str) -> None:
    with torch.device("meta"):
        original = getattr(torchvision_models, name)()
    ours = {key: value.shape for key, value in build(name, width=64).state_dict().items()}
    theirs = {key: value.shape for key, value in original.state_dict().items()}
    assert list(ours) == list(theirs)
    different = {key for key in ours if ours[key] != theirs[key]}
    stem, last = ("features.conv0", "classifier") if name == "densenet121" else ("conv1", "fc")
    assert different == {f"{stem}.weight", f"{last}.weight", f"{last}.bias"}


@pytest.mark.parametrize("name", NAMES)
def test_large_images_get_the_original_network_and_its_outputs(name: str) -> None:
    original = getattr(torchvision_models, name)(num_classes=6)
    ours = build(name, (3, 96, 96), width=64)
    ours.load_state_dict(original.state_dict())
    images = random(2, 3, 96, 96)
    for train in (True, False):
        torch.testing.assert_close(ours.train(train)(images), original.train(train)(images))


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_drawn_as_torchvision_draws_them(name: str) -> None:
    original = dict(getattr(torchvision_models, name)(num_classes=6).named_parameters())
    for key, ours in build(name, width=64).named_parameters():
        if ours.dim() == 4 and ours.numel() > 10_000 and ours.shape == original[key].shape:
            assert float((ours.std() / original[key].std()).detach()) == pytest.approx(1, abs=0.1), key
        elif "bn" in key or "norm" in key:
            assert torch.equal(ours, original[key]), key


# Any width, any size


@pytest.mark.parametrize("name", NAMES)
def test_width_scales_every_layer(name: str) -> None:
    narrow, wide = build(name, width=8), build(name, width=16)
    assert size(wide) / size(narrow) == pytest.approx(4, rel=0.12)
    for (key, small), large in zip(narrow.named_parameters(), wide.parameters(), strict=True):
        scaled = [ours for ours, theirs in zip(small.shape, large.shape, strict=True) if 2 * ours == theirs]
        fixed = key.endswith(("fc.bias", "classifier.bias"))
        edge = key in ("conv1.weight", "features.conv0.weight", "fc.weight", "classifier.weight")
        assert len(scaled) == (0 if fixed else 1 if edge or small.dim() == 1 else 2), key


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "shape",
    [(3, 32, 16), (1, 28, 14), (3, 64, 32), (1, 8, 4), (3, 28, 2), (1, 8, 1), (1, 1, 1), (3, 64, 1), (3, 128, 64)],
)
def test_a_stripe_of_any_size_goes_forth_and_back(name: str, shape: tuple[int, ...]) -> None:
    network = build(name, shape)
    embedding = network(random(3, *shape))
    assert embedding.shape == (3, 6)
    torch.autograd.backward(embedding.square().sum())
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in network.parameters())
    assert network.eval()(random(1, *shape)).isfinite().all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("side", "seen"), [(28, 28), (32, 32), (40, 40), (64, 32), (80, 40), (128, 32), (224, 56)])
def test_the_first_stage_sees_small_images_whole_and_larger_ones_reduced(name: str, side: int, seen: int) -> None:
    network = build(name, (3, side, side // 2), width=2)
    first: Any = network.get_submodule("features.denseblock1" if name == "densenet121" else "layer1")
    shapes: list[tuple[int, ...]] = []
    first.register_forward_pre_hook(lambda _, inputs: shapes.append(tuple(inputs[0].shape[2:])))
    network.eval()(random(1, 3, side, side // 2))
    assert shapes == [(seen, seen // 2)]


# State


@pytest.mark.parametrize("name", NAMES)
def test_parameters_come_from_the_seed_alone(name: str) -> None:
    first, again, other = build(name), build(name), build(name, seed=1)
    assert all(torch.equal(one, two) for one, two in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(next(first.parameters()), next(other.parameters()))


@pytest.mark.parametrize("name", NAMES)
def test_running_statistics_are_saved_and_loaded_with_the_parameters(name: str, tmp_path: Path) -> None:
    network = build(name)
    for _ in range(2):
        network(random(4, *HALF))
    save_file({key: value.contiguous() for key, value in network.state_dict().items()}, tmp_path / "model.safetensors")
    loaded = build(name, seed=1)
    loaded.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert torch.equal(loaded.eval()(random(3, *HALF)), network.eval()(random(3, *HALF)))
    assert any(key.endswith("num_batches_tracked") and value == 2 for key, value in loaded.state_dict().items())


# A batch of one row


@pytest.mark.parametrize("name", NAMES)
def test_a_last_batch_of_one_row_can_be_trained_on_even_if_a_channel_is_one_pixel(name: str) -> None:
    network = build(name, (1, 8, 4))
    before = {key: value.clone() for key, value in network.state_dict().items()}
    torch.autograd.backward(network(random(1, 1, 8, 4)).square().sum())
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in network.parameters())
    after = network.state_dict()
    moved = [key for key in after if not torch.equal(after[key], before[key])]
    assert any(key.endswith("running_mean") for key in moved), "where there are several pixels they count"
    assert all(value.isfinite().all() for value in after.values())


def test_one_value_per_channel_is_normalised_by_the_running_statistics_and_leaves_them() -> None:
    norm = image_networks._BatchNorm(2)
    norm(random(8, 2, 3, 3) + 5)
    kept = {key: value.clone() for key, value in norm.state_dict().items()}
    value = random(1, 2, 1, 1)
    expected = functional.batch_norm(value, norm.running_mean, norm.running_var, norm.weight, norm.bias)
    assert torch.equal(norm(value), expected)
    assert all(torch.equal(now, kept[key]) for key, now in norm.state_dict().items())
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        nn.BatchNorm2d(2)(value)


def test_any_other_batch_is_normalised_as_torch_does() -> None:
    ours, theirs = image_networks._BatchNorm(2), nn.BatchNorm2d(2)
    for batch in (random(2, 2, 1, 1), random(1, 2, 1, 2), random(4, 2, 3, 3)):
        assert torch.equal(ours(batch), theirs(batch))
    assert all(torch.equal(one, two) for one, two in zip(ours.buffers(), theirs.buffers(), strict=True))
    assert torch.equal(ours.eval()(random(1, 2, 1, 1)), theirs.eval()(random(1, 2, 1, 1)))


# In a job


def test_a_job_equals_one_process_running_statistics_and_a_last_batch_of_one_row_included(tmp_path: Path) -> None:
    content: dict[str, Any] = {
        "data": {"source": "digits", "limit": 97},
        "model": {"bottom": "resnet18", "width": 4, "embedding": 8, "top": [16]},
        "train": {"epochs": 2, "batch_size": 48, "lr": 0.01},
    }
    trained = run(content, tmp_path / "run")
    job = as_job(content)
    joint = reference.join(tmp_path / "run", job)
    reference.train(joint, job)
    joint.assert_saved(tmp_path / "run", "original")
    joint.bottoms.eval()
    assert trained["original"]["test_accuracy"] == pytest.approx(joint.accuracy())
    again = run({"data": content["data"], "train": {"from": str(tmp_path / "run")}}, tmp_path / "again")
    assert again["original"]["test_accuracy"] == trained["original"]["test_accuracy"]


# Errors


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("resnet18", {"width": 0}, "model (resnet18): width: should be greater than or equal to 1 (got 0)"),
        ("resnet50", {"widht": 8}, "model (resnet50): widht: unknown setting; did you mean `width`?"),
        ("densenet121", {"width": 7}, "model (densenet121): width: should be a multiple of 2 (got 7)"),
        ("resnet18", {"width": 513}, "model (resnet18): width: should be less than or equal to 512 (got 513)"),
    ],
)
def test_a_width_that_makes_no_sense_is_refused(name: str, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        models.bottom(name, settings, origin="model")
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("name", NAMES)
def test_a_table_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=f"`{name}` needs images, but this party's rows are a table: use `mlp`"):
        models.bottom(name, {}, origin="model").build((12,), 4)


@pytest.mark.parametrize("name", NAMES)
def test_torchvision_is_named_where_it_is_missing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [module for module in sys.modules if module.partition(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(SettingsError, match=rf"`{name}` needs torchvision: pip install 'fedora-vfl\[vision\]'"):
        build(name)
