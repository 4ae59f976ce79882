"""A coordinator that asks one party for something else than the others.

python -m tests.two_faced_coordinator --config FEDERATION.yaml
"""

import sys
from collections.abc import Callable
from typing import Any

from coordinator.__main__ import main
from coordinator.engine import Engine
from coordinator.roster import Connection
from protos.fedora.v1.control_pb2 import FromCoordinator, FromParty
from protos.fedora.v1.phase_pb2 import Phase, Samples


def _larger_batches(phase: Phase) -> None:
    phase.plan.batch_size = 300


def _smaller_batches(phase: Phase) -> None:
    phase.plan.batch_size = 5


def _other_rows(phase: Phase) -> None:
    phase.over.set = Samples.TEST


def _other_order(phase: Phase) -> None:
    phase.plan.seed += 1


def _other_number(phase: Phase) -> None:
    phase.number += 1


def _faster(phase: Phase) -> None:
    phase.update.adam.lr *= 10


# By the job's seed: what passive-1 is told instead.
CHANGES: tuple[Callable[[Phase], None], ...] = (
    _larger_batches,
    _smaller_batches,
    _other_rows,
    _other_order,
    _other_number,
    _faster,
)


def deceive() -> None:
    """Change the first phase of every job for one party."""
    honest = Engine._ask_one
    seeds: dict[str, int] = {}

    async def wrong(
        self: Engine, connection: Connection, message: FromCoordinator, *more: Any, **options: Any
    ) -> FromParty:
        if message.HasField("setup"):
            seeds["job"] = message.setup.seed
        if message.HasField("phase") and connection.name == "passive-1":
            message, before = FromCoordinator(), message
            message.CopyFrom(before)
            CHANGES[seeds["job"]](message.phase)
        return await honest(self, connection, message, *more, **options)

    Engine._ask_one = wrong  # type: ignore[method-assign]


if __name__ == "__main__":
    deceive()
    sys.exit(main())
