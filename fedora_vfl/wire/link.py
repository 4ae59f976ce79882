"""One end of a stream to one peer: metered, with a deadline for every wait, and errors that name the peer."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from fedora_vfl.errors import PartyError, TooLargeError
from fedora_vfl.fault_points import reached
from fedora_vfl.wire.channels import LARGEST_EXCHANGE_BYTES
from fedora_vfl.wire.meter import Meter, Packed
from fedora_vfl.wire.pieces import cut, is_piece, read_piece
from fedora_vfl.wire.protocol import COORDINATOR, MOST_OVERLAP, MOST_REQUESTED_IDS, is_name
from fedora_vfl.wire.started import Started
from fedora_vfl.wire.tensors import read_varint
from protos.fedora.v1.control_pb2 import FromCoordinator, FromParty
from protos.fedora.v1.failure_pb2 import Failure
from protos.fedora.v1.meter_pb2 import Kind

Sent = TypeVar("Sent")
Received = TypeVar("Received")

# Messages read ahead of the one who wants them. More than a sender ever has under way without an answer (see
# party/passive.py), so that two ends that both write cannot wait for each other for ever.
READ_AHEAD = MOST_OVERLAP + 8
# And no more than this many bytes of them, so that a peer cannot fill the memory: four of the largest batches.
READ_AHEAD_BYTES = 256 * 1024 * 1024
HEAD_BYTES = 64  # that are kept of a message that was too large
MOST_FIRST_BYTES = 16 * 1024  # of the message in which a caller says who it is
# All that gRPC raises when a stream has ended in one way or another.
BROKEN = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError)
LAST_WRITE_SECONDS = 1.0
CALLER = "a caller"  # who has not said its name yet


class Stream(Protocol):
    """What a gRPC client's call and a server's context have in common."""

    async def read(self) -> Any:
        """Return the next message's bytes, or grpc.aio.EOF."""

    async def write(self, message: bytes) -> None:
        """Send one message, waiting while the other side cannot take more."""


