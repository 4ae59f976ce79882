"""The results as tables, a page, and a picture of what is worth its bytes."""

import csv
import io
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedora_vfl.bench.to_accuracy.measuring import Run
from fedora_vfl.bench.to_accuracy.seconds import LineSpeed
from fedora_vfl.bench.to_accuracy.ways import PLAIN, Way
from fedora_vfl.storage import write_atomically
from fedora_vfl.wire.protocol import VERSION

BELOW = 0.005  # half a point
LAST = 3  # epochs whose mean is the plain run's accuracy
LINES = tuple(LineSpeed(rate * 1e6, trip / 1000) for rate in (10, 100, 1000) for trip in (0, 20, 100))


@dataclass(frozen=True)
class Line:
    """One way on one data set, once the target is known."""

    run: Run
    way: Way
    target: float
    plain: Run

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
        return (
            None if self.epochs is None else self.epochs * self.run.cost(self.way.overlap).epoch(line, self.run.steps)
        )


def lines_of(runs: Sequence[Run], ways: Sequence[Way]) -> dict[str, list[Line]]:
    """Return the ways of every data set, with the accuracy that they have to reach."""
    named = {way.name: way for way in ways}
    found: dict[str, list[Line]] = {}
    for run in runs:
        plain = next(one for one in runs if (one.data_set, one.way) == (run.data_set, PLAIN))
        target = statistics.mean(plain.accuracies[-LAST:]) - BELOW
        found.setdefault(run.data_set, []).append(Line(run, named[run.way], target, plain))
    return found


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
    """Print a table for every data set."""
    for name, lines in found.items():
        table = Table(title=f"{name}: until {lines[0].target:.1%} of the test rows", title_justify="left")
        for column in _header():
            table.add_column(column, justify="left" if column == "way" else "right")
        for one in lines:
            table.add_row(*_cells(one))
        console.print(table)


def write_report(found: dict[str, list[Line]], page: Path, *, command: str, checked: Sequence[str]) -> None:
    """Write the page, a table of everything beside it, and the picture."""
    picture = page.with_suffix(".svg")
    draw(found, picture)
    page.parent.mkdir(parents=True, exist_ok=True)
    parts = [
        "# Bytes and seconds to an accuracy",
        f"Made by `{command}`, release {VERSION}. Every way was run on a cluster of real processes with two passive "
        "parties and one compute thread each, one seed, and measured after every epoch. The *target* is the mean "
        f"accuracy of the plain run's last {LAST} epochs, less half a point. *MB* are protobuf's bytes of embeddings "
        "and gradients until a way first reached it, all parties, both ways; *saved* is how many times fewer. "
        "Seconds are the measured computing of a step (good for comparing columns, less "
        "for comparing rows whose bytes are alike) and the model of `fedora_vfl/bench/to_accuracy/seconds.py` for the "
        "active party's line. Ways that no other beats in both bytes and seconds at 100 Mbit/s and 20 ms are **bold**. "
        "[What the ways are](../faster.md).",
        *checked,
        f"![Bytes and seconds]({picture.name})",
    ]
    for name, lines in found.items():
        best = worth_it(lines, LineSpeed(100e6, 0.02))
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


def _cells(one: Line) -> list[str]:
    plain = Line(one.plain, Way(PLAIN), one.target, one.plain).megabytes
    saved = f"{plain / one.megabytes:.1f}" if plain and one.megabytes else "–"
    times = [one.seconds(line) for line in LINES]
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

    line = LineSpeed(100e6, 0.02)
    canvas = Figure(figsize=(4.2 * len(found), 3.6), layout="constrained", facecolor="white")
    axes = canvas.subplots(1, len(found), squeeze=False)[0]
    for axis, (name, lines) in zip(axes, found.items(), strict=True):
        best = worth_it(lines, line)
        front = []
        for one in lines:
            size, time = one.megabytes, one.seconds(line)
            if size is None or time is None:
                continue
            chosen = one.way.name in best
            axis.plot(size, time, "o", color="#d55e00" if chosen else "#9e9e9e", markersize=5 if chosen else 4)
            if chosen or one.way.name == PLAIN:
                axis.annotate(one.way.name, (size, time), fontsize=6, xytext=(3, 3), textcoords="offset points")
            if chosen:
                front.append((size, time))
        if front:
            axis.plot(*zip(*sorted(front), strict=True), color="#d55e00", linewidth=0.8)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_title(f"{name}, {line.describe()}", fontsize=9)
        axis.set_xlabel("MB to the target", fontsize=8)
        axis.set_ylabel("seconds to the target", fontsize=8)
        axis.tick_params(labelsize=7)
    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "fedora", "svg.fonttype": "path"}):
        canvas.savefig(buffer, format="svg", metadata={"Date": None})
    write_atomically(path, buffer.getvalue())
