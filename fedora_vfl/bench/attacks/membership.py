"""Membership inference: which rows a model was trained on, told from what a role sees of it."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional


def by_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Score rows by how well the model fits their labels: the active party's attack."""
    return -functional.cross_entropy(logits, labels, reduction="none")


def by_embedding(members: Tensor, others: Tensor, *targets: Tensor) -> list[Tensor]:
    """Score rows by a classifier fitted to embeddings of known members and others: a passive party's attack."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, class_weight="balanced", max_iter=300))
    is_member = np.repeat([1, 0], [len(members), len(others)])
    model.fit(_features(torch.cat([members, others])).numpy(), is_member)
    return [torch.from_numpy(model.decision_function(_features(one).numpy())) for one in targets]


def _features(embeddings: Tensor) -> Tensor:
    """Return values, sizes and length: what is sure of a row is often long."""
    return torch.cat([embeddings, embeddings.abs(), torch.linalg.vector_norm(embeddings, dim=1, keepdim=True)], dim=1)
