"""What is measured: data sets, requests, ways to train a model, and parts of the rule that are changed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coordinator.job import Job
from fedora_vfl.settings.files import check

CNN = {"bottom": "cnn", "channels": [16, 32], "embedding": 32, "top": [64]}
EPOCHS = {"digits": 25, "mislabelled": 80, "income": 10}
IMAGE_EPOCHS = 12
# An overfitted model: few rows, many epochs, and wrong labels, which can only be learned by heart.
MISLABELLED, WRONG = "mislabelled", "wrong"
MISLABELLED_SHARE = 0.1
ROWS = {"digits": 1437, MISLABELLED: 1200, "income": 32561}

# What is left out or changed, by name.
PARTS: dict[str, dict[str, Any]] = {
    "full": {},
    "no push": {"without": ["unlearning-loss"]},
    "no recovery": {"scales": {"push_share": 1}},
    "a push that may raise L_r": {"scales": {"projected": False}},
    "half the step": {"scales": {"step": 0.035}},
    "twice the step": {"scales": {"step": 0.14}},
    "six of ten rounds push": {"scales": {"push_share": 0.6}},
    "pushed half-way": {"scales": {"ceiling": 0.5}},
    "no falling steps": {"scales": {"decay": False}},
    "no guard": {"scales": {"guard": False}},
    "twenty rounds": {"scales": {"rounds": 20}},
    "parameterwise": {"dual": "parameterwise"},
    "goal uncertain": {"goal": "uncertain"},
    "fixed steps": {"without": ["adaptive-steps"]},
    "whole D_r": {"without": ["asymmetric-batches"], "rounds": 10},
    **{f"paper, ω = {omega:g}": {"steps": "paper", "omega": omega} for omega in (0.5, 2, 20)},
    **{f"paper, δ = {delta:g}": {"steps": "paper", "delta": delta} for delta in (0, 0.01, 0.25, 1)},
    "paper, no push": {"steps": "paper", "without": ["unlearning-loss"]},
    "paper, fixed steps": {"steps": "paper", "without": ["adaptive-steps"]},
}

# How the original model, and Retrain, are trained, by name: what `--robustness` goes through.
TRAININGS: dict[str, dict[str, Any]] = {
    "as it is": {},
    **{f"Adam {lr:g}": {"train": {"lr": lr}} for lr in (0.0002, 0.005, 0.02, 0.05)},
    **{f"SGD {lr:g}": {"train": {"optimizer": "sgd", "lr": lr}} for lr in (0.01, 0.1)},
    **{f"{epochs} epochs": {"train": {"epochs": epochs}} for epochs in (2, 100)},
    **{f"batches of {rows}": {"train": {"batch_size": rows}} for rows in (16, 512)},
    **{f"embeddings of {width}": {"model": {"embedding": width}} for width in (4, 512)},
    "deep": {"model": {"top": [64, 64, 64]}},
    "MLP": {"model": {"bottom": "mlp", "channels": None}},
}


@dataclass(frozen=True)
class Group:
    """One original model and its Retrains, which any number of parts are tried on."""

    data_set: str  # digits, mislabelled, income, or an npz file in MedMNIST's layout
    request: str  # backdoor, label, clean, tenth, wrong (a mislabelled row), or a number of rows
    training: str
    seed: int

    @property
    def sensible(self) -> bool:
        """Whether there is something to measure: one of two classes leaves nothing to tell apart."""
        income = self.data_set == "income"
        return not (income and (self.request == "label" or self.training == "MLP")) and (
            self.request != WRONG or self.data_set == MISLABELLED
        )

    def job(self, *, limit: int | None, epochs: int | None) -> Job:
        """Return the job of which this is measured."""
        name, images = self.data_set, self.data_set != "income"
        content: dict[str, Any] = {
            "data": _data(name, limit),
            "train": {"epochs": epochs or EPOCHS.get(name, IMAGE_EPOCHS), "batch_size": 128},
            "forget": self._forget(_rows(name, limit), images=images),
            "seed": self.seed,
        }
        if images:
            content["model"] = CNN
        for section, changes in TRAININGS[self.training].items():
            changed = {**content.get(section, {}), **changes}
            content[section] = {key: value for key, value in changed.items() if value is not None}
        if self.request == "backdoor":
            content["backdoor"] = {"target": str((self.seed + 2) % 8) if images else ">50K"}
        return check(content, Job, origin=f"{name}, {self.request}")

    def _forget(self, rows: int, *, images: bool) -> dict[str, Any]:
        classes = [str(self.seed % 8), str((self.seed + 1) % 8)] if images else ["<=50K"]
        match self.request:
            case "label":
                return {"classes": classes}
            case "clean" | "backdoor":
                return {"classes": classes, "percent": 50}
            case "tenth":
                return {"samples": rows // 10}
            case "wrong":
                return {"samples": 1}  # another one takes its place once labels are changed
            case number:
                return {"samples": int(number)}


def _rows(name: str, limit: int | None) -> int:
    """Return how many training rows a set has."""
    if name in ROWS:
        return min(ROWS[name], limit or ROWS[name])
    with np.load(name) as images:
        return min(len(images["train_labels"]), limit or len(images["train_labels"]))


def _data(name: str, limit: int | None) -> dict[str, Any]:
    limit = limit or (ROWS[name] if name == MISLABELLED else None)
    sources = {"digits": {"source": "digits"}, MISLABELLED: {"source": "digits"}, "income": {"source": "income"}}
    data = sources.get(name) or {"source": "npz", "path": str(Path(name).absolute())}
    return {**data, **({"limit": limit} if limit else {})}
