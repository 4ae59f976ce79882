"""The log of a process: lines of text or of JSON on standard error, with no secret, no id and no label in them."""

import json
import logging
import re
import sys
import threading
import traceback
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

FORMS = ("text", "json")
LONGEST = 10_000  # letters of a message

# What stands in quotes in a sentence for a user: an id, a label, a value of a file or of a job. A quote within a word,
# as in "party's" or in the path of a file, opens nothing and closes nothing.
_QUOTED = re.compile(r"""(?<!\w)'(?:[^'\\]|\\.|'(?=\w))*'|(?<!\w)"(?:[^"\\]|\\.|"(?=\w))*\"""")


@dataclass(frozen=True)
class Place:
    """Where a process is in its work, as far as it knows: what every line of JSON says beside its message."""

    member: str = ""
    job: str = ""
    phase: str = ""
    round: int | None = None


class _Text(logging.Formatter):
    """Writes records for a reader."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Return a record without what came with it."""
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, info: Any) -> str:  # noqa: N802
        """Return an exception that came with a record."""
        return unexpected(info[1])


class Lines(logging.Formatter):
    """Writes records as JSON, one a line."""

    place = Place()

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line."""
        message = record.getMessage()
        if record.exc_info and record.exc_info[1]:
            message = f"{message}\n{unexpected(record.exc_info[1])}"
        return self.line(record.levelname, message, logger=record.name, seconds=record.created)

    def line(self, level: str, message: str, *, logger: str, seconds: float | None = None) -> str:
        """Return a message as one line; `seconds` since 1970 are now unless told."""
        moment = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
        place = self.place
        known = {"job": place.job or None, "phase": place.phase or None, "round": place.round}
        content = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": level,
            "member": place.member,
            "logger": logger,
            "message": message[:LONGEST],
            **{name: value for name, value in known.items() if value is not None},
        }
        text = json.dumps(content, ensure_ascii=False)
        # Letters of all scripts as they are, what steers a terminal or ends a line elsewhere as an escape.
        return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


class _Standard(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to whatever standard error is at the time."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        self.stream = sys.stderr
        super().emit(record)


# One process is one member with one log, as it has one standard error.
_lines: Lines | None = None


def start(form: str) -> None:
    """Log to standard error, one line an event, as text or as JSON."""
    global _lines
    _lines = Lines() if form == "json" else None
    handler = _Standard()
    handler.setFormatter(_lines or _Text("%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    if _lines:
        logging.captureWarnings(True)
        sys.excepthook = _last_exception
        threading.excepthook = _thread_exception


def set_member(member: str) -> None:
    """Say who this process is."""
    if _lines:
        _lines.place = Place(member)


def in_job(job: str) -> None:
    """Say which job what follows belongs to; none if it is empty."""
    if _lines:
        _lines.place = Place(_lines.place.member, job)


def in_phase(phase: str, round: int) -> None:
    """Say which phase and round what follows belongs to."""
    if _lines:
        _lines.place = replace(_lines.place, phase=phase, round=round)


def pass_through(line: str) -> None:
    """Pass on a line that something else has written to standard error, in the form that the log has."""
    said = line.rstrip()
    # Named for what it is: some of it comes from callers, who might like it to look like a line of the log.
    sys.stderr.write(f"{_lines.line('INFO', said, logger='stderr') if _lines else f'stderr: {printable(said)}'}\n")


def print_final_message(sentence: str, *, level: str = "ERROR") -> None:
    """Print the sentence that a process ends with: the whole of it for a reader, a discreet one for a log of JSON."""
    said = (
        _lines.line(level, discreet(sentence), logger="fedora_vfl.process.lifecycle")
        if _lines
        else f"error: {sentence}"
    )
    print(said, file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """Return a message that cannot pass for more than one: further lines are indented, control characters shown."""
    shown = (one if one.isprintable() else "\n    " if one == "\n" else repr(one)[1:-1] for one in text[:LONGEST])
    return "".join(shown)


def discreet(sentence: object) -> str:
    """Return a sentence without what it quotes: users are told ids and labels, logs are not."""
    return _QUOTED.sub("'…'", str(sentence))


def unexpected(error: BaseException) -> str:
    """Return where an error that nobody foresaw came from, and what it says, discreetly."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"{frames}{type(error).__name__}: {discreet(error)}"


def _last_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger(__name__).critical("%s", unexpected(error))


def _thread_exception(info: threading.ExceptHookArgs) -> None:
    if info.exc_value:
        logging.getLogger(__name__).critical("%s", unexpected(info.exc_value))
