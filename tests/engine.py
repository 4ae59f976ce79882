"""A container engine for tests: a Docker daemon of their own, in namespaces of its own, gone when they are done.

Nothing of it is seen outside: its bridges and firewall rules are in a network namespace without a way out, its mounts
in a mount namespace, its images and volumes in a folder. What was costly to make, the base image with its wheels and
the layers of the image, stays in a cache folder for the next time.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
BASE = "python:3.11-slim"  # what the stand-in is called, so that the Dockerfile is used as it is

PROGRAMS = ("docker", "dockerd", "ip", "iptables", "mmdebstrap", "nsenter", "setpriv", "unshare")
START_SECONDS, STOP_SECONDS = 30.0, 30.0

# Ranges that are set aside for tests of networks (RFC 2544), so that none of them is anybody's.
NETWORKS = {"bip": "198.19.0.1/24", "default-address-pools": [{"base": "198.18.0.0/16", "size": 24}]}

# Control groups of version 1 are mounted anew inside: the daemon takes the group it was started in for the topmost.
ENTER = """
set -e
if [ ! -e /sys/fs/cgroup/cgroup.controllers ]; then
    kinds=$(awk -F: '$2 != "" { print $2 }' /proc/self/cgroup)
    umount -l /sys/fs/cgroup
    mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
    for kind in $kinds; do
        mkdir "/sys/fs/cgroup/${kind#name=}"
        mount -t cgroup -o "$kind" none "/sys/fs/cgroup/${kind#name=}"
    done
fi
exec dockerd "$@"
"""


class NoEngine(Exception):  # noqa: N818 (a reason to skip, not an error)
    """There can be no engine here; the text says why."""


def missing() -> str | None:
    """Say what an engine lacks on this machine."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a container engine needs Linux and root"
    absent = [program for program in PROGRAMS if shutil.which(program) is None]
    if absent:
        return f"not installed: {', '.join(absent)}; docs/containers.md names the packages"
    return None if _compose() else "not installed: docker compose or docker-compose"


def _compose() -> list[str] | None:
    """Return the command of Compose, version 2 or 1."""
    if shutil.which("docker") and subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0:
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else None


