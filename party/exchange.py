"""The stream between a passive and the active party: embeddings one way, gradients the other, every one checked."""

import asyncio
import hashlib
import time
from collections.abc import Sequence
from functools import partial

from torch import Tensor

from fedora_vfl.errors import FedoraError, PartyError, TooLargeError, from_failure
from fedora_vfl.wire.choice import Encodings
from fedora_vfl.wire.link import CALLER, Link, one_arrived
from fedora_vfl.wire.protocol import COORDINATOR
from fedora_vfl.wire.tensors import Due, TensorParcel, agreed_in, unpack
from party.clock import SENDING, WAITING, Clock, Spending
from party.codec import Codec, LinkMemory
from protos.fedora.v1.control_pb2 import Setup
from protos.fedora.v1.exchange_pb2 import Parcel
from protos.fedora.v1.failure_pb2 import Failure
from protos.fedora.v1.meter_pb2 import EMBEDDING, GRADIENT, Kind
from protos.fedora.v1.phase_pb2 import Phase

ExchangeLink = Link[Parcel | TensorParcel, Parcel | TensorParcel]

FRAME_BYTES = 16 * 1024  # a parcel without its values or ids, or one that says what went wrong
# No model that learns sends such a value. What comes near it would make the receiver's own sums infinite, and the blame
# would fall on the receiver.
LARGEST_VALUE = 1e9

_NOUNS = {EMBEDDING: "an embedding", GRADIENT: "a gradient"}


async def expect(
    link: ExchangeLink, content: str, *, timeout: float, most: int | None = None, patience: float = 0
) -> Parcel:
    """Return the next parcel, which must be of this content.

    Args:
        link: Where it comes from.
        content: What it must hold.
        timeout: Seconds for it to come.
        most: Bytes that it may have beside its frame.
        patience: Seconds more in which it may be put off, by parcels that say that the sender is at work.
    """
    last = time.monotonic() + patience
    while True:
        parcel = await link.receive(timeout=timeout, most=None if most is None else FRAME_BYTES + most)
        found = parcel.WhichOneof("content") if isinstance(parcel, Parcel) else None
        if isinstance(parcel, Parcel) and found == "failure":
            raise _heard(link, parcel.failure)
        if isinstance(parcel, Parcel) and found == content:
            return parcel
        if found != "working" or not patience:
            raise PartyError(link.peer, f"sent {_told(parcel)} where its {content} was due")
        if time.monotonic() > last:
            reason = f"has said for {patience:g} s that it is at work, and its {content} is still due"
            raise PartyError(link.peer, reason, Failure.SILENT)


