"""Every error a user may meet: one sentence that can be acted on, and the exit code it ends the process with."""

import errno
from typing import ClassVar

from protos.fedora.v1.failure_pb2 import Failure

MOST_LETTERS = 2000  # of a reason that came from elsewhere; a list of wrong settings is shorter


class FedoraError(Exception):
    """The base of all errors that are shown to a user as one sentence, without a traceback."""

    exit_code: ClassVar[int] = 1
    meaning: ClassVar[str] = "a fault of this software; the log of the process has the details"
    kind: "Failure.Kind" = Failure.INTERNAL


class SettingsError(FedoraError):
    """A settings file, or a value on the command line, cannot be used."""

    exit_code = 2
    meaning = "a settings file or an option is wrong; the sentence names the file, the field and what is allowed"
    kind = Failure.SETTINGS


class DataError(FedoraError):
    """A data or model file cannot be read or does not hold what it should."""

    exit_code = 3
    meaning = "a data or model file is missing, unreadable, or does not fit"
    kind = Failure.DATA


class StorageError(DataError):
    """A disk is full, or a folder cannot be written to, which somebody can mend while a job waits."""

    kind = Failure.STORAGE

    # Faults of a disk, or of a folder's owner, that a job waits for; what else is wrong with a file stays wrong.
    MENDABLE: ClassVar[tuple[int, ...]] = (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EIO,
        errno.EACCES,
        errno.EPERM,
        errno.ESTALE,
    )


def unwritten(error: OSError, said: str) -> DataError:
    """Return what is said of a file that could not be written."""
    return (StorageError if error.errno in StorageError.MENDABLE else DataError)(said)


class PartyError(FedoraError):
    """A party or the coordinator is missing, failed, went silent or broke the protocol."""

    exit_code = 4
    meaning = "a party or the coordinator is missing, failed, went silent or broke the protocol"

    def __init__(self, culprit: str, reason: str, kind: "Failure.Kind" = Failure.PROTOCOL, *, other: str = "") -> None:
        """`other` is the party whose phase is another than this one's, where the coordinator seems to be at fault."""
        super().__init__(f"{culprit} {reason}")
        self.culprit = culprit
        self.reason = reason
        self.kind = kind
        self.other = other


class TooLargeError(PartyError):
    """A member sent more than was due; the beginning of it may tell why."""

    def __init__(self, culprit: str, reason: str, head: bytes) -> None:
        super().__init__(culprit, reason, Failure.PROTOCOL)
        self.head = head


class LedgerError(FedoraError):
    """The two ends of a link counted different bytes."""

    exit_code = 5
    meaning = "the two ends of a link counted different bytes"
    kind = Failure.LEDGER


class PortError(FedoraError):
    """An address cannot be listened on."""

    exit_code = 6
    meaning = "an address to listen on is taken, or is not this machine's"


class CertificateError(FedoraError):
    """An unlearning certificate does not hold, or cannot be made from what the parties signed."""

    exit_code = 7
    meaning = "an unlearning certificate does not hold, or cannot be made; the list of checks says where"
    kind = Failure.CERTIFICATE


class UncheckedError(FedoraError):
    """Nothing is wrong with an unlearning certificate, but anybody could have signed it."""

    exit_code = 8
    meaning = (
        "an unlearning certificate was not checked: nothing given from outside vouches for the keys it is signed with"
    )


class StoppedError(FedoraError):
    """The user stopped the work, or a supervisor did."""

    exit_code = 130
    meaning = "stopped by Ctrl-C or SIGTERM"
    kind = Failure.ABORTED


ALL: tuple[type[FedoraError], ...] = (
    FedoraError,
    SettingsError,
    DataError,
    PartyError,
    LedgerError,
    PortError,
    CertificateError,
    UncheckedError,
    StoppedError,
)


def to_failure(error: FedoraError, *, reporter: str) -> Failure:
    """Put an error into the message that carries it; what is nobody else's fault is the reporter's."""
    if isinstance(error, PartyError):
        return Failure(kind=error.kind, culprit=error.culprit, reason=error.reason, other=error.other)
    return Failure(kind=error.kind, culprit=reporter, reason=str(error))


def in_one_line(text: str) -> str:
    """Return a text from elsewhere so that it cannot steer a terminal or pass for a line of its own."""
    lines = "; ".join(line.strip() for line in text[:MOST_LETTERS].splitlines())
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in lines)


def from_failure(failure: Failure) -> FedoraError:
    """Turn a received failure into the error to raise here; its words are data, whatever is in them."""
    failure = Failure(kind=failure.kind, culprit=in_one_line(failure.culprit), reason=in_one_line(failure.reason))
    for error in (SettingsError, DataError, LedgerError, CertificateError, StoppedError):
        if failure.kind == error.kind:
            return error(f"{failure.culprit}: {failure.reason}" if failure.culprit else failure.reason)
    return PartyError(failure.culprit, failure.reason, failure.kind)


def from_exit_code(code: int) -> type[FedoraError]:
    """Return the error class that an exit code stands for."""
    return next((error for error in ALL if error.exit_code == code), FedoraError)
