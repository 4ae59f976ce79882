"""What the coordinator's operator can see of the federation's work: rounds, losses, step sizes, how jobs end."""

import math
from collections.abc import Iterator

from coordinator.history import PhaseRecord
from fedora_vfl.process.metrics import Figure
from protos.fedora.v1.failure_pb2 import Failure
from protos.fedora.v1.phase_pb2 import Phase

# How a job may end: well; turned away before it was in the queue; cancelled by its user; ended with the coordinator; or
# failed, by the kind of failure.
FINISHED, REFUSED, GIVEN_UP, STOPPED = "finished", "refused", "given_up", "stopped"
_FAILURES = {value.number: value.name.lower() for value in Failure.Kind.DESCRIPTOR.values if value.number}
OUTCOMES = (FINISHED, REFUSED, GIVEN_UP, STOPPED, *_FAILURES.values())

# What the paper, or the field, calls the rate of a rule's steps.
RATES = {"dual_ascent": "sigma", "primal_descent": "tau", "correction": "tau", "shift": "shift"}
LEARNING_RATE = "lr"

_Values = dict[tuple[str, ...], float]  # by the values of the labels


def failed(kind: int) -> str:
    """Return the outcome of a job that failed, whatever a party calls the kind of failure."""
    return _FAILURES.get(kind, _FAILURES[Failure.INTERNAL])


class CoordinatorMetrics:
    """The figures of the federation, for as long as the coordinator's process lives."""

    def __init__(self, parties: list[str]) -> None:
        self._joined: _Values = {(name,): 0.0 for name in parties}
        self._refused_joins = 0
        self._running = False
        self._waiting = 0
        self._jobs: _Values = {(outcome,): 0.0 for outcome in OUTCOMES}
        # By phase, over all jobs.
        self._finished: _Values = {}
        self._seconds: _Values = {}
        # Of the job that runs, or of the last one: by figure, then by label.
        self._now: dict[str, _Values] = {name: {} for name in _OF_A_JOB}

    def joined(self, party: str, here: bool) -> None:
        """Note that a party has come or gone."""
        self._joined[(party,)] = float(here)

    def refused_join(self) -> None:
        """Note that somebody was not let in."""
        self._refused_joins += 1

    def job_began(self) -> None:
        """Forget the figures of the job before."""
        self._running = True
        self._now = {name: {} for name in _OF_A_JOB}

    def jobs_wait(self, number: int) -> None:
        """Note how many jobs wait for their turn."""
        self._waiting = number

    def job_over(self) -> None:
        """Note that none runs any more."""
        self._running = False

    def job_ended(self, outcome: str) -> None:
        """Note how a job went, though it may never have run."""
        self._jobs[(outcome,)] += 1

    def job_refused(self) -> None:
        """Note that a job was turned away; another one may be running."""
        self._jobs[(REFUSED,)] += 1

    def phase_began(self, phase: Phase) -> None:
        """Note which round is under way."""
        self._now["round"][(phase.name,)] = phase.round

    def phase_finished(self, phase: Phase, record: PhaseRecord) -> None:
        """Take over what result.json says of a phase."""
        label = (phase.name,)
        self._finished[label] = self._finished.get(label, 0) + 1
        self._seconds[label] = self._seconds.get(label, 0.0) + record.seconds
        for name, value in (("loss", record.loss), ("accuracy", record.accuracy), ("change", record.change)):
            if value is not None and math.isfinite(value):
                self._now[name][label] = value
            else:
                self._now[name].pop(label, None)
        if record.step_size == 0:
            return  # it only looked, as for a certificate: dual variables are what they were
        if record.step_size is not None:
            rate = RATES.get(phase.update.WhichOneof("rule") or "", LEARNING_RATE)
            self._now["step_size"][phase.name, rate] = record.step_size
        for party, figures in record.figures.items():
            for name in ("dual_norm", "dual_largest"):
                if name in figures:
                    self._now[name][(party,)] = figures[name]

    def figures(self) -> Iterator[Figure]:
        """Return all figures as they are now."""
        yield Figure("parties", "Parties of the federation.", (), {(): len(self._joined)})
        yield Figure("party_joined", "1 for a party that has joined, else 0.", ("party",), dict(self._joined))
        refused: _Values = {(): float(self._refused_joins)}
        yield Figure("refused_joins", "Attempts to join that were refused.", (), refused, counts=True)
        yield Figure("job_running", "1 while a job runs here.", (), {(): self._running})
        yield Figure("jobs_waiting", "Jobs that wait for their turn.", (), {(): self._waiting})
        yield Figure("jobs", "Jobs by how they ended.", ("outcome",), dict(self._jobs), counts=True)
        yield Figure("phases_finished", "Phases that finished.", ("phase",), dict(self._finished), counts=True)
        spent = "Seconds that finished phases took."
        yield Figure("phase_seconds", spent, ("phase",), dict(self._seconds), counts=True)
        now = self._now
        for name, (help, labels) in _OF_A_JOB.items():
            yield Figure(name, help, labels, dict(now[name]))


# Figures of the job that runs, or of the last one: what they mean, and their labels.
_OF_A_JOB: dict[str, tuple[str, tuple[str, ...]]] = {
    "round": ("The round that is under way, or was last.", ("phase",)),
    "loss": ("Mean loss of the last finished phase; of the phase `unlearning` it is L_u.", ("phase",)),
    "accuracy": ("Accuracy in the last finished phase.", ("phase",)),
    "change": ("How far the last finished phase moved all parameters.", ("phase",)),
    "step_size": ("Step size of the last finished phase: tau, sigma, or a learning rate.", ("phase", "rate")),
    "dual_norm": ("Norm of a party's dual variable.", ("party",)),
    "dual_largest": ("Largest value of a party's dual variable.", ("party",)),
}
