"""Methods: generators of phases. Each yields a phase, is handed the parties' combined report, and yields the next."""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TypeVar

from coordinator.train import Train
from protos.fedora.v1.phase_pb2 import Phase

R = TypeVar("R")


@dataclass(frozen=True)
class Rollback:
    """What a method yields in place of a phase to undo all since one with a mark, at every party."""

    checkpoints: int = 1  # since the last one; 2 since the one before it


@dataclass(frozen=True)
class PhaseOutcome:
    """What all parties together say of a phase that has run."""

    rows: int
    loss: float  # mean over the rows; NaN of none, and where the active party does not tell
    accuracy: float
    change: float  # ‖Θ_after − Θ_before‖ over all parties; NaN where a party does not tell
    seconds: float
    figures: dict[str, dict[str, float]] = field(default_factory=dict)  # by party: what its update rule reports
    left_out: dict[str, str] = field(default_factory=dict)  # what a party's policy keeps back, with the reason
    # Where the loss is kept back: whether it is as it should be; Report in phase.proto says when that is.
    within_bounds: bool | None = None
    earlier: tuple["PhaseOutcome", ...] = ()  # those of the phases that came before it in one list

    def total(self, figure: str) -> float:
        """Add up a figure over all parties that report it."""
        return sum(figures.get(figure, 0.0) for figures in self.figures.values())


# A list is of phases none of which depends on what the ones before it come to. They are sent ahead, so that parties
# need not wait for the coordinator in between; the outcome is the last one's.
Step = Phase | list[Phase] | Rollback
Method = Generator[Step, PhaseOutcome, R]


def phases_in(step: Step) -> list[Phase]:
    """Return the phases of what a method yields; a rollback has none."""
    if isinstance(step, Rollback):
        return []
    return step if isinstance(step, list) else [step]


@dataclass(frozen=True)
class UnlearningTask:
    """One request to forget, as far as a method may know of it."""

    train: Train  # how the original model was trained
    classes: int
    forget: int  # |D_u|
    remaining: int  # |D_r|
    seed: int
    passive: tuple[str, ...] = ()  # names of the passive parties
    # Of the original model, once it is measured: mean cross-entropy of test rows of the classes that D_u has.
    held_out_loss: float | None = None
    whole_classes: bool = False  # whether no row of these classes remains
    validation: int = 0  # rows
    test: int = 0  # rows
    rows_for_one: float = 1.0  # of joint rounds, that take the bytes of one row of training
    round_trip: float = 0.0  # seconds from a passive party to the active one and back, on the longest line
    layers: int = 1  # of weights, from the inputs of the deepest bottom model to the logits


@dataclass(frozen=True)
class MethodResult:
    """How an unlearning went."""

    rounds: int
    stopped: str  # why, in words
    constraint_held: bool | None = None  # None for a method without one
    pushed: bool = True  # whether the last round pushed; after recovery the dual variable is at rest, 0
