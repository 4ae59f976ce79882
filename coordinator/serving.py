"""The coordinator's process, all of it: what it listens for, and how it stops."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from coordinator.jobs import Jobs
from coordinator.metrics import CoordinatorMetrics
from coordinator.queue import JobQueue
from coordinator.roster import JOIN, Roster
from coordinator.store import Store
from fedora_vfl.plugins import load_plugin
from fedora_vfl.process.health import Health
from fedora_vfl.process.metrics import CertificateMetrics, Source, TrafficMetrics, served
from fedora_vfl.settings.federation import load_federation
from fedora_vfl.signing import SigningKey
from fedora_vfl.storage import remove_unfinished
from fedora_vfl.wire.addresses import check_address
from fedora_vfl.wire.channels import listen
from fedora_vfl.wire.meter import Totals
from fedora_vfl.wire.protocol import COORDINATOR
from fedora_vfl.wire.tls import COORDINATOR_MEMBER, Credentials, check_secured

log = logging.getLogger(__name__)


# How long calls that are about to end may take when the coordinator is stopped.
LAST_CALLS_SECONDS = 1.0


async def serve(
    config: Path,
    listen_at: str | None,
    plugins: Sequence[Path],
    certificates: Path | None,
    metrics: str | None,
    jobs: Path | None = None,
) -> None:
    """Let parties join and users submit jobs, until stopped.

    Args:
        config: The federation file.
        listen_at: Where to listen, if not at the federation's address.
        plugins: Python files that are run first.
        certificates: The coordinator's folder of certificates, if it has one.
        metrics: Where figures for Prometheus are served, if anywhere.
        jobs: The folder that jobs are kept in, if not that of the signing key.
    """
    for path in plugins:
        load_plugin(path)
    if listen_at:
        check_address(listen_at, option="--listen")
    federation = load_federation(config)
    credentials = Credentials.load(certificates) if certificates else None
    if credentials:
        credentials.check(COORDINATOR_MEMBER)
        credentials.warn()
    health, totals, shown = Health(), Totals(), CoordinatorMetrics(federation.parties)
    roster = Roster(federation, shown, health, totals)
    private = config.parent / "keys" / COORDINATOR
    remove_unfinished(private)
    key = SigningKey.load_or_make(private)
    log.info("signs certificates with the key %s", key.public)
    join: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(roster.join)
    address = listen_at or federation.coordinator.address
    check_secured(address, credentials, plaintext=federation.plaintext, hint="name their folder with --certificates")
    sources: list[Source] = [shown, TrafficMetrics(COORDINATOR, totals), CertificateMetrics(credentials)]
    store = await Store.open(jobs or private)
    queue = JobQueue(store, federation, roster, key, shown)
    roster.going_on = queue.going_on
    handlers = {JOIN: join, **Jobs(store, queue, shown).handlers(), **health.handlers()}
    try:
        with served(metrics, member=COORDINATOR, role=COORDINATOR_MEMBER.role, sources=sources):
            server = await listen(
                address,
                handlers,
                federation.deadlines.silence,
                credentials=credentials,
                refused=roster.note_refused_call,
            )
            working = asyncio.create_task(queue.work())
            try:
                await asyncio.shield(working)
            finally:
                health.leave()  # first of all: nobody should come who would be sent away
                try:
                    await queue.stop()
                finally:
                    working.cancel()
                    roster.hang_up()
                    await server.stop(grace=LAST_CALLS_SECONDS)
    finally:
        await store.close()
