"""The results as a table of cells, a page, and plots beside it."""

import csv
import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedora_vfl.bench.comms.plots import draw_bytes, draw_seconds
from fedora_vfl.bench.comms.points import A_TENTH, MEGABIT, REQUESTS, Extent, Point, asked_lines, rows_asked_for, sweeps
from fedora_vfl.bench.comms.results import Result, Results
from fedora_vfl.bench.comms.stage import TEST_ROWS
from fedora_vfl.storage import write_atomically
from fedora_vfl.wire.protocol import VERSION

FIGURES = ("predicted", "tensor", "protobuf", "wire", "waits", "job_protobuf", "job_wire", "job_packets")
SPARE_SECONDS = 1.0  # that forgetting may take beyond twice its share of Retrain's
BUSY = 2.5  # processes per core, beyond which the page says so
SHOWN_RATES = (10, 20, 50, 100, 200, 500, 1000)  # megabits per second
# Of each sweep: its heading, and what its column of settings is called.
TITLES = {
    "parties": ("Methods and numbers of parties", "passive parties"),
    "alignment": ("Private alignment", "passive parties"),
    "embedding": ("Width of embeddings", "embedding"),
    "batch": ("Batch size", "batch"),
    "dtype": ("Type of values", "type"),
    "tls": ("TLS", "TLS"),
    "whole_packets": ("Frames, or packets that the network card cuts", "counted as"),
}
COLUMNS = ("predicted MB", "tensor MB", "protobuf MB", "wire MB", "over protobuf", "headers", "all else", "seconds")
# What a terminal shows of them, and by which name.
PRINTED = {
    "predicted MB": "predicted",
    "tensor MB": "tensor",
    "protobuf MB": "protobuf",
    "wire MB": "wire",
    "over protobuf": "on top",
    "seconds": "seconds",
}
SAID = {
    ("tls", False): "off",
    ("tls", True): "on",
    ("whole_packets", False): "frames",
    ("whole_packets", True): "64 KB packets",
}
EXPLAINED = """\
*Predicted* is the paper's cost table in bytes, *tensor* the values of embeddings and gradients that were sent, \
*protobuf* the messages they were in: these three are of the method alone. *Wire* is counted by the kernel at every \
host's device, as Ethernet frames of at most 1,514 bytes with all that comes on top. *Over protobuf* says how much \
that is, in two parts: *headers* of Ethernet, IP and TCP, 66 bytes for each packet that was counted, acknowledgements \
included; and *all else*: gRPC, HTTP/2 and its pings, messages that are in no book, and TLS where it is on. The kernel \
counts whole jobs, evaluation and alignment included; the method's share is taken to be that of its protobuf bytes."""
ALIGNED = """\
A job that trains an original, in a federation whose {ids:,} ids of each party were never aligned: *predicted* and \
*tensor* are masked ids, tables of shares and tags, *seconds* all of the job but its rounds. While nobody's ids \
change, later jobs exchange none of it. [More ids, beside the bare library](alignment.md)."""
ASKED = """\
FedORA's bytes and seconds by what is asked for, beside Retrain's on the same line, which trains on nine tenths of the \
rows until there is nothing more to learn (where 1 or 50 rows are asked for it has a ninth more, which is added to its \
bytes and not to its seconds). In brackets the most that we promise: of bytes a share that goes by the request, of \
seconds twice that share and one second. What is more is **bold**."""
TIME_MODEL = """\
    seconds = compute + a · bytes · 8 / rate + b · waits · round trip

`compute` is the least time that was measured of the method, as a limit, and other work of the machine, only add to \
it; `bytes` are those on the active party's line, both ways, which all exchange passes; `waits` is how often a passive \
party needs an answer before it goes on. a and b are fitted to all measured points, of all methods at once."""


Show = Callable[[float | None, float | None], str]  # seconds measured and modelled, as a cell
Shown = tuple[list[str], list[list[str]]]  # a header and lines


@dataclass(frozen=True)
class Material:
    """What a report is made of."""

    extent: Extent
    results: Results
    without_hosts: str | None  # why there are none
    command: str


def write_report(material: Material, page: Path, *, table: Path) -> None:
    """Write the page, its plots beside it, and the table of cells."""
    write_atomically(table, cells_csv(material.results))
    write_atomically(page, "\n\n".join(_blocks(material, page)) + "\n")


