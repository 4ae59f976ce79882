"""The results, drawn."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedora_vfl.bench.comms.points import MEGABIT, METHODS, Point
from fedora_vfl.bench.comms.results import Results
from fedora_vfl.storage import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = dict(zip(METHODS, ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#7f7f7f"), strict=True))
LEVELS = {"predicted": "#c6dbef", "tensor": "#6baed6", "protobuf": "#2171b5", "wire": "#08306b"}
FONT = 9


def draw_bytes(results: Results, parties: Sequence[int], path: Path) -> bool:
    """Draw every method's bytes, a panel per number of parties; tell whether there was anything to draw."""
    shown = [count for count in parties if any(Point(method, count) in results.measured for method in METHODS)]
    if not shown:
        return False
    canvas = _canvas(2.7 * len(shown) + 0.7, 2.9)
    axes = canvas.subplots(1, len(shown), squeeze=False, sharey=True)[0]
    for axis, count in zip(axes, shown, strict=True):
        for place, method in enumerate(METHODS):
            _bars(axis, place, results, Point(method, count))
        axis.set_title(f"{count} passive parties", fontsize=FONT + 1)
        axis.set_xticks(range(len(METHODS)), METHODS)
        axis.set_yscale("log")
        _style(axis)
    axes[0].set_ylabel("MB", fontsize=FONT)
    handles, labels = axes[0].get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    canvas.legend(unique.values(), unique, loc="outside lower center", ncols=len(LEVELS), fontsize=FONT, frameon=False)
    _save(canvas, path)
    return True


def _bars(axis: "Axes", place: int, results: Results, point: Point) -> None:
    result = results.measured.get(point)
    if result is None:
        return
    width = 0.8 / len(LEVELS)
    for index, (level, colour) in enumerate(LEVELS.items()):
        value = result.wire if level == "wire" else result.cost[level]
        if value:
            middle = place + (index - (len(LEVELS) - 1) / 2) * width
            axis.bar(middle, value / 1e6, width * 0.92, color=colour, label=level)


def draw_seconds(results: Results, methods: Sequence[str], path: Path) -> bool:
    """Draw seconds against rate: the model as lines, what was measured as marks."""
    if results.model is None:
        return False
    canvas = _canvas(6.4, 3.6)
    axis = canvas.subplots()
    rates = np.geomspace(10, 1000, 40)
    for method in methods:
        modelled = [results.modelled(Point(method, rate=rate * MEGABIT)) for rate in rates]
        lines = [(rate, one) for rate, one in zip(rates, modelled, strict=True) if one is not None]
        if lines:
            axis.plot(*zip(*lines, strict=True), color=COLOURS[method], linewidth=1.2, label=method)
        marks = [
            (point.rate / MEGABIT, one.seconds["method"])
            for point, one in results.measured.items()
            if point.rate and point == Point(method, rate=point.rate)
        ]
        if marks:
            axis.plot(*zip(*marks, strict=True), "o", color=COLOURS[method], markersize=4.5)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("Mbit/s of every member's line", fontsize=FONT)
    axis.set_ylabel("seconds of the method", fontsize=FONT)
    axis.legend(fontsize=FONT, frameon=False)
    _style(axis)
    _save(canvas, path)
    return True


def _canvas(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def _style(axis: "Axes") -> None:
    from matplotlib.ticker import LogLocator

    axis.tick_params(labelsize=FONT - 1, length=2)
    axis.grid(axis="y", color="#d9d9d9", linewidth=0.6)
    axis.set_axisbelow(True)
    for scale in (axis.xaxis, axis.yaxis):
        if scale.get_scale() == "log":
            scale.set_major_locator(LogLocator(subs=(1, 2, 5)))
            scale.set_major_formatter("{x:g}")
            scale.set_minor_formatter("")
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _save(canvas: "Figure", path: Path) -> None:
    from matplotlib import rc_context

    buffer = io.BytesIO()
    # Without a date and with a fixed salt the same figures give the same file.
    with rc_context({"svg.hashsalt": "fedora", "svg.fonttype": "path"}):
        canvas.savefig(buffer, format="svg", metadata={"Date": None})
    write_atomically(path, buffer.getvalue())