class Link(Generic[Sent, Received]):
    """A metered end of a stream."""

    def __init__(
        self,
        stream: Stream,
        *,
        me: str,
        peer: str,
        meter: Meter,
        pack: Callable[[Sent], Packed],
        unpack: Callable[[bytes], tuple[Received, Packed]],
        in_pieces: bool = False,
    ) -> None:
        """`in_pieces` is for links whose large messages are cut; both ends must agree."""
        self.me, self.peer, self.meter, self._in_pieces = me, peer, meter, in_pieces
        self._stream, self._pack, self._unpack = stream, pack, unpack
        # What the instants of this end are called in fault_points.py.
        instants = COORDINATOR if me == COORDINATOR else "party" if peer == COORDINATOR else "exchange"
        self._at_send, self._at_receive = f"{instants}.send", f"{instants}.receive"
        self._arrived: deque[bytes | PartyError] = deque()
        self._waiting_bytes, self._room = 0, asyncio.Event()  # of what has arrived; whether more may
        self._room.set()
        # Bytes that are due in the next message, whether it is waited for, and whether that has changed.
        self._due, self._wanted, self._asked = 0, False, asyncio.Event()
        self._waiter: asyncio.Future[None] | None = None
        self._writing: Started[PartyError | None] | None = None
        self._answer_first = False  # whether the one who waits will answer what comes, and nothing else is due before
        self._reader = asyncio.create_task(self._read_ahead())

    async def ended(self) -> None:
        """Wait until the other side has gone, or this side has closed, and nothing is being written any more."""
        await asyncio.wait([self._reader])
        if self._writing:
            await self._writing.wait(LAST_WRITE_SECONDS)

    async def send(self, message: Sent, *, timeout: float | None = None, phase: tuple[str, int] | None = None) -> None:
        """Send one message; the peer must take it within `timeout` seconds. It may belong to an earlier `phase`."""
        await self.post(message, timeout=timeout, phase=phase)
        await self._written(timeout)

    async def post(self, message: Sent, *, timeout: float | None = None, phase: tuple[str, int] | None = None) -> None:
        """Begin to send one message, once the one before it has left, and go on; if it fails, the next call says so."""
        if self._writing:
            await self._written(timeout)
        packed = self._pack(message)
        if phase and not packed.phase:
            packed = packed._replace(phase=phase)
        if len(packed.data) > LARGEST_EXCHANGE_BYTES:  # it would not be read
            reason = f"has {len(packed.data)} bytes to send in one message; allowed: up to {LARGEST_EXCHANGE_BYTES}"
            raise PartyError(self.me, reason)
        reached(self._at_send)
        self.meter.count(self.me, self.peer, packed)
        self._writing = Started(self._write(packed.data))

    async def receive(self, *, timeout: float | None = None, most: int | None = None) -> Received:
        """Return the next message; it must come within `timeout` seconds, and one over `most` bytes is not read."""
        self.expect(most)
        try:
            if not self._arrived:  # what is there needs no deadline
                await one_arrived([self], timeout)
            return self.take(most)
        finally:
            self._wanted = False

    def expect(self, most: int | None = None) -> None:
        """Say that a message of so many bytes at most is wanted next; `take` returns it once it has arrived."""
        self._due, self._wanted = LARGEST_EXCHANGE_BYTES if most is None else most, True
        self._asked.set()

    @property
    def has_arrived(self) -> bool:
        """Whether there is something to take."""
        return bool(self._arrived)

    def take(
        self, most: int | None = None, unpack: Callable[[bytes], tuple[Received, Packed]] | None = None
    ) -> Received:
        """Return the message that has arrived, of the size that was said to be expected.

        `unpack` reads it in place of the link's own reader, for a caller that knows what it should be.
        """
        self._wanted = False
        arrived = self._arrived[0]
        if isinstance(arrived, PartyError):
            raise arrived  # it stays: whoever asks next is told the same
        self._arrived.popleft()
        self._waiting_bytes -= len(arrived)
        self._make_room()
        if most is not None and len(arrived) > most:
            raise self._too_large(len(arrived), most, arrived)
        try:
            message, packed = (unpack or self._unpack)(arrived)
        except ValueError as error:
            raise self._unreadable(error) from None
        self.meter.count(self.peer, self.me, packed)
        reached(self._at_receive)
        return message

    def close(self) -> None:
        """Stop reading; the stream itself belongs to the one who opened it."""
        self._reader.cancel()

    async def _written(self, timeout: float | None) -> None:
        """Wait until the last message has left.

        The write itself goes on if the caller is cancelled or out of timeout: gRPC would end the whole stream with it.
        """
        # A loop, because whoever else waited to send may have begun before this caller woke up.
        while self._writing and not self._writing.is_done:
            if not await self._writing.wait(timeout):
                raise self._silent(f"took no message for {timeout:g} s")
        if self._writing and (error := self._writing.result()):
            raise error

    async def _write(self, data: bytes) -> PartyError | None:
        """Return what went wrong, for the next who sends: a link may be closed before anybody asks."""
        try:
            for part in cut(data) if self._in_pieces else (data,):
                await self._stream.write(part)
        except (*BROKEN, asyncio.CancelledError):  # by gRPC: nobody here cancels a write
            return self._lost()
        return None

    async def _read_ahead(self) -> None:
        while True:
            if self._waiting_bytes >= READ_AHEAD_BYTES:
                await self._room.wait()
            data = await self._read()
            if self._in_pieces and isinstance(data, bytes) and is_piece(data):
                data = await self._read_on(data)
            if len(self._arrived) >= READ_AHEAD:
                await self._room.wait()
            self._arrived.append(data)
            if isinstance(data, bytes):
                self._waiting_bytes += len(data)
                self._make_room()
            if self._waiter and not self._waiter.done():
                self._waiter.set_result(None)
                if self._answer_first:  # to begin a read takes its time, too
                    await asyncio.sleep(0)
            if not isinstance(data, bytes):
                return

    def _make_room(self) -> None:
        """Say whether more may be read."""
        if self._waiting_bytes < READ_AHEAD_BYTES and len(self._arrived) < READ_AHEAD:
            self._room.set()
        else:
            self._room.clear()

    async def _read(self) -> bytes | PartyError:
        try:
            data = await self._stream.read()
        except BROKEN:
            data = grpc.aio.EOF
        return data if isinstance(data, bytes) else self._lost()

    async def _read_on(self, first: bytes) -> bytes | PartyError:
        """Return the message that a first piece belongs to, if so much is due; without that nothing more is read."""
        try:
            whole, part = read_piece(first)
            while whole > self._due or whole > LARGEST_EXCHANGE_BYTES:
                if self._wanted and not self._arrived:  # this is what the one who waits would get
                    return self._too_large(whole, min(self._due, LARGEST_EXCHANGE_BYTES), part)
                self._asked.clear()
                await self._asked.wait()
            gathered = bytearray(part)
            while len(gathered) < whole:
                data = await self._read()
                if not isinstance(data, bytes):
                    return data
                of, part = read_piece(data) if is_piece(data) else (0, part)
                if of != whole or len(gathered) + len(part) > whole:
                    raise ValueError("is not the next piece of the last one")
                gathered += part
        except ValueError as error:
            return self._unreadable(error)
        return bytes(gathered)

    def _too_large(self, size: int, most: int, message: bytes | memoryview) -> PartyError:
        return TooLargeError(self.peer, f"sent {size} bytes where at most {most} were due", bytes(message[:HEAD_BYTES]))

    def _unreadable(self, error: ValueError) -> PartyError:
        return PartyError(self.peer, f"sent a message that cannot be read: it {error}", Failure.PROTOCOL)

    def _silent(self, reason: str) -> PartyError:
        return PartyError(self.peer, reason, Failure.SILENT)

    def _lost(self) -> PartyError:
        why = "the process ended or was stopped, the network is cut, or a message was larger than any may be"
        return PartyError(self.peer, f"is gone: its connection to {self.me} broke ({why})", Failure.LOST)


