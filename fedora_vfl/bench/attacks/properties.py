"""Property inference by the active party: from one party's embeddings to something that is none of its columns."""

import numpy as np
import torch
from torch import Tensor

from fedora_vfl.bench.one_process.parties import OneProcess
from party.data.inputs import ImageInputs
from party.data.records import Table


def other_column(process: OneProcess, party: str, column: str) -> Tensor:
    """Return whether rows, in the common order, are of a column's most frequent category, or above its median."""
    records = process.records[party]
    table = records.features
    assert isinstance(table, Table)
    where = {one: row for row, one in enumerate(records.ids)}
    order = process.order
    rows = np.array([where[one] for part in (order.train, order.validation, order.test, order.probe) for one in part])
    if column in table.numeric:
        return _above_median(torch.from_numpy(table.numeric[column][rows]))
    values, numbers = np.unique(table.categorical[column][rows].astype(str), return_inverse=True)
    return torch.from_numpy(numbers == np.bincount(numbers, minlength=len(values)).argmax())


def other_brightness(process: OneProcess, party: str) -> Tensor:
    """Return whether a party's part of each image is brighter than the median part."""
    inputs = process.states[party].inputs
    assert isinstance(inputs, ImageInputs)
    return _above_median(inputs.pixels.flatten(1).float().mean(dim=1))


def _above_median(values: Tensor) -> Tensor:
    return values > values.median()


def inferred(inputs: Tensor, known: Tensor, truth: Tensor) -> Tensor:
    """Guess the property of all rows by a classifier fitted to those of which it is known."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.03, class_weight="balanced", max_iter=300))
    model.fit(inputs[known].numpy(), truth[known].long().numpy())
    return torch.from_numpy(model.predict(inputs.numpy()))
