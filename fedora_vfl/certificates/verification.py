"""Checking an unlearning certificate: signatures, keys, agreement, arithmetic, model files, requests."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from fedora_vfl.certificates.attestation import Opening, SavedModel, commit_to
from fedora_vfl.certificates.consistency import consistency
from fedora_vfl.certificates.form import Certificate, read, sealed_bytes, signed_bytes
from fedora_vfl.certificates.statement import open_request
from fedora_vfl.errors import CertificateError, DataError, SettingsError
from fedora_vfl.settings.federation import Federation
from fedora_vfl.signing import parse_canonical, verify
from fedora_vfl.wire.protocol import COORDINATOR


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: it holds, it does not, or (None) it could not be checked."""

    holds: bool | None
    said: str


@dataclass(frozen=True)
class Evidence:
    """What a certificate is held against, besides itself."""

    models: Path | None = None
    federation: Federation | None = None  # who takes part
    requests: Sequence[Path] = ()
    trusted: Mapping[str, str] = field(default_factory=dict)  # keys by member, vouched for from outside


def examine(data: bytes, evidence: Evidence) -> tuple[Certificate | None, list[Check]]:
    """Check a certificate's bytes; return it, if it can be read at all, and all checks."""
    try:
        content = parse_canonical(data)
        made = read(content)
    except CertificateError as error:
        return None, [Check(False, f"the file {error}; nothing in it can be relied on")]
    except SettingsError as error:
        said = "; ".join(str(error).splitlines())
        return None, [Check(False, f"a field is missing or not of its form: {said}; nothing else was checked")]
    return made, [
        Check(True, "the file is canonical JSON, which has one way to write each value, and has every field"),
        *_signatures(made, content),
        *_members(made, evidence.federation),
        *_keys(made, evidence),
        *(Check(not broken, "; ".join(broken) if broken else what) for what, broken in consistency(made)),
        *_models(made, evidence.models),
        *_requests(made, evidence.requests),
    ]


def unvouched(made: Certificate, evidence: Evidence) -> list[str]:
    """Return the members whose keys nothing from outside vouches for."""
    return [name for name in _signers(made) if name not in evidence.trusted]


def _signers(made: Certificate) -> dict[str, str]:
    """Return everybody's key by member, as the certificate has it."""
    return {COORDINATOR: made.coordinator.public_key, **{name: one.public_key for name, one in made.statements.items()}}


def _signatures(made: Certificate, content: Mapping[str, Any]) -> Iterable[Check]:
    seal, signed = made.coordinator, signed_bytes(content)
    yield _signature("the coordinator", "the whole", verify(seal.public_key, sealed_bytes(content), seal.signature))
    for party, one in made.statements.items():
        yield _signature(party, "its statement", verify(one.public_key, signed[party], one.signature))


def _signature(who: str, what: str, fits: bool) -> Check:
    return Check(fits, f"{who} signed {what}" if fits else f"{who}'s signature does not fit: {what} was changed since")


def _members(made: Certificate, federation: Federation | None) -> Iterable[Check]:
    if federation is None:
        return
    there = (federation.active.name, sorted(federation.passive))
    if (made.parties.active, sorted(made.parties.passive)) == there:
        yield Check(True, f"the parties are those of the federation: {', '.join(federation.parties)}")
    else:
        names, here = ", ".join(sorted(federation.parties)), ", ".join(sorted(made.statements))
        yield Check(False, f"the federation's parties are {names}, the certificate's {here}, or another one is active")


def _keys(made: Certificate, evidence: Evidence) -> Iterable[Check]:
    beside = evidence.federation.keys if evidence.federation else {}
    for name, key in _signers(made).items():
        known = evidence.trusted.get(name, beside.get(name))
        if known is not None and known != key:
            yield Check(False, f"{name}'s signature is by another key than the one that is given for it")
        elif name in evidence.trusted:
            yield Check(True, f"{name} signed with the key that you gave for it")
        else:
            yield Check(None, f"whether the key that {name} signed with is its own, nothing from outside says")


def _models(made: Certificate, folder: Path | None) -> Iterable[Check]:
    if folder is None:
        yield Check(None, "the model files were not looked at: give --models with their folder")
        return
    if not any((folder / party).is_dir() for party in made.models):
        folder = folder / "models" if (folder / "models").is_dir() else folder
    for party, models in made.models.items():
        yield _model(party, "before", models.before, folder)
        yield _model(party, "after", models.after, folder)


def _model(party: str, when: str, model: SavedModel, folder: Path) -> Check:
    path = folder / party / f"{model.name}.safetensors"
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return Check(None, f"{party}'s model {when} was not looked at: there is no {path}")
    except OSError as error:
        return Check(False, f"{party}'s model {when} cannot be read: {path}: {error.strerror}")
    if digest == model.sha256:
        return Check(True, f"{party}'s model {when} is {path}")
    return Check(False, f"{party}'s model {when} is not {path}, whose digest is {digest}")


def _requests(made: Certificate, paths: Sequence[Path]) -> Iterable[Check]:
    if not paths:
        yield Check(None, "which ids were asked for was not looked at: a party can show them with --request")
    openings = []
    for path in paths:
        try:
            openings.append(opening := open_request(path))
            yield _request(made, path, opening)
        except DataError as error:
            yield Check(False, str(error))
    for one, other in combinations(openings, 2):
        yield _same_request(one, other)


def _request(made: Certificate, path: Path, opening: Opening) -> Check:
    if opening.job != made.job:
        return Check(False, f"{path}: is a request of job {opening.job}, not of {made.job}")
    signed = made.statements.get(opening.party)
    if signed is None:
        return Check(False, f"{path}: is a request to {opening.party}, who has no statement here")
    commitment = commit_to(opening.ids, bytes.fromhex(opening.key), job=opening.job)
    if not commitment == opening.commitment == signed.statement.commitment:
        return Check(False, f"{path}: these are not the ids that {opening.party} committed to")
    if len(opening.ids) != signed.statement.rows.dropped:
        dropped = signed.statement.rows.dropped
        return Check(False, f"{path}: has {len(opening.ids)} ids, but {opening.party} dropped {dropped} rows")
    return Check(True, f"the {len(opening.ids)} ids in {path} are those that {opening.party} committed to")


def _same_request(one: Opening, other: Opening) -> Check:
    """Compare what two parties were asked to forget."""
    pair, common = f"{one.party} and {other.party}", len({*one.ids} & {*other.ids})
    if (one.job, one.key, one.ids) == (other.job, other.key, other.ids):
        return Check(True, f"{pair} were asked to forget the same {common} ids")
    said = f"{common} of {len(one.ids)} and {len(other.ids)} ids are the same"
    return Check(False, f"{pair} were not asked to forget the same ids under one secret: {said}")
