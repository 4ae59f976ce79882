"""The jobs that faults befall: small, and between them all that a job can do."""

from typing import Any

PARTIES, ROWS = 2, 240

_MODEL = {"model": {"hidden": [16], "embedding": 8, "top": [16]}}
_TRAIN = {"epochs": 3, "batch_size": 32, "overwrite": True}
_FORGET = {"forget": {"samples": 12}}
_DIGITS = {"data": {"source": "digits", "limit": 240}}
_OTHERS = ("retrain", "ga", "ico", "cvfu")


def _unlearning(**settings: Any) -> dict[str, Any]:
    return {"unlearn": {**settings, "overwrite": True}}


SCENARIOS: dict[str, dict[str, Any]] = {
    "training": {**_MODEL, "train": {**_TRAIN, "epochs": 8}, "evaluate": {"every": 2}},
    "momentum": {
        **_MODEL,
        "train": {**_TRAIN, "optimizer": "sgd", "nesterov": True, "schedule": "cosine"},
        "wire": {"encoding": "float16"},
    },
    "overlapping": {
        **_MODEL,
        "train": {**_TRAIN, "batch_size": 4, "overlap": 3, "local_steps": 2},
        **_FORGET,
        **_unlearning(),
        "wire": {"encoding": "int8"},
    },
    "forgetting": {**_MODEL, "train": _TRAIN, **_FORGET, **_unlearning()},
    "own-steps": {**_MODEL, "train": _TRAIN, **_FORGET, **_unlearning(dual="parameterwise", goal="uncertain")},
    "scalar": {**_MODEL, "train": _TRAIN, **_FORGET, **_unlearning(steps="paper", dual="scalar", rounds=5)},
    "parameterwise": {
        **_MODEL,
        "train": {**_TRAIN, "optimizer": "adam"},
        **_FORGET,
        **_unlearning(steps="paper", dual="parameterwise", audit=True, rounds=5),
    },
    "comparing": {
        **_MODEL,
        "train": {**_TRAIN, "epochs": 2},
        **_FORGET,
        **_unlearning(),
        "compare": [{"method": name, "overwrite": True} for name in _OTHERS],
    },
    "audit": {
        **_MODEL,
        "train": {**_TRAIN, "epochs": 1},
        **_FORGET,
        **_unlearning(method="ga", rounds=2),
        "audit": {"references": 2, "overwrite": True},
    },
    "noise": {
        **_MODEL,
        "train": _TRAIN,
        **_FORGET,
        **_unlearning(),
        "privacy": {"passive": {"clip": 1.0, "noise": 0.1, "delta": 1e-5}},
    },
    "backdoor": {
        **_DIGITS,
        "model": {"bottom": "cnn", "channels": [4], "embedding": 8, "top": [16]},
        "train": _TRAIN,
        "forget": {"classes": [0, 1], "percent": 50},
        "backdoor": {"target": 9},
        **_unlearning(),
    },
    "batch-norm": {
        **_DIGITS,
        "model": {"bottom": "resnet18", "width": 2, "embedding": 8, "top": [16]},
        "train": {**_TRAIN, "epochs": 1, "batch_size": 64, "augment": {"flip": True, "shift": 1}},
        "forget": {"classes": [0], "percent": 50},
        **_unlearning(),
    },
}
