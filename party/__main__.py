"""A party's process: python -m party --config PARTY.yaml"""

import argparse
import sys
from pathlib import Path

from wire.process import end_with_parent, exit_codes, run_until_done, start_logging


async def live(config: Path) -> None:
    """Load what the party needs and take part until stopped."""
    # Imported here: they bring torch, which takes seconds, and --help should not.
    import torch

    from party.member import Member
    from party.settings import load_party

    settings, federation = load_party(config)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    await Member(settings, federation).live()


def main() -> int:
    """Read the command line and take part."""
    parser = argparse.ArgumentParser(
        prog="python -m party",
        description="Take part in a federation as one party, passive or active as the federation file says. It opens "
        "its own data file and no other. A passive party dials out only.",
        epilog="exit codes:\n" + exit_codes(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="the party file")
    parser.add_argument("--end-with-parent", action="store_true", help="end when standard input closes")
    options = parser.parse_args()
    start_logging()
    if options.end_with_parent:
        end_with_parent()
    return run_until_done(live(options.config))


if __name__ == "__main__":
    sys.exit(main())
