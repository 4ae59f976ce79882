"""Methods: generators of phases. Each yields a phase, is handed the parties' combined report, and yields the next."""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TypeVar

from protos.phase_pb2 import Phase

R = TypeVar("R")


@dataclass(frozen=True)
class Outcome:
    """What all parties together say of a phase that has run."""

    rows: int
    loss: float
    accuracy: float
    change: float  # ‖Θ_after − Θ_before‖ over all parties
    seconds: float
    figures: dict[str, dict[str, float]] = field(default_factory=dict)  # by party: what its update rule reports


Method = Generator[Phase, Outcome, R]
