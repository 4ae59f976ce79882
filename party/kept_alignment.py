"""The alignment that a party keeps from job to job: the common rows in their order, for its owner alone to read."""

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from fedora_vfl.errors import DataError, unwritten
from fedora_vfl.storage import write_atomically
from party.many_ids import as_json, in_order, set_of, without
from party.masking import as_bytes
from protos.fedora.v1.exchange_pb2 import Order

KEPT_FILE = "alignment.json"
SECRET_BYTES = 32
SETS = ("train", "validation", "test", "probe")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KeptAlignment:
    """The common rows of an earlier job, and what else was offered then."""

    parties: tuple[str, ...]
    secret: bytes  # the same at all parties of that alignment
    order: Order
    others: str  # a digest of the ids that were offered and are not common

    @cached_property
    def rows(self) -> list[str]:
        """All common ids, set by set."""
        return rows_of(self.order)

    @cached_property
    def digest(self) -> bytes:
        """What the alignment goes by; it can be made only by those who took part."""
        return _digest(
            self.secret, b"common rows", [part for name in SETS for part in (name, *getattr(self.order, name))]
        )

    def gone(self, ids: Iterable[str]) -> list[int]:
        """Return the places of common rows that are not among these ids."""
        held = set_of(ids)
        return [place for place, one in enumerate(self.rows) if one not in held]

    def changed(self, ids: Iterable[str]) -> bool:
        """Tell whether others than then are offered beside the common rows."""
        return digest_of_others(self.secret, ids, self.rows) != self.others

    def without(self, gone: Sequence[int]) -> Order:
        """Return the order without some places."""
        left_out, left, at = set(gone), Order(), 0
        for name in SETS:
            ids = getattr(self.order, name)
            getattr(left, name).extend(one for place, one in enumerate(ids, at) if place not in left_out)
            at += len(ids)
        return left


def rows_of(order: Order) -> list[str]:
    """Return all ids of an order, set by set."""
    return [one for name in SETS for one in getattr(order, name)]


def are_places(places: Sequence[int], rows: int) -> bool:
    """Tell whether numbers can be places among so many rows, each once and ascending."""
    return not places or (places[-1] < rows and all(one < other for one, other in pairwise(places)))


def digest_of_others(secret: bytes, ids: Iterable[str], common: Iterable[str]) -> str:
    """Return a digest of the ids that are not common, whatever their order."""
    return _digest(secret, b"other rows", in_order(without(ids, set_of(common)))).hex()


def read_kept(keys: Path, parties: Sequence[str]) -> KeptAlignment | None:
    """Return the alignment that a party keeps, if it was made among the same parties; a damaged one does not count."""
    path = keys / KEPT_FILE
    try:
        content = json.loads(path.read_bytes())
        order = Order(**{name: content["order"][name] for name in SETS})
        kept = KeptAlignment(tuple(content["parties"]), bytes.fromhex(content["secret"]), order, content["others"])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{path}: the kept alignment cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        log.warning("%s: is damaged, or is no kept alignment, and is made anew", path)
        return None
    return kept if kept.parties == tuple(parties) and len(kept.secret) == SECRET_BYTES else None


def keep(keys: Path, kept: KeptAlignment) -> None:
    """Write an alignment in the place of an earlier one."""
    content = {
        "parties": list(kept.parties),
        "secret": kept.secret.hex(),
        "others": kept.others,
    }
    order = ", ".join(f'"{name}": {as_json(getattr(kept.order, name))}' for name in SETS)
    text = f'{json.dumps(content)[:-1]}, "order": {{{order}}}}}'
    try:
        keys.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(keys / KEPT_FILE, text, mode=0o600)
    except OSError as error:
        raise unwritten(error, f"{keys / KEPT_FILE}: the alignment cannot be kept: {error.strerror}") from None


def fresh_alignment_secret() -> bytes:
    """Return a secret for a new alignment."""
    return os.urandom(SECRET_BYTES)


def _digest(secret: bytes, what: bytes, ids: Iterable[str]) -> bytes:
    digest = hashlib.blake2b(what, digest_size=32, key=secret)
    for one in ids:
        written = as_bytes(one)
        digest.update(len(written).to_bytes(8, "little") + written)
    return digest.digest()