async def one_arrived(links: "Sequence[Link[Any, Any]]", timeout: float | None, *, left: float | None = None) -> None:
    """Wait until there is something to take from one of some links: one wake-up and one deadline for all of them.

    Args:
        links: On each of them nobody else waits.
        timeout: Seconds that the first of them, which is named otherwise, has been given.
        left: Seconds that are left of them, if not all are.
    """
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    left = timeout if left is None else max(0.0, left)
    deadline = None if left is None else loop.call_later(left, _end, waiter)
    for link in links:
        link._waiter, link._answer_first = waiter, len(links) == 1
    try:
        await waiter
    except TimeoutError:
        raise links[0]._silent(f"sent nothing for {timeout:g} s") from None
    finally:
        if deadline:
            deadline.cancel()
        for link in links:
            if link._waiter is waiter:  # and not that of somebody who waits since
                link._waiter = None


def _end(waiter: "asyncio.Future[None]") -> None:
    """Give up a wait whose time is over."""
    if not waiter.done():
        waiter.set_exception(TimeoutError())


async def read_first(
    stream: Stream, unpack: Callable[[bytes], tuple[Received, Packed]], *, timeout: float
) -> tuple[Received, Packed]:
    """Read the message in which a caller says who it is, before there is a link to count it on."""
    try:
        async with asyncio.timeout(timeout):
            data = await stream.read()
        if isinstance(data, bytes):
            if len(data) > MOST_FIRST_BYTES:
                raise PartyError(CALLER, f"sent {len(data)} bytes before it said who it is")
            return unpack(data)
        raise PartyError(CALLER, "hung up without a word", Failure.LOST)
    except TimeoutError:
        raise PartyError(CALLER, f"did not say who it is within {timeout:g} s", Failure.SILENT) from None
    except ValueError as error:
        raise PartyError(CALLER, f"sent a first message that cannot be read: it {error}") from None


