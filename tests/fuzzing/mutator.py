"""A member that keeps the rules, but for some of its messages.

python -m tests.fuzzing.mutator SEED SWITCH --config FILE

While the file SWITCH exists, one in so many messages that leave it is changed, or one of another size takes its place.
"""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

from coordinator.__main__ import main as coordinator_main
from fedora_vfl.errors import FedoraError
from fedora_vfl.wire.link import Link
from party.__main__ import main as party_main
from party.process import PartyProcess
from tests.fuzzing.mutation import changed

ONE_IN = 12  # messages
HUGE = (100_000, 3 * 1024 * 1024, 6 * 1024 * 1024, 70 * 1024 * 1024)  # bytes


def spoil(seed: int, switch: Path) -> None:
    """Change messages of all links."""
    draw, write = Random(seed), Link._write

    async def wrong(self: Link[Any, Any], data: bytes) -> None:
        if _is_on(switch) and draw.randrange(ONE_IN) == 0:
            data = _another(data, draw)
            self._in_pieces &= draw.random() < 0.5  # a message that should have been cut is not
        await write(self, data)

    Link._write = wrong  # type: ignore[method-assign]


def _is_on(switch: Path) -> bool:
    return switch.exists()


def _another(data: bytes, draw: Random) -> bytes:
    match draw.randrange(8):
        case 0:  # far more than is due, as fields that nobody knows, or as a value
            size = draw.choice(HUGE)
            return data + (b"\x08\x01" * (size // 2) if draw.random() < 0.5 else bytes(size))
        case 1:
            return b""
        case _:
            return changed(data, draw)


def never_give_up(live: Callable[[PartyProcess], Awaitable[None]]) -> Callable[[PartyProcess], Awaitable[None]]:
    """Return a party's life that begins again whenever the others have had enough of it."""

    async def again(self: PartyProcess) -> None:
        while True:
            try:
                await live(self)
            except FedoraError as error:
                print(f"begins again: {error}", file=sys.stderr)

    return again


if __name__ == "__main__":
    spoil(int(sys.argv.pop(1)), Path(sys.argv.pop(1)))
    PartyProcess.live = never_give_up(PartyProcess.live)  # type: ignore[method-assign,assignment]
    config = Path(sys.argv[sys.argv.index("--config") + 1])
    sys.exit(coordinator_main() if config.name == "federation.yaml" else party_main())