class Engine:
    """A running daemon."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = "fedora-" + hashlib.sha256(str(folder).encode()).hexdigest()[:6]
        self.socket = folder / "docker.sock"
        self._daemon: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What makes docker and compose speak to this daemon, with nobody's settings but these."""
        own = {"DOCKER_HOST": f"unix://{self.socket}", "DOCKER_CONFIG": str(self.folder), "DOCKER_BUILDKIT": "0"}
        theirs = ("COMPOSE_", "FEDORA_", "PIP_")  # what Compose and the cluster's file would take from a user's
        return {**{name: value for name, value in os.environ.items() if not name.startswith(theirs)}, **own}

    def start(self) -> None:
        """Start the daemon and wait until it answers."""
        self._clear()
        _checked(["ip", "netns", "add", self.name])
        _checked(["ip", "-n", self.name, "link", "set", "lo", "up"])
        settings = self.folder / "daemon.json"
        settings.write_text(json.dumps(NETWORKS))
        with (self.folder / "dockerd.log").open("wb") as log:
            self._daemon = subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig", "TERM"),  # it ends with the tests, however they end
                    *("nsenter", f"--net=/run/netns/{self.name}"),
                    *("unshare", "--mount", "--cgroup", "--propagation", "private", "sh", "-c", ENTER, "dockerd"),
                    *("--config-file", str(settings), "--data-root", str(self.folder / "data")),
                    *("--exec-root", str(self.folder / "exec"), "--pidfile", str(self.folder / "dockerd.pid")),
                    *("--cgroup-parent", f"/{self.name}", "--host", f"unix://{self.socket}"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while self.docker("info", check=False).returncode != 0:
            if self._daemon.poll() is not None or time.monotonic() > deadline:
                said = (self.folder / "dockerd.log").read_text(errors="replace").strip().splitlines()
                self.stop()
                raise NoEngine(f"the Docker daemon does not start here: {said[-1] if said else 'it says nothing'}")
            time.sleep(0.2)  # between two looks, not instead of one
        self._empty()  # of what tests that were killed have left

    def stop(self) -> None:
        """End the containers and the daemon and leave nothing behind but the cache."""
        if self._daemon and self._daemon.poll() is None:
            self._empty()
            self._daemon.terminate()
            try:
                self._daemon.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._daemon.kill()
                self._daemon.wait()
        self._clear()

    def _empty(self) -> None:
        """Remove all containers and volumes."""
        if containers := self.docker("ps", "--all", "--quiet", check=False).stdout.split():
            self.docker("rm", "--force", "--volumes", *containers, check=False)
        if volumes := self.docker("volume", "ls", "--quiet", check=False).stdout.split():
            self.docker("volume", "rm", "--force", *volumes, check=False)

    def _clear(self) -> None:
        """Remove what this engine, or one that was killed in this folder, has left in the system."""
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)
        for group in sorted(Path("/sys/fs/cgroup").glob(f"**/{self.name}/**/"), reverse=True):
            with contextlib.suppress(OSError):
                group.rmdir()
        (self.folder / "dockerd.pid").unlink(missing_ok=True)

    def docker(self, *words: str, check: bool = True, seconds: float = 600) -> subprocess.CompletedProcess[str]:
        """Run docker."""
        return self._run(["docker", *words], check, seconds, self.environment)

    def compose(
        self,
        folder: Path,
        *words: str,
        check: bool = True,
        seconds: float = 600,
        settings: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run Compose in a folder."""
        return self._run(
            self.compose_command(*words), check, seconds, {**self.environment, **(settings or {})}, folder=folder
        )

    def compose_command(self, *words: str) -> list[str]:
        """Return a command of Compose, to be run in the cluster's folder with `environment`."""
        command = _compose()
        assert command
        return [*command, *words]

    @staticmethod
    def _run(
        command: list[str], check: bool, seconds: float, environment: Mapping[str, str], folder: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command, env=dict(environment), cwd=folder, capture_output=True, text=True, timeout=seconds
        )
        if check and done.returncode:
            said = f"{done.stdout}\n{done.stderr}"
            raise AssertionError(f"{' '.join(command)}: exit code {done.returncode}\n{said}")
        return done

    def has(self, image: str) -> bool:
        """Tell whether there is an image of this name."""
        return self.docker("image", "inspect", image, check=False).returncode == 0


def _checked(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NoEngine(f"{' '.join(command)}: {done.stderr.strip()}")


def cache() -> Path:
    """Return the folder of what is kept from one run of the tests to the next."""
    chosen = os.environ.get("FEDORA_TEST_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(chosen) / "fedora-test-engine"


@contextlib.contextmanager
def engine() -> Iterator[Engine]:
    """Start an engine that has the base image; raise `NoEngine` where there can be none."""
    if reason := missing():
        raise NoEngine(reason)
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one daemon at a time works with this folder
        running = Engine(folder)
        try:
            running.start()
            _make_base(running)
            yield running
        finally:
            running.stop()


# The base image. There may be no registry to take one from, but there are Debian's packages and a package index.


def _make_base(running: Engine) -> None:
    """Make a stand-in for Python's own slim image, with all wheels inside and pip pointed at them, if there is none."""
    with ThreadPoolExecutor() as both:  # each waits for its network, mostly
        fetching, making = both.submit(_wheels, running.folder), both.submit(_root, running.folder)
        wheels, root = fetching.result(), making.result()
    label = f"wheels={wheels.name}"
    if running.docker("images", "--quiet", "--filter", f"label={label}", BASE).stdout.strip():
        return
    whole = running.folder / "base.tar"
    shutil.copyfile(root, whole)
    with tarfile.open(whole, "a") as archive:
        archive.add(wheels, "wheels")
    changes = (
        'CMD ["python3"]',
        f"LABEL {label}",
        "ENV LANG=C.UTF-8 PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels",
        "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    )
    running.docker("import", *(word for change in changes for word in ("--change", change)), str(whole), BASE)
    whole.unlink()


def _wheels(folder: Path) -> Path:
    """Fetch the pinned packages as wheels, once for each list of them."""
    constraints = REPOSITORY / "deploy" / "constraints.txt"
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], "setuptools"]
    known = hashlib.sha256(constraints.read_bytes() + "\n".join(wanted).encode()).hexdigest()[:12]
    place = folder / f"wheels-{known}"
    if not place.exists():
        making = folder / "wheels-being-fetched"
        shutil.rmtree(making, ignore_errors=True)
        _offline_means_skip(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:"),
                *("--python-version", "3.11", "--constraint", str(constraints), "--dest", str(making), *wanted),
            ],
            "the wheels for a base image cannot be fetched",
        )
        making.rename(place)
    return place


def _root(folder: Path) -> Path:
    """Make the file system of a Debian with Python 3.11, once."""
    place = folder / "bookworm.tar"
    if not place.exists():
        making = folder / "bookworm-being-made.tar"
        names = 'for name in python python3 python3.11; do ln -sf /usr/bin/python3.11 "$1/usr/local/bin/$name"; done'
        left_out = [f"--dpkgopt=path-exclude=/usr/share/{what}/*" for what in ("man", "doc", "locale")]
        _offline_means_skip(
            [
                *("mmdebstrap", "--quiet", "--variant=apt", "--include=python3,python3-venv,ca-certificates"),
                *("--dpkgopt=force-unsafe-io", *left_out, f"--customize-hook={names}", "bookworm", str(making)),
            ],
            "the file system of a base image cannot be made",
        )
        making.rename(place)
    return place


def _offline_means_skip(command: list[str], otherwise: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NoEngine(f"{otherwise}: {done.stderr.strip().splitlines()[-1:]}")
