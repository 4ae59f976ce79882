"""What a user sees of a sweep: a moving bar in a terminal, a line per cell elsewhere, and the time that is left."""

from collections.abc import Iterable, Mapping
from statistics import mean
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Column

from fedora_vfl.bench.paper.cells import Cell, Group, Place
from fedora_vfl.bench.paper.experiments import DataSet, Preset
from fedora_vfl.bench.paper.store import Record

START_SECONDS = 7.0  # to cut the data and start the processes


class Estimate:
    """How long cells will take: by those of the same kind that were measured, or else by the data set's guess."""

    def __init__(self, data_sets: Mapping[str, DataSet], preset: Preset, records: Iterable[Record]) -> None:
        sizes = {name: data_set.size(preset) for name, data_set in data_sets.items()}
        self._guess = {name: size.seconds for name, size in sizes.items() if size}
        self._measured: dict[tuple[str, str], list[float]] = {}
        for record in records:
            self.learn(record)

    def learn(self, record: Record) -> None:
        """Take a measured cell into account."""
        if record.done:
            self._measured.setdefault((record.data_set, record.method), []).append(record.seconds["cell"])

    def cell(self, cell: Cell) -> float:
        """Return the seconds that a cell should take."""
        return self._like(cell.group.data_set, cell.method)

    def _like(self, name: str, method: str) -> float:
        if known := self._measured.get((name, method)):
            return mean(known)
        alike = [one for (data_set, _), times in self._measured.items() if data_set == name for one in times]
        return mean(alike) if alike else self._guess[name]

    def total(self, cells: Iterable[Cell]) -> float:
        """Return the seconds that cells should take, with the originals they need."""
        waiting = list(cells)
        originals = {cell.group.digest: cell.group for cell in waiting}
        return sum(self.cell(cell) for cell in waiting) + sum(self.original(group) for group in originals.values())

    def original(self, group: Group) -> float:
        """Return the seconds until an original is there: its training takes about as long as Retrain."""
        return START_SECONDS + self._like(group.data_set, "retrain")


def in_words(seconds: float) -> str:
    """Say a time as people do."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class Teller:
    """Shows how a sweep goes."""

    def __init__(self, console: Console, estimate: Estimate, waiting: Iterable[Place]) -> None:
        self._console, self._estimate = console, estimate
        self._left: dict[str, Place] = {}
        for place in waiting:  # a cell goes by the first experiment that has it
            self._left.setdefault(place.cell.digest, place)
        self._total = len(self._left)
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        """Begin to show."""
        if self._console.is_terminal:
            text = TextColumn("{task.description}", table_column=Column(no_wrap=True, ratio=1))
            left = TextColumn("{task.fields[left]}")
            self._bar = Progress(MofNCompleteColumn(), BarColumn(16), left, text, console=self._console, expand=True)
            self._task = self._bar.add_task("", total=self._total, left=self._time_left())
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it should be."""
        if self._bar:
            self._bar.stop()

    def training(self, group: Group) -> None:
        """Show that an original is being trained."""
        kind = "with a backdoor" if group.run == "backdoor" else "clean"
        told = f"{group.data_set}, seed {group.seed}, {kind}: the original model"
        self._now(told)
        self._tell(told)

    def measuring(self, cell: Cell) -> None:
        """Show that a cell is being run."""
        self._now(describe(self._left[cell.digest]))

    def finished(self, cell: Cell, record: Record) -> None:
        """Show what came of a cell."""
        place = self._left.pop(cell.digest)
        self._estimate.learn(record)
        number = self._total - len(self._left)
        if self._bar and self._task is not None:
            self._bar.update(self._task, completed=number, left=self._time_left())
        if not record.done:
            self._console.print(f"FAILED  {describe(place)}: {record.why}", soft_wrap=True)
        elif not self._bar:
            line = f"{number:>{len(str(self._total))}}/{self._total}  {describe(place)}: {_figures(record)}"
            self._console.print(f"{line}; {self._time_left()}", soft_wrap=True)

    def _now(self, text: str) -> None:
        if self._bar and self._task is not None:
            self._bar.update(self._task, description=text)

    def _tell(self, text: str) -> None:
        if not self._bar:
            self._console.print(text, soft_wrap=True)

    def _time_left(self) -> str:
        return f"{in_words(self._estimate.total(place.cell for place in self._left.values()))} left"


def describe(place: Place) -> str:
    """Say which cell this is, in one line."""
    setting = f", {place.setting}" if place.setting else ""
    run = " with a backdoor" if place.run == "backdoor" else ""
    return f"{place.experiment}: {place.data_set}, {place.request}{run}{setting}, {place.title}, seed {place.seed}"


def _figures(record: Record) -> str:
    shown = (("test", "test_accuracy"), ("forgotten", "forget_accuracy"), ("backdoor", "backdoor_asr"))
    said = [f"{name} {value:.1%}" for name, key in shown if (value := record.figures.get(key)) is not None]
    return f"{', '.join(said)}, {record.seconds['cell']:.1f} s"
