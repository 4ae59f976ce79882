"""The coordinator's process: python -m coordinator --config FEDERATION.yaml"""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

import grpc

from coordinator.jobs import SUBMIT, Jobs
from coordinator.roster import JOIN, Roster
from settings.federation import Federation, load_federation
from wire.channels import listen
from wire.errors import FedoraError
from wire.process import end_with_parent, exit_codes, run_until_done, start_logging


async def serve(federation: Federation, address: str) -> None:
    """Let parties join and users submit jobs, until stopped."""
    roster = Roster(federation)
    jobs = Jobs(federation, roster)
    join: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(roster.join)
    submit: grpc.RpcMethodHandler[Any, Any] = grpc.unary_stream_rpc_method_handler(jobs.submit)
    server = await listen(address, {JOIN: join, SUBMIT: submit}, federation.deadlines.silence)
    try:
        await asyncio.Event().wait()
    finally:
        await server.stop(grace=0)


def main() -> int:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(
        prog="python -m coordinator",
        description="Drive the rounds of a federation. It listens at the federation's coordinator address for parties "
        "that join and for jobs from `fedora submit`, and never sees a tensor.",
        epilog="exit codes:\n" + exit_codes(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="the federation file")
    parser.add_argument("--listen", metavar="HOST:PORT", help="listen here instead of at the federation's address")
    parser.add_argument("--end-with-parent", action="store_true", help="end when standard input closes")
    options = parser.parse_args()
    start_logging()
    if options.end_with_parent:
        end_with_parent()
    try:
        federation = load_federation(options.config)
    except FedoraError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return run_until_done(serve(federation, options.listen or federation.coordinator.address))


if __name__ == "__main__":
    sys.exit(main())
