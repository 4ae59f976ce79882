"""Figures of membership inference: both kinds of party with a model, before and after unlearning."""

from pathlib import Path

from torch import Tensor
from torch.nn import functional

from coordinator.cost import CostModel
from coordinator.job import Job
from coordinator.methods import UnlearningTask
from coordinator.methods.catalogue import Fedora
from coordinator.methods.registry import METHODS
from coordinator.methods.retraining import Retrain
from coordinator.phases import FORGET, REMAINING, TEST
from fedora_vfl.bench.attacks import membership
from fedora_vfl.bench.attacks.figures import Figures, beside
from fedora_vfl.bench.attacks.scenes import FORGOTTEN
from fedora_vfl.bench.attacks.views import TARGET, Seen, observe
from fedora_vfl.bench.one_process.joining import join
from fedora_vfl.bench.one_process.parties import OneProcess
from fedora_vfl.sampling.seeds import derive
from fedora_vfl.wire.choice import Encodings
from party.rates import area_under_curve, true_positives
from party.request import resolve
from protos.fedora.v1.control_pb2 import Request


def membership_figures(process: OneProcess, job: Job, folder: Path) -> Figures:
    """Let both kinds of party tell forgotten rows from rows never seen, before and after unlearning."""
    classes = process.active.description["classes"]["classes"]
    train = len(process.order.train)
    request = Request(seed=job.seed, samples=train // FORGOTTEN)
    forget = resolve(request, process.order, process.labels[:train], classes)
    found = _remembered(process, forget, "original")
    test = observe(process, TEST)
    links = {name: Encodings.of(job.wire.link(name)) for name in process.passive}
    task = UnlearningTask(
        job.train,
        classes=len(classes),
        forget=len(forget),
        remaining=train - len(forget),
        seed=derive(job.seed, "unlearn"),
        passive=tuple(process.passive),
        held_out_loss=float(functional.cross_entropy(test.logits, process.labels[test.rows])),
        validation=len(process.order.validation),
        test=len(process.order.test),
        rows_for_one=CostModel({}, process.active.model.embedding, links).rows_for_one,
        layers=process.layers,
    )
    process.forget(forget)
    process.perform(METHODS.get("fedora").run(task, Fedora()))
    found |= _remembered(process, forget, "unlearned")
    seed = derive(job.seed, "retrain")
    anew = join(folder, job.model_copy(update={"seed": seed}), process.defence)
    anew.forget(forget)
    retrained = UnlearningTask(job.train, len(classes), len(forget), train - len(forget), seed)
    anew.perform(METHODS.get("retrain").run(retrained, Retrain()))
    return found | _remembered(anew, forget, "retrain")


def _remembered(process: OneProcess, forget: Tensor, model: str) -> Figures:
    """Return how well rows to forget, and rows that remain, can be told from test rows."""
    for state in process.states.values():
        state.sets = state.sets.forgetting(forget)
    seen = {name: observe(process, over) for name, over in (("gone", FORGET), ("kept", REMAINING), ("test", TEST))}
    by_loss = {name: membership.by_loss(one.logits, process.labels[one.rows]) for name, one in seen.items()}
    found: Figures = {}
    for role, scores in (("active", by_loss), ("passive", _by_embedding(seen))):
        for which in ("gone", "kept"):
            key = f"membership.{role}.{model}.{which}"
            found |= beside(key, area_under_curve(scores[which], scores["test"]), 0.5)
            found |= beside(f"{key}.tpr", true_positives(scores[which], scores["test"]), 0.01)
    for name in ("gone", "test"):
        right = seen[name].logits.argmax(dim=1) == process.labels[seen[name].rows]
        found[f"accuracy.{model}.{name}"] = float(right.double().mean())
    return found


def _by_embedding(seen: dict[str, Seen]) -> dict[str, Tensor]:
    """Score rows as a passive party does that knows of half the kept rows and half the test rows what they are."""
    gone, kept, test = (seen[name].embeddings[TARGET] for name in ("gone", "kept", "test"))
    scores = membership.by_embedding(kept[1::2], test[1::2], gone, kept[::2], test[::2])
    return dict(zip(("gone", "kept", "test"), scores, strict=True))
