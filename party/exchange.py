"""The stream between a passive and the active party: embeddings one way, gradients the other, every one checked."""

import hashlib
import time

from torch import Tensor

from fedora_vfl.errors import FedoraError, PartyError, TooLargeError, from_failure
from fedora_vfl.wire.choice import Encodings
from fedora_vfl.wire.link import CALLER, Link
from fedora_vfl.wire.protocol import COORDINATOR
from fedora_vfl.wire.tensors import TensorParcel, agreed_in
from party.clock import SENDING, WAITING, Clock
from party.codec import Codec, LinkMemory
from protos.fedora.v1.control_pb2 import Setup
from protos.fedora.v1.exchange_pb2 import Parcel
from protos.fedora.v1.failure_pb2 import Failure
from protos.fedora.v1.meter_pb2 import Kind
from protos.fedora.v1.phase_pb2 import Phase

ExchangeLink = Link[Parcel | TensorParcel, Parcel | TensorParcel]

FRAME_BYTES = 16 * 1024  # a parcel without its values or ids, or one that says what went wrong
# No model that learns sends such a value. What comes near it would make the receiver's own sums infinite, and the blame
# would fall on the receiver.
LARGEST_VALUE = 1e9

_NOUNS = {Kind.EMBEDDING: "an embedding", Kind.GRADIENT: "a gradient"}


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
            agreed = self.agreed if kind == Kind.EMBEDDING and step == 0 else 0
            parcel = TensorParcel(kind, phase.number, step, encoding, len(tensor), self.width, data, agreed)
            await self.link.post(parcel, timeout=timeout)

    async def receive(self, kind: Kind, phase: Phase, step: int, rows: Tensor, *, timeout: float) -> Tensor:
        """Return the float32 tensor of one batch; anything but the one that is due is an error naming the sender."""
        encoding, count = self._codec.way(kind, phase).encoding, len(rows)
        size = encoding.nbytes(count, self.width)
        with self._clock.spend(WAITING):
            most = FRAME_BYTES + size
            try:
                parcel = await self.link.receive(timeout=timeout, most=most)
            except TooLargeError as error:
                self._check_agreed(kind, phase, agreed_in(error.head) or self.agreed)
                raise
        if isinstance(parcel, TensorParcel) and parcel.step == 0:
            self._check_agreed(kind, phase, parcel.agreed)
        if isinstance(parcel, Parcel) and parcel.WhichOneof("content") == "failure":
            raise _heard(self.link, parcel.failure)
        if not isinstance(parcel, TensorParcel) or (parcel.kind, parcel.phase, parcel.step) != (
            kind,
            phase.number,
            step,
        ):
            raise PartyError(self.link.peer, f"sent {_told(parcel)} where {_due(kind, phase, step)} was due")
        due = (encoding.number, count, self.width, size)
        if (parcel.encoding.number, parcel.rows, parcel.width, len(parcel.data)) != due:
            came = f"{(parcel.rows, parcel.width)} in {parcel.encoding.name}"
            wanted = f"{(count, self.width)} in {encoding.name}"
            reason = f"sent {_due(kind, phase, step)} with shape {came}; it should be {wanted}"
            raise PartyError(self.link.peer, reason)

        def check(values: Tensor) -> None:
            least, largest = values.aminmax()  # one pass, and NaN if any value is
            if not max(-float(least), float(largest)) <= LARGEST_VALUE:
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
        if kind == Kind.EMBEDDING and told != self.agreed:
            peer, me = self.link.peer, self.link.me
            reason = f"sent {peer} another phase {phase.number} ({phase.name}) than {me}, or {peer} says so"
            raise PartyError(COORDINATOR, reason, Failure.DIVERGED, other=peer)


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
