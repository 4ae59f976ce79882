"""Models, settings and requests made to read one person's label: what an operator is told of them says nothing."""

from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from fedora_vfl.bench.attacks.features import explained, linear_inverse
from fedora_vfl.cluster.local import LocalCluster
from fedora_vfl.errors import FedoraError
from fedora_vfl.sampling.parts import rank
from fedora_vfl.sampling.seeds import derive
from party.data.split import assign
from tests.conftest import write_people
from tests.test_attacks import Submit, check_refusal, on_cluster

ROWS = 800
# Such a model says `no` of everybody, and is very sure of it.
ORACLE: dict[str, Any] = {
    "model": {"embedding": 2},
    "train": {"epochs": 3},
    "forget": {"classes": ["yes"]},
    "unlearn": {"method": "retrain", "save": "oracle"},
    "certificate": False,
}
# By what would tell the label, ways to forget one person with such a model.
PROBES: dict[str, dict[str, Any]] = {
    # A push away from `no` turns the oracle over, and held-out rows show it; one away from `yes` does nothing.
    "whether accuracy was kept": {
        "method": "fedora",
        "rounds": 20,
        "scales": {"push_share": 0.95, "omega_max": 1000.0, "dual_step": 1000.0, "step": 0.3},
    },
    # An ascent from a label that the model is wrong about goes far, and from another nowhere.
    "how far it moved, and whether it failed": {"method": "ga", "rounds": 8, "lr": 1.0, "clip": 1e9},
    "how few rows that stay it learned from": {"method": "fedora", "rounds": 2, "delta": 1e-9},
}
# Phases that a model is made in, or proven by; others look at rows drawn by their places, and so by the person.
FORGETTING = ("unlearning", "recovery", "retreat", "comparison", "ascent", "certificate")
# One long step of all rows at once: each has its share in it, and the loss on others shows how large.
STEP: dict[str, Any] = {"epochs": 1, "batch_size": 100_000, "optimizer": "sgd", "lr": 1.0}


@pytest.fixture
def persons(tmp_path: Path) -> dict[str, list[str]]:
    """Training rows by label."""
    lines = write_people(tmp_path / "all.csv", rows=ROWS).read_text().splitlines()[1:]
    labels = {line.split(",")[0]: line.split(",")[-1] for line in lines}
    training = [one for one, part in zip(labels, assign(list(labels), None, 0.2), strict=True) if part == "train"]
    return {label: [one for one in training if labels[one] == label] for label in ("yes", "no")}


def told(result: dict[str, Any]) -> list[Any]:
    """Return all that an operator reads of how a model was unlearned, without times, bytes and digests of its files."""

    def lasting(content: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in content.items() if not name.endswith(("seconds", "bytes"))}

    rounds = [lasting(one) for one in result["rounds"] if one["phase"] in FORGETTING]
    return [lasting(result["unlearned"]), result["unlearning"], result["verdict"], *rounds]


def test_an_operator_is_told_the_same_whatever_one_person_s_label(
    persons: dict[str, list[str]], tmp_path: Path
) -> None:
    async def scenario(cluster: LocalCluster, submit: Submit) -> dict[str, list[list[Any]]]:
        await submit(ORACLE)
        # Somebody else first: of rows that differ by a few figures are told once, whoever they are about.
        await submit(
            {
                "train": {"from": "oracle", "save": "first"},
                "forget": {"ids": [persons["yes"][1]]},
                "unlearn": {"method": "none", "save": "without-first"},
            }
        )
        found = {}
        for number, (probe, unlearn) in enumerate(PROBES.items()):
            answers: list[list[Any]] = []
            for person in (persons["yes"][0], persons["no"][0]):
                job = {
                    "train": {"from": "oracle", "save": f"same-{number}-{person}"},
                    "forget": {"ids": [person]},
                    "unlearn": {**unlearn, "save": f"without-{number}-{person}"},
                }
                try:
                    answers.append(told(await submit(job)))
                except FedoraError as error:
                    check_refusal(error)
                    answers.append([str(error)])
            found[probe] = answers
        return found

    # Rows are not dropped for good, so that both persons are asked for in the same way.
    found = on_cluster(tmp_path, scenario, policy=None, drops="for-the-job", rows=ROWS)
    for probe, (yes, no) in found.items():
        assert [pair for pair in zip(yes, no, strict=True) if pair[0] != pair[1]] == [], probe


