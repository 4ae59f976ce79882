"""Fuzz one service for a while: python -m tests.fuzzing --service exchange --seconds 600 [--tls] [--seed N]"""

import argparse
import asyncio
import tempfile
from pathlib import Path

from tests.fuzzing.laying_out import laid_out
from tests.fuzzing.services import SERVICES, fuzz, fuzz_party


def main() -> None:
    """Read the options, fuzz, and say what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    parser.add_argument("--service", choices=[*SERVICES, "party"], required=True)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tls", action="store_true", help="show a member's certificate (not with party)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        federation = laid_out(Path(folder), seconds=asked.seconds, tls=asked.tls)
        out = Path(folder) / "run"
        if asked.service == "party":
            count = asyncio.run(fuzz_party(out, "passive-1", seconds=asked.seconds, seed=asked.seed))
            print(f"{count} messages to a party, which failed only as foreseen")
            return
        work = fuzz(asked.service, out, federation, seconds=asked.seconds, seed=asked.seed, tls=asked.tls)
        print(asyncio.run(work))


if __name__ == "__main__":
    main()
