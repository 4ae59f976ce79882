"""A job on its way from inside a host: this module with arguments ADDRESS CERTIFICATES|-, the job on standard input.

`fedora submit` does the same for people; this one hands the figures back to the process that measures.
"""

import asyncio
import sys
from pathlib import Path

from fedora_vfl.cluster.submission import submit
from fedora_vfl.process.lifecycle import run_until_done
from fedora_vfl.settings.federation import Deadlines
from fedora_vfl.wire.tls import Credentials
from protos.fedora.v1.control_pb2 import Event


def _ignore(_: Event) -> None:
    """Say nothing of single rounds."""


async def work(address: str, certificates: str) -> None:
    """Submit what is on standard input, and print the result."""
    credentials = None if certificates == "-" else Credentials.load(Path(certificates))
    settings = await asyncio.to_thread(sys.stdin.read)
    result = await submit(
        address, settings, origin="cell", follow=_ignore, deadlines=Deadlines(), credentials=credentials
    )
    print(result.result_json)


if __name__ == "__main__":
    sys.exit(run_until_done(work(*sys.argv[1:])))