def cells_csv(results: Results) -> str:
    """Return every measured point with all its figures."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = list(Point.__dataclass_fields__)
    writer.writerow([*names, *FIGURES, "seconds", "job_seconds"])
    for point, one in results.measured.items():
        figures = {**one.cost, "wire": one.wire}
        shown = (figures.get(name) for name in FIGURES)
        rounded = ("" if value is None else round(value) for value in shown)
        times = (f"{one.seconds[name]:.3f}" for name in ("method", "job"))
        writer.writerow([*asdict(point).values(), *rounded, *times])
    return out.getvalue()


def _blocks(material: Material, page: Path) -> Iterator[str]:
    results, extent = material.results, material.extent
    yield "# What communication costs"
    yield (
        f"Made by `{material.command}`, release {VERSION}, on {os.cpu_count()} cores: {len(results.measured)} jobs on "
        f"clusters of real processes, {extent.rows:,} training rows, {extent.epochs} epochs, a tenth of the rows "
        "forgotten, two passive parties, embedding 64, batch 256, float32, no TLS and no limit unless told otherwise. "
        "Seconds depend on the machine; bytes, but for acknowledgements, do not. Of the points whose seconds are "
        f"compared, the fastest of {extent.repeats} jobs counts."
    )
    if results.load is not None and results.load > BUSY * (os.cpu_count() or 1):
        yield (
            f"**The machine was busy**: {results.load:.0f} processes at once wanted its {os.cpu_count()} cores (load "
            "average, median of all points). Seconds are longer, and scatter more, than they need to."
        )
    if material.without_hosts:
        yield f"Bytes on the wire and rates are left out: {material.without_hosts}."
    yield EXPLAINED
    for name, points in sweeps(extent).items():
        if name in TITLES:
            yield f"## {TITLES[name][0]}"
            if name == "alignment":
                yield ALIGNED.format(ids=extent.rows + TEST_ROWS)
            if name == "parties" and draw_bytes(results, extent.parties, page.with_name(f"{page.stem}-bytes.svg")):
                yield f"![Bytes by method and number of parties]({page.stem}-bytes.svg)"
            yield _written(["method", TITLES[name][1], *COLUMNS], rows(name, points, results))
    if not material.without_hosts:
        yield from _times(material, page)
        yield "## What is asked for"
        yield ASKED
        yield _written(*_by_request(material, _beside))
    if results.failed:
        yield "## What failed"
        yield "\n".join(f"- {point.describe()}: {why}" for point, why in results.failed.items())
    if results.missing:
        yield f"{results.missing} points are not measured yet; the same command goes on."


def rows(name: str, points: Sequence[Point], results: Results) -> Iterator[list[str]]:
    """Yield a sweep's lines: method, setting, bytes and seconds."""
    for one in (results.measured[point] for point in points if point in results.measured):
        value = getattr(one.point, "parties" if name == "alignment" else name)
        said = SAID.get((name, value)) or str(value)
        sizes = (one.cost["predicted"], one.cost["tensor"], one.cost["protobuf"], one.wire)
        shown = (f"{size / 1e6:.3f}" if size else "–" for size in sizes)
        yield [one.point.method, said, *shown, *_on_top(one), f"{one.seconds['method']:.2f}"]


def _on_top(one: Result) -> list[str]:
    """Show what the wire has on top of protobuf, and its two parts."""
    if one.wire_factor is None or one.headers is None:
        return ["–"] * 3
    top = one.wire_factor - 1
    return [f"{top:+.1%}", f"{one.headers:.1%}", f"{top - one.headers:.1%}"]


def print_tables(material: Material, console: Console) -> None:
    """Print the page's tables, as far as a terminal's width allows."""
    for name, points in sweeps(material.extent).items():
        if name in TITLES:
            title, column = TITLES[name]
            wanted = [COLUMNS.index(header) for header in PRINTED]
            shown = (
                [method, said, *(figures[place] for place in wanted)]
                for method, said, *figures in rows(name, points, material.results)
            )
            _print(console, f"{title}; MB", ["method", column, *PRINTED.values()], shown)
    if not material.without_hosts:
        _print(console, "FedORA by request: bytes of Retrain's, seconds", *_by_request(material, _alone))
    if material.results.model:
        _print(console, "Seconds at a rate; in brackets by the model", *_by_rate(material, _one))
        _print(console, "Seconds at a distance, there and back", *_by_distance(material, _one))
    console.print()


