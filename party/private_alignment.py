"""Private alignment: all parties learn which ids all of them hold, and nobody learns anything of another id.

The active party masks its ids and has every passive party mask them again; with its own mask off, it holds of each id
what only that passive party's secret makes of it. Every passive party sends a table that answers such a value with a
share, if it holds the id, and with random bytes, if not. The shares of all passive parties come to nothing for an id
that all hold, so that the active party learns which these are, and nothing of the others. docs/alignment.md says who
learns what, and why.
"""

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedora_vfl.errors import DataError, PartyError
from fedora_vfl.signing import SigningKey
from fedora_vfl.wire.masking import POINT_BYTES, SLOT_BYTES, TAG_BYTES, slots_in_third, table_bytes
from party.alignment import ALIGNMENTS, Alignment, Terms, arranged
from party.alignment_keys import FreshKey, check_different, check_key, shares, tags
from party.exchange import ExchangeLink, expect
from party.kept_alignment import (
    SECRET_BYTES,
    SETS,
    KeptAlignment,
    are_places,
    digest_of_others,
    fresh_alignment_secret,
    keep,
    read_kept,
    rows_of,
)
from party.many_ids import set_of, without
from party.masked_before import MaskedBefore
from party.masking import BadPointError, Workers, as_bytes, cut, hashed, inverse, random_points, times
from party.share_table import SALT_BYTES, Words, answers_of, digests, made
from protos.fedora.v1.control_pb2 import Aligned
from protos.fedora.v1.exchange_pb2 import (
    AlignmentCall,
    AlignmentPlan,
    CommonRows,
    MaskedIds,
    MemberKey,
    Order,
    Parcel,
    ShareTable,
    Working,
)
from protos.fedora.v1.failure_pb2 import Failure

MOST_MASKED_IDS = 50_000_000  # of one party; more would take days
CHUNK = 4096  # masked ids in one message, a fifth of a second's work
CHUNK_BYTES = 256 * 1024  # of slots, or tags, in one message
WINDOW = 4  # messages of masked ids under way to one party: it works on one while the next come
PLACE_BYTES = 5  # of a row's place on the wire, at most
# A party that says only that it is at work is believed for so long: forty multiplications an id on a slow core.
SECONDS_PER_ID = 0.01
WORKING_SECONDS = 5.0
TELLING_SECONDS = 1.0

Masked = Sequence["asyncio.Future[bytes]"]  # own ids, message by message, as they are ready

WHOLE, DIFFERENCE, AGAIN = AlignmentPlan.WHOLE, AlignmentPlan.DIFFERENCE, AlignmentPlan.AGAIN

_WAYS = {
    WHOLE: "all ids are aligned in masked form",
    DIFFERENCE: "an earlier alignment is kept, and ids that are not in it are aligned in masked form",
    AGAIN: "an earlier alignment is kept, and nobody has ids that are not in it",
}

log = logging.getLogger(__name__)


