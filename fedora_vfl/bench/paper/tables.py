"""The paper's tables, ours and the paper's figures side by side."""

from collections.abc import Sequence
from statistics import mean

from fedora_vfl.bench.paper.complexity import FORMULAS
from fedora_vfl.bench.paper.experiments import Plan
from fedora_vfl.bench.paper.figures import NUMBERS, Figure, figure
from fedora_vfl.bench.paper.sheet import METRICS, RETRAIN, TIMES, Sheet, SheetRow
from fedora_vfl.documents.document import GAP, HERE, PAPER, Grid, Row, Table

NONE = "–"
COUNTED_TOO = (
    "Counted and not in the paper's table: the passes by which ICO finds how far to go, "
    "and the pass that fills CVFU's matrix."
)
SETTING_METRICS = (
    "test_accuracy",
    "forget_accuracy",
    "mia_asr",
    "mia_auc",
    "backdoor_asr",
    "seconds_per_round",
)
MINUS = "−"


class Tables:
    """Makes tables of a sheet."""

    def __init__(self, sheet: Sheet, plan: Plan) -> None:
        self._sheet, self._plan = sheet, plan

    def by_method(self, experiment: str, metric: str) -> Table | None:
        """Return one metric: a block per data set and request, a column per method."""
        lines = self._sheet.lines(experiment)
        titles = list(dict.fromkeys(line.title for line in lines))
        rows: list[Row] = []
        for data_set, request in dict.fromkeys((line.data_set, line.request) for line in lines):
            members = {line.title: line for line in lines if (line.data_set, line.request) == (data_set, request)}
            chosen = [members[title] for title in titles]
            if any(self._sheet.get(line, metric) for line in chosen):
                rows += self._block(f"{self._title(data_set)}, {request}", chosen, metric)
        if not rows:
            return None
        unit = " (%)" if METRICS[metric].percent else ""
        caption = f"{METRICS[metric].title}{unit}. {self._source(experiment, metric)}{self._seeds(lines)}"
        return Table(caption, ["", "", *titles], rows, self._notes(lines, metric))

    def _block(self, label: str, lines: Sequence[SheetRow], metric: str) -> list[Row]:
        rows = [
            Row(label, HERE, [self.entry(line, metric) for line in lines]),
            Row(label, GAP, [self.gap(line, metric) for line in lines], begins=False),
        ]
        known = [self.paper(line, metric) for line in lines]
        if any(known):
            reference = known[0] if lines[0].title == RETRAIN else None
            rows.append(Row(label, PAPER, [_told(one, metric) for one in known], begins=False))
            rows.append(Row(label, GAP, [_told_gap(one, reference, metric) for one in known], begins=False))
        return [row for row in rows if any(entry not in (NONE, "") for entry in row.entries)]

    def by_setting(self, experiment: str, data_set: str) -> Table | None:
        """Return several metrics of one data set: a block per line of the experiment, a column per metric."""
        lines = self._sheet.lines(experiment, data_set)
        if not any(self._sheet.get(line, metric) for line in lines for metric in SETTING_METRICS):
            return None
        rows: list[Row] = []
        for line in lines:
            if not any(self._sheet.get(line, one) or self._sheet.failed(line, one) for one in SETTING_METRICS):
                continue
            label = self._label(line, lines)
            rows.append(Row(label, HERE, [self.entry(line, metric) for metric in SETTING_METRICS]))
            gaps = [self.gap(line, metric) for metric in SETTING_METRICS]
            papers = [self.paper(line, metric) for metric in SETTING_METRICS]
            if any(entry not in (NONE, "") for entry in gaps):
                rows.append(Row(label, GAP, gaps, begins=False))
            if any(papers):
                told = [_told(one, metric) for one, metric in zip(papers, SETTING_METRICS, strict=True)]
                rows.append(Row(label, PAPER, told, begins=False))
        names = [METRICS[metric].title + (" (%)" if METRICS[metric].percent else "") for metric in SETTING_METRICS]
        title = self._plan.experiments[experiment].title
        caption = f"{title}, {self._title(data_set)}. {self._source(experiment)}{self._seeds(lines)}"
        notes = [note for metric in SETTING_METRICS for note in self._notes(lines, metric)]
        return Table(caption, ["", "", *names], rows, list(dict.fromkeys(notes)))

    def at_a_glance(self, experiments: Sequence[str]) -> Grid | None:
        """Return every method's mean distance from Retrain over all cases of some experiments, and its cost."""
        lines = [line for name in experiments for line in self._sheet.lines(name)]
        rows = []
        for title in dict.fromkeys(line.title for line in lines if line.title != RETRAIN):
            cases = [line for line in lines if line.title == title]
            entries = [
                *(_points(self._gaps(cases, metric)) for metric in ("test_accuracy", "forget_accuracy")),
                _mean([abs(gap) for gap in self._gaps(cases, "mia_auc")], "{:.3f}"),
                _points(self._gaps(cases, "backdoor_asr")),
                *(_mean(self._shares(cases, metric), "{:.2f}") for metric in ("bytes", "seconds")),
            ]
            rows.append([title, *entries])
        if not any(entry != NONE for _, *entries in rows for entry in entries):
            return None
        header = ["", "test accuracy", "unlearning accuracy", "honest AUC", "backdoor", "bytes", "seconds"]
        caption = (
            "How far from Retrain each method ends, over all data sets and requests of sample and label unlearning: "
            "mean distance, whichever way, in points (AUC: as it is); bytes and seconds as shares of Retrain's; "
            "seconds depend on what else the machine did meanwhile, and have no share where two releases took them."
        )
        return Grid(caption, header, rows)

    def _gaps(self, lines: Sequence[SheetRow], metric: str) -> list[float]:
        found = (self._sheet.gap(line, metric) for line in lines)
        return [gap for gap in found if gap is not None]

    def _shares(self, lines: Sequence[SheetRow], metric: str) -> list[float]:
        """Return each line's cost as a share of Retrain's."""
        found = (self._sheet.share(line, metric) for line in lines)
        return [share for share in found if share is not None]

    def cost(self, experiment: str, data_set: str) -> Grid | None:
        """Return what methods cost: bytes as the complexity table has them and as counted, rounds, seconds."""
        lines = self._sheet.lines(experiment, data_set)
        if not any(self._sheet.get(line, "bytes") for line in lines):
            return None
        rows = []
        for line in lines:
            predicted, counted, protobuf, rounds, seconds = (
                self._sheet.value(line, metric)
                for metric in ("bytes_predicted", "bytes", "bytes_protobuf", "rounds", "seconds")
            )
            entries = [
                FORMULAS.get(self._sheet.member(line).method, NONE),
                _megabytes(predicted),
                _megabytes(counted),
                _share(counted, predicted),
                _megabytes(protobuf),
                f"{rounds:.0f}" if rounds is not None else NONE,
                f"{seconds:.1f}" if seconds is not None else NONE,
                self._of_retrain(line, "bytes"),
                self._of_retrain(line, "seconds"),
            ]
            rows.append([line.title, *entries])
        header = ["", "rows, by the paper", "predicted MB", "counted MB", "counted / predicted", "protobuf MB"]
        header += ["rounds", "seconds", "bytes / Retrain's", "seconds / Retrain's"]
        caption = f"Cost on {self._title(data_set)}, {lines[0].request}. {self._source(experiment)}{self._seeds(lines)}"
        return Grid(caption, header, rows, [COUNTED_TOO])

    def _of_retrain(self, line: SheetRow, metric: str) -> str:
        share = self._sheet.share(line, metric)
        return NONE if share is None else f"{share:.2f}"

    def entry(self, line: SheetRow, metric: str) -> str:
        """Write a figure with its spread; what is not there says why."""
        summary = self._sheet.get(line, metric)
        if summary is None:
            return "failed" if self._sheet.failed(line, metric) else NONE
        shown = METRICS[metric].show(summary.mean)
        spread = "" if summary.spread is None else f" ± {METRICS[metric].show(summary.spread, like=summary.mean)}"
        return f"{shown}{spread}{'' if summary.whole else '*'}"

    def gap(self, line: SheetRow, metric: str) -> str:
        """Write a figure's distance from Retrain's."""
        gap = self._sheet.gap(line, metric)
        return NONE if gap is None else _signed(gap, metric)

    def paper(self, line: SheetRow, metric: str) -> Figure | None:
        """Return the paper's number for a line, if it gives one."""
        place = self._sheet.member(line)
        return figure(line.data_set, line.request, line.setting, place.in_paper, metric)

    def _title(self, data_set: str) -> str:
        described = self._plan.data_sets[data_set]
        return described.title if described.in_paper else f"{described.title} (not in the paper)"

    def _label(self, line: SheetRow, lines: Sequence[SheetRow]) -> str:
        """Name a line by what tells it from the others."""
        parts = [line.request] if len({one.request for one in lines}) > 1 else []
        settings = {one.name: one for one in self._plan.experiments[line.experiment].settings}
        if line.setting:
            parts.append(line.setting if settings[line.setting].in_paper else f"{line.setting} (ours)")
        return ", ".join([*parts, line.title])

    def _source(self, experiment: str, metric: str | None = None) -> str:
        labels = self._plan.experiments[experiment].labels
        suits = {"test_accuracy": "ta_", "forget_accuracy": "ua_", "mia_asr": "mia_", "backdoor_asr": "mia_"}
        if metric and len(labels) > 1:
            labels = [label for label in labels if metric in suits and suits[metric] in label]
        return f"Paper: {listed([NUMBERS[label] for label in labels])}. " if labels else "Not in the paper. "

    def _seeds(self, lines: Sequence[SheetRow]) -> str:
        count = len({place.seed for place in self._sheet.places if place.experiment == lines[0].experiment})
        if count == 1:
            return "One seed."
        return f"Mean ± standard deviation over {count} seeds."

    def _notes(self, lines: Sequence[SheetRow], metric: str) -> list[str]:
        """Explain marks that occur in a table."""
        summaries = [self._sheet.get(line, metric) for line in lines]
        notes = ["* not all seeds are there."] if any(one and not one.whole for one in summaries) else []
        if metric in TIMES and len(releases := self._sheet.releases(lines)) > 1:
            notes.append(f"Seconds taken by releases {listed(sorted(releases))}, at different times, do not compare.")
        return notes


def listed(names: Sequence[str]) -> str:
    """Join names as a sentence does."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _told(one: Figure | None, metric: str) -> str:
    return NONE if one is None else f"{one.sign}{METRICS[metric].show(one.value)}"


def _told_gap(one: Figure | None, reference: Figure | None, metric: str) -> str:
    exact = one is not None and reference is not None and one.relation == reference.relation == "is"
    if not exact or one is reference:
        return NONE
    assert one is not None and reference is not None
    return _signed(one.value - reference.value, metric)


def _signed(value: float, metric: str) -> str:
    shown = METRICS[metric].show(abs(value))
    if not any(digit in shown for digit in "123456789"):
        return f"±{shown}"
    return f"{MINUS if value < 0 else '+'}{shown}"


def _megabytes(value: float | None) -> str:
    return NONE if value is None else f"{value / 1e6:,.2f}"


def _share(value: float | None, whole: float | None) -> str:
    return NONE if value is None or not whole else f"{value / whole:.2f}"


def _points(gaps: Sequence[float]) -> str:
    """Write the mean distance in points."""
    return _mean([100 * abs(gap) for gap in gaps], "{:.1f}")


def _mean(values: Sequence[float], shown: str) -> str:
    return shown.format(mean(values)) if values else NONE
