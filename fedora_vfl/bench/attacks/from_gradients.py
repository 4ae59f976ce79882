"""Figures of label inference: a passive party with the gradients it was sent, and the bottom they have trained."""

from collections.abc import Iterator

import torch
from torch import Tensor

from fedora_vfl.bench.attacks import labels
from fedora_vfl.bench.attacks.figures import Figures, beside, largest_share, mean
from fedora_vfl.bench.attacks.views import TARGET, Trace
from fedora_vfl.bench.one_process.parties import OneProcess
from fedora_vfl.sampling.seeds import derive
from party.rates import area_under_curve

KNOWN_LABELS = (10, 50, 100)
DRAWS = 3  # of known rows, over which a figure is the mean

Guesses = Iterator[tuple[str, Tensor, Tensor]]  # the attack, its guess of all rows, the rows known to it


def label_figures(process: OneProcess, trace: Trace, seed: int, *, whole: bool) -> Figures:
    """Let a passive party guess the training rows' labels; only by the strongest attacks unless `whole`."""
    truth, classes = process.labels[: trace.rows], process.active.classes
    generator = torch.Generator().manual_seed(derive(seed, "known labels"))
    scores: dict[str, list[float]] = {}
    shares: dict[str, list[float]] = {}
    for guesses in (
        _by_gradients(trace, truth, classes, generator),
        _by_completion(process, truth, classes, generator, whole=whole),
        _by_classifier(trace, truth, classes, generator),
        _by_clusters(trace, truth, classes, seed),
    ):
        for key, guessed, known in guesses:
            others = ~torch.isin(torch.arange(len(truth)), known)
            scores.setdefault(key, []).append(labels.balanced_accuracy(guessed[others], truth[others]))
            shares.setdefault(key, []).append(float((guessed[others] == truth[others]).double().mean()))
    found: Figures = {}
    for key in scores:
        found |= beside(key, mean(scores[key]), 1 / classes)
        found |= beside(f"{key}.accuracy", mean(shares[key]), largest_share(truth))
    return found | (_length_figures(trace, truth) if classes == 2 else {})


def _by_gradients(trace: Trace, truth: Tensor, classes: int, generator: torch.Generator) -> Guesses:
    """Guess by the directions of gradients, and by those of other rows as a control."""
    joined = trace.joined()
    shuffled = joined[torch.randperm(len(joined), generator=generator)]
    for _ in range(DRAWS):
        known = labels.draw_known(truth, classes, classes, generator)
        for key, gradients in (("first", trace.gradients[0]), ("all", joined), ("control", shuffled)):
            yield f"label.direction.{key}", labels.by_direction(gradients, known, truth[known], classes), known


def _by_completion(
    process: OneProcess, truth: Tensor, classes: int, generator: torch.Generator, *, whole: bool
) -> Guesses:
    """Guess by a head on the trained bottom and, as what that has to beat, on raw columns."""
    state = process.states[TARGET]
    assert state.inputs is not None
    inputs = state.inputs.batch(torch.arange(len(truth)))
    with torch.no_grad():
        heads = {"completion": state.networks["bottom"].eval()(inputs).relu().double().numpy()}
    if whole:  # what own columns give depends on no defence
        heads["own"] = labels.narrowed(inputs.flatten(1).double().numpy())
    for count in KNOWN_LABELS if whole else KNOWN_LABELS[-1:]:
        for _ in range(DRAWS):
            known = labels.draw_known(truth, count, classes, generator)
            for key, rows in heads.items():
                guessed = labels.completed(rows, known.numpy(), truth[known].numpy())
                yield f"label.{key}.{count}", torch.from_numpy(guessed), known


def _by_classifier(trace: Trace, truth: Tensor, classes: int, generator: torch.Generator) -> Guesses:
    """Guess by a classifier over all epochs' gradients."""
    components, count = labels.narrowed(trace.joined().double().numpy()), KNOWN_LABELS[-1]
    for _ in range(DRAWS):
        known = labels.draw_known(truth, count, classes, generator)
        guessed = labels.completed(components, known.numpy(), truth[known].numpy())
        yield f"label.gradients.{count}", torch.from_numpy(guessed), known


def _by_clusters(trace: Trace, truth: Tensor, classes: int, seed: int) -> Guesses:
    """Guess by clusters, named as well as could be."""
    clusters = labels.by_clusters(trace.joined(), classes, derive(seed, "clusters") % 2**32)
    yield "label.clusters", labels.named_by_truth(clusters, truth, classes), torch.arange(0)


def _length_figures(trace: Trace, truth: Tensor) -> Figures:
    """Return how well lengths of gradients tell the rarer of two classes."""
    found: Figures = {}
    rare = truth == int(torch.bincount(truth).argmin())
    for key, gradients in (("first", trace.gradients[0]), ("last", trace.gradients[-1])):
        lengths = labels.by_norm(gradients)
        found |= beside(f"label.norm.{key}", area_under_curve(lengths[rare], lengths[~rare]), 0.5)
    return found
