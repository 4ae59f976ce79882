"""How a process of this project begins and ends: logging, signals, exit codes."""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from fedora_vfl.errors import ALL, DataError, FedoraError, StoppedError
from fedora_vfl.process import logs
from fedora_vfl.process.core_messages import explain_core_messages
from fedora_vfl.process.exhaustion import exhausted

STOPPED = "stopped by Ctrl-C or a signal"
SIGNALS = (signal.SIGINT, signal.SIGTERM)
# How long a member takes at most to say goodbye after a signal: less than those who send it wait before they kill.
ENDS_WITHIN_SECONDS = 4.0


def command_line(module: str, description: str, config: str) -> argparse.ArgumentParser:
    """Return the options that both kinds of process have."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=description,
        epilog="exit codes:\n" + exit_codes(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help=config)
    parser.add_argument("--end-with-parent", action="store_true", help="end when standard input closes")
    parser.add_argument("--log", choices=logs.FORMS, default="text", help="how standard error is written (text)")
    parser.add_argument(
        "--plugin",
        type=Path,
        action="append",
        default=[],
        metavar="FILE.py",
        help="a Python file of one's own with methods, models and the like, which is run; repeatable",
    )
    parser.add_argument(
        "--metrics", metavar="HOST:PORT", help="serve figures for Prometheus here, to everybody who can reach it (off)"
    )
    return parser


def begin(options: argparse.Namespace) -> None:
    """Log to standard error, one line an event, and heed --end-with-parent."""
    if options.end_with_parent:
        _end_with_parent()
    explain_core_messages()
    logs.start(options.log)
    for number in SIGNALS:  # until `run_until_done` sees to them there is nothing to end in order
        signal.signal(number, _end_at_once)


def run_until_done(work: Coroutine[Any, Any, None], *, ends_within: float | None = None) -> int:
    """Run a process's main coroutine until it ends or a signal stops it; return the exit code.

    Errors meant for a user are printed as one sentence, on the last line, behind `error:`. A signal gives the work
    `ends_within` seconds to end, if that is set; then the process ends whatever it is doing.
    """
    try:
        asyncio.run(_interruptible(work, ends_within))
    except FedoraError as error:
        logs.print_final_message(str(error))
        return error.exit_code
    except asyncio.CancelledError:
        logs.print_final_message(STOPPED, level="INFO")
        return StoppedError.exit_code
    except BrokenPipeError:
        return reader_gone()
    except Exception as error:
        missing = exhausted(error)
        if missing is None:
            raise
        logs.print_final_message(missing)
        return DataError.exit_code
    return 0


def reader_gone() -> int:
    """End quietly when whoever read our output has gone; Python would complain once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return StoppedError.exit_code


async def _interruptible(work: Coroutine[Any, Any, None], ends_within: float | None) -> None:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()

    def stop(*_: object) -> None:
        # Once is enough: a second signal must not break into the end that the first has begun.
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        loop.call_soon_threadsafe(task.cancel)
        if ends_within is not None:
            last = threading.Timer(ends_within, _end_at_once)
            last.daemon = True
            last.start()

    # Not the event loop's own way: that would wait for the loop, which a long computation may hold up.
    earlier = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        await task
    finally:
        for number, handler in earlier.items():
            if signal.getsignal(number) is stop:
                signal.signal(number, handler)


def _end_at_once(*_: object) -> None:
    """End this process in the middle of whatever it does. Files that count are written as a whole or not at all."""
    logs.print_final_message(STOPPED, level="INFO")
    os._exit(StoppedError.exit_code)


def _end_with_parent() -> None:
    """End this process when standard input closes, which it does when the parent ends, however it ends."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1024):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def exit_codes() -> str:
    """List the exit codes for a help text."""
    return "\n".join(f"  {error.exit_code:>3}  {error.meaning}" for error in ALL)