def check_named(name: str) -> None:
    """Refuse a caller that goes by something that is no name, before it is repeated anywhere."""
    if not is_name(name):
        raise PartyError(CALLER, "gave an invalid name")


M = TypeVar("M", bound=Message)

# What the meter calls the time before, between and after the phases.
_SECTIONS = {
    "hello": ("join", 0),
    "welcome": ("join", 0),
    "setup": ("setup", 0),
    "ready": ("setup", 0),
    "request": ("setup", 0),
    "accepted": ("setup", 0),
    "drop": ("between", 0),
    "dropped": ("between", 0),
    "restart": ("between", 0),
    "restarted": ("between", 0),
    "assess": ("between", 0),
    "assessment": ("between", 0),
    "attest": ("between", 0),
    "statement": ("between", 0),
    "save": ("closing", 0),
    "saved": ("closing", 0),
    "collect": ("closing", 0),
    "commit_only": ("between", 0),
    "committed": ("between", 0),
}
# What closes the books, or opens them again after a loss, is not in them.
_OUTSIDE_THE_BOOKS = {"readings", "dismiss", "idle", "halt", "halted", "resume", "resumed"}


def pack_control(message: FromParty | FromCoordinator) -> Packed:
    """Serialize a message between coordinator and party."""
    return _labelled(message, message.SerializeToString())


def begun(message: FromCoordinator) -> Packed:
    """Return what both ends book of a phase that was sent ahead, once it begins."""
    return Packed(message.SerializeToString(), Kind.CONTROL, phase=(message.phase.name, message.phase.round))


def unpack_control(kind: type[M]) -> Callable[[bytes], tuple[M, Packed]]:
    """Return the reader for messages of one class."""

    def unpack(data: bytes) -> tuple[M, Packed]:
        _check_large(data)
        try:
            message = kind.FromString(data)
        except Exception as error:  # protobuf's DecodeError is not in its type stubs
            raise ValueError(f"is not a {kind.__name__}: {error}") from None
        return message, _labelled(message, data)

    return unpack


# A message beyond this size can only be one list: of ids in a request, of lines in a party's books.
LARGE_BYTES = 1024 * 1024
ENVELOPE_BYTES = 64  # what may follow it: number, attempt and the like
_LISTS = {FromCoordinator.REQUEST_FIELD_NUMBER, FromParty.READINGS_FIELD_NUMBER}


def _check_large(data: bytes) -> None:
    """Refuse a large message, before it is read, that would take far more memory and time than bytes."""
    if len(data) <= LARGE_BYTES:
        return
    tag, at = read_varint(data, 0)
    length, at = read_varint(data, at)
    if tag >> 3 not in _LISTS or not 0 <= len(data) - at - length <= ENVELOPE_BYTES:
        raise ValueError(f"has {len(data)} bytes, and is no list")
    # An entry of two bytes may take a hundred in memory. It begins with a line feed, which an id of ten letters has
    # as its length, too.
    if data.count(b"\n") > 2 * MOST_REQUESTED_IDS:
        raise ValueError(f"lists more than {MOST_REQUESTED_IDS} ids")


def _labelled(message: Message, data: bytes) -> Packed:
    """Say where a message is booked, if it is."""
    content = message.WhichOneof("content") or ""
    if isinstance(message, FromCoordinator) and message.ahead:
        return Packed(data, None)
    if content in _OUTSIDE_THE_BOOKS:
        return Packed(data, None)
    if isinstance(message, FromCoordinator) and content == "phase":
        return Packed(data, Kind.CONTROL, phase=(message.phase.name, message.phase.round))
    return Packed(data, Kind.CONTROL, phase=_SECTIONS.get(content))
