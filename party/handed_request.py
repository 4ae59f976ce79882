"""Deletion requests that are handed in at a party: the ids stay there, and a job knows the request by its name."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from fedora_vfl.certificates.attestation import Record, Time
from fedora_vfl.certificates.statement import now
from fedora_vfl.errors import DataError, FedoraError, PartyError, SettingsError
from fedora_vfl.settings.files import check
from fedora_vfl.settings.model import MODEL_NAME
from fedora_vfl.signing import canonical, parse_canonical
from fedora_vfl.storage import create_privately
from fedora_vfl.wire.protocol import COORDINATOR, MOST_REQUESTED_IDS

FOLDER = "handed"


class HandedRequest(Record):
    """Whom somebody asked this party to have forgotten."""

    name: str
    time: Time
    ids: Annotated[list[str], Field(min_length=1, max_length=MOST_REQUESTED_IDS)]


def hand_in(keys: Path, name: str, ids: Sequence[str]) -> HandedRequest:
    """Keep a request in a party's own folder, for nobody else to read."""
    if not re.fullmatch(MODEL_NAME, name):
        raise SettingsError(f"--name: {name!r} is not a name: letters, digits, '.', '_' and '-', at most 100")
    made = HandedRequest(name=name, time=now(), ids=sorted(set(ids)))
    path = keys / FOLDER / f"{name}.json"
    try:
        created = create_privately(path, canonical(made.model_dump()))
    except OSError as error:
        raise DataError(f"{path}: the request cannot be kept: {error.strerror}") from None
    if not created:
        raise SettingsError(f"--name: a request of the name {name!r} was handed in already; choose another")
    return made


def read_handed(keys: Path, name: str) -> HandedRequest | None:
    """Return the request of a name, if it was handed in here."""
    if not re.fullmatch(MODEL_NAME, name):
        raise PartyError(COORDINATOR, f"asked for a request named {name!r}, which is not a name")
    path = keys / FOLDER / f"{name}.json"
    try:
        return check(parse_canonical(path.read_bytes()), HandedRequest, origin=str(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{path}: the request cannot be read: {error.strerror}") from None
    except FedoraError as error:
        raise DataError(f"{path}: is damaged, or is no request: {error}") from None


def handed_rows(keys: Path, name: str, training: Sequence[str]) -> list[int]:
    """Return the places of a request's ids among the training rows; whoever is not there changes nothing."""
    handed = read_handed(keys, name)
    wanted = set(handed.ids) if handed else set()
    return [place for place, one in enumerate(training) if one in wanted]


def as_bits(places: Sequence[int], rows: int) -> bytes:
    """Write places among some rows as a bit for each row, so that the size says nothing of them."""
    bits = np.zeros(rows, dtype=np.uint8)
    bits[list(places)] = 1
    return np.packbits(bits).tobytes()


def bits_bytes(rows: int) -> int:
    """Return how many bytes hold a bit for each of some rows."""
    return -(-rows // 8)


def from_bits(bits: bytes, rows: int) -> list[int] | None:
    """Return the places that bits stand for; None if they are not of so many rows."""
    every = np.unpackbits(np.frombuffer(bits, dtype=np.uint8))
    if len(bits) != bits_bytes(rows) or every[rows:].any():
        return None
    return [int(place) for place in np.flatnonzero(every[:rows])]