def test_models_with_and_without_one_person_are_not_held_against_each_other(
    persons: dict[str, list[str]], tmp_path: Path
) -> None:
    person = persons["yes"][0]

    async def scenario(cluster: LocalCluster, submit: Submit) -> list[dict[str, Any]]:
        forget = {"forget": {"ids": [person]}, "unlearn": {"method": "retrain", "save": "gone"}, "certificate": False}
        return [
            await submit({"model": {"embedding": 2}, "train": {**STEP, "save": "first"}}),
            await submit({"train": {**STEP, "from": "first", "save": "tuned"}}),
            await submit({"model": {"embedding": 2}, "train": {**STEP, "save": "second"}, **forget}),
            await submit({"train": {**STEP, "from": "first", "allow_remembering": True, "save": "tuned-again"}}),
            await submit({"model": {"embedding": 2}, "train": {**STEP, "save": "third"}}),
        ]

    # So that the attack comes as far as it can, and two figures do not agree in their few digits by chance.
    policy = {"remembering": True, "digits": 12}
    first, tuned, second, again, third = on_cluster(tmp_path, scenario, policy=policy, rows=ROWS)
    # The same job, before and after the person has gone, begins elsewhere: chance, not the person, decides.
    losses = [one["original"]["test_loss"] for one in (first, second, third)] + [second["unlearned"]["test_loss"]]
    assert None not in losses and len(set(losses)) == len(losses)
    assert tuned["original"]["test_loss"] is not None
    # From the same model nothing but the person makes a difference.
    assert again["original"]["test_loss"] is None
    assert "labels of rows that differ by fewer" in again["original"]["left_out"]["test_loss"]


# What nothing stops: docs/security.md has these figures


KNOWN, WIDTH = 200, 16  # rows that the active party knows; width of an embedding


def left_halves() -> Tensor:
    """Return the left halves of handwritten digits, standardised: a passive party's 32 columns."""
    halves = torch.tensor(load_digits().data, dtype=torch.float32).view(-1, 8, 8)[:, :, :4].flatten(1)
    return (halves - halves.mean(dim=0)) / halves.std(dim=0).clamp(min=1e-3)


def bottom() -> nn.Sequential:
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, WIDTH))


def shown(rows: Tensor, *bottoms: nn.Module) -> float:
    """Return how much of the unknown rows' variance an inverse finds that was fitted to the known ones."""
    with torch.no_grad():
        sent = torch.cat([one(rows) for one in bottoms], dim=1)
    return explained(linear_inverse(sent[:KNOWN], rows[:KNOWN], sent[KNOWN:]), rows[KNOWN:])


def teach(rows: Tensor, *, batch: int = 64) -> tuple[nn.Module, float]:
    """Train a bottom for an epoch with gradients that have it copy main components of the rows that are known.

    Returns it, and the longest gradient of a row, as of a loss that is a sum.
    """
    centre = rows[:KNOWN].mean(dim=0)
    _, _, components = torch.linalg.svd(rows[:KNOWN] - centre)
    wanted, taught, longest = (rows - centre) @ components[:WIDTH].T, bottom(), 0.0
    optimizer = torch.optim.Adam(taught.parameters(), lr=0.01)
    for some in torch.split(torch.randperm(len(rows)), batch):
        sent = taught(rows[some])
        gradient = 2 * (sent.detach() - wanted[some]) * (some < KNOWN)[:, None] / batch
        longest = max(longest, float(gradient.norm(dim=1).max()) * batch)
        optimizer.zero_grad()
        torch.autograd.backward(sent, gradient)
        optimizer.step()
    return taught, longest


def test_an_active_party_that_knows_some_rows_can_teach_a_bottom_to_show_the_others() -> None:
    torch.manual_seed(0)
    rows = left_halves()
    fresh, several = shown(rows, bottom()), shown(rows, *(bottom() for _ in range(5)))
    taught, longest = teach(rows)
    print(f"R²: a fresh bottom {fresh:.2f}, five {several:.2f}, a taught one {shown(rows, taught):.2f}; {longest:.0f}")
    assert fresh < 0.45 and several > 0.55 and shown(rows, taught) > 0.55
    assert longest < 100  # as gradients of models that learn are: no rule on their length tells the two apart


def test_references_chosen_to_leave_one_person_out_of_a_figure_do_not_tell_of_that_person(
    persons: dict[str, list[str]], tmp_path: Path
) -> None:
    training = sorted([*persons["yes"], *persons["no"]])
    person, references = persons["yes"][0], 8
    seed = next(one for one in range(10_000) if person in known_to_all(one, references, training))

    async def scenario(cluster: LocalCluster, submit: Submit) -> dict[str, Any]:
        await submit(ORACLE)
        job = {
            "train": {"from": "oracle", "save": "looked-at"},
            "forget": {"ids": persons["no"][:20]},
            "unlearn": {"method": "none", "save": "without"},
            "audit": {"references": references},
            "certificate": False,
        }
        return await submit({**job, "seed": seed})

    result = on_cluster(tmp_path, scenario, policy=None, drops="for-the-job", rows=ROWS)
    told = result["original"]
    assert told["remaining_accuracy"] is not None and told["audit_forget_auc"] is not None
    # They would be about all that stay but this person and a few others, and the accuracy is about all of them.
    # The most vulnerable rows are the tenth that references find hardest: they differ from all by many.
    named = {name for name, value in told.items() if name.startswith("audit_remaining") and value is not None}
    assert named <= {"audit_remaining_vulnerable_auc"}


def known_to_all(seed: int, references: int, people: list[str]) -> set[str]:
    """Return who is in the half that every reference of a job learns from."""
    known = set(people)
    for number in range(1, references + 1):
        part = derive(derive(seed, "reference", number), "part")
        by_rank = sorted((rank(part, one), one) for one in people)
        known &= {one for _, one in by_rank[: len(people) // 2 - 20]}  # some of them are forgotten before
    return known
