"""The coordinator's process: python -m coordinator --config FEDERATION.yaml"""

import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from coordinator.jobs import SUBMIT, Jobs
from coordinator.methods.registry import load_method
from coordinator.roster import JOIN, Roster
from settings.federation import load_federation
from wire.channels import listen
from wire.process import begin, command_line, run_until_done
from wire.protocol import COORDINATOR
from wire.signing import SigningKey
from wire.tls import COORDINATOR_MEMBER, Identity, check_secured

log = logging.getLogger(__name__)


async def serve(config: Path, listen_at: str | None, methods: Sequence[Path], certificates: Path | None) -> None:
    """Let parties join and users submit jobs, until stopped."""
    for path in methods:
        load_method(path)
    federation = load_federation(config)
    identity = Identity.load(certificates) if certificates else None
    if identity:
        identity.check(COORDINATOR_MEMBER)
    roster = Roster(federation)
    key = SigningKey.load_or_make(config.parent / "keys" / COORDINATOR)
    log.info("signs certificates with the key %s", key.public)
    jobs = Jobs(federation, roster, key)
    join: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(roster.join)
    submit: grpc.RpcMethodHandler[Any, Any] = grpc.unary_stream_rpc_method_handler(jobs.submit)
    address = listen_at or federation.coordinator.address
    check_secured(address, identity, plaintext=federation.plaintext, hint="name their folder with --certificates")
    server = await listen(address, {JOIN: join, SUBMIT: submit}, federation.deadlines.silence, identity=identity)
    try:
        await asyncio.Event().wait()
    finally:
        await server.stop(grace=0)


def main() -> int:
    """Read the command line and serve."""
    parser = command_line(
        "coordinator",
        "Drive the rounds of a federation. It listens at the federation's coordinator address\n"
        "for parties that join and for jobs from `fedora submit`, and never sees a tensor.",
        "the federation file",
    )
    parser.add_argument("--listen", metavar="HOST:PORT", help="listen here instead of at the federation's address")
    parser.add_argument(
        "--method",
        type=Path,
        action="append",
        default=[],
        metavar="FILE.py",
        help="a file with an unlearning method of one's own, which is run; repeatable (docs/own-method.md)",
    )
    parser.add_argument("--certificates", type=Path, metavar="DIR", help="the coordinator's folder of certificates")
    options = parser.parse_args()
    begin(options)
    return run_until_done(serve(options.config, options.listen, options.method, options.certificates))


if __name__ == "__main__":
    sys.exit(main())