def _print(console: Console, title: str, header: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    console.print(f"\n{title}", style="bold")
    table = Table(box=None, padding=(0, 1, 0, 0))
    for place, name in enumerate(header):
        table.add_column(name, justify="right" if place else "left")
    for line in lines:
        table.add_row(*line)
    console.print(table)


def _written(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "\n".join([_line(header), _line(["---", *["---:"] * (len(header) - 1)]), *(_line(line) for line in lines)])


def _times(material: Material, page: Path) -> Iterator[str]:
    results, methods = material.results, material.extent.timed
    yield "## Seconds at a rate"
    model = results.model
    if model is None:
        yield "Too few points are measured to fit the model of time."
        return
    yield TIME_MODEL
    yield (
        f"**a = {model.a:.2f}, b = {model.b:.2f}.** Each point predicted by a fit to all others: "
        f"{model.typical_error:.0%} off in the middle, {model.largest_error:.0%} at most, over {len(model.errors)} "
        "points."
    )
    if draw_seconds(results, methods, page.with_name(f"{page.stem}-seconds.svg")):
        yield f"![Seconds by rate: lines are the model, marks were measured]({page.stem}-seconds.svg)"
    yield "Seconds of the method, measured where limits were set, else *by the model*; both where there are both:"
    yield _written(*_by_rate(material, _both))
    yield "The same without a limit, by the time of a round trip between two hosts:"
    yield _written(*_by_distance(material, _both))


def _by_rate(material: Material, show: Show) -> Shown:
    """Return a table of seconds at rates."""
    points = [Point(rate=rate * MEGABIT) for rate in SHOWN_RATES]
    header = ["method", *(f"{rate} Mbit/s" for rate in SHOWN_RATES), "no limit"]
    return header, _seconds(material, [*points, Point()], show)


def _by_distance(material: Material, show: Show) -> Shown:
    """Return a table of seconds at distances."""
    points = [Point(delay=delay / 1000) for delay in (0.0, *material.extent.delays)]
    return ["method", *(f"{2000 * point.delay:g} ms" for point in points)], _seconds(material, points, show)


def _by_request(material: Material, show: Callable[[float, float], str]) -> Shown:
    """Return a table of bytes and seconds for every request, on every line that requests are measured on."""
    measured, lines, rows = material.results.measured, asked_lines(material.extent), material.extent.rows
    retrain = [measured.get(replace(line, method="retrain", request=A_TENTH)) for line in lines]
    found = [["Retrain", "", *(f"{one.seconds['method']:.1f}" if one else "–" for one in retrain)]]
    for request, most in REQUESTS.items():
        runs = [measured.get(replace(line, request=request)) for line in lines]
        cells = ["–"] * (1 + len(lines))
        for place, (one, anew) in enumerate(zip(runs, retrain, strict=True)):
            if one and anew:
                remaining, fewer = (rows - rows_asked_for(name, material.extent) for name in (request, A_TENTH))
                more = remaining / fewer
                cells[0] = show(100 * one.cost["protobuf"] / (more * anew.cost["protobuf"]), 100 * most)
                cells[1 + place] = show(one.seconds["method"], 2 * most * anew.seconds["method"] + SPARE_SECONDS)
        found.append([request, *cells])
    return ["rows", "bytes, %", *(_line_of(point) for point in lines)], found


def _beside(value: float, most: float) -> str:
    """Show, on a page, a figure and the most that it may be."""
    mark = "**" if round(value, 1) > round(most, 1) else ""
    return f"{mark}{value:.1f}{mark} ({most:.1f})"


def _alone(value: float, _: float) -> str:
    """Show, in a terminal, a figure."""
    return f"{value:.1f}"


def _line_of(point: Point) -> str:
    """Name a line by its limit."""
    return f"{point.rate / MEGABIT:g} Mbit/s" if point.rate else f"{2000 * point.delay:g} ms"


def _seconds(material: Material, points: Sequence[Point], show: Show) -> list[list[str]]:
    """Return a line of seconds for every method that was timed."""
    results = material.results
    lines = []
    for method in material.extent.timed:
        cells = []
        for point in (replace(one, method=method) for one in points):
            measured = results.measured.get(point)
            modelled = results.modelled(point) if point.needs_hosts else None
            cells.append(show(measured.seconds["method"] if measured else None, modelled))
        lines.append([method, *cells])
    return lines


def _both(measured: float | None, modelled: float | None) -> str:
    """Show, on a page, what was measured and what the model says."""
    if measured is None:
        return "–" if modelled is None else f"*{modelled:.2f}*"
    return f"{measured:.2f}" if modelled is None else f"{measured:.2f} *({modelled:.2f})*"


def _one(measured: float | None, modelled: float | None) -> str:
    """Show, in a terminal, what was measured, or else what the model says."""
    if measured is None:
        return "–" if modelled is None else f"({modelled:.2f})"
    return f"{measured:.2f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
