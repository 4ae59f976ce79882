"""Figures of those who see no tensor: the coordinator with accuracies, an outsider with sizes of messages."""

from pathlib import Path

import torch

from coordinator.job import Job
from coordinator.methods import phases_in
from coordinator.methods.training import training
from fedora_vfl.bench.attacks import outsiders
from fedora_vfl.bench.attacks.figures import Figures, beside, largest_share, mean
from fedora_vfl.bench.attacks.views import TARGET, Trace
from fedora_vfl.bench.one_process.joining import join
from fedora_vfl.bench.one_process.parties import OneProcess, Step
from fedora_vfl.sampling.seeds import derive

GROUPS = (1, 10, 50)


def coordinator_figures(process: OneProcess, seed: int) -> Figures:
    """Let the coordinator guess labels from the accuracies of groups."""
    truth = process.labels[: len(process.order.train)]
    rare = int(torch.bincount(truth).argmin())
    generator = torch.Generator().manual_seed(derive(seed, "groups"))
    found: Figures = {}
    for size in GROUPS:
        key = f"coordinator.group.{size}"
        told = outsiders.told_by_group_accuracy(truth == rare, size, generator)
        found |= beside(key, told, largest_share((truth == rare).long()))
    return found


def outsider_figures(process: OneProcess, trace: Trace, job: Job, folder: Path) -> Figures:
    """Let an outsider look at sizes of messages, with the true labels and with others."""
    sizes: list[list[int]] = []
    batches: list[int] = []
    for shuffled in (False, True):
        again = join(folder, job, process.defence)
        if shuffled:
            assert again.active.labels is not None
            again.active.labels = again.active.labels[torch.randperm(len(again.labels))]
        steps: list[Step] = []
        again.watch = steps.append
        again.run(phases_in(next(training(job.train, seed=job.seed)))[0])
        sizes.append(outsiders.message_sizes([one.gradients[TARGET] for one in steps]))
        batches = [len(one.rows) for one in steps]
    told = outsiders.rows_from_sizes(sizes[0], trace.gradients[0].shape[1])
    right = [float(one == other) for one, other in zip(told, batches, strict=True)]
    differing = [float(one != other) for one, other in zip(*sizes, strict=True)]
    return beside("outsider.rows", mean(right), 0.0) | beside("outsider.labels", mean(differing), 0.0)
