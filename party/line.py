"""How long the line between a passive and the active party is: a word there and back, a few times."""

import asyncio
import time
from collections.abc import Sequence

from party.exchange import ExchangeLink, expect
from protos.fedora.v1.exchange_pb2 import Echo, Parcel

TRIPS = 3  # the quickest of which had to wait for nothing but the line
STEP = 50  # milliseconds: rounds are counted for lines as long as this, and what a busy machine adds is less


async def call(link: ExchangeLink, *, timeout: float) -> int:
    """Return the milliseconds of the quickest round trip to the active party, rounded down to whole steps."""
    seconds = []
    for _ in range(TRIPS):
        began = time.perf_counter()
        await link.send(Parcel(echo=Echo()), timeout=timeout)
        await expect(link, "echo", timeout=timeout, most=0)
        seconds.append(time.perf_counter() - began)
    return int(1000 * min(seconds)) // STEP * STEP


async def answer(links: Sequence[ExchangeLink], *, timeout: float) -> None:
    """Answer all passive parties, each as soon as it calls."""

    async def one(link: ExchangeLink) -> None:
        for _ in range(TRIPS):
            await expect(link, "echo", timeout=timeout, most=0)
            await link.send(Parcel(echo=Echo()), timeout=timeout)

    tasks = [asyncio.create_task(one(link)) for link in links]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
