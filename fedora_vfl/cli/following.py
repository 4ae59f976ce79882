"""What a user sees while a job runs: a moving bar in a terminal, plain lines elsewhere, and lines of some rounds."""

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from coordinator.methods.primal_dual import RECOVERY, REMAINING_PHASE, UNLEARNING
from coordinator.methods.proof import NAME as CERTIFICATE
from coordinator.methods.self_scaling import COMPARISON, RETREAT
from fedora_vfl.errors import in_one_line
from protos.fedora.v1.control_pb2 import Event, PhaseFinished, PhaseStarted

MEASURING = "measuring"
# Phases that a reader takes for one stage of the job. Any other phase is a stage of its own.
STAGES = {
    REMAINING_PHASE: UNLEARNING,
    RETREAT: UNLEARNING,
    **dict.fromkeys(("test", "validation", "forgotten", "members", "probe"), MEASURING),
    **dict.fromkeys(("audit-test", "audit-forgotten", "audit-members"), MEASURING),
}

# A stage is told in about this many lines, its last round always; in a terminal only the open-ended ones are.
LINES = {UNLEARNING: 12, RECOVERY: 4}
MOST_LINES = 20
# How many rounds these stages take shows only as they run: of them a line comes at least every so many rounds.
EVERY = {UNLEARNING: 5, RECOVERY: 2}
WIDTH = 11  # of a stage's name


class Stage:
    """A stretch of phases that a reader takes for one thing, and the figures to show of it."""

    def __init__(self, name: str, rounds: int) -> None:
        self.name, self.rounds, self.round = name, rounds, 0
        self.seconds = 0.0  # so far
        self._figures: dict[str, str] = {}

    @property
    def open_ended(self) -> bool:
        """Whether nobody can say beforehand how many rounds there will be."""
        return self.name in EVERY

    @property
    def quiet(self) -> bool:
        """Whether there are no rounds to speak of."""
        return self.name in (MEASURING, CERTIFICATE)

    def show(self, figures: Mapping[str, str]) -> None:
        """Take what there is to say now; older figures of other names stay."""
        self._figures |= figures

    def text(self) -> str:
        """Say where the stage is."""
        said = "  ".join(f"{name} {value}" for name, value in self._figures.items())
        if self.quiet:
            return said
        if self.open_ended:
            return f"round {self.round:>2}  {said}"
        return f"{self.round:>{len(str(self.rounds))}}/{self.rounds}  {said}"

    def due(self, finished: PhaseFinished) -> bool:
        """Tell whether a round that has ended deserves a line of its own."""
        if self.quiet or finished.name == UNLEARNING:  # its second half, the remaining phase, is still to come
            return False
        every = max(EVERY.get(self.name, 1), self.rounds // LINES.get(self.name, MOST_LINES))
        return finished.round % every == 0 or (finished.round == 1 and self.open_ended)


class Follower:
    """Shows events: a bar for the stage that runs, and what was done above it."""

    def __init__(self, console: Console, *, chapters: Mapping[str, str] | None = None) -> None:
        self._console = console
        self._chapters = dict(chapters or {})  # what to say before the first stage of a name
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._stage: Stage | None = None
        self._told = True  # whether the stage's last round has its line

    def __enter__(self) -> Self:
        """Begin to show."""
        if self._console.is_terminal:
            name = TextColumn(f"{{task.description:>{WIDTH}}}", markup=False)
            text = TextColumn("{task.fields[text]}", markup=False, table_column=Column(no_wrap=True))
            self._bar = Progress(name, BarColumn(12), text, TimeElapsedColumn(), console=self._console)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it should be."""
        self._close()
        if self._bar:
            self._bar.stop()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        match event.WhichOneof("content"):
            case "note":
                # Whole: a path that is broken at the 80th letter can be neither copied nor searched for.
                self._console.print(in_one_line(event.note), highlight=False, markup=False, soft_wrap=True)
            case "started" if event.started.name != COMPARISON:  # a glance between two stages
                self._start(event.started)
            case "progress" if self._stage:
                done = event.progress.steps / max(1, event.progress.of_steps)
                told = event.progress.HasField("loss")
                if told and not self._stage.open_ended and not self._stage.quiet:
                    self._stage.show({"loss": f"{event.progress.loss:.4f}"})
                self._move(self._stage.round - 1 + done)
            case "finished" if self._stage and event.finished.name != COMPARISON:
                self._finish(self._stage, event.finished)

    def _start(self, started: PhaseStarted) -> None:
        name = STAGES.get(started.name, in_one_line(started.name))
        if self._stage is None or self._stage.name != name:
            self._close()
            if name in self._chapters:
                self._console.print(self._chapters.pop(name), highlight=False)
            self._open(Stage(name, started.of_rounds))
        assert self._stage
        self._stage.round = started.round

    def _finish(self, stage: Stage, finished: PhaseFinished) -> None:
        stage.round = finished.round  # a phase of many rounds tells of all of them at its end
        stage.seconds += finished.seconds
        stage.show(_figures(finished))
        self._move(finished.round)
        self._told = False
        if stage.due(finished) and (stage.open_ended or not self._bar):
            self._tell(stage)

    def _open(self, stage: Stage) -> None:
        self._stage, self._told = stage, True
        if self._bar:
            total = None if stage.open_ended or stage.quiet else stage.rounds
            self._task = self._bar.add_task(stage.name, total=total, text="")

    def _close(self) -> None:
        """Turn the stage's bar into a line, or give its last round the line it has not had."""
        stage, self._stage = self._stage, None
        if self._bar and self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None
        if stage and not self._told:
            self._tell(stage)

    def _tell(self, stage: Stage) -> None:
        self._console.print(
            f"{stage.name:>{WIDTH}}  {stage.text()}  {stage.seconds:.1f} s",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        self._told = True

    def _move(self, done: float) -> None:
        if self._bar and self._task is not None and self._stage:
            self._bar.update(self._task, completed=done, text=self._stage.text())


def _figures(finished: PhaseFinished) -> dict[str, str]:
    """Return what a reader wants to know of a phase, as far as the active party tells."""
    dual = {"Ω": f"{finished.dual:.3f}"} if finished.HasField("dual") else {}
    if not finished.HasField("loss"):
        return dual if finished.name == "unlearning" else {}
    match finished.name:
        case "unlearning":
            return {"L_u": f"{finished.loss:6.3f}", **dual}
        case "remaining":
            return {"remaining accuracy": f"{finished.accuracy:.1%}"}
        case "test":
            return {"test loss": f"{finished.loss:.4f}", "accuracy": f"{finished.accuracy:.2%}"}
        case "audit-test":
            return {"reference, test accuracy": f"{finished.accuracy:.2%}"}
        case "validation" | "forgotten" | "members" | "probe" | "audit-forgotten" | "audit-members":
            return {}  # their figures come with the report, where they can be compared
        case "certificate":
            return {"L_u": f"{finished.loss:.3f}"} if finished.HasField("dual") else {}
        case _:
            return {"loss": f"{finished.loss:.4f}", "accuracy": f"{finished.accuracy:.2%}"}