def rounded_up(count: int, step: int | None) -> int:
    """Return what a number of ids is said to be."""
    return -(-count // step) * step if step else count


@ALIGNMENTS.register("private")
class PrivateAlignment(Alignment):
    """Find the common ids without showing any other; an alignment is kept until somebody's ids have changed."""

    def __init__(self, terms: Terms | None = None) -> None:
        super().__init__(terms)
        self._done, self._due = 0, 0  # multiplications
        self._before = terms.before if terms and terms.before else MaskedBefore()

    async def offer(self, link: ExchangeLink, ids: Sequence[str], *, timeout: float) -> Order:
        """Send a table of shares, mask the active party's ids, and learn which ids are common."""
        terms, kept = self.terms, await asyncio.to_thread(read_kept, self.terms.keys, self.terms.parties)
        key = await asyncio.to_thread(FreshKey.made, terms.party, terms.job, _signing(terms))
        call = await asyncio.to_thread(_call, key, kept, ids)
        try:
            await link.send(Parcel(call=call), timeout=timeout)
        except PartyError as error:
            if error.kind != Failure.LOST:
                raise
            # If the active party hung up on us, it said why before; what follows reads that first.
        plan = await self._planned(link, key.public, kept, timeout)
        changed = "; this party's ids have changed since" if call.changed or call.gone else ""
        asked = f"; {link.peer} masks {plan.ids} ids" if plan.way != AGAIN else ""
        log.info("%s%s%s", _WAYS[plan.way], changed, asked)
        agreed = key.agreed(link.peer, plan.key)
        sharing = [key.agreed(one.party, one.key) for one in plan.others]
        standing = kept.without(plan.gone) if kept and plan.way != WHOLE else Order()
        self.aligned = Aligned(kept=plan.way == AGAIN)
        self._before.begin(terms.job)
        workers = Workers(terms.threads)
        try:
            if plan.way != AGAIN:
                self._agree()
                offered = await asyncio.to_thread(_others, ids, rows_of(standing))
                await self._mask_for(link, plan, offered, sharing, workers, timeout)
            patience = timeout + SECONDS_PER_ID * (plan.ids + len(ids)) * len(terms.parties)
            order = await self._learned(link, standing, ids, agreed, timeout, patience)
        finally:
            workers.close()
        await asyncio.to_thread(self._keep, plan.secret, order, ids)
        return order

    async def arrange(self, links: Sequence[ExchangeLink], ids: dict[str, str], *, timeout: float) -> Order:
        """Find out which of the own ids all tables have shares for, tell everyone, in one order."""
        terms, kept = self.terms, await asyncio.to_thread(read_kept, self.terms.keys, self.terms.parties)
        key = await asyncio.to_thread(FreshKey.made, terms.party, terms.job, _signing(terms))
        calls = await _all(self._called(link, kept, timeout) for link in links)
        keys = {link.peer: call for link, call in zip(links, calls, strict=True)}
        for number, link in enumerate(links, 1):
            check_different([key.public, *(call.key for call in calls[:number])], sender=link.peer)
        agreed = {peer: key.agreed(peer, call.key) for peer, call in keys.items()}
        way, gone = await asyncio.to_thread(_way, kept, calls, ids)
        log.info("%s", _WAYS[way])
        standing = kept.without(gone) if kept and way != WHOLE else Order()
        common = set_of(rows_of(standing))
        self._before.begin(terms.job)
        masked = await asyncio.to_thread(lambda: _shuffled(_others(ids, common), self._before.order_key))
        said = 0 if way == AGAIN else self._bounded(rounded_up(len(masked), terms.padding))
        self.aligned = Aligned(masked=said, kept=way == AGAIN)
        if way != AGAIN:
            self._agree()
        secret, workers = fresh_alignment_secret(), Workers(terms.threads)
        try:
            for link in links:
                others = [
                    MemberKey(party=peer, key=call.key, signature=call.signature)
                    for peer, call in keys.items()
                    if peer != link.peer
                ]
                plan = AlignmentPlan(
                    way=way, key=key.public, signature=key.signature, others=others, ids=said, gone=gone, secret=secret
                )
                await link.send(Parcel(plan=plan), timeout=timeout)
            if way != AGAIN:
                common |= await self._compared(links, masked, said, workers, timeout)
            if not common:
                raise DataError("no sample id is held by all parties")
            order = await asyncio.to_thread(arranged, common, ids)
            told = 0 if kept and order == standing and way != WHOLE else len(common)
            self.aligned.told = told
            await _all(_tell_common(link, order, agreed[link.peer], bool(told), workers, timeout) for link in links)
        finally:
            workers.close()
        await asyncio.to_thread(self._keep, secret, order, ids)
        return order

    # The passive side.

    async def _planned(
        self, link: ExchangeLink, own: bytes, kept: KeptAlignment | None, timeout: float
    ) -> AlignmentPlan:
        """Return the active party's plan, if it is one."""
        terms, rows = self.terms, len(kept.rows) if kept else 0
        plan = (await expect(link, "plan", timeout=timeout, most=PLACE_BYTES * rows)).plan
        if plan.way not in (WHOLE, DIFFERENCE, AGAIN) or (plan.way != WHOLE and kept is None):
            raise PartyError(link.peer, "planned an alignment that goes on from one which this party does not keep")
        if not are_places(plan.gone, rows if plan.way != WHOLE else 0) or len(plan.secret) != SECRET_BYTES:
            raise PartyError(link.peer, "planned an alignment with places that there are not, or without its secret")
        _check_count(link.peer, plan.ids)
        others = [name for name in terms.passive if name != terms.party]
        if [one.party for one in plan.others] != others:
            raise PartyError(link.peer, "planned an alignment among other parties than the job has")
        check = partial(check_key, job=terms.job, known=terms.public_keys, sender=link.peer)
        check(link.peer, plan.key, plan.signature)
        for one in plan.others:
            check(one.party, one.key, one.signature)
        check_different([own, plan.key, *(one.key for one in plan.others)], sender=link.peer)
        return plan

    async def _mask_for(
        self,
        link: ExchangeLink,
        plan: AlignmentPlan,
        ids: Sequence[str],
        sharing: Sequence[bytes],
        workers: Workers,
        timeout: float,
    ) -> None:
        """Do a passive party's part: send a table of shares, then mask what the active party sends."""
        assert self.aligned is not None
        room = self._bounded(rounded_up(len(ids), self.terms.padding))
        self.aligned.masked = room
        self._due = room + plan.ids  # whoever is told how far this is must not learn how many ids there are
        await link.send(Parcel(table=ShareTable(ids=room)), timeout=timeout)
        async with self._telling():
            async with _at_work([link], timeout):
                points = bytearray()
                for at in range(0, len(ids), CHUNK):
                    points += await self._masked_own(ids[at : at + CHUNK], 0, at, workers)
                    self._done = room * len(points) // (POINT_BYTES * len(ids))
                own = await workers.do(partial(shares, ids, sharing))
                salt, table = await workers.do(partial(made, bytes(points), own, room_for=room))
                del points, own
            slots = table.tobytes()
            for at in range(0, len(slots), CHUNK_BYTES):
                part = ShareTable(slots=slots[at : at + CHUNK_BYTES])
                if not at:
                    part.salt = salt
                await link.send(Parcel(table=part), timeout=timeout)
            del slots, table
            seen = _Seen(link.peer, plan.ids)
            patience = timeout + SECONDS_PER_ID * plan.ids * len(self.terms.parties)
            while seen.count < plan.ids:
                received = await _points(link, min(CHUNK, plan.ids - seen.count), timeout, patience)
                seen.note(received)
                masked = await self._multiplied(link.peer, self._before.secret, received, workers)
                await link.send(Parcel(masked=MaskedIds(points=masked)), timeout=timeout)
                self._done = room + seen.count
            await workers.do(seen.check_different)

    async def _learned(
        self, link: ExchangeLink, standing: Order, ids: Sequence[str], agreed: bytes, timeout: float, patience: float
    ) -> Order:
        """Return the common rows in their order, as the active party tells them."""
        told = (await expect(link, "common", timeout=timeout, most=CHUNK_BYTES, patience=patience)).common
        sizes = [getattr(told, name) for name in SETS]
        if told.unchanged:
            if told.tags or sizes != [len(getattr(standing, name)) for name in SETS]:
                raise PartyError(link.peer, "says that the kept order stands, and has other numbers of rows")
            return standing
        if sum(sizes) > len(ids):
            raise PartyError(link.peer, f"tells {sum(sizes)} common rows, and this party has offered {len(ids)}")
        received, due = bytearray(), TAG_BYTES * sum(sizes)
        part = told.tags
        while True:
            if len(part) != min(CHUNK_BYTES, due - len(received)):
                raise PartyError(link.peer, f"told {sum(sizes)} common rows, and has sent another number of them")
            received += part
            if len(received) == due:
                break
            part = (await expect(link, "common", timeout=timeout, most=CHUNK_BYTES)).common.tags
        common = await asyncio.to_thread(_recognised, bytes(received), ids, agreed, link.peer)
        order = Order()
        for name, size in zip(SETS, sizes, strict=True):
            getattr(order, name).extend(common[:size])
            del common[:size]
        return order

    # The active side.

    async def _called(self, link: ExchangeLink, kept: KeptAlignment | None, timeout: float) -> AlignmentCall:
        """Return a passive party's first word, if it is one."""
        rows = len(kept.rows) if kept else 0
        # A party that keeps another alignment may have more rows gone from that.
        most = PLACE_BYTES * max(rows, MOST_MASKED_IDS // 10)
        call = (await expect(link, "call", timeout=timeout, most=most)).call
        terms = self.terms
        check_key(link.peer, call.key, call.signature, job=terms.job, known=terms.public_keys, sender=link.peer)
        if kept and call.kept == kept.digest and not are_places(call.gone, rows):
            raise PartyError(link.peer, "says that rows are gone from places of the kept alignment that there are not")
        return call

    async def _compared(
        self, links: Sequence[ExchangeLink], ids: Sequence[str], said: int, workers: Workers, timeout: float
    ) -> set[str]:
        """Do the active party's part, and return the ids that all tables have shares for."""
        unmask = inverse(self._before.secret)
        self._due = said * (1 + len(links))
        total = np.zeros((said, 2), dtype=np.uint64)
        loop = asyncio.get_running_loop()
        masked: Masked = [loop.create_future() for _ in range(0, said, CHUNK)]
        comparing = (self._add_shares(link, masked, said, unmask, total, workers, timeout) for link in links)
        async with self._telling(), _at_work(links, timeout):
            await _all([self._mask_own(ids, said, masked, workers), *comparing])
        nothing = np.flatnonzero(~total[: len(ids)].any(axis=1))
        return {ids[row] for row in nothing.tolist()}

    async def _mask_own(self, ids: Sequence[str], said: int, masked: Masked, workers: Workers) -> None:
        """Mask the own ids, and points that are nobody's up to the number that is said, message by message."""
        for chunk, future in enumerate(masked):
            at = chunk * CHUNK
            some, count = ids[at : at + CHUNK], min(CHUNK, said - at)
            future.set_result(await self._masked_own(some, count - len(some), at, workers))
            self._done += count

    async def _add_shares(
        self,
        link: ExchangeLink,
        masked: Masked,
        said: int,
        unmask: bytes,
        total: Words,
        workers: Workers,
        timeout: float,
    ) -> None:
        """Have one passive party mask all ids, and add what its table answers for each."""
        salt, table = await self._table(link, timeout)
        patience = timeout + SECONDS_PER_ID * said * len(self.terms.parties)
        seen, window = _Seen(link.peer, said), asyncio.Semaphore(WINDOW)

        async def send_all() -> None:
            for future in masked:
                await window.acquire()
                points = await asyncio.shield(future)  # others wait for it too
                await link.send(Parcel(masked=MaskedIds(points=points)), timeout=timeout)

        def answered(points: bytes) -> Words:
            return answers_of(table, digests(points, salt))

        async def receive_all() -> None:
            while seen.count < said:
                at = seen.count
                received = await _points(link, min(CHUNK, said - at), timeout, patience)
                seen.note(received)
                window.release()
                points = await self._multiplied(link.peer, unmask, received, workers)
                total[at : seen.count] ^= await workers.do(partial(answered, points))
                self._done += seen.count - at
            await workers.do(seen.check_different)

        await _all([send_all(), receive_all()])

    async def _table(self, link: ExchangeLink, timeout: float) -> tuple[bytes, Words]:
        """Receive a passive party's table: first for how many ids it will be, then the slots."""
        ids = (await expect(link, "table", timeout=timeout, most=0)).table.ids
        _check_count(link.peer, ids)
        slots, due, salt = bytearray(), table_bytes(ids), b""
        patience = timeout + SECONDS_PER_ID * ids * len(self.terms.parties)
        while len(slots) < due:
            part = (await expect(link, "table", timeout=timeout, most=CHUNK_BYTES, patience=patience)).table
            salt = salt or part.salt
            if len(part.slots) != min(CHUNK_BYTES, due - len(slots)) or len(salt) != SALT_BYTES:
                held = f"a table for {ids} ids should have {3 * slots_in_third(ids)} slots of {SLOT_BYTES} bytes"
                reason = f"sent {len(part.slots)} bytes of a table of shares; {held}, and a salt of {SALT_BYTES} bytes"
                raise PartyError(link.peer, reason)
            slots += part.slots
        return salt, np.frombuffer(bytes(slots), dtype="<u8").reshape(-1, 2)

    # Both sides.

    async def _masked_own(self, ids: Sequence[str], others: int, at: int, workers: Workers) -> bytes:
        """Mask some of the own ids, which begin at a place, and add points that are nobody's."""
        secret = self._before.secret

        async def make() -> bytes:
            parts = await workers.share(lambda part: times(secret, hashed(part)), ids)
            return b"".join(point for part in (*parts, random_points(others)) for point in part)

        written = b"".join(len(one).to_bytes(4, "little") + one for one in map(as_bytes, ids))
        return await self._before.chunk(f"own {at} {others}", written, make)

    async def _multiplied(self, peer: str, secret: bytes, points: bytes, workers: Workers) -> bytes:
        """Multiply points that another party has sent."""

        async def make() -> bytes:
            try:
                parts = await workers.share(partial(times, secret), cut(points))
            except BadPointError as error:
                raise PartyError(peer, f"sent a masked id that {error}") from None
            return b"".join(point for part in parts for point in part)

        return await self._before.chunk(f"of {peer}", points, make)

    def _agree(self) -> None:
        """Ask the party's policy whether ids may be masked once more."""
        if self.terms.agree:
            self.terms.agree()

    def _bounded(self, count: int) -> int:
        if count > MOST_MASKED_IDS:
            raise DataError(f"{count} ids are too many for a private alignment; allowed: up to {MOST_MASKED_IDS}")
        return count

    def _keep(self, secret: bytes, order: Order, ids: Collection[str]) -> None:
        """Keep the alignment, which is done, and forget what it was made with."""
        self._before.forget()
        log.info("all parties have %d ids in common", len(rows_of(order)))
        others = digest_of_others(secret, ids, rows_of(order))
        keep(self.terms.keys, KeptAlignment(self.terms.parties, secret, order, others))

    @contextlib.asynccontextmanager
    async def _telling(self) -> AsyncIterator[None]:
        """Tell the coordinator, while this lasts, how far the masking is."""

        async def tell() -> None:
            told = 0
            while True:
                await asyncio.sleep(TELLING_SECONDS)
                if self._done > told and self.terms.tell:
                    told = self._done
                    await self.terms.tell(told, self._due)

        async with _beside(tell()):
            yield


@dataclass
class _Seen:
    """The points that one party has sent: as many as announced, and none twice."""

    sender: str
    due: int
    count: int = 0

    def __post_init__(self) -> None:
        self._starts: NDArray[np.uint64] = np.zeros(self.due, dtype=np.uint64)

    def note(self, points: bytes) -> None:
        """Note points that have come."""
        count = len(points) // POINT_BYTES
        # Eight bytes of a random point tell millions of them apart.
        self._starts[self.count : self.count + count] = np.frombuffer(points, dtype="<u8")[::4]
        self.count += count

    def check_different(self) -> None:
        """Refuse a point that came twice."""
        if len(np.unique(self._starts)) < self.due:
            raise PartyError(self.sender, "sent a masked id twice")
        self._starts = np.zeros(0, dtype=np.uint64)


async def _points(link: ExchangeLink, due: int, timeout: float, patience: float) -> bytes:
    """Receive the next masked ids, of which so many are due."""
    most = POINT_BYTES * CHUNK
    points = (await expect(link, "masked", timeout=timeout, most=most, patience=patience)).masked.points
    if len(points) != POINT_BYTES * due:
        raise PartyError(link.peer, f"sent {len(points)} bytes of masked ids where {POINT_BYTES * due} were due")
    return points


def _check_count(peer: str, count: int) -> None:
    if count > MOST_MASKED_IDS:
        raise PartyError(peer, f"announced {count} ids for an alignment; allowed: up to {MOST_MASKED_IDS}")


def _signing(terms: Terms) -> SigningKey | None:
    """Return the party's signing key, where others can check signatures by it."""
    return SigningKey.load_or_make(terms.keys) if terms.party in terms.public_keys else None


def _call(key: FreshKey, kept: KeptAlignment | None, ids: Sequence[str]) -> AlignmentCall:
    call = AlignmentCall(key=key.public, signature=key.signature)
    if kept:
        call.kept, call.changed = kept.digest, kept.changed(ids)
        call.gone.extend(kept.gone(ids))
    return call


def _way(
    kept: KeptAlignment | None, calls: Sequence[AlignmentCall], ids: Collection[str]
) -> tuple["AlignmentPlan.Way", list[int]]:
    """Choose how to align, and return which rows are gone from the kept order."""
    if kept is None or any(call.kept != kept.digest for call in calls):
        return WHOLE, []
    gone = sorted({place for call in calls for place in call.gone}.union(kept.gone(ids)))
    return DIFFERENCE if kept.changed(ids) or any(call.changed for call in calls) else AGAIN, gone


def _others(ids: Iterable[str], common: Iterable[str]) -> list[str]:
    """Return each id once that is not common."""
    return without(ids, set_of(common))


def _shuffled(ids: Sequence[str], key: bytes) -> list[str]:
    """Put ids in an order that says nothing to those who do not know the key."""
    drawn = hashlib.shake_256(b"fedora alignment order" + key).digest(8 * len(ids))
    return [ids[row] for row in np.argsort(np.frombuffer(drawn, dtype="<u8")).tolist()]


def _recognised(received: bytes, ids: Sequence[str], agreed: bytes, peer: str) -> list[str]:
    """Return the ids that tags stand for."""
    own = tags(ids, agreed)
    known = {own[TAG_BYTES * row : TAG_BYTES * (row + 1)]: one for row, one in enumerate(ids)}
    try:
        common = [known.pop(received[at : at + TAG_BYTES]) for at in range(0, len(received), TAG_BYTES)]
    except KeyError:
        raise PartyError(peer, "told common rows twice, or some that this party does not hold") from None
    return common


async def _tell_common(
    link: ExchangeLink, order: Order, agreed: bytes, told: bool, workers: Workers, timeout: float
) -> None:
    """Tell a passive party the common rows in their order."""
    common = CommonRows(
        unchanged=not told,
        train=len(order.train),
        validation=len(order.validation),
        test=len(order.test),
        probe=len(order.probe),
    )
    every = await workers.do(partial(tags, rows_of(order), agreed)) if told else b""
    common.tags = every[:CHUNK_BYTES]
    await link.send(Parcel(common=common), timeout=timeout)
    for at in range(CHUNK_BYTES, len(every), CHUNK_BYTES):
        await link.send(Parcel(common=CommonRows(tags=every[at : at + CHUNK_BYTES])), timeout=timeout)


Done = TypeVar("Done")


async def _all(works: Iterable[Coroutine[Any, Any, Done]]) -> list[Done]:
    """Wait until all is done; when one thing fails, the rest is given up."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do something without end beside what is done here."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def _at_work(links: Sequence[ExchangeLink], timeout: float) -> AsyncIterator[None]:
    """Let the other side know, while this lasts, that this one is at work."""

    async def say(link: ExchangeLink) -> None:
        while True:
            await asyncio.sleep(min(WORKING_SECONDS, timeout / 4))
            await link.send(Parcel(working=Working()))

    async with contextlib.AsyncExitStack() as stack:
        for link in links:
            await stack.enter_async_context(_beside(say(link)))
        yield
