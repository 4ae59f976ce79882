"""The results as tables, a page, and a picture of what is worth its bytes."""

import csv
import io
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from fedora_vfl.bench.to_accuracy.measuring import Run
from fedora_vfl.bench.to_accuracy.seconds import LineSpeed
from fedora_vfl.bench.to_accuracy.ways import PLAIN, Way
from fedora_vfl.storage import write_atomically
from fedora_vfl.wire.protocol import VERSION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BELOW = 0.005  # half a point
NEARLY = 0.9  # a way that takes a larger share of the plain one's time is not worth its loss of exactness
LAST = 3  # epochs whose mean is the plain run's accuracy
LINES = tuple(LineSpeed(rate * 1e6, trip / 1000) for rate in (10, 100, 1000) for trip in (0, 40, 100))

COLOURS = ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]  # told apart by everybody
TYPICAL = LineSpeed(100e6, 0.04)  # what the picture is of


@dataclass(frozen=True)
class Line:
    """One way on one data set, once the target is known."""

    run: Run
    way: Way
    target: float
    plain: Run
    compute: float  # seconds of a step without any line

    @property
    def epochs(self) -> int | None:
        """Epochs until the target."""
        return self.run.epochs_to(self.target)

    @property
    def megabytes(self) -> float | None:
        """Bytes until the target, both ways, all parties."""
        return None if self.epochs is None else self.epochs * self.run.epoch_bytes / 1e6

    def seconds(self, line: LineSpeed) -> float | None:
        """Return the seconds until the target over a line."""
        cost = replace(self.run.cost(self.way.overlap), compute=self.compute)
        return None if self.epochs is None else self.epochs * cost.epoch(line, self.run.steps)


def lines_of(runs: Sequence[Run], ways: Sequence[Way]) -> dict[str, list[Line]]:
    """Return the ways of every data set, with the accuracy that they have to reach."""
    named, found = {way.name: way for way in ways}, dict[str, list[Line]]()
    for run in runs:
        same = [one for one in runs if one.data_set == run.data_set]
        plain = next(one for one in same if one.way == PLAIN)
        target = statistics.mean(plain.accuracies[-LAST:]) - BELOW
        # Batches under way add no computing: where the same was measured without, the smaller figure is the right one.
        alike = [one.compute for one in same if _without_overlap(named[one.way]) == _without_overlap(named[run.way])]
        compute = min(alike) if named[run.way].overlap else run.compute
        found.setdefault(run.data_set, []).append(Line(run, named[run.way], target, plain, compute))
    return found


def _without_overlap(way: Way) -> tuple[object, ...]:
    return way.wire, way.smaller, {name: value for name, value in way.train.items() if name != "overlap"}


def worth_it(lines: Sequence[Line], line: LineSpeed) -> set[str]:
    """Return the ways that no other beats in bytes and in seconds: the Pareto front."""
    reached = [(one, one.megabytes, one.seconds(line)) for one in lines]
    known = [(one.way.name, size, time) for one, size, time in reached if size is not None and time is not None]
    return {
        name
        for name, size, time in known
        if not any(s <= size and t <= time and (s, t) != (size, time) for _, s, t in known)
    }


def print_tables(found: dict[str, list[Line]], console: Console) -> None:
    """Print a table for every data set, with seconds over some of the lines."""
    shown = [line for line in LINES if line.round_trip == TYPICAL.round_trip]
    columns = ["way", "best", "epochs", "MB", "saved", *(f"{(line.rate or 0) / 1e6:g}" for line in shown)]
    for name, lines in found.items():
        over = f"seconds at {1000 * TYPICAL.round_trip:g} ms and so many Mbit/s"
        title = f"{name}: until {lines[0].target:.1%} of the test rows; {over}"
        table = Table(title=title, title_justify="left")
        for column in columns:
            table.add_column(column, justify="left" if column == "way" else "right", no_wrap=column != "way")
        for one in lines:
            table.add_row(*_cells(one, shown))
        console.print(table)


def advice(found: dict[str, list[Line]]) -> list[str]:
    """Return for every line which way to take: the fastest, over its data sets, of those that reach every target."""
    said = []
    for line in LINES:
        shares: dict[str, list[float | None]] = {}
        for lines in found.values():
            plain = next(one for one in lines if one.way.name == PLAIN).seconds(line)
            for one in lines:
                seconds = one.seconds(line)
                shares.setdefault(one.way.name, []).append(seconds / plain if plain and seconds else None)
        reached = {way: [one for one in of if one is not None] for way, of in shares.items()}
        means = {way: statistics.geometric_mean(of) for way, of in reached.items() if len(of) == len(shares[way])}
        best = min(means, key=means.__getitem__)
        # What is exact is preferred unless it is clearly slower.
        chosen = PLAIN if means[best] > NEARLY else best
        gain = "" if chosen == PLAIN else f", {1 / means[chosen]:.1f} times as fast as plain"
        said.append(f"{line.describe()}: {chosen}{gain}")
    return said


