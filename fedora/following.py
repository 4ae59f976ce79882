"""What a user sees while a job runs: a moving bar in a terminal, plain lines elsewhere."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from protos.control_pb2 import Event, PhaseFinished

# In plain output a long training is told in about this many lines.
LINES = 20


class Follower:
    """Shows events."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._name, self._round, self._rounds = "", 0, 1
        self._last = ""

    def __enter__(self) -> Self:
        """Begin to show."""
        if self._console.is_terminal:
            columns = (TextColumn("{task.description:>8}"), BarColumn(30), TextColumn("{task.fields[text]}"))
            self._bar = Progress(*columns, TimeElapsedColumn(), console=self._console)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it should be."""
        if self._bar:
            self._bar.stop()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        match event.WhichOneof("content"):
            case "note":
                self._console.print(event.note, highlight=False)
            case "started":
                started = event.started
                new = (started.name, started.of_rounds) != (self._name, self._rounds)
                self._name, self._round, self._rounds = started.name, started.round, started.of_rounds
                if self._bar and new:
                    self._task = self._bar.add_task(started.name, total=started.of_rounds, text="")
            case "progress":
                done = event.progress.steps / max(1, event.progress.of_steps)
                self._show(self._round - 1 + done, f"{self._place()}  loss {event.progress.loss:.4f}")
            case "finished":
                self._finish(event.finished)

    def _finish(self, finished: PhaseFinished) -> None:
        text = f"{self._place()}  loss {finished.loss:.4f}  accuracy {finished.accuracy:.2%}"
        self._show(finished.round, text)
        every = max(1, finished.of_rounds // LINES)
        if not self._bar and (finished.round % every == 0 or finished.round == finished.of_rounds):
            self._console.print(f"{self._name:>8}  {text}  {finished.seconds:.2f} s", highlight=False)

    def _show(self, done: float, text: str) -> None:
        if self._bar and self._task is not None:
            self._bar.update(self._task, completed=done, text=text)

    def _place(self) -> str:
        width = len(str(self._rounds))
        return f"{self._round:>{width}}/{self._rounds}"
