"""What came of the points, and what follows from it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from bench.comms.model import Model, Sample, fit
from bench.comms.points import Extent, Point, as_cell, distinct
from bench.paper.store import Record, Store


@dataclass(frozen=True)
class Result:
    """A measured point."""

    point: Point
    cost: dict[str, float]
    seconds: dict[str, float]

    @property
    def wire_factor(self) -> float | None:
        """Bytes on the wire for a byte of protobuf, over the whole job; None where the kernel could not tell."""
        wire = self.cost.get("job_wire")
        return wire / self.cost["job_protobuf"] if wire else None

    @property
    def wire(self) -> float | None:
        """The method's bytes on the wire: its protobuf bytes, with what the job's had on top."""
        return self.cost["protobuf"] * self.wire_factor if self.wire_factor else None


@dataclass(frozen=True)
class Results:
    """All measured points, the failed ones with their reasons, and the time model."""

    measured: dict[Point, Result]
    failed: dict[Point, str]
    missing: int  # not run yet

    @property
    def model(self) -> Model | None:
        """The time model, fitted to all points with a limit or a distance."""
        return fit([sample for one in self.measured.values() if (sample := self.sample(one.point, one)) is not None])

    def sample(self, point: Point, result: Result | None = None) -> Sample | None:
        """Return what the model knows about a point, measured or not; None without the same point at no limit."""
        twin = self.measured.get(replace(point, rate=None, delay=0.0))
        if twin is None or twin.wire is None:
            return None
        seconds = result.seconds["method"] if result else 0.0
        of = result or twin
        bits = 8 * (of.wire or twin.wire)
        return Sample(seconds, twin.seconds["method"], bits, of.cost["waits"], point.rate, point.delay)


def read_results(store: Store, extent: Extent, points: Iterable[Point], *, hosts: bool) -> Results:
    """Read what the store has of some points."""
    wanted = distinct(points)
    records: dict[Point, Record] = {}
    for point in wanted:
        record = store.read(as_cell(point, extent, hosts=hosts))
        if record is not None:
            records[point] = record
    measured = {point: Result(point, one.cost, one.seconds) for point, one in records.items() if one.done}
    failed = {point: one.why for point, one in records.items() if not one.done}
    return Results(measured, failed, len(wanted) - len(records))
