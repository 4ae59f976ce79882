"""What two parties of a private alignment agree on, though a third passes their messages on."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedora_vfl.errors import PartyError
from fedora_vfl.signing import SigningKey, verify
from fedora_vfl.wire.masking import POINT_BYTES, TAG_BYTES
from party.masking import BadPointError, as_bytes, fresh_secret, public_point, times
from party.share_table import Words

_PERSON_SHARE, _PERSON_TAG = b"fedora-share", b"fedora-tag"


@dataclass(frozen=True)
class FreshKey:
    """A party's key for one alignment, with its signature; the secret stays in memory."""

    party: str
    job: str
    secret: bytes
    public: bytes
    signature: str

    @classmethod
    def made(cls, party: str, job: str, signing: SigningKey | None) -> "FreshKey":
        """Draw a key, and sign it with the party's own."""
        secret = fresh_secret()
        public = public_point(secret)
        return cls(party, job, secret, public, signing.sign(_signed(job, party, public)) if signing else "")

    def agreed(self, other: str, public: bytes) -> bytes:
        """Return the key that this party and another have in common, and nobody else."""
        try:
            (shared,) = times(self.secret, [public])
        except BadPointError as error:
            raise PartyError(other, f"sent a key that {error}") from None
        ends = sorted([(self.party, self.public), (other, public)])
        told = b"".join(name.encode() + b"\0" + point for name, point in ends)
        return hashlib.blake2b(shared + told, digest_size=32, person=b"fedora-agreed").digest()


def check_key(party: str, public: bytes, signature: str, *, job: str, known: Mapping[str, str], sender: str) -> None:
    """Refuse a key that is no point, or that its party has not signed, where its signing key is known.

    Args:
        party: Whose key it is.
        public: The key.
        signature: Its party's.
        job: What it was made for.
        known: The signing keys of members, as the federation file has them.
        sender: Who sent or passed it on.
    """
    if len(public) != POINT_BYTES:
        raise PartyError(sender, f"sent a key of {party} that has {len(public)} bytes; it should have {POINT_BYTES}")
    if party in known and not verify(known[party], _signed(job, party, public), signature):
        reason = f"sent a key for the alignment that {party} has not signed with the key that the federation file names"
        raise PartyError(sender, reason)


def check_different(keys: Sequence[bytes], *, sender: str) -> None:
    """Refuse the same key twice: fresh ones are different."""
    if len(set(keys)) < len(keys):
        raise PartyError(sender, "sent a key for the alignment that another party has, too")


def shares(ids: Sequence[str], keys: Iterable[bytes]) -> Words:
    """Return two words for every id: they look random, and those of all passive parties come to nothing when added.

    Every two parties have a key in common and add the same words, which fall out of the sum of both.
    """
    total = np.zeros((len(ids), 2), dtype=np.uint64)
    for key in keys:
        total ^= _keyed(ids, key, _PERSON_SHARE)
    return total


def tags(ids: Sequence[str], key: bytes) -> bytes:
    """Return what stands for ids between two parties that have a key in common."""
    return _keyed(ids, key, _PERSON_TAG).tobytes()


def _keyed(ids: Sequence[str], key: bytes, person: bytes) -> Words:
    blake2b = hashlib.blake2b
    whole = b"".join(blake2b(as_bytes(one), digest_size=TAG_BYTES, key=key, person=person).digest() for one in ids)
    return np.frombuffer(whole, dtype="<u8").reshape(-1, 2)


def _signed(job: str, party: str, public: bytes) -> bytes:
    return b"fedora alignment key\0" + f"{job}\0{party}\0".encode() + public
