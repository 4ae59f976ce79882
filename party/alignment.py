"""Finding the rows that all parties hold, and one order for them; the federation file names the way."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedora_vfl.errors import DataError, PartyError
from fedora_vfl.plugins import Registry
from party.exchange import ExchangeLink, expect
from party.many_ids import in_order
from party.masked_before import MaskedBefore
from protos.fedora.v1.control_pb2 import Aligned
from protos.fedora.v1.exchange_pb2 import Offer, Order, Parcel
from protos.fedora.v1.failure_pb2 import Failure


@dataclass(frozen=True)
class Terms:
    """What an alignment may have to know beside the ids: of its job, and of the party that it runs at."""

    job: str
    party: str
    active: str
    passive: tuple[str, ...]
    keys: Path  # the party's folder of what only it may read
    threads: int = 1
    padding: int | None = None  # the step up to which the party rounds the number of its ids, where it does
    public_keys: Mapping[str, str] = field(default_factory=dict)  # signing keys of members, where they are known
    tell: Callable[[int, int], Awaitable[None]] | None = None  # is handed how much is done, and of how much
    agree: Callable[[], None] | None = None  # is asked before ids are masked, and may refuse
    before: MaskedBefore | None = None  # what this process has masked in earlier attempts at the same

    @property
    def parties(self) -> tuple[str, ...]:
        """All parties of the job."""
        return (*self.passive, self.active)


class Alignment(ABC):
    """How the common ids are found; one side at each kind of party. An object of it serves one job."""

    aligned: Aligned | None = None  # what a private alignment came to, from which its bytes follow

    def __init__(self, terms: Terms | None = None) -> None:
        self._terms = terms

    @property
    def terms(self) -> Terms:
        """What is known beside the ids."""
        if self._terms is None:
            raise ValueError("this alignment needs terms")
        return self._terms

    @abstractmethod
    async def offer(self, link: ExchangeLink, ids: Sequence[str], *, timeout: float) -> Order:
        """Take part as a passive party and return the common ids.

        Args:
            link: The stream to the active party.
            ids: All ids that this party holds.
            timeout: Seconds for each message.
        """

    @abstractmethod
    async def arrange(self, links: Sequence[ExchangeLink], ids: dict[str, str], *, timeout: float) -> Order:
        """Take part as the active party, tell the others, and return the common ids in the order for all.

        Args:
            links: The streams to all passive parties.
            ids: The active party's ids, with the set that each belongs to: train, validation, test or probe.
            timeout: Seconds for each message.
        """


ALIGNMENTS: Registry[type[Alignment]] = Registry("alignment")


def arranged(common: set[str], ids: dict[str, str]) -> Order:
    """Sort the common ids, so that the result does not depend on anybody's file, and cut them into sets."""
    chosen = in_order(common)
    sets = ("train", "validation", "test", "probe")
    order = Order(**{name: [one for one in chosen if ids[one] == name] for name in sets})
    for name in ("train", "test"):
        if not getattr(order, name):
            raise DataError(f"of the {len(chosen)} rows that all parties hold, none is for {name}")
    return order


@ALIGNMENTS.register("plain")
class PlainComparison(Alignment):
    """Compare ids in the open.

    The active party learns every id that a passive one holds; a passive party learns which of its ids all others hold.
    """

    async def offer(self, link: ExchangeLink, ids: Sequence[str], *, timeout: float) -> Order:
        """Send all ids, get the common ones back."""
        try:
            await link.send(Parcel(offer=Offer(ids=ids)), timeout=timeout)
        except PartyError as error:
            if error.kind != Failure.LOST:
                raise
            # If the active party hung up on us, it said why before; what follows reads that first.
        # No id can come back that was not offered.
        most = Offer(ids=ids).ByteSize()
        order = (await expect(link, "order", timeout=timeout, most=most)).order
        common = [*order.train, *order.validation, *order.test, *order.probe]
        if not set(common) <= set(ids) or len(set(common)) != len(common):
            raise PartyError(link.peer, "sent an order of rows with ids twice, or that this party does not hold")
        return order

    async def arrange(self, links: Sequence[ExchangeLink], ids: dict[str, str], *, timeout: float) -> Order:
        """Collect all offers, keep what everyone has, sort it and tell everyone."""
        common = set(ids)
        for link in links:
            offered = (await expect(link, "offer", timeout=timeout)).offer.ids
            # In a thread: millions of ids must not keep others waiting.
            shared = await asyncio.to_thread(common.intersection, offered)
            if common and not shared:
                raise DataError(f"no sample id is held by all parties: {link.peer} shares none with those before it")
            common = shared
        order = await asyncio.to_thread(arranged, common, ids)
        for link in links:
            await link.send(Parcel(order=order), timeout=timeout)
        return order