class TensorExchange:
    """Embeddings and gradients over one link, for one job."""

    def __init__(self, link: ExchangeLink, encodings: Encodings, clock: Clock, *, passive: str) -> None:
        """`passive` is the party at the link's passive end."""
        self.link, self.width = link, 0  # the embedding's, once the networks are made
        self._clock, self._passive, self._encodings = clock, passive, encodings
        self._codec = Codec(encodings, passive=passive)
        self.agreed = 0  # a digest of what the coordinator has asked this party for

    def take(self, width: int, memory: LinkMemory) -> None:
        """Go on with embeddings of this width, and what is remembered of the link."""
        self.width, self._codec = width, Codec(self._encodings, passive=self._passive, memory=memory)

    async def send(self, kind: Kind, phase: Phase, step: int, tensor: Tensor, rows: Tensor, *, timeout: float) -> None:
        """Begin to send the float32 tensor of one batch, whose rows have these numbers, in the job's encoding."""
        with self._clock.spend(SENDING):
            data = self._codec.encode(kind, phase, step, tensor.detach(), rows)
            encoding = self._codec.way(kind, phase).encoding
            agreed = self.agreed if step == 0 and kind == EMBEDDING else 0
            parcel = TensorParcel(kind, phase.number, step, encoding, tensor.shape[0], self.width, data, agreed)
            await self.link.post(parcel, timeout=timeout)

    async def receive(self, kind: Kind, phase: Phase, step: int, rows: Tensor, *, timeout: float) -> Tensor:
        """Return the float32 tensor of one batch; anything but the one that is due is an error naming the sender."""
        self.expect(kind, phase, rows)
        if not self.link.has_arrived:
            with self.waiting():
                await one_arrived([self.link], timeout)
        return self.arrived(kind, phase, step, rows)

    def waiting(self) -> Spending:
        """Book the time inside as spent on waiting."""
        return self._clock.spend(WAITING)

    def expect(self, kind: Kind, phase: Phase, rows: Tensor) -> None:
        """Say that the tensor of one batch is due, so that as many bytes may come."""
        self.link.expect(self._most(kind, phase, rows))

    def _most(self, kind: Kind, phase: Phase, rows: Tensor) -> int:
        return FRAME_BYTES + self._codec.way(kind, phase).encoding.nbytes(rows.shape[0], self.width)

    def arrived(self, kind: Kind, phase: Phase, step: int, rows: Tensor) -> Tensor:
        """Return the tensor of one batch, which has arrived, once it is checked."""
        encoding, count = self._codec.way(kind, phase).encoding, rows.shape[0]
        due = Due.of(kind, phase.number, step, encoding, count, self.width)
        try:
            # A gradient may come when its receiver is in the next phase already.
            booked = (phase.name, phase.round)
            parcel = self.link.take(FRAME_BYTES + due.size, partial(unpack, due=due, booked=booked))
        except TooLargeError as error:
            self._check_agreed(kind, phase, agreed_in(error.head) or self.agreed)
            raise
        if isinstance(parcel, TensorParcel) and parcel.step == 0:
            self._check_agreed(kind, phase, parcel.agreed)
        if isinstance(parcel, Parcel) and parcel.WhichOneof("content") == "failure":
            raise _heard(self.link, parcel.failure)
        if not isinstance(parcel, TensorParcel) or parcel[:3] != due.parcel[:3]:
            raise PartyError(self.link.peer, f"sent {_told(parcel)} where {_due(kind, phase, step)} was due")
        found = (parcel.encoding.number, parcel.rows, parcel.width, len(parcel.data))
        if found != (encoding.number, count, self.width, due.size):
            came = f"{(parcel.rows, parcel.width)} in {parcel.encoding.name}"
            wanted = f"{(count, self.width)} in {encoding.name}"
            reason = f"sent {_due(kind, phase, step)} with shape {came}; it should be {wanted}"
            raise PartyError(self.link.peer, reason)

        def check(values: Tensor) -> None:
            least, largest = values.aminmax()  # one pass, and NaN if any value is
            if not max(-least.item(), largest.item()) <= LARGEST_VALUE:
                said = f"values that are not finite, or over {LARGEST_VALUE:g}"
                hint = "its data or a learning rate that is too high may be the cause"
                raise PartyError(self.link.peer, f"sent {_due(kind, phase, step)} with {said}; {hint}")

        try:
            return self._codec.decode(kind, phase, memoryview(parcel.data), rows, self.width, check)
        except ValueError as error:
            reason = f"sent {_due(kind, phase, step)} that cannot be read: it {error}"
            raise PartyError(self.link.peer, reason) from None

    def _check_agreed(self, kind: Kind, phase: Phase, told: int) -> None:
        """Find out whether the coordinator has asked both sides for the same, before one blames the other.

        Whoever is told of different phases cannot know who lies: the coordinator, which can tell, says so itself.
        """
        if kind == EMBEDDING and told != self.agreed:
            peer, me = self.link.peer, self.link.me
            reason = f"sent {peer} another phase {phase.number} ({phase.name}) than {me}, or {peer} says so"
            raise PartyError(COORDINATOR, reason, Failure.DIVERGED, other=peer)


async def collect(
    exchanges: Sequence[TensorExchange], kind: Kind, phase: Phase, step: int, rows: Tensor, *, timeout: float
) -> dict[str, Tensor]:
    """Return what every one of some parties sends for one batch, by party; each is read as soon as it has come."""
    for one in exchanges:
        one.expect(kind, phase, rows)
    found: dict[str, Tensor | None] = dict.fromkeys(one.link.peer for one in exchanges)
    pending, last = list(exchanges), time.monotonic() + timeout
    if all(one.link.has_arrived for one in pending):
        await asyncio.sleep(0)  # where all are ahead of this party, links still go on reading
    while pending:
        if not any(one.link.has_arrived for one in pending):
            with pending[0].waiting():
                await one_arrived([one.link for one in pending], timeout, left=last - time.monotonic())
        for one in [one for one in pending if one.link.has_arrived]:
            found[one.link.peer] = one.arrived(kind, phase, step, rows)
            pending.remove(one)
    return {peer: tensor for peer, tensor in found.items() if tensor is not None}


def digest_of(setup: Setup, phase: Phase) -> int:
    """Return what two parties compare of a phase and the job it belongs to."""
    content = b"".join(one.SerializeToString(deterministic=True) for one in (setup, phase))
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "little")


def _heard(link: ExchangeLink, failure: Failure) -> FedoraError:
    """Return the error that the other side's failure is: it can speak of itself, and of this party."""
    error = from_failure(failure)
    if isinstance(error, PartyError) and error.culprit == CALLER:
        return PartyError(link.me, f"was sent away by {link.peer}: it {error.reason}", error.kind)
    if isinstance(error, PartyError) and error.culprit not in (link.peer, link.me):
        return PartyError(link.peer, f"says that {error}")
    return error


def _due(kind: Kind, phase: Phase, step: int) -> str:
    return f"{_NOUNS[kind]} for step {step} of {phase.name} round {phase.round} (phase {phase.number})"


def _told(parcel: Parcel | TensorParcel) -> str:
    if isinstance(parcel, Parcel):
        return f"its {parcel.WhichOneof('content')}"
    return f"{_NOUNS[parcel.kind]} for step {parcel.step} of phase {parcel.phase}"
