"""What those get who see no tensor: the coordinator, from figures, and an outsider, from sizes of messages."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedora_vfl.wire.encodings import Float32
from fedora_vfl.wire.tensors import TensorParcel, pack
from protos.fedora.v1.meter_pb2 import Kind


def told_by_group_accuracy(in_class: Tensor, size: int, generator: torch.Generator) -> float:
    """Return for how many rows a coordinator can say whether they are of a class, told one accuracy per group.

    The model is one that always says this class, as forgetting the others can make it: its accuracy over a group is the
    share of the class, and every row of the group is taken for what most of them are.
    """
    groups = torch.split(in_class[torch.randperm(len(in_class), generator=generator)], size)
    right = sum(int((group == (group.double().mean() > 0.5)).sum()) for group in groups)
    return right / len(in_class)


def message_sizes(tensors: Sequence[Tensor]) -> list[int]:
    """Return the sizes of the messages that carry these tensors, which TLS does not hide."""
    parcels = (
        TensorParcel(Kind.GRADIENT, 1, step, Float32, one.shape[0], one.shape[1], Float32().encode(one))
        for step, one in enumerate(tensors)
    )
    return [len(pack(one).data) for one in parcels]


def rows_from_sizes(sizes: Sequence[int], width: int) -> list[int]:
    """Return the rows of every batch, from sizes alone, for one who knows or guesses how wide an embedding is."""
    return [size // (4 * width) for size in sizes]
