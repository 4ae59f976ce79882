"""A line between members of a local cluster on which all that passes is recorded."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from fedora_vfl.cluster.local import LocalCluster, free_address
from fedora_vfl.settings.federation import Federation
from fedora_vfl.wire.protocol import COORDINATOR

READ_BYTES = 64 * 1024


class Recorder:
    """Passes on what comes to some addresses, and remembers it: one recording for each connection and direction."""

    def __init__(self) -> None:
        self.recordings: list[bytearray] = []

    def holds(self, part: bytes) -> bool:
        """Tell whether some bytes have passed."""
        return any(part in one for one in self.recordings)

    async def listen(self, address: str, there: str) -> asyncio.Server:
        """Pass on what comes to one address to another."""

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                further = await asyncio.open_connection(*there.split(":"))
            except OSError:  # nobody is there yet
                writer.close()
                return
            await asyncio.gather(self._pass(reader, further[1]), self._pass(further[0], writer))

        return await asyncio.start_server(connected, *address.split(":"))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        recording = bytearray()
        self.recordings.append(recording)
        with contextlib.suppress(OSError):
            while data := await reader.read(READ_BYTES):
                recording += data
                writer.write(data)
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def recorded_cluster(out: Path, federation: Federation) -> AsyncIterator[tuple[LocalCluster, Recorder]]:
    """Start a cluster that was prepared, all of whose messages go through a recorder."""
    recorder, coordinator, active = Recorder(), free_address(), free_address()
    path = out / "parties" / f"{federation.active.name}.yaml"
    content: Mapping[str, Any] = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**content, "listen": active}))
    servers = [
        await recorder.listen(federation.coordinator.address, coordinator),
        await recorder.listen(federation.active.address, active),
    ]
    try:
        programs = {COORDINATOR: ["coordinator", "--listen", coordinator]}
        async with LocalCluster(out, federation, programs=programs) as cluster:
            yield cluster, recorder
    finally:
        for server in servers:
            server.close()
