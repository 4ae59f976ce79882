"""The coordinator's process: python -m coordinator --config FEDERATION.yaml"""

import sys
from pathlib import Path

from fedora_vfl.process.lifecycle import ENDS_WITHIN_SECONDS, begin, command_line, run_until_done
from fedora_vfl.process.logs import set_member
from fedora_vfl.wire.protocol import COORDINATOR


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
        "--method", dest="plugin", type=Path, action="append", metavar="FILE.py", help="another name of --plugin"
    )
    parser.add_argument("--certificates", type=Path, metavar="DIR", help="the coordinator's folder of certificates")
    parser.add_argument(
        "--jobs",
        type=Path,
        metavar="DIR",
        help="the folder that jobs are kept in (keys/coordinator beside the federation file)",
    )
    options = parser.parse_args()
    begin(options)
    set_member(COORDINATOR)
    from coordinator.serving import serve  # after `begin`, which says how gRPC is to speak

    work = serve(options.config, options.listen, options.plugin, options.certificates, options.metrics, options.jobs)
    return run_until_done(work, ends_within=ENDS_WITHIN_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
