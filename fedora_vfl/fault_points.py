"""Named instants of the protocol at which a test may strike; nothing happens there otherwise.

A harness starts a member through a module of its own, as tests/striking.py is one, and puts a function into `strike`.
It is told the name of each instant as it is reached, and may kill the process, or raise OSError where a disk would. The
names, in the order of a request:

    coordinator.send, party.receive             a request leaves, arrives
    exchange.send, exchange.receive             a parcel between parties leaves, has arrived
    file.before-write, file.before-sync, file.before-rename, file.after-rename, file.after-sync    of any file kept
    commit.before, commit.after                 a party's commit is about to be written, is on disk
    party.send, coordinator.receive             an answer leaves, arrives
    journal.before, journal.after               the coordinator's entries are about to be written, are on disk
    store.before, store.after                   any change of the coordinator's store is about to be written, is on disk
    resume.before, resume.after                 a party is about to go back to a commit, has gone on from it
"""

from collections.abc import Callable

strike: Callable[[str], None] | None = None


def reached(name: str) -> None:
    """Say that an instant is reached."""
    if strike:
        strike(name)
