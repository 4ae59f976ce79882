"""A party's process: python -m party --config PARTY.yaml"""

import sys
from collections.abc import Sequence
from pathlib import Path

from fedora_vfl.process.lifecycle import ENDS_WITHIN_SECONDS, begin, command_line, run_until_done
from fedora_vfl.process.logs import set_member


async def live(config: Path, plugins: Sequence[Path], metrics: str | None, alive: Path | None) -> None:
    """Load what the party needs and take part until stopped.

    Args:
        config: The party file.
        plugins: Python files that are run first: the party's operator names them, never a job.
        metrics: Where figures for Prometheus are served, if anywhere.
        alive: The file that is touched while all is well, if any.
    """
    # Imported here: they bring torch, which takes seconds, and --help should not.
    import torch

    from fedora_vfl.plugins import load_plugin
    from fedora_vfl.process.memory import keep_freed_memory
    from fedora_vfl.process.metrics import served
    from party.alive import kept_alive
    from party.device import device_for
    from party.process import PartyProcess
    from party.settings import load_party

    keep_freed_memory()
    settings, federation = load_party(config)
    set_member(settings.name)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    for path in plugins:
        load_plugin(path)
    device_for(settings.device, origin=str(config))  # said now, not when the first job comes
    member = PartyProcess(settings, federation)
    role = federation.role(settings.name)
    with served(metrics, member=settings.name, role=role, sources=member.sources):
        async with kept_alive(alive, lambda: member.joined):
            await member.live()


def main() -> int:
    """Read the command line and take part."""
    parser = command_line(
        "party",
        "Take part in a federation as one party, passive or active as the federation file says.\n"
        "It opens its own data file and no other. A passive party dials out only.",
        "the party file",
    )
    parser.add_argument(
        "--alive-file",
        type=Path,
        metavar="FILE",
        help="touch this file every few seconds while all is well; `fedora health --file` looks at it",
    )
    options = parser.parse_args()
    begin(options)
    work = live(options.config, options.plugin, options.metrics, options.alive_file)
    return run_until_done(work, ends_within=ENDS_WITHIN_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
