"""Commits: what a party has made last of its jobs, so that a new process of it goes on where the last one was.

A commit is one file, by the number of the request that it was written after. It is for the owner's eyes alone: it holds
what was asked to be forgotten. It is erased when its job ends.
"""

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from fedora_vfl.certificates.attestation import is_job_id
from fedora_vfl.errors import DataError, PartyError
from fedora_vfl.fault_points import reached
from fedora_vfl.storage import make_private_folder, remove_unfinished, synchronise, write_atomically
from fedora_vfl.wire.protocol import COORDINATOR
from party.state import ids_in
from party.tensor_files import flatten, read_tensors, restore, write_tensors
from protos.fedora.v1.exchange_pb2 import Order

COMMIT_FORMAT = "fedora-commit-2"
KEPT = 2  # commits that all parties are known to have
# Commits that all parties are not known to have. A coordinator that keeps the rules says so with its next request.
MOST_UNCONFIRMED = 32
_NAME = re.compile(r"(\d{8})\.safetensors")
_ORDER = "order-{}.json"

log = logging.getLogger(__name__)


def obsolete(held: Iterable[int], *, confirmed: int) -> list[int]:
    """Return the commits that nobody will go back to; `confirmed` is the last one that all parties have."""
    return sorted(one for one in held if one <= confirmed)[:-KEPT]


def _names_in(folder: Path) -> list[str]:
    """Return what is in a folder; nothing if it is not there, or is gone meanwhile."""
    try:
        return [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []


class Commits:
    """The commits of one party, by job."""

    def __init__(self, keys: Path) -> None:
        """They are kept in a party's folder of keys."""
        self._folder = keys / "commits"
        self._known: dict[str, JobCommits] = {}

    def jobs(self) -> list[str]:
        """Return the jobs of which there are commits."""
        return sorted(name for name in _names_in(self._folder) if is_job_id(name))

    def of(self, job: str) -> "JobCommits":
        """Return the commits of one job."""
        if not is_job_id(job):
            raise PartyError(COORDINATOR, f"named the job {job!r}, which is not a name for a file")
        return self._known.setdefault(job, JobCommits(self._folder / job))

    def erase(self, job: str) -> None:
        """Erase the commits of one job."""
        self.of(job).erase()
        del self._known[job]

    def erase_all_but(self, jobs: Iterable[str]) -> None:
        """Erase the commits of all jobs but some."""
        for job in set(self.jobs()) - set(jobs):
            log.info("erases the commits of a job that has ended")
            self.erase(job)


@dataclass(frozen=True)
class Snapshot:
    """What a commit holds, as it was at one moment: what the party does meanwhile changes nothing of it."""

    order: Order  # the rows' ids, which never change
    flat: Any
    tensors: Mapping[str, Tensor]

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Snapshot":
        """Take one of tensors and plain values, in dicts and lists; the party's state is under `state`."""
        state = dict(content["state"])
        order = state.pop("order")
        tensors: dict[str, Tensor] = {}
        flat = flatten({**content, "state": state}, tensors)
        # Copies also because two names may stand for one tensor, which safetensors refuses.
        return cls(order, flat, {name: value.detach().clone() for name, value in tensors.items()})


class JobCommits:
    """The commits of one job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._order: Order | None = None  # the ids that this object has written
        self._order_digest = ""

    def write(self, number: int, content: dict[str, Any], *, confirmed: int) -> None:
        """Make a commit last, as `save` does."""
        self.save(number, Snapshot.of(content), confirmed=confirmed)

    def save(self, number: int, snapshot: "Snapshot", *, confirmed: int) -> None:
        """Make a commit last; earlier ones go, but for two that all parties have. Any thread may do it.

        Args:
            number: Of the request that it is written after.
            snapshot: What it holds.
            confirmed: The last commit that all parties are known to have.
        """
        if sum(one > confirmed for one in self.numbers()) >= MOST_UNCONFIRMED:
            raise PartyError(COORDINATOR, f"has confirmed none of the last {MOST_UNCONFIRMED} commits")
        reached("commit.before")
        make_private_folder(self._folder)
        if snapshot.order is not self._order:
            # Ids are many and never change: they are written once by each process, as a disk may have changed a byte.
            self._order_digest = self._write_order(snapshot.order)
            self._order = snapshot.order
        description = {"content": snapshot.flat, "order": self._order_digest}
        write_tensors(self._path(number), snapshot.tensors, description, format=COMMIT_FORMAT, mode=0o600)
        reached("commit.after")
        self._remove(obsolete(self.numbers(), confirmed=confirmed))

    def _write_order(self, order: Order) -> str:
        """Write the ids of all rows beside the commits, and return their digest."""
        content = json.dumps(ids_in(order))
        digest = hashlib.sha256(content.encode()).hexdigest()
        write_atomically(self._folder / _ORDER.format(digest[:16]), content, mode=0o600)
        return digest

    def read(self, number: int) -> dict[str, Any]:
        """Return what a commit holds."""
        tensors, description = read_tensors(self._path(number), format=COMMIT_FORMAT, what="a commit")
        content: dict[str, Any] = restore(description["content"], tensors)
        digest = description["order"]
        path = self._folder / _ORDER.format(digest[:16])
        try:
            order = path.read_bytes()
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from None
        if hashlib.sha256(order).hexdigest() != digest:
            raise DataError(f"{path}: is damaged: its content does not fit the digest in the commit")
        content["state"]["order"] = json.loads(order)
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
                self._order = None  # the file of ids may be what is damaged
        return found

    def numbers(self) -> list[int]:
        """Return the numbers of all commits, ascending."""
        names = map(_NAME.fullmatch, _names_in(self._folder))
        return sorted(int(name[1]) for name in names if name)

    def erase_after(self, number: int) -> None:
        """Erase later commits: what comes after this one is done again."""
        self._remove(one for one in self.numbers() if one > number)
        # One that came back after a loss of power would pass for the commit of another attempt.
        if self._folder.is_dir():
            synchronise(self._folder)

    def erase(self) -> None:
        """Erase all."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._order = None
        try:
            synchronise(self._folder.parent)
        except FileNotFoundError:
            return  # there were none
        except OSError as error:
            log.warning("%s: may come back after a loss of power: %s", self._folder, error.strerror)

    def _remove(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._path(number).unlink(missing_ok=True)
        remove_unfinished(self._folder)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}.safetensors"
