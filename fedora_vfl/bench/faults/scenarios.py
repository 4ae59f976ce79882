"""The jobs that faults befall: small, and between them all that a job can do."""

from typing import Any

PARTIES, ROWS = 2, 240

_MODEL = {"model": {"hidden": [16], "embedding": 8, "top": [16]}}
_TRAIN = {"epochs": 3, "batch_size": 32, "overwrite": True}
_FORGET = {"forget": {"samples": 12}}


def _unlearning(**settings: Any) -> dict[str, Any]:
    return {"unlearn": {**settings, "overwrite": True}}


SCENARIOS: dict[str, dict[str, Any]] = {
    "training": {**_MODEL, "train": {**_TRAIN, "epochs": 8}},
    "momentum": {
        **_MODEL,
        "train": {**_TRAIN, "optimizer": "sgd", "nesterov": True, "schedule": "cosine"},
        "wire": {"encoding": "float16"},
    },
    "forgetting": {**_MODEL, "train": _TRAIN, **_FORGET},
    "scalar": {**_MODEL, "train": _TRAIN, **_FORGET, **_unlearning(steps="paper", dual="scalar", rounds=5)},
    "parameterwise": {
        **_MODEL,
        "train": _TRAIN,
        **_FORGET,
        **_unlearning(steps="paper", dual="parameterwise", audit=True, rounds=5),
    },
    "comparing": {
        **_MODEL,
        "train": {**_TRAIN, "epochs": 2},
        **_FORGET,
        "compare": [{"method": name, "overwrite": True} for name in ("retrain", "ga", "ico", "cvfu")],
    },
    "noise": {
        **_MODEL,
        "train": _TRAIN,
        **_FORGET,
        "privacy": {"passive": {"clip": 1.0, "noise": 0.1, "delta": 1e-5}},
    },
}
