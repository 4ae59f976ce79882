"""All figures of a sweep, gathered over seeds."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import mean, stdev

from fedora_vfl.bench.paper.cells import Place
from fedora_vfl.bench.paper.complexity import predicted_bytes
from fedora_vfl.bench.paper.experiments import Run
from fedora_vfl.bench.paper.store import Record

RETRAIN = "Retrain"


@dataclass(frozen=True)
class Metric:
    """Something that was measured."""

    title: str
    take: Callable[[Record], float | None]
    run: Run = "clean"
    percent: bool = True
    decimals: int | None = None  # of what is no percentage; none: as many as its size deserves

    def show(self, value: float, *, like: float | None = None) -> str:
        """Write a value as tables do; a spread has as many decimals as the figure it goes with."""
        if self.percent:
            return f"{100 * value:.1f}"
        decimals = self.decimals if self.decimals is not None else _decimals(value if like is None else like)
        return f"{value:,.{decimals}f}"


def _decimals(value: float) -> int:
    """Return the decimals that leave two or three digits that count."""
    return next((count for count, least in enumerate((100, 10, 1, 0.1)) if abs(value) >= least), 4)


def _figure(name: str) -> Callable[[Record], float | None]:
    return lambda record: record.figures.get(name)


def _per_round(record: Record) -> float | None:
    return record.seconds["method"] / record.cost["rounds"] if record.cost["rounds"] else None


METRICS = {
    "test_accuracy": Metric("Test accuracy", _figure("test_accuracy")),
    "forget_accuracy": Metric("Unlearning accuracy", _figure("forget_accuracy")),
    "forgotten_classes_accuracy": Metric("Forgotten classes", _figure("forgotten_classes_accuracy")),
    "mia_asr": Metric("MIA-ASR", _figure("mia_asr")),
    "mia_auc": Metric("Honest MIA, AUC", _figure("mia_auc"), percent=False, decimals=3),
    "mia_tpr_at_1_fpr": Metric("Honest MIA, TPR at 1 % FPR", _figure("mia_tpr_at_1_fpr")),
    "backdoor_asr": Metric("BD-ASR", _figure("backdoor_asr"), run="backdoor"),
    "untriggered_asr": Metric("BD-ASR without trigger", _figure("untriggered_asr"), run="backdoor"),
    "original_test_accuracy": Metric("Test accuracy, original", lambda one: one.original.get("test_accuracy")),
    "original_forget_accuracy": Metric("Accuracy on D_u, original", lambda one: one.original.get("forget_accuracy")),
    "original_mia_asr": Metric("MIA-ASR, original", lambda one: one.original.get("mia_asr")),
    "original_mia_auc": Metric(
        "Honest MIA, AUC, original", lambda one: one.original.get("mia_auc"), percent=False, decimals=3
    ),
    "original_backdoor_asr": Metric("BD-ASR, original", lambda one: one.original.get("backdoor_asr"), run="backdoor"),
    "seconds_per_round": Metric("Seconds per round", _per_round, percent=False),
    "seconds": Metric("Seconds in all", lambda one: one.seconds["method"], percent=False),
    "rounds": Metric("Rounds", lambda one: one.cost["rounds"], percent=False),
    "bytes_predicted": Metric("Bytes, complexity table", predicted_bytes, percent=False),
    "bytes": Metric("Bytes, counted", lambda one: one.cost["tensor"], percent=False),
    "bytes_protobuf": Metric("Bytes, with protobuf", lambda one: one.cost["protobuf"], percent=False),
}

TIMES = ("seconds_per_round", "seconds")


@dataclass(frozen=True)
class SheetRow:
    """A line of a table: all that seeds have in common."""

    experiment: str
    data_set: str
    request: str
    setting: str
    title: str


@dataclass(frozen=True)
class Summary:
    """A figure over seeds."""

    mean: float
    spread: float | None  # the sample standard deviation; none of a single seed
    seeds: int
    wanted: int  # seeds that there should be

    @property
    def whole(self) -> bool:
        """Whether no seed is missing."""
        return self.seeds == self.wanted


class Sheet:
    """Figures by line and metric."""

    def __init__(self, places: Iterable[Place], records: Mapping[str, Record]) -> None:
        self.places = list(places)
        self.records = dict(records)
        self._members: dict[SheetRow, list[Place]] = {}
        for place in self.places:
            self._members.setdefault(line_of(place), []).append(place)

    def lines(self, experiment: str, data_set: str | None = None) -> list[SheetRow]:
        """Return an experiment's lines, in the order of its file."""
        return [line for line in self._members if line.experiment == experiment and data_set in (None, line.data_set)]

    def member(self, line: SheetRow) -> Place:
        """Return one of a line's cells; they differ in seed and run alone."""
        return self._members[line][0]

    def get(self, line: SheetRow, metric: str) -> Summary | None:
        """Return a figure over seeds; none where nothing was measured."""
        known = list(self._by_seed(line, metric).values())
        if not known:
            return None
        wanted = sum(place.run == METRICS[metric].run for place in self._members[line])
        return Summary(mean(known), stdev(known) if len(known) > 1 else None, len(known), wanted)

    def value(self, line: SheetRow, metric: str) -> float | None:
        """Return a figure's mean."""
        summary = self.get(line, metric)
        return summary.mean if summary else None

    def retrain(self, line: SheetRow) -> SheetRow | None:
        """Return the line of Retrain that a line is to be compared with."""
        for setting in (line.setting, ""):
            reference = SheetRow(line.experiment, line.data_set, line.request, setting, RETRAIN)
            if reference in self._members:
                return reference
        return None

    def gap(self, line: SheetRow, metric: str) -> float | None:
        """Return a figure's distance from Retrain's, seed by seed where both are there."""
        reference = self.retrain(line)
        if reference is None or reference == line:
            return None
        ours, theirs = (self._by_seed(one, metric) for one in (line, reference))
        both = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
        return mean(both) if both else None

    def share(self, line: SheetRow, metric: str) -> float | None:
        """Return a cost as a share of Retrain's; none of seconds that two releases took, on who knows what machines."""
        reference = self.retrain(line)
        if reference is None or (metric in TIMES and len(self.releases([line, reference])) > 1):
            return None
        ours, theirs = (self.value(one, metric) for one in (line, reference))
        return ours / theirs if ours is not None and theirs else None

    def releases(self, lines: Iterable[SheetRow]) -> set[str]:
        """Return which releases measured some lines."""
        found = (self.records.get(place.cell.digest) for line in lines for place in self._members.get(line, []))
        return {record.versions["fedora"] for record in found if record is not None}

    def _by_seed(self, line: SheetRow, metric: str) -> dict[int, float]:
        chosen = METRICS[metric]
        found = {}
        for place in self._members.get(line, []):
            record = self.records.get(place.cell.digest)
            if place.run == chosen.run and record is not None and record.done:
                value = chosen.take(record)
                if value is not None and math.isfinite(value):
                    found[place.seed] = value
        return found

    def failed(self, line: SheetRow, metric: str) -> bool:
        """Tell whether a cell behind a figure failed."""
        run = METRICS[metric].run
        records = [self.records.get(one.cell.digest) for one in self._members.get(line, []) if one.run == run]
        return any(record is not None and not record.done for record in records)

    def measured(self, experiment: str) -> bool:
        """Tell whether any cell of an experiment was run."""
        return any(place.cell.digest in self.records for place in self.places if place.experiment == experiment)


def line_of(place: Place) -> SheetRow:
    """Return the line that a cell belongs to."""
    return SheetRow(place.experiment, place.data_set, place.request, place.setting, place.title)
