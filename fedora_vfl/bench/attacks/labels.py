"""Label inference by a passive party: from the gradients it gets, and from the bottom that they have trained."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

Numbers = NDArray[np.float64]
Classes = NDArray[np.int64]
SELF_TRAINING = (0.2, 0.5)  # shares of each guessed class, the surest first, that are taken for known
WIDEST = 64  # values of a row that a head is fitted to
TRUST = 0.3  # weight of a guessed label; a known one has 1


def by_norm(gradients: Tensor) -> Tensor:
    """Score rows by the length of their gradient: those of the rarer class, harder to fit, are longer."""
    lengths: Tensor = torch.linalg.vector_norm(gradients, dim=1)
    return lengths


def by_direction(gradients: Tensor, known: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Give every row the class of those known rows that its gradient points along with."""
    units = functional.normalize(gradients, dim=1)
    means = torch.stack([units[known[labels == one]].mean(dim=0) for one in range(classes)])
    return (units @ functional.normalize(means, dim=1).T).argmax(dim=1)


def by_clusters(gradients: Tensor, classes: int, seed: int) -> Tensor:
    """Cut the directions of gradients into as many clusters as there are classes; nothing need be known."""
    from sklearn.cluster import KMeans

    units = functional.normalize(gradients, dim=1)
    if not units.any():  # nothing was sent
        return torch.zeros(len(units), dtype=torch.int64)
    found = KMeans(classes, n_init=4, random_state=seed).fit_predict(units.numpy())
    return torch.from_numpy(found.astype(np.int64))


def named_by_truth(clusters: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Name each cluster by the class it has most of, measured against the class's size: as well as could be done."""
    counts = torch.zeros(int(clusters.max()) + 1, classes, dtype=torch.float64)
    counts.index_put_((clusters, labels), torch.ones(len(labels), dtype=torch.float64), accumulate=True)
    return (counts / counts.sum(dim=0).clamp(min=1)).argmax(dim=1)[clusters]


def completed(inputs: Numbers, known: Classes, labels: Classes) -> Classes:
    """Fit a head to the known rows, then, a few times, to those and the rows it is surest of; guess every row."""
    from sklearn.preprocessing import StandardScaler

    scaled = StandardScaler().fit_transform(narrowed(inputs))
    head = _head(scaled[known], labels, np.ones(len(known)))
    for share in SELF_TRAINING:
        chances = head.predict_proba(scaled)
        guessed = head.classes_[chances.argmax(axis=1)]
        sure = _surest(guessed, chances.max(axis=1), share)
        weights = np.repeat([1.0, TRUST * len(known) / max(len(sure), 1)], [len(known), len(sure)])
        head = _head(np.concatenate([scaled[known], scaled[sure]]), np.concatenate([labels, guessed[sure]]), weights)
    found: Classes = head.predict(scaled)
    return found


def narrowed(inputs: Numbers) -> Numbers:
    """Return rows by their main components where they are wide, as pixels are: a few labels cannot weigh all."""
    if inputs.shape[1] <= WIDEST:
        return inputs
    from sklearn.decomposition import PCA

    components: Numbers = PCA(WIDEST, svd_solver="randomized", random_state=0).fit_transform(inputs)
    return components


def _head(inputs: Numbers, labels: Classes, weights: Numbers) -> "LogisticRegression":
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=0.1, class_weight="balanced", max_iter=500, tol=1e-3).fit(inputs, labels, weights)


def _surest(guessed: Classes, chances: Numbers, share: float) -> Classes:
    """Return the rows of each guessed class that the head is surest of."""
    chosen = []
    for one in np.unique(guessed):
        rows = np.flatnonzero(guessed == one)
        chosen.append(rows[np.argsort(-chances[rows])[: int(share * len(rows))]])
    return np.concatenate(chosen)


def draw_known(labels: Tensor, count: int, classes: int, generator: torch.Generator) -> Tensor:
    """Draw the rows whose labels an attacker knows: one of every class, the others at random."""
    order = torch.randperm(len(labels), generator=generator)
    firsts = [order[labels[order] == one][:1] for one in range(classes)]
    first = torch.cat(firsts)
    others = order[~torch.isin(order, first)]
    return torch.cat([first, others[: max(0, count - len(first))]])


def balanced_accuracy(guessed: Tensor, truth: Tensor) -> float:
    """Return the mean, over classes, of the share of rows that are recognised; any guess without a clue gets 1/C."""
    shares = [float((guessed[truth == one] == one).double().mean()) for one in torch.unique(truth)]
    return sum(shares) / len(shares)
