"""Parties of an alignment in one process: real links over streams without a network, with all traffic recorded."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

import grpc

from fedora_vfl.wire import tensors
from fedora_vfl.wire.link import Link
from fedora_vfl.wire.meter import Meter
from party.alignment import Terms
from party.exchange import ExchangeLink
from party.masked_before import MaskedBefore
from party.private_alignment import PrivateAlignment
from protos.fedora.v1.control_pb2 import Aligned
from protos.fedora.v1.exchange_pb2 import Order, Parcel

Change = Callable[[Parcel], list[Parcel] | None]
TIMEOUT = 20.0


class Wire:
    """One end of a stream; what is written is recorded, and may be changed on the way, or end the stream."""

    def __init__(self, change: Change | None = None) -> None:
        self._change, self.incoming, self.other = change, asyncio.Queue[object](), self
        self.recorded: list[bytes] = []

    async def read(self) -> object:
        return await self.incoming.get()

    async def write(self, message: bytes) -> None:
        sent: list[Parcel] | None = [Parcel.FromString(message)]
        if self._change:
            sent = self._change(Parcel.FromString(message))
        if sent is None:
            self.other.incoming.put_nowait(grpc.aio.EOF)
            return
        for one in sent:
            self.recorded.append(one.SerializeToString())
            self.other.incoming.put_nowait(self.recorded[-1])


class Outcome:
    """What an alignment came to."""

    def __init__(self) -> None:
        self.orders: dict[str, Order] = {}
        self.errors: dict[str, BaseException] = {}
        self.aligned: dict[str, Aligned | None] = {}
        self.recorded: dict[tuple[str, str], list[bytes]] = {}  # by sender and receiver
        self.meters: dict[str, Meter] = {}
        self.told: set[tuple[int, int]] = set()  # to the coordinator: how much is done, and of how much

    @property
    def traffic(self) -> bytes:
        return b"".join(message for one in self.recorded.values() for message in one)


def link_between(wire: Wire, me: str, peer: str, meter: Meter) -> ExchangeLink:
    return Link(wire, me=me, peer=peer, meter=meter, pack=tensors.pack, unpack=tensors.unpack)


def aligned(
    folder: Path,
    active: Mapping[str, str],
    passive: Mapping[str, Sequence[str]],
    *,
    changes: Mapping[str, Change] | None = None,
    padding: int | None = None,
    job: str = "job",
    timeout: float = TIMEOUT,
    before: Mapping[str, MaskedBefore] | None = None,
    agree: Mapping[str, Callable[[], None]] | None = None,
    beside: AbstractAsyncContextManager[None] | None = None,
) -> Outcome:
    """Align the ids of an active party, each with its set, with those of passive ones.

    `changes` are what some senders do to their parcels: passive parties by name, and the active party as `active`.
    `before` is what processes have masked in earlier attempts, `agree` what parties' policies say, by name, too.
    All of it happens within `beside`.
    """
    outcome, names = Outcome(), tuple(passive)

    def terms(name: str) -> Terms:
        memory, asked = (before or {}).get(name), (agree or {}).get(name)
        return Terms(
            job, name, "active", names, folder / name, threads=2, padding=padding, before=memory, agree=asked, tell=tell
        )

    async def tell(done: int, due: int) -> None:
        outcome.told.add((done, due))

    async def run() -> None:
        works, links = {}, []
        outcome.meters = {name: Meter() for name in ("active", *names)}
        sides = {name: PrivateAlignment(terms(name)) for name in ("active", *names)}
        for name, ids in passive.items():
            here, there = Wire((changes or {}).get(name)), Wire((changes or {}).get("active"))
            here.other, there.other = there, here
            outcome.recorded[name, "active"], outcome.recorded["active", name] = here.recorded, there.recorded
            link = link_between(here, name, "active", outcome.meters[name])
            links.append(link_between(there, "active", name, outcome.meters["active"]))
            works[name] = asyncio.create_task(sides[name].offer(link, ids, timeout=timeout))
        works["active"] = asyncio.create_task(sides["active"].arrange(links, dict(active), timeout=timeout))
        pending = set(works.values())
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if any(task.exception() for task in done):
                await asyncio.wait(pending, timeout=0.2) if pending else None
                for task in pending:
                    task.cancel()
                await asyncio.gather(*works.values(), return_exceptions=True)
                break
        for name, task in works.items():
            if task.cancelled():
                continue
            if error := task.exception():
                outcome.errors[name] = error
            else:
                outcome.orders[name] = task.result()
            outcome.aligned[name] = sides[name].aligned

    async def within() -> None:
        async with beside or nullcontext():
            await run()

    asyncio.run(within())
    return outcome
