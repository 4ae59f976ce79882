"""What a party has dropped for good: a list that names nobody, and whose rows every later job leaves out.

An id stands on the list as HMAC-SHA256 under a key that never leaves the party. The list goes by id, so that a row does
not come back in another file, or in the same file under another name.
"""

import hmac
import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fedora_vfl.certificates.attestation import Digest, JobId, Record, Time
from fedora_vfl.errors import DataError, FedoraError, SettingsError, unwritten
from fedora_vfl.settings.files import check
from fedora_vfl.signing import canonical, parse_canonical
from fedora_vfl.storage import create_privately, held, write_atomically

LIST_FILE, KEY_FILE, LOCK_FILE = "dropped.json", "dropped.key", "dropped.lock"
KEY_BYTES = 32


class DroppedRequest(Record):
    """A request whose rows were dropped."""

    job: JobId
    time: Time
    rows: Annotated[int, Field(ge=1)]  # when they were dropped, also if some were readmitted since
    marks: list[Digest]  # what stands for the ids


class Readmission(Record):
    """A row that its party has taken back, and why."""

    time: Time
    job: JobId  # of the request that had it dropped
    reason: str


class _Content(Record):
    requests: list[DroppedRequest]
    readmitted: list[Readmission]


@dataclass(frozen=True)
class DropList:
    """The list as it was at one moment."""

    key: bytes
    requests: tuple[DroppedRequest, ...] = ()
    readmitted: tuple[Readmission, ...] = ()

    def __contains__(self, one: object) -> bool:
        """Tell whether an id is on the list."""
        return bool(self._marks) and isinstance(one, str) and self.mark(one) in self._marks

    @property
    def jobs(self) -> list[str]:
        """The requests, by the jobs that brought them."""
        return [request.job for request in self.requests]

    def mark(self, one: str) -> str:
        """Return what stands for an id on the list."""
        return hmac.digest(self.key, one.encode(), "sha256").hex()

    def lacking(self, honoured: Iterable[str]) -> list[DroppedRequest]:
        """Return the requests that are not among those that a model has honoured."""
        known = set(honoured)
        return [request for request in self.requests if request.job not in known]

    def without(self, requests: Collection[DroppedRequest]) -> "DropList":
        """Return the list as it would be without some requests."""
        return replace(self, requests=tuple(one for one in self.requests if one not in requests))

    @cached_property
    def _marks(self) -> frozenset[str]:
        return frozenset(mark for request in self.requests for mark in request.marks)


def nothing_dropped() -> DropList:
    """Return the list of a party that keeps none."""
    return DropList(b"")


def read_list(keys: Path) -> DropList:
    """Return the list kept in a party's folder of keys; the first call makes an empty one."""
    path, secret = keys / LIST_FILE, keys / KEY_FILE
    try:
        if _is_new(path, secret):
            # The list first: an empty one without a key, as a process may leave it that ends in between, is new too.
            create_privately(path, _canonical(nothing_dropped()))
            create_privately(secret, secrets.token_hex(KEY_BYTES).encode())
        return _parsed(_key(secret), path)
    except OSError as error:
        said = f"{path}: the list of dropped rows cannot be read or made: {error.strerror}"
        raise unwritten(error, said) from None


def _is_new(path: Path, secret: Path) -> bool:
    """Tell whether there has never been a list; one without its key, and a key without its list, are an error."""
    if path.exists() and not secret.exists():
        if path.read_bytes() == _canonical(nothing_dropped()):
            return True
        raise DataError(f"{path}: its key {secret} is missing: bring it back, as without it the list says nothing")
    if secret.exists() and not path.exists():
        lost = "the list of dropped rows is missing, and rows on it would be trained on again: bring it back"
        raise DataError(f"{path}: {lost}; if nothing was ever dropped here, delete {secret}")
    return not path.exists()


def drop_for_good(keys: Path, *, job: str, ids: Sequence[str]) -> DropList:
    """Put a request's ids on the list; when this returns they are on disk. The same job changes nothing again."""
    with _changing(keys) as dropped:
        if job in dropped.jobs:
            return dropped
        request = DroppedRequest(job=job, time=_now(), rows=len(ids), marks=sorted(map(dropped.mark, ids)))
        return _write(keys, replace(dropped, requests=(*dropped.requests, request)))


def readmit(keys: Path, one: str, *, reason: str) -> DropList:
    """Take one id off the list, for a reason that is kept; requests stay, so that no earlier model comes back."""
    if not reason.strip():
        raise SettingsError("--reason: say why this row may be trained on again; it is kept with the list")
    with _changing(keys) as dropped:
        if one not in dropped:
            raise SettingsError(f"--readmit: {one!r} is not on the list")
        mark = dropped.mark(one)
        kept, taken = [], list(dropped.readmitted)
        for request in dropped.requests:
            if mark in request.marks:
                taken.append(Readmission(time=_now(), job=request.job, reason=reason))
                request = request.model_copy(update={"marks": [other for other in request.marks if other != mark]})
            kept.append(request)
        return _write(keys, replace(dropped, requests=tuple(kept), readmitted=tuple(taken)))


def remove_lock(keys: Path) -> None:
    """Remove the lock that a process has left which was killed while it changed the list."""
    if (keys / LOCK_FILE).exists():
        with suppress(BlockingIOError), held(keys / LOCK_FILE, wait=False):
            pass


def bring_list(earlier: Path, keys: Path) -> None:
    """Copy the list of one folder of keys, if it has one, into another that has none."""
    try:
        for name in (KEY_FILE, LIST_FILE):
            if (earlier / name).exists():
                create_privately(keys / name, (earlier / name).read_bytes())
    except OSError as error:
        raise DataError(f"{earlier}: its list of dropped rows cannot be brought along: {error.strerror}") from None


@contextmanager
def _changing(keys: Path) -> Iterator[DropList]:
    """Read the list in order to change it, while no other process does."""
    try:
        with held(keys / LOCK_FILE, wait=True):
            yield read_list(keys)
    except OSError as error:
        said = f"{keys / LIST_FILE}: the list of dropped rows cannot be kept: {error.strerror}"
        raise unwritten(error, said) from None


def _write(keys: Path, dropped: DropList) -> DropList:
    write_atomically(keys / LIST_FILE, _canonical(dropped), mode=0o600)
    return dropped


def _canonical(dropped: DropList) -> bytes:
    content = _Content(requests=list(dropped.requests), readmitted=list(dropped.readmitted))
    return canonical(content.model_dump())


def _parsed(key: bytes, path: Path) -> DropList:
    try:
        content = check(parse_canonical(path.read_bytes()), _Content, origin=str(path))
    except FedoraError as error:
        raise DataError(f"{path}: is damaged, or is no list of dropped rows; bring it back: {error}") from None
    return DropList(key, tuple(content.requests), tuple(content.readmitted))


def _key(path: Path) -> bytes:
    """Read the key, unless others might have read it too."""
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        raise SettingsError(f"{path}: others may read this key (mode {mode:o}); run: chmod 600 {path}")
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise DataError(f"{path}: is damaged, or is no key of a list of dropped rows; bring it back")
    return key


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
