"""A table that answers every id with 16 bytes: those of its maker for the maker's ids, random ones for all others.

It is a garbled cuckoo table: an id has three slots, and its answer is what they come to, added bit by bit. Nobody can
tell from the table, or from an answer, which ids it was made for.
"""

import hashlib
import os

import numpy as np
from numpy.typing import NDArray

from fedora_vfl.wire.masking import POINT_BYTES, slots_in_third

SALT_BYTES = 16
_PERSON = b"fedora-slots"
_WORDS = 5  # of a digest: two that hide the answer, three that choose the slots
_ATTEMPTS = 64  # more than will ever be needed: an attempt fails about once in ten thousand times

Words = NDArray[np.uint64]
Places = NDArray[np.int64]


def fresh_salt() -> bytes:
    """Return what the slots of a table's ids depend on."""
    return os.urandom(SALT_BYTES)


def digests(points: bytes, salt: bytes) -> Words:
    """Return five words for every doubly hidden id: what hides its answer, and where its slots are."""
    size, blake2b = 8 * _WORDS, hashlib.blake2b
    each = (points[at : at + POINT_BYTES] for at in range(0, len(points), POINT_BYTES))
    whole = b"".join(blake2b(one, digest_size=size, salt=salt, person=_PERSON).digest() for one in each)
    return np.frombuffer(whole, dtype="<u8").reshape(-1, _WORDS)


def made(points: bytes, answers: Words, *, room_for: int) -> tuple[bytes, Words]:
    """Return a salt and a table in which these ids have these answers.

    Args:
        points: What stands for the ids, different for each, one after the other.
        answers: Two words for each.
        room_for: The number of ids that the table seems to be made for.
    """
    for _ in range(_ATTEMPTS):
        salt = fresh_salt()
        words = digests(points, salt)
        places = _places(words, slots_in_third(room_for))
        rounds = _peeled(places, 3 * slots_in_third(room_for))
        if rounds is not None:
            return salt, _filled(places, rounds, answers ^ words[:, :2], 3 * slots_in_third(room_for))
    raise RuntimeError("no table of shares could be made: ids are not different from each other")


def answers_of(table: Words, words: Words) -> Words:
    """Return what a table answers for some digests."""
    one, two, three = _places(words, len(table) // 3)
    return np.asarray(words[:, :2] ^ table[one] ^ table[two] ^ table[three])


def _places(words: Words, third: int) -> Places:
    """Return the slots of every digest, one in each third of the table."""
    places = (words[:, 2:] % np.uint64(third)).astype(np.int64).T
    return np.ascontiguousarray(places) + third * np.arange(3).reshape(3, 1)


def _peeled(places: Places, slots: int) -> list[tuple[Places, Places]] | None:
    """Return ids with a slot of their own each, in rounds: no later round's id has a slot of an earlier round.

    None if some ids have only slots that others have too.
    """
    count = places.shape[1]
    users = np.bincount(places.ravel(), minlength=slots)
    total = np.zeros(slots, dtype=np.int64)  # of the numbers of a slot's ids: where there is one, its number
    for third in places:
        np.add.at(total, third, np.arange(count))
    rounds, done = [], 0
    alone = np.flatnonzero(users == 1)
    while len(alone):
        found, first = np.unique(total[alone], return_index=True)
        rounds.append((found, alone[first]))
        done += len(found)
        touched = places[:, found].ravel()
        np.subtract.at(users, touched, 1)
        np.subtract.at(total, touched, np.tile(found, 3))
        touched = np.unique(touched)
        alone = touched[users[touched] == 1]
    return rounds if done == count else None


def _filled(places: Places, rounds: list[tuple[Places, Places]], values: Words, slots: int) -> Words:
    """Return a table of random words in which every id's slots come to its value."""
    table = np.frombuffer(os.urandom(16 * slots), dtype="<u8").reshape(slots, 2).copy()
    for found, slot in reversed(rounds):
        one, two, three = places[:, found]
        table[slot] ^= values[found] ^ table[one] ^ table[two] ^ table[three]
    return table
