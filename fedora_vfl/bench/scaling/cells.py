"""What is measured: data sets, requests, ways to train a model, and parts of the rule that are changed."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coordinator.job import Job
from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.files import check

CNN = {"bottom": "cnn", "channels": [16, 32], "embedding": 32, "top": [64]}
EPOCHS = {"digits": 25, "mislabelled": 80, "income": 10}
IMAGE_EPOCHS = 12
# An overfitted model: few rows, many epochs, and wrong labels, which can only be learned by heart.
MISLABELLED, WRONG = "mislabelled", "wrong"
MISLABELLED_SHARE = 0.1
ROWS = {"digits": 1437, MISLABELLED: 1200, "income": 32561}

MOST_CLASSES = 8  # of a set, whose rows are forgotten in turn

# What is left out or changed, by name.
PARTS: dict[str, dict[str, Any]] = {
    "full": {},
    "no push": {"without": ["unlearning-loss"]},
    "no recovery": {"scales": {"push_share": 1}},
    "a push that does not yield": {"scales": {"allowance": 1e6}},
    "no mixed rows": {"scales": {"carried": 1e6}},
    "half the step": {"scales": {"step": 0.02}},
    "twice the step": {"scales": {"step": 0.08}},
    "three of ten rounds push": {"scales": {"push_share": 0.3}},
    "six of ten rounds push": {"scales": {"push_share": 0.6}},
    "pushed half-way": {"scales": {"ceiling": 0.5}},
    "no falling steps": {"scales": {"decay": False}},
    "no guard": {"scales": {"guard": False}},
    "twenty rounds": {"scales": {"rounds": 20}},
    "a hundredth of the rows": {"budget": 0.01},
    "parameterwise": {"dual": "parameterwise"},
    "goal uncertain": {"goal": "uncertain"},
    "goal uncertain, not softened": {"goal": "uncertain", "scales": {"soften": False}},
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
    # backdoor, label, clean (half of two classes, or as many per cent as it ends with), tenth, wrong (a mislabelled
    # row), or a number of rows
    request: str
    training: str
    seed: int

    @property
    def sensible(self) -> bool:
        """Whether there is something to measure: a class that is left alone has nothing to be told apart from."""
        if self.request == "label" and len(set(_classes(self.data_set)) - set(self._named)) < 2:
            return False
        if self.training == "MLP" and self.data_set == "income":
            return False
        return self.request != WRONG or self.data_set == MISLABELLED

    def job(self, *, limit: int | None, epochs: int | None) -> Job:
        """Return the job of which this is measured."""
        name, images = self.data_set, self.data_set != "income"
        content: dict[str, Any] = {
            "data": _data(name, limit),
            "train": {"epochs": epochs or EPOCHS.get(name, IMAGE_EPOCHS), "batch_size": 128},
            "forget": self._forget(_rows(name, limit)),
            "seed": self.seed,
        }
        if images:
            content["model"] = CNN
        for section, changes in TRAININGS[self.training].items():
            changed = {**content.get(section, {}), **changes}
            content[section] = {key: value for key, value in changed.items() if value is not None}
        if self.request.startswith("backdoor"):
            content["backdoor"] = {"target": self._in_turn(2) if images else ">50K"}
        return check(content, Job, origin=f"{name}, {self.request}")

    @property
    def _named(self) -> list[str]:
        """The classes whose rows are forgotten: two, or one of two; of others for every seed, but on tables."""
        if self.data_set == "income":
            return ["<=50K"]
        return [self._in_turn(0)] if len(_classes(self.data_set)) == 2 else [self._in_turn(0), self._in_turn(1)]

    def _in_turn(self, place: int) -> str:
        names = _classes(self.data_set)[:MOST_CLASSES]
        return names[(self.seed + min(place, len(names) - 1)) % len(names)]

    def _forget(self, rows: int) -> dict[str, Any]:
        match self.request:
            case "label":
                return {"classes": self._named}
            case "clean" | "backdoor":
                return {"classes": self._named, "percent": 50}
            case few if re.fullmatch(r"(clean|backdoor) [1-9]\d?", few):
                return {"classes": self._named, "percent": int(few.split()[1])}
            case "tenth":
                return {"samples": rows // 10}
            case "wrong":
                return {"samples": 1}  # another one takes its place once labels are changed
            case number if number.isdigit() and int(number):
                return {"samples": int(number)}
            case unknown:
                known = "backdoor, label, clean, tenth, wrong, a number of rows, or `backdoor 4` for 4 per cent"
                raise SettingsError(f"--request {unknown}: is none of {known}")


def _rows(name: str, limit: int | None) -> int:
    """Return how many training rows a set has."""
    rows = ROWS[name] if name in ROWS else len(_labels(name))
    return min(rows, limit or rows)


def _classes(name: str) -> list[str]:
    """Return the classes of a set, in order."""
    if name == "income":
        return ["<=50K", ">50K"]
    return [str(one) for one in range(10)] if name in ROWS else [str(one) for one in np.unique(_labels(name))]


@cache
def _labels(path: str) -> NDArray[Any]:
    """Return the labels of the training rows of a file."""
    try:
        with np.load(path) as images:
            labels: NDArray[Any] = images["train_labels"].reshape(-1)
    except (OSError, ValueError, KeyError) as error:
        raise SettingsError(
            f"--set {path}: is neither {', '.join(ROWS)} nor a file in MedMNIST's layout, with an array `train_labels`"
        ) from error
    return labels


def _data(name: str, limit: int | None) -> dict[str, Any]:
    limit = limit or (ROWS[name] if name == MISLABELLED else None)
    sources = {"digits": {"source": "digits"}, MISLABELLED: {"source": "digits"}, "income": {"source": "income"}}
    data = sources.get(name) or {"source": "npz", "path": str(Path(name).absolute())}
    return {**data, **({"limit": limit} if limit else {})}
