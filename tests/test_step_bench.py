"""What the measure of a step promises: all ways do the same arithmetic, and what it prints can be compared."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedora_vfl.bench.step import transports
from fedora_vfl.bench.step.floors import bare_grpc, make_certificates
from fedora_vfl.bench.step.shapes import EPOCHS, SHAPES, Shape, from_bytes, to_bytes
from fedora_vfl.bench.step.transports import Manner


def test_linear_networks_have_one_layer_at_each_party() -> None:
    shape = SHAPES["wide-linear"]
    assert (shape.batch, shape.inputs, shape.embedding) == (1024, 64, 512)
    assert [tuple(one.shape) for one in shape.bottom().parameters()] == [(512, 64), (512,)]
    assert [tuple(one.shape) for one in shape.top().parameters()] == [(10, 1024), (10,)]


def test_what_is_printed_can_be_compared() -> None:
    words = ["--shape", "tabular", "--way", "one process", "--steps", "2", "--repeat", "2", "--parties", "3", "--json"]
    told = subprocess.run(
        [sys.executable, "-m", "fedora_vfl.bench.step", *words], capture_output=True, text=True, check=True
    )
    (line,) = json.loads(told.stdout)["steps"]
    assert (line["shape"], line["parties"], line["way"]) == ("tabular", 3, "one process")
    assert len(line["step_ms"]) == 2
    assert line["median_ms"] > 0 and line["first_epoch_ms"] > 0


def test_bare_streams_take_every_step_with_certificates_too(tmp_path: Path) -> None:
    shape = Shape(8, 4, 2, inputs=3, hidden=None, parties=1)
    assert len(bare_grpc(shape, make_certificates(tmp_path))) == EPOCHS
    assert torch.equal(from_bytes(to_bytes(torch.ones(8, 4)), shape), torch.ones(8, 4))


def test_every_manner_of_using_grpc_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transports, "MANNERS", {"one": Manner(), "another": Manner(threads=True, unix=True)})
    found = transports.compare(1)
    assert all(set(times) == set(transports.MESSAGES) for times in found.values())
    assert min(min(times.values()) for times in found.values()) > 0
