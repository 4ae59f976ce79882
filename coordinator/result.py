"""result.json: every figure of a job, by stable names. A figure that was not measured is null."""

import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

import grpc
from google import protobuf

from coordinator.engine import Engine
from coordinator.job import Job
from coordinator.ledger import Ledger
from coordinator.methods import MethodResult
from coordinator.methods.fedora_settings import Fedora
from fedora_vfl.verdicts.auditing import audited
from fedora_vfl.verdicts.forgetting import verdict
from fedora_vfl.verdicts.retrains import RETRAIN, Metrics, gap_deviations, gaps, names, spreads
from fedora_vfl.wire.protocol import PROTOCOL, VERSION
from protos.fedora.v1.control_pb2 import Ready
from protos.fedora.v1.phase_pb2 import Samples

# Figures that every model has by these names, null where they were not measured; docs/metrics.md explains them.
FIGURES = (
    "test_accuracy",
    "test_loss",
    "validation_accuracy",
    "forget_accuracy",
    "forget_minus_unseen_accuracy",
    "remaining_accuracy",
    "mia_asr",
    "mia_auc",
    "mia_tpr_at_1_fpr",
    "backdoor_asr",
)


@dataclass(frozen=True)
class ModelRecord:
    """A model that the job has made."""

    phases: list[str]  # names of the phases that made it
    figures: dict[str, float]
    digests: dict[str, str]  # SHA-256 of the saved file, by party
    rounds: int | None = None  # of the method that made it
    left_out: dict[str, str] = field(default_factory=dict)  # figures that the active party keeps back, with the reason

    def add(self, figures: dict[str, float], left_out: dict[str, str]) -> None:
        """Add what was found of the model later."""
        self.figures.update(figures)
        self.left_out.update(left_out)


def forgotten_rows(ready: dict[str, Ready]) -> int:
    """Return how many rows were left out as they were forgotten in earlier jobs: the most that any party's file has."""
    return max(one.forgotten_rows for one in ready.values())


def figures(made: ModelRecord, ledger: Ledger, engine: Engine) -> dict[str, Any]:
    """Return the figures of one model: what was measured of it, and what the phases that made it cost."""
    return {
        **dict.fromkeys(FIGURES),
        **dict.fromkeys(made.left_out),
        **made.figures,
        "left_out": made.left_out,
        "bytes": ledger.summary(made.phases),
        "seconds": sum(engine.seconds.get(phase, 0.0) for phase in made.phases),
        "rounds": made.rounds,
    }


def gap(name: str, measured: dict[str, dict[str, Any]], metrics: Metrics) -> dict[str, Any]:
    """Return every figure's distance from Retrain's, as the certificate has it, and the cost as a share of one's."""
    one, retrain = measured[name], measured[RETRAIN]
    return {
        **(gaps(metrics, name) or {}),
        "bytes_share": one["bytes"]["tensor"] / retrain["bytes"]["tensor"],
        "seconds_share": one["seconds"] / retrain["seconds"],
    }


def result(
    job: Job,
    *,
    ready: dict[str, Ready],
    active: str,
    engine: Engine,
    ledger: Ledger,
    models: dict[str, ModelRecord],
    ending: MethodResult | None,
    moved: float | None,
    seconds: float,
) -> dict[str, Any]:
    """Put a job's figures together."""
    common = ready[active]
    measured = {name: figures(made, ledger, engine) for name, made in models.items()}
    return {
        **measured,
        **_forgetting(job, measured, models, engine, ending, moved),
        "rounds": [one.to_json() for one in engine.history],
        "bytes": ledger.summary(),
        "seconds": seconds,
        "rows": {
            "train": common.train,
            "validation": common.validation,
            "test": common.test,
            "forgotten": forgotten_rows(ready),
        },
        "classes": common.classes,
        "privacy": engine.privacy or None,
        "parties": {
            name: {
                "role": "active" if name == active else "passive",
                "own_rows": one.own_rows,
                "forgotten_rows": one.forgotten_rows,
                "parameters": one.parameters,
                "layers": one.bottom_layers + one.top_layers,
                "features": one.features,
                "round_trip": one.round_trip / 1000,
                "repeatable_start": one.repeatable_start,
                "model_sha256": models["original"].digests[name],
                "models": {model: made.digests[name] for model, made in models.items()},
            }
            for name, one in ready.items()
        },
        "job": _job(job),
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


def _forgetting(
    job: Job,
    measured: dict[str, dict[str, Any]],
    models: dict[str, ModelRecord],
    engine: Engine,
    ending: MethodResult | None,
    moved: float | None,
) -> dict[str, Any]:
    """Return what result.json says of a request; nothing where there was none."""
    if "unlearned" not in measured:
        return {}
    uncertain = isinstance(job.unlearn, Fedora) and job.unlearn.goal == "uncertain"
    told: dict[str, Any] = {
        "forget": {"rows": engine.rows[Samples.FORGET], "remaining": engine.rows[Samples.REMAINING]},
        "unlearning": asdict(ending) if ending else None,
        "verdict": verdict(measured, uncertain=uncertain, rows=engine.rows[Samples.FORGET], moved=moved),
    }
    metrics: Metrics = {name: dict(made.figures) for name, made in models.items()}
    retrains = names(metrics)
    others = [name for name in job.compared() if name not in retrains]
    if retrains:
        told["gap"] = gap("unlearned", measured, metrics)
        told["gaps"] = {name: gap(name, measured, metrics) for name in others}
    if job.audit:
        poisoned = measured["unlearned"].get("backdoor_asr") is not None
        told["audit"] = audited(
            measured, references=job.audit.references, rows=engine.rows[Samples.FORGET], poisoned=poisoned
        )
    if len(retrains) > 1:
        told["retrains"] = {
            "models": retrains,
            "figures": {name: asdict(one) for name, one in spreads(metrics).items()},
            "deviations": {name: gap_deviations(metrics, name) for name in ("unlearned", *others)},
        }
    return told


def _job(job: Job) -> dict[str, Any]:
    """Return the job as it was run, without the ids of those who asked to be forgotten."""
    content: dict[str, Any] = job.model_dump(mode="json", by_alias=True)
    if job.forget and job.forget.ids is not None:
        content["forget"]["ids"] = f"{len(job.forget.ids)} ids"
    return content
