"""What a party's operator can see of it while it works: sums and times, nothing of its rows."""

from collections.abc import Iterator

from fedora_vfl.process.metrics import Figure
from party.clock import Clock
from protos.fedora.v1.phase_pb2 import Report


class PartyMetrics:
    """The figures of one party, for as long as its process lives."""

    def __init__(self, own_rows: int) -> None:
        self.clock = Clock()
        self.joined = False
        self.in_job = False
        self._own_rows = own_rows
        self._rows: dict[tuple[str, ...], float] = {}
        self._steps: dict[tuple[str, ...], float] = {}

    def finished(self, phase: str, report: Report) -> None:
        """Add what a phase has done."""
        self._rows[(phase,)] = self._rows.get((phase,), 0) + report.rows
        self._steps[(phase,)] = self._steps.get((phase,), 0) + report.steps

    def figures(self) -> Iterator[Figure]:
        """Return all figures as they are now."""
        yield Figure("joined", "1 while this party is joined to the coordinator.", (), {(): self.joined})
        yield Figure("job_running", "1 while a job runs here.", (), {(): self.in_job})
        yield Figure("own_rows", "Rows in this party's data file.", (), {(): self._own_rows})
        yield Figure("rows", "Rows that finished phases ran over.", ("phase",), dict(self._rows), counts=True)
        yield Figure("steps", "Batches of finished phases.", ("phase",), dict(self._steps), counts=True)
        spent = "Seconds of phases, by what they went into: computing, waiting for others, or sending."
        yield Figure("seconds", spent, ("phase", "activity"), self.clock.read(), counts=True)
