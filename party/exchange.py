"""The stream between a passive and the active party: embeddings one way, gradients the other, every one checked."""

import math
import time

import torch
from torch import Tensor

from protos.exchange_pb2 import Parcel
from protos.meter_pb2 import Kind
from protos.phase_pb2 import Phase
from protos.tensor_pb2 import DType
from wire.errors import PartyError, from_failure
from wire.link import Link
from wire.tensors import DTYPES, TensorParcel

ExchangeLink = Link[Parcel | TensorParcel, Parcel | TensorParcel]

_NOUNS = {Kind.EMBEDDING: "an embedding", Kind.GRADIENT: "a gradient"}


async def expect(link: ExchangeLink, content: str, *, patience: float) -> Parcel:
    """Return the next parcel, which must be of this content."""
    parcel = await link.receive(patience=patience)
    if isinstance(parcel, Parcel):
        found = parcel.WhichOneof("content")
        if found == "failure":
            raise from_failure(parcel.failure)
        if found == content:
            return parcel
    else:
        found = _NOUNS[parcel.kind]
    raise PartyError(link.peer, f"sent {found} where its {content} was due")


class TensorExchange:
    """Embeddings and gradients over one link, for one job."""

    def __init__(self, link: ExchangeLink, dtype: DType, width: int) -> None:
        self.link, self.width, self.dtype = link, width, DTYPES[dtype]
        self.waited = 0.0  # seconds spent here for the other side, since the phase began

    async def send(self, kind: Kind, phase: Phase, step: int, tensor: Tensor, *, patience: float) -> None:
        """Send the tensor of one batch in the job's wire type."""
        began = time.perf_counter()
        values = tensor.detach().to(self.dtype)
        await self.link.send(TensorParcel(kind, phase.number, step, values), patience=patience)
        self.waited += time.perf_counter() - began

    async def receive(self, kind: Kind, phase: Phase, step: int, rows: int, *, patience: float) -> Tensor:
        """Return the float32 tensor of one batch; anything but the one that is due is an error naming the sender."""
        began = time.perf_counter()
        parcel = await self.link.receive(patience=patience)
        self.waited += time.perf_counter() - began
        due = f"{_NOUNS[kind]} for step {step} of {phase.name} round {phase.round}"
        if isinstance(parcel, Parcel):
            if parcel.WhichOneof("content") == "failure":
                raise from_failure(parcel.failure)
            raise PartyError(self.link.peer, f"sent its {parcel.WhichOneof('content')} where {due} was due")
        if (parcel.kind, parcel.phase, parcel.step) != (kind, phase.number, step):
            came = f"{_NOUNS[parcel.kind]} for step {parcel.step} of phase {parcel.phase}"
            raise PartyError(self.link.peer, f"sent {came} where {due} (phase {phase.number}) was due")
        tensor = parcel.tensor
        if tensor.shape != (rows, self.width) or tensor.dtype != self.dtype:
            came = f"{tuple(tensor.shape)} in {tensor.dtype}".replace("torch.", "")
            wanted = f"{(rows, self.width)} in {self.dtype}".replace("torch.", "")
            raise PartyError(self.link.peer, f"sent {due} with shape {came}; it should be {wanted}")
        # A copy puts the values on an aligned address: matrix products on an unaligned one may round differently, and
        # the result would not be exact to the bit. The sum is finite only if every value is; it takes one pass.
        values = tensor.to(torch.float32, copy=True)
        if not math.isfinite(values.sum().item()):
            hint = "its data or a learning rate that is too high may be the cause"
            raise PartyError(self.link.peer, f"sent {due} with values that are not finite; {hint}")
        return values
