"""A party's signed statement of its part in an unlearning, and the commitment to the ids it was asked to forget."""

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedora_vfl.certificates.attestation import Attestation, Opening, commit_to, is_job_id
from fedora_vfl.errors import DataError, FedoraError, PartyError
from fedora_vfl.settings.files import check
from fedora_vfl.signing import SigningKey, canonical, parse_canonical
from fedora_vfl.storage import create_privately
from fedora_vfl.wire.protocol import COORDINATOR, VERSION
from protos.fedora.v1.control_pb2 import Statement


def commit(keys: Path, *, job: str, party: str, ids: Iterable[str]) -> str:
    """Commit to the ids of a request; key and ids are kept in the party's own folder, where they open the commitment.

    The same request of the same job gets the same commitment again, so that a party may come back and go on.
    """
    if not is_job_id(job):
        raise PartyError(COORDINATOR, f"named the job {job!r}, which is not a name for a file")
    wanted = sorted(set(ids))
    key = secrets.token_bytes(32)
    made = Opening(job=job, party=party, key=key.hex(), ids=wanted, commitment=commit_to(wanted, key))
    path = keys / "requests" / f"{job}.json"
    try:
        if create_privately(path, canonical(made.model_dump())):
            return made.commitment
    except OSError as error:
        raise DataError(f"{path}: the request cannot be kept: {error.strerror}") from None
    kept = open_request(path)
    if (kept.party, kept.ids) != (party, wanted):
        raise DataError(f"{path}: holds another request of the same job; move it away")
    return kept.commitment


def open_request(path: Path) -> Opening:
    """Read a request that a party kept. Whether it opens a commitment is for the reader to find out."""
    try:
        return check(parse_canonical(path.read_bytes()), Opening, origin=str(path))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except FedoraError as error:
        raise DataError(f"{path}: is not a request that a party kept: {error}") from None


def statement(
    *,
    job: str,
    party: str,
    role: str,
    commitment: str,
    dropped: int,
    remaining: int,
    phases: Mapping[str, int],
    before: Path,
    after: Path,
    change_squared: float,
    dual: Mapping[str, Any] | None = None,
    residual_squared: float | None = None,
    residual_rows: int | None = None,
    traffic: Mapping[str, tuple[int, int]] | None = None,
    uncertainty: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Mapping[str, float | None]] | None = None,
) -> dict[str, Any]:
    """Put a party's statement together.

    `before` and `after` are the model files, whose digests are taken here and now. `dual` is `{"form": "scalar",
    "omega": Ω}` or `{"form": "parameterwise", "norm": …, "largest": …, "positive_share": …, "parameters": …}`.
    `traffic` has protobuf bytes sent and received by kind of message. The active party adds `uncertainty`, `{"loss":
    L_u, "weight": ω, "classes": C, "gamma": γ}`, and `metrics`, figures by model: `{"unlearned": {…}, …}`.
    """
    content = {
        "job": job,
        "party": party,
        "role": role,
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "software": f"fedora {VERSION}",
        "commitment": commitment,
        "rows": {"dropped": dropped, "remaining": remaining},
        "phases": dict(phases),
        "models": {"before": _saved_model(before), "after": _saved_model(after)},
        "change_squared": change_squared,
        "dual": dict(dual) if dual else None,
        "residual": None if residual_squared is None else {"squared": residual_squared, "rows": residual_rows},
        "bytes": None if traffic is None else {kind: _traffic(*counted) for kind, counted in traffic.items()},
        "uncertainty": dict(uncertainty) if uncertainty else None,
        "metrics": None if metrics is None else {model: dict(figures) for model, figures in metrics.items()},
    }
    return check(content, Attestation, origin=f"{party}'s statement").model_dump()


def sign_statement(content: Mapping[str, Any], key: SigningKey) -> Statement:
    """Sign a statement: the message has its text, the public key and the signature."""
    text = canonical(dict(content))
    return Statement(statement=text.decode(), public_key=key.public, signature=key.sign(text))


def _traffic(sent: int, received: int) -> dict[str, int]:
    return {"sent": sent, "received": received}


def _saved_model(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as file:
            return {"name": path.stem, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    except OSError as error:
        raise DataError(f"{path}: the model cannot be read for its digest: {error.strerror}") from None
