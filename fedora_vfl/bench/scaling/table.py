"""Cells as a table: the unlearned model beside Retrain's mean and deviation, with what misses a bar in bold."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedora_vfl.bench.one_process.course import CONFIDENCE, LEANING, UNSURE
from fedora_vfl.bench.scaling.measuring import Cell

HEADER = (
    "set",
    "request",
    "part",
    "training",
    "runs",
    "test",
    "backdoor",
    "forgotten rows",
    "forgotten less unseen",
    "honest AUC",
    "forgotten classes",
    "confidence in forgotten rows",
    "unsure of them",
    "leaning on one party",
    "bytes",
)
SHARES = {"tenth": 0.05, "1": 0.01, "wrong": 0.01, "50": 0.01}  # of Retrain's bytes, at most; 8 % of others


@dataclass(frozen=True)
class Bar:
    """How far from Retrain a figure may be."""

    figure: str
    points: float
    below: bool = True  # whether too low a figure misses it
    above: bool = True

    def missed(self, found: float, anew: Sequence[float]) -> bool:
        """Tell whether a figure is beyond the bar, and beyond one deviation of what it is held against."""
        deviation = statistics.stdev(anew) if len(anew) > 1 else 0.0
        away, most = found - statistics.mean(anew), max(self.points, deviation)
        return (self.above and away > most) or (self.below and away < -most)


BARS = (
    Bar("test_accuracy", 1, above=False),
    Bar("backdoor_asr", 3, below=False),
    Bar("forget_accuracy", 3),
    Bar("forget_minus_unseen_accuracy", 3, below=False),
    Bar("mia_auc", 3),
    Bar("forgotten_classes_accuracy", 2, below=False),
)
MODELS = ("original", "unlearned")
POISONED = Bar("forget_accuracy", 8, above=False)  # of their true class


@dataclass(frozen=True)
class Gap:
    """A figure of some runs beside their Retrains, in points."""

    original: float
    unlearned: float
    retrain: float
    deviation: float
    misses: int  # of the runs, how many are beyond the bar and beyond one deviation of their own Retrains

    def __str__(self) -> str:
        """Write original → unlearned (Retrain ± deviation)."""
        found = f"{self.unlearned:.1f}"
        missed = f" **{self.misses} missed**" if self.misses else ""
        return f"{self.original:.1f} → {found} ({self.retrain:.1f} ± {self.deviation:.1f}){missed}"


def gap(cells: Sequence[Cell], bar: Bar) -> Gap | None:
    """Hold a figure against Retrain's; None where the runs do not have it."""
    if any(bar.figure not in cell.unlearned for cell in cells):
        return None
    means, deviations, misses = [], [], 0
    for cell in cells:
        anew = [100 * one[bar.figure] for one in cell.retrains]
        means.append(statistics.mean(anew))
        deviations.append(statistics.stdev(anew) if len(anew) > 1 else 0.0)
        misses += bar.missed(100 * cell.unlearned[bar.figure], anew)
    return Gap(
        original=100 * statistics.mean(cell.original[bar.figure] for cell in cells),
        unlearned=100 * statistics.mean(cell.unlearned[bar.figure] for cell in cells),
        retrain=statistics.mean(means),
        deviation=statistics.mean(deviations),
        misses=misses,
    )


def lines(cells: Sequence[Cell]) -> Iterator[list[str]]:
    """Yield a line per set, request, part and training: means over seeds and draws."""
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        group = cell.group
        groups.setdefault((group.data_set, group.request, cell.part, group.training), []).append(cell)
    for (name, request, part, training), found in groups.items():
        gaps = [gap(found, bar) if _tells(request, bar) else None for bar in _bars(request)]
        share = statistics.mean(cell.bytes_share for cell in found)
        over = " **too many**" if share > SHARES.get(request, 0.08) * 1.005 else ""
        shown = ["" if one is None else str(one) for one in gaps]
        told = [confidence(found), span(found, UNSURE, digits=2), span(found, LEANING, digits=1)]
        yield [Path(name).stem, request, part, training, str(len(found)), *shown, *told, f"{100 * share:.1f} %{over}"]


def _bars(request: str) -> list[Bar]:
    poisoned = request.startswith("backdoor")
    return [POISONED if poisoned and one.figure == POISONED.figure else one for one in BARS]


def _tells(request: str, bar: Bar) -> bool:
    """Tell whether a figure says anything: rates of one row do not."""
    return bar is BARS[0] or request not in ("1", "wrong")


def beyond(cells: Sequence[Cell]) -> Iterator[str]:
    """Say, bar by bar, how many runs are beyond it, and how many Retrains, each held against the others of its own."""
    for place, name in enumerate(bar.figure for bar in BARS):
        found = [
            (100 * cell.unlearned[name], [100 * one[name] for one in cell.retrains], bar)
            for cell in cells
            if name in cell.unlearned and _tells(cell.group.request, bar := _bars(cell.group.request)[place])
        ]
        if found:
            runs = sum(bar.missed(one, anew) for one, anew, bar in found)
            held = [(one, [*anew[:at], *anew[at + 1 :]], bar) for _, anew, bar in found for at, one in enumerate(anew)]
            retrains = [bar.missed(one, rest) for one, rest, bar in held if rest]
            beside = f", and {sum(retrains)} of {len(retrains)} Retrains beside the others" if retrains else ""
            yield f"{name}: {runs} of {len(found)} runs are beyond the bar{beside}"


def confidence(cells: Sequence[Cell]) -> str:
    """Write how sure models are of the forgotten rows' labels, beside the range of the Retrains."""
    anew = [100 * one[CONFIDENCE] for cell in cells for one in cell.retrains]
    before, after = (100 * statistics.mean(getattr(cell, of)[CONFIDENCE] for cell in cells) for of in MODELS)
    return f"{before:.0f} → {after:.0f} ({min(anew):.0f} to {max(anew):.0f})"


def span(cells: Sequence[Cell], figure: str, *, digits: int) -> str:
    """Write the range of a figure of the unlearned models; nothing where a run of an earlier release lacks it."""
    known = [cell.unlearned[figure] for cell in cells if figure in cell.unlearned]
    return f"{min(known):.{digits}f} to {max(known):.{digits}f}" if known else ""


def markdown(cells: Sequence[Cell]) -> str:
    """Write the table."""
    rows = [list(HEADER), ["---"] * len(HEADER), *lines(cells)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
