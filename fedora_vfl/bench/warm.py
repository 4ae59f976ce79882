"""Members of a cluster, forked from one process on their host that has imported all they need: torch takes seconds.

They are processes of their own as ever, with the same code, sockets and files; only their imports are shared. Where
members start and end by the hundred, imports would else be most of the work.
"""

import asyncio
import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any

from fedora_vfl.cluster import local

MOST_BYTES = 1 << 17  # of a request or an answer
MOST_SECONDS = 120.0  # until a process is forked: the first one waits for the imports


class WarmProcess:
    """A member that was forked, to be used as asyncio's own processes are."""

    def __init__(self, pid: int, held: int, ended: "Future[int]") -> None:
        """`held` is the end of its standard input that keeps it running."""
        self.pid, self._held, self._ended = pid, held, ended
        ended.add_done_callback(lambda _: os.close(held))

    @property
    def returncode(self) -> int | None:
        """Its exit code once it has ended."""
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        """Wait until it ends, and return its exit code."""
        return await asyncio.shield(asyncio.wrap_future(self._ended))

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if not self._ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Make it end."""
        self.send_signal(signal.SIGKILL)


class Warmth:
    """The process that has all imported, and those it forked."""

    def __init__(self, host: Sequence[str] = ()) -> None:
        """`host` are the words that, put before a command, run it on a host of its own."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = [*host, sys.executable, "-m", "fedora_vfl.bench.warm", str(theirs.fileno())]
            # As members have it before they import gRPC, which reads it once.
            environment = {**os.environ, "GRPC_VERBOSITY": "INFO"}
            self._process = subprocess.Popen(words, pass_fds=[theirs.fileno()], env=environment, start_new_session=True)
        self._expected: deque[Future[tuple[int, Future[int]]]] = deque()  # of processes that were asked for, in order
        self._ended: dict[int, Future[int]] = {}
        threading.Thread(target=self._read, daemon=True).start()

    async def start(self, words: Sequence[str], log: IO[bytes]) -> WarmProcess:
        """Fork a process that runs a Python module."""
        theirs, held = os.pipe()
        born: Future[tuple[int, Future[int]]] = Future()
        self._expected.append(born)
        request = {"words": list(words), "folder": str(Path.cwd()), "environment": dict(os.environ)}
        socket.send_fds(self._socket, [json.dumps(request).encode()], [theirs, log.fileno()])
        os.close(theirs)
        try:
            async with asyncio.timeout(MOST_SECONDS):
                pid, ended = await asyncio.shield(asyncio.wrap_future(born))
        except BaseException:
            os.close(held)  # nobody will know of it: it ends by itself
            raise
        return WarmProcess(pid, held, ended)

    def _read(self) -> None:
        while message := self._socket.recv(MOST_BYTES):
            said = json.loads(message)
            if "code" in said:
                self._ended.pop(said["pid"]).set_result(said["code"])
            else:
                self._ended[said["pid"]] = ended = Future[int]()
                self._expected.popleft().set_result((said["pid"], ended))

    def close(self) -> None:
        """End it."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._process.wait(timeout=10)


class WarmStart:
    """Starts members: those that are plain Python modules from a warm process on their host."""

    def __init__(self) -> None:
        self._cold = local.start_process
        self._warmths: dict[tuple[str, ...], Warmth] = {}  # by the words that run a command on a host

    async def __call__(self, words: Sequence[str], log: IO[bytes]) -> Any:
        """Start a process as `fedora_vfl.cluster.local.start_process` does."""
        place = words.index(sys.executable) if sys.executable in words else len(words)
        host, module = tuple(words[:place]), words[place + 1 :]
        if module[:1] != ["-m"]:
            return await self._cold(words, log)
        if host not in self._warmths:
            self._warmths[host] = Warmth(host)
        return await self._warmths[host].start(module[1:], log)

    def close(self) -> None:
        """End the warm processes that were needed."""
        while self._warmths:
            self._warmths.popitem()[1].close()


def _serve(requests: socket.socket) -> dict[str, Any]:
    """Fork a process for every request and tell when it ends; in the forked one, return its request."""
    waiting = selectors.DefaultSelector()
    waiting.register(requests, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is not requests:  # the descriptor of a process that has ended
                waiting.unregister(key.fileobj)
                os.close(key.fd)
                _, status = os.waitpid(key.data, 0)
                requests.send(json.dumps({"pid": key.data, "code": os.waitstatus_to_exitcode(status)}).encode())
                continue
            message, passed, _, _ = socket.recv_fds(requests, MOST_BYTES, 2)
            if not message:
                os._exit(0)
            pid = os.fork()
            if not pid:
                _become(passed)
                _leave(waiting)
                return dict(json.loads(message))
            for descriptor in passed:
                os.close(descriptor)
            waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)
            requests.send(json.dumps({"pid": pid}).encode())


def _become(passed: Sequence[int]) -> None:
    """Make a forked process one of its own: its session, its input and its log."""
    os.setsid()
    held, log = passed
    os.dup2(held, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for descriptor in passed:
        os.close(descriptor)


def _leave(waiting: selectors.BaseSelector) -> None:
    """Close what only the process that forked this one needs."""
    for key in list(waiting.get_map().values()):
        if isinstance(key.fileobj, socket.socket):
            key.fileobj.close()
        else:
            os.close(key.fd)
    waiting.close()


def main() -> None:
    """Import what members need, then fork whenever asked to."""
    parties = ("party.process", "party.data.tables", "party.alive", "pandas")
    for module in (*parties, "coordinator.serving", "fedora_vfl.cluster.submission"):
        importlib.import_module(module)

    gc.freeze()  # what is there now is never rubbish: pages stay shared
    try:
        request = _serve(socket.socket(fileno=int(sys.argv[1])))
    except BrokenPipeError:  # whoever asked has ended without waiting for the answer
        os._exit(0)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    module, *sys.argv[1:] = request["words"]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
