"""One run, attacked from every role."""

from pathlib import Path

import torch

from coordinator.job import Job
from coordinator.methods.training import training
from coordinator.phases import TEST
from fedora_vfl.bench.attacks.defences import NONE
from fedora_vfl.bench.attacks.figures import Figures, beside, largest_share
from fedora_vfl.bench.attacks.from_embeddings import feature_figures, property_figures
from fedora_vfl.bench.attacks.from_gradients import label_figures
from fedora_vfl.bench.attacks.from_models import membership_figures
from fedora_vfl.bench.attacks.from_outside import coordinator_figures, outsider_figures
from fedora_vfl.bench.attacks.scenes import Extent, Point
from fedora_vfl.bench.attacks.views import TARGET, Trace, observe
from fedora_vfl.bench.one_process.joining import join
from fedora_vfl.settings.files import check


def measure(point: Point, extent: Extent, folder: Path) -> Figures:
    """Train as the point says, attack, and return all figures."""
    torch.set_num_threads(1)  # as every party of a cluster that a run is to equal
    content = point.scene.job(point.defence, point.seed)
    job = check({name: value for name, value in content.items() if name != "data"}, Job, origin="bench attacks")
    process = join(folder, job, point.defence)
    bottom = process.states[TARGET].networks["bottom"]
    made = {name: value.clone() for name, value in bottom.state_dict().items()}
    trace = process.watch = Trace(len(process.order.train))
    process.perform(training(job.train, seed=job.seed))
    process.watch = None
    test = observe(process, TEST)
    truth = process.labels[test.rows]
    found = beside("test_accuracy", float((test.logits.argmax(1) == truth).double().mean()), largest_share(truth))
    found |= label_figures(process, trace, point.seed, whole=point.defence == NONE)
    found |= feature_figures(process, trace, test, made, point, extent)
    found |= property_figures(process, test, point)
    loss = process.noises[TARGET].loss()
    found["epsilon"] = loss.epsilon if loss else None
    if point.defence == NONE:
        found |= coordinator_figures(process, point.seed)
        found |= outsider_figures(process, trace, job, folder)
        found |= membership_figures(process, job, folder)
    return found
