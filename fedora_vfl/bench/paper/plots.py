"""The paper's figures, drawn from ours; hollow marks are the paper's own values."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedora_vfl.bench.paper.experiments import Plan
from fedora_vfl.bench.paper.figures import figure
from fedora_vfl.bench.paper.sheet import METRICS, RETRAIN, Sheet, SheetRow
from fedora_vfl.documents.document import Plot
from fedora_vfl.storage import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

CHANCE = {"mia_asr": 0.5, "mia_auc": 0.5}
INK, GRID = "#222222", "#d9d9d9"
FONT = 9
MOST_PERCENT = 103.0  # whiskers may reach beyond what a share can be
NARROWEST = 6.0  # inches
PER_NAME = 1.7  # inches that a name in a legend takes


class Plots:
    """Draws a sheet into a folder."""

    def __init__(self, sheet: Sheet, plan: Plan, folder: Path) -> None:
        self._sheet, self._plan, self._folder = sheet, plan, folder
        self._colours = {method.title: method.colour for method in plan.methods.values()}

    def bars(self, experiment: str, metrics: Sequence[str], name: str, caption: str) -> Plot | None:
        """Draw bars: a panel per metric and data set, a bundle per request, a bar per method."""
        lines = self._sheet.lines(experiment)
        shown = [line for line in lines if any(self._sheet.get(line, metric) for metric in metrics)]
        data_sets = list(dict.fromkeys(line.data_set for line in shown))
        metrics = [metric for metric in metrics if any(self._sheet.get(line, metric) for line in shown)]
        if not data_sets:
            return None
        canvas = _canvas(max(2.6 * len(data_sets) + 0.6, NARROWEST), 2.1 * len(metrics) + 0.6)
        axes = canvas.subplots(len(metrics), len(data_sets), squeeze=False, sharey="row")
        for row, metric in enumerate(metrics):
            for column, data_set in enumerate(data_sets):
                axis = axes[row][column]
                self._bundles(axis, [line for line in lines if line.data_set == data_set], metric)
                if row == 0:
                    axis.set_title(self._plan.data_sets[data_set].title, fontsize=FONT + 1, color=INK)
            axes[row][0].set_ylabel(_unit(metric), fontsize=FONT)
            _limit(axes[row][0], metric)  # once all panels of the row, which share it, are drawn
        self._legend(canvas, list(dict.fromkeys(line.title for line in lines)))
        return self._save(canvas, name, caption, self._in_words(shown, metrics))

    def _bundles(self, axis: "Axes", lines: Sequence[SheetRow], metric: str) -> None:
        requests = list(dict.fromkeys(line.request for line in lines))
        titles = list(dict.fromkeys(line.title for line in lines))
        width = 0.84 / max(1, len(titles))
        for line in lines:
            place = requests.index(line.request) + (titles.index(line.title) - (len(titles) - 1) / 2) * width
            summary = self._sheet.get(line, metric)
            if summary:
                factor = 100 if METRICS[metric].percent else 1
                spread = factor * summary.spread if summary.spread is not None else None
                axis.bar(
                    place,
                    factor * summary.mean,
                    width * 0.92,
                    color=self._colours[line.title],
                    yerr=spread,
                    error_kw={"elinewidth": 0.8, "ecolor": INK},
                )
                self._paper_mark(axis, place, line, metric, factor)
        if metric in CHANCE:
            axis.axhline(
                CHANCE[metric] * (100 if METRICS[metric].percent else 1), color=INK, linewidth=0.8, linestyle=":"
            )
        axis.set_xticks(range(len(requests)), requests)
        _style(axis)

    def _paper_mark(self, axis: "Axes", place: float, line: SheetRow, metric: str, factor: float) -> None:
        known = figure(line.data_set, line.request, line.setting, self._sheet.member(line).in_paper, metric)
        if known and known.relation in ("is", "about"):
            axis.plot(place, factor * known.value, "D", markerfacecolor="white", markeredgecolor=INK, markersize=3.6)

    def curves(self, experiment: str, name: str, caption: str) -> Plot | None:
        """Draw metrics against what an experiment varies: a panel per metric, a curve per data set."""
        metrics = ("test_accuracy", "forget_accuracy", "mia_asr", "backdoor_asr")
        lines = self._sheet.lines(experiment)
        varied = [line for line in lines if line.setting]
        data_sets = [one for one in dict.fromkeys(line.data_set for line in varied) if self._any(varied, one)]
        if not data_sets:
            return None
        canvas = _canvas(10.4, 2.9)
        axes = canvas.subplots(1, len(metrics))
        palette = dict(zip(data_sets, ("#0072b2", "#d55e00", "#009e73", "#cc79a7"), strict=False))
        for axis, metric in zip(axes, metrics, strict=True):
            for data_set in data_sets:
                self._curve(axis, [line for line in lines if line.data_set == data_set], metric, palette[data_set])
            settings = list(dict.fromkeys(line.setting for line in varied))
            axis.set_xticks(range(len(settings)), [setting.split("=")[-1] for setting in settings])
            axis.set_title(_unit(metric), fontsize=FONT, color=INK)
            axis.set_xlabel(self._plan.experiments[experiment].varies, fontsize=FONT)
            _style(axis)
            _limit(axis, metric)
        self._curve_legend(canvas, {self._plan.data_sets[one].title: palette[one] for one in data_sets})
        return self._save(canvas, name, caption, self._in_words(varied, metrics))

    def _any(self, lines: Sequence[SheetRow], data_set: str) -> bool:
        return any(self._sheet.get(line, "test_accuracy") for line in lines if line.data_set == data_set)

    def _curve(self, axis: "Axes", lines: Sequence[SheetRow], metric: str, colour: str) -> None:
        varied = [line for line in lines if line.setting]
        found = [(place, line, self._sheet.get(line, metric)) for place, line in enumerate(varied)]
        known = [(place, 100 * one.mean, 100 * (one.spread or 0)) for place, _, one in found if one]
        if known:
            places, means, spreads = zip(*known, strict=True)
            axis.errorbar(
                places, means, yerr=spreads, color=colour, marker="o", markersize=3.5, linewidth=1.4, elinewidth=0.8
            )
        for place, line, _ in found:
            told = figure(line.data_set, line.request, line.setting, self._sheet.member(line).in_paper, metric)
            if told and told.relation in ("is", "about"):
                axis.plot(place, 100 * told.value, "D", markerfacecolor="white", markeredgecolor=INK, markersize=4)
        reference = next((self._sheet.value(line, metric) for line in lines if line.title == RETRAIN), None)
        if reference is not None:
            axis.axhline(100 * reference, color=colour, linewidth=1, linestyle="--")

    def _legend(self, canvas: "Figure", titles: Sequence[str]) -> None:
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        handles: list[Patch | Line2D] = [Patch(color=self._colours[title], label=title) for title in titles]
        handles.append(_paper_handle())
        columns = min(len(handles), int(canvas.get_figwidth() / PER_NAME))
        canvas.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=FONT, frameon=False)

    def _curve_legend(self, canvas: "Figure", colours: dict[str, str]) -> None:
        from matplotlib.lines import Line2D

        handles = [
            Line2D([], [], color=colour, marker="o", markersize=3.5, label=name) for name, colour in colours.items()
        ]
        handles.append(Line2D([], [], color=INK, linestyle="--", label="Retrain"))
        handles.append(_paper_handle())
        columns = min(len(handles), int(canvas.get_figwidth() / PER_NAME))
        canvas.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=FONT, frameon=False)

    def trade_off(self, experiments: Sequence[str], name: str, caption: str) -> Plot | None:
        """Draw every method and case once: bytes as a share of Retrain's against the distance from Retrain."""
        points: dict[str, list[tuple[float, float, str]]] = {}
        for experiment in experiments:
            for line in self._sheet.lines(experiment):
                cost, distance = self._share_of_bytes(line), self._distance(line)
                if cost and distance is not None:
                    case = f"{line.data_set} {line.request}"
                    points.setdefault(line.title, []).append((cost, distance, case))
        if not points:
            return None
        canvas = _canvas(8.4, 4.4)
        axis = canvas.subplots()
        for title, found in points.items():
            shares, distances = [100 * cost for cost, _, _ in found], [100 * one for _, one, _ in found]
            axis.plot(shares, distances, "o", color=self._colours[title], markersize=6, alpha=0.8, label=title)
        axis.axvline(100, color=INK, linewidth=0.8, linestyle=":")
        axis.set_xscale("log")
        axis.set_ylim(bottom=0)
        axis.set_xlabel("bytes exchanged, % of Retrain's (a scale of powers of ten; dotted: as many)", fontsize=FONT)
        axis.set_ylabel("distance from Retrain (points)", fontsize=FONT)
        _style(axis)
        canvas.legend(loc="outside lower center", ncols=3, fontsize=FONT, frameon=False)
        said = [
            f"{title} {case}: {100 * distance:.1f} points for {100 * cost:.1f} % of the bytes"
            for title, found in points.items()
            for cost, distance, case in found
        ]
        return self._save(canvas, name, caption, "; ".join(said))

    def _share_of_bytes(self, line: SheetRow) -> float | None:
        reference = self._sheet.retrain(line)
        if reference is None or reference == line:
            return None
        own, whole = self._sheet.value(line, "bytes"), self._sheet.value(reference, "bytes")
        return own / whole if own and whole else None

    def _distance(self, line: SheetRow) -> float | None:
        gaps = [self._sheet.gap(line, metric) for metric in ("test_accuracy", "forget_accuracy", "mia_auc")]
        known = [abs(gap) for gap in gaps if gap is not None]
        return sum(known) / len(known) if known else None

    def _in_words(self, lines: Sequence[SheetRow], metrics: Sequence[str]) -> str:
        said = []
        for metric in metrics:
            for line in lines:
                value = self._sheet.value(line, metric)
                if value is not None:
                    name = " ".join(part for part in (line.data_set, line.request, line.setting, line.title) if part)
                    said.append(f"{METRICS[metric].title} {name}: {METRICS[metric].show(value)}")
        return "; ".join(said)

    def _save(self, canvas: "Figure", name: str, caption: str, alternative: str) -> Plot:
        from matplotlib import rc_context

        buffer = io.BytesIO()
        # Without a date and with a fixed salt the same figures give the same file.
        with rc_context({"svg.hashsalt": "fedora", "svg.fonttype": "path"}):
            canvas.savefig(buffer, format="svg", metadata={"Date": None})
        path = self._folder / f"{name}.svg"
        write_atomically(path, buffer.getvalue())
        return Plot(path, caption, alternative)


def _canvas(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def _style(axis: "Axes") -> None:
    axis.tick_params(labelsize=FONT - 1, colors=INK, length=2)
    axis.grid(axis="y", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _limit(axis: "Axes", metric: str) -> None:
    """Begin at 0, and end where a share must."""
    top = axis.get_ylim()[1]
    axis.set_ylim(0, min(top, MOST_PERCENT) if METRICS[metric].percent else top)


def _unit(metric: str) -> str:
    return METRICS[metric].title + (" (%)" if METRICS[metric].percent else "")


def _paper_handle() -> "Line2D":
    from matplotlib.lines import Line2D

    return Line2D(
        [],
        [],
        linestyle="",
        marker="D",
        markerfacecolor="white",
        markeredgecolor=INK,
        markersize=4.5,
        label="the paper's",
    )
