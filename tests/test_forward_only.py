"""Phases without gradients: what they send is predicted from the phase, whatever its update rule; parties check it."""

import csv
import json
from pathlib import Path

from fedora_vfl.errors import PartyError
from tests.test_command_line import fedora

JOB = """
data:    {source: digits, limit: 200}
model:   {bottom: cnn, channels: [4], embedding: 4, top: [8]}
train:   {epochs: 1, batch_size: 64}
forget:  {samples: 20}
unlearn: {method: shifting}
"""

# Moves along a gradient that was kept, in a phase that has rows: embeddings are sent for them, and nothing comes back.
METHOD = """
from typing import Literal

from coordinator.methods import MethodResult
from coordinator.methods.registry import Unlearn, method
from coordinator.phases import FORGET, look
from protos.fedora.v1.phase_pb2 import Influence, Shift, Update


class Shifting(Unlearn):
    method: Literal["shifting"] = "shifting"


@method("shifting", Shifting)
def shifting(task, settings):
    yield look("gathering", 1, over=FORGET, batch_size=16, update=Update(influence=Influence()))
    phase = look("moving", 1, over=FORGET, batch_size=16, update=Update(shift=Shift(by=0.001)))
    # here
    yield phase
    return MethodResult(1, "moved")
"""


def write(folder: Path, method: str) -> list[str]:
    (folder / "job.yaml").write_text(JOB)
    (folder / "shifting.py").write_text(method)
    return ["run", "job.yaml", "--method", "shifting.py", "--out", str(folder / "out")]


def test_a_rule_without_gradients_has_a_ledger_that_reconciles(tmp_path: Path) -> None:
    ended = fedora(*write(tmp_path, METHOD), cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    spent = json.loads((tmp_path / "out" / "result.json").read_text())["unlearned"]["bytes"]["phases"]
    one_way = 20 * 4 * 4 * 2  # rows, width, bytes of a float32, passive parties
    assert spent["moving"]["tensor"] == spent["moving"]["predicted"] == one_way
    assert spent["gathering"]["tensor"] == spent["gathering"]["predicted"] == 2 * one_way
    with (tmp_path / "out" / "ledger.csv").open() as text:
        kinds = {line["kind"] for line in csv.DictReader(text) if line["phase"] == "moving"}
    assert "embedding" in kinds and "gradient" not in kinds


def test_a_phase_that_is_at_odds_with_its_rule_is_refused_in_a_sentence(tmp_path: Path) -> None:
    ended = fedora(*write(tmp_path, METHOD.replace("# here", "phase.forward_only = False")), cwd=tmp_path)
    assert ended.returncode == PartyError.exit_code
    said = "and the update rule of phase moving disagree on whether gradients are sent back"
    assert f"coordinator {said}" in ended.stderr
