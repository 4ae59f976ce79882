"""result.json: every figure of a job, by stable names. A figure that was not measured is null."""

import platform
from importlib.metadata import version
from typing import Any

import grpc
from google import protobuf

from coordinator.engine import Engine
from coordinator.job import Job
from coordinator.ledger import Ledger
from coordinator.methods import Outcome
from protos.control_pb2 import Ready
from wire.protocol import PROTOCOL, VERSION

# Figures of a model; those of forgetting are null until a job asks for it.
FIGURES = (
    "test_accuracy",
    "test_loss",
    "forget_accuracy",
    "remaining_accuracy",
    "mia_asr",
    "mia_auc",
    "mia_tpr_at_1_fpr",
    "backdoor_asr",
)


def figures(ledger: Ledger, engine: Engine, phases: list[str], **measured: float) -> dict[str, Any]:
    """Return the figures of one model: what was measured of it, and what the phases that made it cost."""
    return {
        **{name: measured.get(name) for name in FIGURES},
        "bytes": ledger.summary(phases),
        "seconds": sum(engine.seconds.get(phase, 0.0) for phase in phases),
    }


def result(
    job: Job,
    *,
    ready: dict[str, Ready],
    active: str,
    engine: Engine,
    ledger: Ledger,
    test: Outcome,
    digests: dict[str, str],
    seconds: float,
) -> dict[str, Any]:
    """Put a job's figures together."""
    common = ready[active]
    return {
        "original": figures(ledger, engine, ["train"], test_accuracy=test.accuracy, test_loss=test.loss),
        "rounds": engine.history,
        "bytes": ledger.summary(),
        "seconds": seconds,
        "rows": {"train": common.train, "validation": common.validation, "test": common.test},
        "classes": common.classes,
        "parties": {
            name: {
                "role": "active" if name == active else "passive",
                "own_rows": one.own_rows,
                "parameters": one.parameters,
                "features": one.features,
                "model_sha256": digests[name],
            }
            for name, one in ready.items()
        },
        "job": job.model_dump(mode="json", by_alias=True),
        "seed": job.seed,
        "versions": {
            "fedora": VERSION,
            "protocol": PROTOCOL,
            "python": platform.python_version(),
            "grpc": grpc.__version__,
            "protobuf": protobuf.__version__,
            "torch": version("torch"),  # of this installation; the coordinator itself does not load it
        },
    }
