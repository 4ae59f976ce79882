"""What came of the points, and what follows from it."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from fedora_vfl.bench.comms.model import Model, Sample, fit
from fedora_vfl.bench.comms.points import Extent, Point, as_cell, distinct
from fedora_vfl.bench.hosts.network import HEADER_BYTES
from fedora_vfl.bench.paper.store import Record, Store


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
    def headers(self) -> float | None:
        """Bytes of packets' headers for a byte of protobuf, acknowledgements included; None where it is not known."""
        packets = self.cost.get("job_packets")
        return HEADER_BYTES * packets / self.cost["job_protobuf"] if packets else None

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

    @cached_property
    def model(self) -> Model | None:
        """The time model, fitted to all points of which some like them have a limit or a distance."""
        kinds = {_kind(point) for point in self.measured if point.needs_hosts}
        return fit(
            [
                Sample(_kind(point), one.seconds["method"], 8 * one.wire, one.cost["waits"], point.rate, point.delay)
                for point, one in self.measured.items()
                if _kind(point) in kinds and one.wire
            ]
        )

    def modelled(self, point: Point) -> float | None:
        """Return the seconds that the model gives for a point, measured or not; None where it knows nothing like it."""
        like = self.measured.get(replace(point, rate=None, delay=0.0))
        if not self.model or like is None or not like.wire or _kind(point) not in self.model.compute:
            return None
        waits = self.measured.get(point, like).cost["waits"]  # a long line may take fewer
        return self.model.seconds(Sample(_kind(point), 0.0, 8 * like.wire, waits, point.rate, point.delay))

    @property
    def load(self) -> float | None:
        """How many processes wanted to run at once while this was measured: the median of all points."""
        loads = [one.cost["load"] for one in self.measured.values() if "load" in one.cost]
        return statistics.median(loads) if loads else None


def _kind(point: Point) -> str:
    """Name what points that differ only in rate and distance have in common."""
    return replace(point, rate=None, delay=0.0).describe()


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
