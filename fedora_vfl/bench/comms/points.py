"""Points: what is measured. All stand around one base, each sweep changing one thing and, some, the method too."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from fedora_vfl.bench.paper.cells import Cell, Group

METHODS = ("fedora", "retrain", "ga", "ico", "cvfu")
ALIGNMENT = "alignment"  # in the place of a method: what finding the common rows in private takes
MEGABIT = 1e6
NAME = "comms"  # of the folder in which the store keeps these cells

A_TENTH, HALVES = "a tenth", "half of two classes"
# What is asked for, and the share of Retrain's bytes that forgetting it may take.
REQUESTS = {"1 row": 0.01, "50 rows": 0.01, A_TENTH: 0.05, HALVES: 0.08}


@dataclass(frozen=True)
class Point:
    """One measurement: a method, from one original, over one kind of network."""

    method: str = "fedora"
    parties: int = 2  # passive ones
    embedding: int = 64
    batch: int = 256
    dtype: str = "float32"
    tls: bool = False
    request: str = A_TENTH  # of REQUESTS
    rate: float | None = None  # bits per second of every host's line; None: as fast as the machine is
    delay: float = 0.0  # seconds from one host to another
    whole_packets: bool = False  # as handed to a network card that cuts them, not as frames on a cable

    @property
    def place(self) -> tuple[int, bool, float, bool, bool]:
        """What needs a cluster of its own."""
        return self.parties, self.tls, self.delay, self.whole_packets, self.aligns

    @property
    def aligns(self) -> bool:
        """Whether it is an alignment that is measured: one of ids that were never aligned before."""
        return self.method == ALIGNMENT

    @property
    def needs_hosts(self) -> bool:
        """Whether it cannot be measured on loopback."""
        return self.rate is not None or self.delay > 0 or self.whole_packets

    def describe(self) -> str:
        """Say which point this is, in one line."""
        line = f"{self.rate / MEGABIT:g} Mbit/s" if self.rate else "no limit"
        return (
            f"{self.method}, {self.parties} passive, embedding {self.embedding}, batch {self.batch}, {self.dtype}, "
            f"TLS {'on' if self.tls else 'off'}, {self.request}, {line}, {1000 * self.delay:g} ms, "
            f"{'whole packets' if self.whole_packets else 'frames'}"
        )


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    rows: int  # training rows
    epochs: int  # of the original, and so of Retrain
    parties: tuple[int, ...]
    embeddings: tuple[int, ...]
    batches: tuple[int, ...]
    dtypes: tuple[str, ...]
    rates: tuple[float, ...]  # megabits per second
    delays: tuple[float, ...]  # milliseconds from host to host
    along: tuple[str, ...]  # methods in the sweeps of width, batch, type and TLS
    timed: tuple[str, ...]  # methods in the sweeps of rate and distance
    asked_rates: tuple[float, ...]  # megabits per second, in the sweep of requests, which has all distances too
    repeats: int  # of each point in these: the fastest counts, as whatever else the machine does only adds

    def times(self, point: Point) -> int:
        """Return how often a point is measured."""
        plain = Point(point.method, rate=point.rate, delay=point.delay, request=point.request)
        return self.repeats if point == plain and point.method in self.timed else 1


QUICK = Extent(
    rows=4096,
    epochs=2,
    parties=(2, 4),
    embeddings=(16, 64),
    batches=(128, 256),
    dtypes=("float32", "float16", "bfloat16"),
    rates=(10, 50, 200),
    delays=(10,),
    along=("fedora",),
    timed=("fedora", "retrain"),
    asked_rates=(10,),
    repeats=2,
)
WHOLE = Extent(
    rows=8192,
    epochs=10,  # until there is nothing more to learn: the yardstick is a Retrain that has converged
    parties=(2, 4, 8, 16),
    embeddings=(16, 64, 256),
    batches=(64, 256, 1024),
    dtypes=("float32", "float16", "bfloat16"),
    rates=(10, 20, 50, 100, 200),
    delays=(5, 20, 50),
    along=("fedora", "retrain"),
    timed=METHODS,
    asked_rates=(10, 1000),
    repeats=2,
)


def sweeps(extent: Extent) -> dict[str, list[Point]]:
    """Return every sweep's points, by name; sweeps share the points in which they cross."""
    base = Point()
    along = [replace(base, method=method) for method in extent.along]
    timed = [replace(base, method=method) for method in extent.timed]
    return {
        "parties": [Point(method=method, parties=count) for count in extent.parties for method in METHODS],
        "alignment": [Point(method=ALIGNMENT, parties=count) for count in extent.parties],
        "embedding": [replace(one, embedding=width) for one in along for width in extent.embeddings],
        "batch": [replace(one, batch=size) for one in along for size in extent.batches],
        "dtype": [replace(one, dtype=dtype) for one in along for dtype in extent.dtypes],
        "tls": [replace(one, tls=tls) for one in along for tls in (False, True)],
        "whole_packets": [replace(one, whole_packets=whole) for one in along for whole in (False, True)],
        "rate": [
            *timed,
            *(replace(one, rate=rate * MEGABIT) for one in timed for rate in extent.rates),
            *(replace(one, delay=delay / 1000) for one in timed for delay in extent.delays),
        ],
        "request": [
            replace(line, method=method, request=request)
            for line in asked_lines(extent)
            for method, request in (*(("fedora", request) for request in REQUESTS), ("retrain", A_TENTH))
        ],
    }


def asked_lines(extent: Extent) -> list[Point]:
    """Return the lines on which requests are held against Retrain: distances first, then rates."""
    base = Point()
    far = [replace(base, delay=delay / 1000) for delay in extent.delays]
    return [base, *far, *(replace(base, rate=rate * MEGABIT) for rate in extent.asked_rates)]


def distinct(points: Iterable[Point]) -> list[Point]:
    """Return points once each, those of a cluster together, and its originals in turn."""
    return sorted(set(points), key=_order)


def _order(point: Point) -> tuple[Any, ...]:
    speed = -point.rate if point.rate else float("-inf")
    place = (*METHODS, ALIGNMENT).index(point.method)
    apart = (point.aligns, point.tls, point.delay, point.whole_packets, point.parties)
    return *apart, point.embedding, point.batch, speed, point.dtype, place, [*REQUESTS].index(point.request)


def all_points(extent: Extent) -> Iterator[Point]:
    """Yield the points of all sweeps."""
    for points in sweeps(extent).values():
        yield from points


def as_cell(point: Point, extent: Extent, *, hosts: bool) -> Cell:
    """Return a point as the store keeps it: named by all that decides its figures."""
    content = {
        "seed": 0,
        "rows": extent.rows,
        "epochs": extent.epochs,
        "hosts": hosts,
        "repeats": extent.times(point),
        **{name: getattr(point, name) for name in point.__dataclass_fields__ if name != "method"},
    }
    group = Group(data_set=NAME, content=content, places={}, run="clean")
    return Cell(group, forget=_forget(point, extent), unlearn={"method": point.method}, method=point.method)


def _forget(point: Point, extent: Extent) -> dict[str, Any]:
    if point.request == HALVES:
        return {"classes": ["0", "1"], "percent": 50}
    return {"samples": rows_asked_for(point.request, extent)}


def rows_asked_for(request: str, extent: Extent) -> int:
    """Return how many rows a request has; half of two of ten classes is a tenth, too."""
    return int(request.split()[0]) if request[0].isdigit() else extent.rows // 10
