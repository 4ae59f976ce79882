"""How a process of this project begins and ends: logging, signals, exit codes."""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from wire.errors import ALL, DataError, FedoraError, StoppedError
from wire.handshakes import explain_core_messages


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
    return parser


def begin(options: argparse.Namespace) -> None:
    """Log to standard error, one line an event, and heed --end-with-parent."""
    if options.end_with_parent:
        _end_with_parent()
    explain_core_messages()
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S"
    )


def run_until_done(work: Coroutine[Any, Any, None]) -> int:
    """Run a process's main coroutine until it ends or a signal stops it; return the exit code.

    Errors meant for a user are printed as one sentence, on the last line, behind `error:`.
    """
    try:
        asyncio.run(_interruptible(work))
    except FedoraError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    except asyncio.CancelledError:
        print("error: stopped by Ctrl-C or a signal", file=sys.stderr, flush=True)
        return StoppedError.exit_code
    except BrokenPipeError:
        return reader_gone()
    except OSError as error:
        print(f"error: {error.filename or 'the system'}: {error.strerror}", file=sys.stderr, flush=True)
        return DataError.exit_code
    return 0


def reader_gone() -> int:
    """End quietly when whoever read our output has gone; Python would complain once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return StoppedError.exit_code


async def _interruptible(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    await task


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
