"""A party's process: python -m party --config PARTY.yaml"""

import sys
from pathlib import Path

from wire.process import begin, command_line, run_until_done


async def live(config: Path) -> None:
    """Load what the party needs and take part until stopped."""
    # Imported here: they bring torch, which takes seconds, and --help should not.
    import torch

    from party.device import device_for
    from party.member import Member
    from party.settings import load_party

    settings, federation = load_party(config)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    device_for(settings.device, origin=str(config))  # said now, not when the first job comes
    await Member(settings, federation).live()


def main() -> int:
    """Read the command line and take part."""
    parser = command_line(
        "party",
        "Take part in a federation as one party, passive or active as the federation file says.\n"
        "It opens its own data file and no other. A passive party dials out only.",
        "the party file",
    )
    options = parser.parse_args()
    begin(options)
    return run_until_done(live(options.config))


if __name__ == "__main__":
    sys.exit(main())
