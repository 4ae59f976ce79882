"""Commits: what a party has made last of its jobs, so that a new process of it goes on where the last one was.

A commit is one file, by the number of the request that it was written after. It is for the owner's eyes alone: it holds
what was asked to be forgotten. It is erased when its job ends.
"""

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor

from fedora_vfl.certificates.attestation import is_job_id
from fedora_vfl.errors import DataError, PartyError
from fedora_vfl.fault_points import reached
from fedora_vfl.storage import make_private_folder, remove_unfinished, synchronise, write_atomically
from fedora_vfl.wire.protocol import COORDINATOR
from party.state import SETS, copied
from party.tensor_files import flatten, read_tensors, restore, write_tensors

COMMIT_FORMAT = "fedora-commit-1"
KEPT = 2  # commits that all parties are known to have
_NAME = re.compile(r"(\d{8})\.safetensors")
_ORDER = "order-{}.json"

log = logging.getLogger(__name__)


def obsolete(held: Iterable[int], *, confirmed: int) -> list[int]:
    """Return the commits that nobody will go back to; `confirmed` is the last one that all parties have."""
    return sorted(one for one in held if one <= confirmed)[:-KEPT]


class Commits:
    """The commits of one party, by job."""

    def __init__(self, keys: Path) -> None:
        """They are kept in a party's folder of keys."""
        self._folder = keys / "commits"

    def jobs(self) -> list[str]:
        """Return the jobs of which there are commits."""
        if not self._folder.is_dir():
            return []
        return sorted(path.name for path in self._folder.iterdir() if is_job_id(path.name))

    def of(self, job: str) -> "JobCommits":
        """Return the commits of one job."""
        if not is_job_id(job):
            raise PartyError(COORDINATOR, f"named the job {job!r}, which is not a name for a file")
        return JobCommits(self._folder / job)

    def erase_all_but(self, jobs: Iterable[str]) -> None:
        """Erase the commits of all jobs but some."""
        for job in set(self.jobs()) - set(jobs):
            log.info("erases the commits of a job that has ended")
            self.of(job).erase()


class JobCommits:
    """The commits of one job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, number: int, content: dict[str, Any], *, confirmed: int) -> None:
        """Make a commit last; earlier ones go, but for two that all parties have.

        Args:
            number: Of the request that it is written after.
            content: Tensors and plain values, in dicts and lists; the party's state is under `state`.
            confirmed: The last commit that all parties are known to have.
        """
        reached("commit.before")
        make_private_folder(self._folder)
        state = dict(content["state"])
        # Ids are many and never change: they are written once.
        order = json.dumps({name: state["order"][name] for name in SETS})
        state["order"] = digest = hashlib.sha256(order.encode()).hexdigest()
        kept = self._folder / _ORDER.format(digest[:16])
        if not kept.exists():
            write_atomically(kept, order, mode=0o600)
        tensors: dict[str, Tensor] = {}
        # Two names may stand for one tensor, which safetensors refuses.
        flat = flatten(copied({**content, "state": state}), tensors)
        write_tensors(self._path(number), tensors, {"content": flat}, format=COMMIT_FORMAT, mode=0o600)
        reached("commit.after")
        self._remove(obsolete(self.numbers(), confirmed=confirmed))

    def read(self, number: int) -> dict[str, Any]:
        """Return what a commit holds."""
        tensors, description = read_tensors(self._path(number), format=COMMIT_FORMAT, what="a commit")
        content: dict[str, Any] = restore(description["content"], tensors)
        state = content["state"]
        path = self._folder / _ORDER.format(state["order"][:16])
        try:
            order = path.read_bytes()
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from None
        if hashlib.sha256(order).hexdigest() != state["order"]:
            raise DataError(f"{path}: is damaged: its content does not fit the digest in the commit")
        state["order"] = json.loads(order)
        return content

    def whole(self) -> list[int]:
        """Return the commits that can be read; one that is damaged is said in the log, and is none."""
        found = []
        for number in self.numbers():
            try:
                self.read(number)
                found.append(number)
            except DataError as error:
                log.warning("a commit is not used: %s", error)
        return found

    def numbers(self) -> list[int]:
        """Return the numbers of all commits, ascending."""
        if not self._folder.is_dir():
            return []
        names = (_NAME.fullmatch(path.name) for path in self._folder.iterdir())
        return sorted(int(name[1]) for name in names if name)

    def erase_after(self, number: int) -> None:
        """Erase later commits: what comes after this one is done again."""
        self._remove(one for one in self.numbers() if one > number)

    def erase(self) -> None:
        """Erase all."""
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._folder.parent.is_dir():
            synchronise(self._folder.parent)

    def _remove(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._path(number).unlink(missing_ok=True)
        remove_unfinished(self._folder)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}.safetensors"