def write_report(
    found: dict[str, list[Line]], page: Path, *, command: str, checked: Sequence[str], timed: Sequence[str] = ()
) -> None:
    """Write the page, a table of everything beside it, and the picture."""
    picture = page.with_suffix(".svg")
    draw(found, picture)
    page.parent.mkdir(parents=True, exist_ok=True)
    parts = [
        "# Bytes and seconds to an accuracy",
        f"Made by `{command}`, release {VERSION}. Every way was run on a cluster of real processes with two passive "
        "parties and one compute thread each, one seed, and measured after every epoch, those with batches under way "
        "for twice as many epochs; on images encodings alone. The *target* is the mean "
        f"accuracy of the plain run's last {LAST} epochs, less half a point. *MB* are protobuf's bytes of embeddings "
        "and gradients until a way first reached it, all parties, both ways; *saved* is how many times fewer. "
        "Seconds are the measured computing of a step (good for comparing columns, less "
        "for comparing rows whose bytes are alike) and the model of `fedora_vfl/bench/to_accuracy/seconds.py` for the "
        "active party's line. Ways that no other beats in both bytes and seconds at 100 Mbit/s and 40 ms are **bold**. "
        "[What the ways are](../faster.md).",
        *checked,
        f"![Bytes and seconds]({picture.name})",
        "## What to take\n\nFor the active party's line, the way with the fewest seconds to the target, over all data "
        "sets; `fedora bench line` measures yours and says the same for your own step.",
        "\n".join(f"- {one}" for one in advice(found)),
        *timed,
    ]
    for name, lines in found.items():
        best = worth_it(lines, TYPICAL)
        rows = [_header(), ["---", *["---:"] * (len(_header()) - 1)]]
        for one in lines:
            cells = _cells(one)
            rows.append([f"**{cells[0]}**" if one.way.name in best else cells[0], *cells[1:]])
        parts += [
            f"## {name}: target {lines[0].target:.1%}",
            "\n".join("| " + " | ".join(row) + " |" for row in rows),
        ]
    write_atomically(page, ("\n\n".join(parts) + "\n").encode())
    write_atomically(page.with_suffix(".csv"), _csv(found))


def _header() -> list[str]:
    return ["way", "best", "epochs", "MB", "saved", *(f"s at {line.describe()}" for line in LINES)]


def _cells(one: Line, over: Sequence[LineSpeed] = LINES) -> list[str]:
    plain = Line(one.plain, Way(PLAIN), one.target, one.plain, one.plain.compute).megabytes
    saved = f"{plain / one.megabytes:.1f}" if plain and one.megabytes else "–"
    times = [one.seconds(line) for line in over]
    return [
        one.way.name,
        f"{max(one.run.accuracies):.1%}",
        str(one.epochs or "–"),
        "–" if one.megabytes is None else f"{one.megabytes:.2f}",
        saved,
        *("–" if time is None else f"{time:.1f}" for time in times),
    ]


def _csv(found: dict[str, list[Line]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["data set", "way", "target", "epoch", "accuracy", "bytes so far", "compute seconds a step", "steps"]
    )
    for name, lines in found.items():
        for one in lines:
            for epoch, accuracy in enumerate(one.run.accuracies, 1):
                sizes = [round(epoch * one.run.epoch_bytes), f"{one.run.compute:.6f}", one.run.steps]
                writer.writerow([name, one.way.name, f"{one.target:.4f}", epoch, f"{accuracy:.4f}", *sizes])
    return text.getvalue().encode()


def draw(found: dict[str, list[Line]], path: Path) -> None:
    """Draw seconds against bytes, a panel for every data set, with the front of what nothing beats."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(4.2 * len(found), 4.4), layout="constrained", facecolor="white")
    axes = canvas.subplots(1, len(found), squeeze=False)[0]
    for axis, (name, lines) in zip(axes, found.items(), strict=True):
        _draw_panel(axis, lines)
        axis.set_title(f"{name}, {TYPICAL.describe()}", fontsize=9)
    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "fedora", "svg.fonttype": "path"}):
        canvas.savefig(buffer, format="svg", metadata={"Date": None})
    write_atomically(path, buffer.getvalue())


def _draw_panel(axis: "Axes", lines: Sequence[Line]) -> None:
    """Draw the ways of one data set; those on the front, and the plain one, are named below."""
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    best = worth_it(lines, TYPICAL)
    known = [(one.way.name, one.megabytes, one.seconds(TYPICAL)) for one in lines]
    points = sorted((size, time, name) for name, size, time in known if size is not None and time is not None)
    front = [(size, time) for size, time, name in points if name in best]
    if front:
        axis.plot(*zip(*front, strict=True), color="#bbbbbb", linewidth=0.8, zorder=1)
    colours, markers = iter(COLOURS * 4), iter("osD^vP*X" * 4)
    for size, time, name in points:
        if name in best:
            axis.plot(size, time, next(markers), color=next(colours), markersize=6, label=name, linestyle="")
        elif name == PLAIN:
            axis.plot(size, time, "x", color="black", markersize=6, label=name, linestyle="")
        else:
            axis.plot(size, time, "o", color="#cccccc", markersize=4, zorder=0)
    for scale, which in ((axis.set_xscale, axis.xaxis), (axis.set_yscale, axis.yaxis)):
        scale("log")
        which.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        which.set_major_formatter(ScalarFormatter())
        which.set_minor_formatter(NullFormatter())
    axis.set_xlabel("MB to the target", fontsize=8)
    axis.set_ylabel("seconds to the target", fontsize=8)
    axis.tick_params(labelsize=7)
    axis.legend(fontsize=6.5, loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False)
