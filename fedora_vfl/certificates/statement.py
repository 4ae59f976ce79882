"""A party's signed statement of its part in an unlearning, and the commitment to the ids it was asked to forget."""

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedora_vfl.certificates.attestation import Attestation, Opening, check_form, commit_to, is_job_id
from fedora_vfl.certificates.joint import JointStatement, digest
from fedora_vfl.errors import DataError, FedoraError, PartyError, unwritten
from fedora_vfl.settings.files import check
from fedora_vfl.signing import SigningKey, canonical, parse_canonical
from fedora_vfl.storage import create_privately
from fedora_vfl.wire.protocol import COORDINATOR, VERSION
from protos.fedora.v1.control_pb2 import Statement


def request_secret(own: bytes, *, job: str) -> bytes:
    """Return the secret of a job's request, drawn from a secret of the party's own: the same when it comes back."""
    return hmac.digest(own, f"request/{job}".encode(), "sha256")


def commit(keys: Path, *, job: str, party: str, ids: Iterable[str], secret: bytes) -> str:
    """Commit to the ids of a request; secret and ids, which open the commitment, are kept in the party's own folder.

    The same request of the same job gets the same commitment again, so that a party may come back and go on.
    """
    path, wanted = _kept_request(keys, job), sorted(set(ids))
    commitment = commit_to(wanted, secret, job=job)
    made = Opening(job=job, party=party, key=secret.hex(), ids=wanted, commitment=commitment)
    try:
        created = create_privately(path, canonical(made.model_dump()))
    except OSError as error:
        raise unwritten(error, f"{path}: the request cannot be kept: {error.strerror}") from None
    if not created and open_request(path) != made:
        raise DataError(f"{path}: holds another request of the same job; move it away")
    return commitment


def _kept_request(keys: Path, job: str) -> Path:
    if not is_job_id(job):
        raise PartyError(COORDINATOR, f"named the job {job!r}, which is not a name for a file")
    return keys / "requests" / f"{job}.json"


def committed_ids(keys: Path, *, job: str) -> list[str]:
    """Return the ids that this party has committed to in a job; none if it keeps no such request."""
    path = _kept_request(keys, job)
    return open_request(path).ids if path.exists() else []


def open_request(path: Path) -> Opening:
    """Read a request that a party kept. Whether it opens a commitment is for the reader to find out."""
    try:
        content = parse_canonical(path.read_bytes())
        check_form(content)
        return check(content, Opening, origin=str(path))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except FedoraError as error:
        raise DataError(f"{path}: is not a request that a party kept: {error}") from None


def statement(
    *,
    job: str,
    party: str,
    role: str,
    joint: JointStatement,
    began: str,
    commitment: str,
    dropped: int,
    remaining: int,
    phases: Mapping[str, int],
    before: Path,
    after: Path,
    change_squared: float | None,
    traffic: Mapping[str, tuple[int, int]],
    dual: Mapping[str, Any] | None = None,
    residual_squared: float | None = None,
    residual_rows: int | None = None,
    uncertainty: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Mapping[str, float | None]] | None = None,
    unseen: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Put a party's statement together; it ends here and now.

    `before` and `after` are the model files, whose digests are taken. `dual` is `{"form": "scalar",
    "omega": Ω}` or `{"form": "parameterwise", "norm": …, "largest": …, "positive_share": …, "parameters": …}`.
    `traffic` has protobuf bytes sent and received by kind of message. The active party adds `uncertainty`, `{"loss":
    L_u, "weight": ω, "classes": C, "gamma": γ}`, `metrics`, figures by model: `{"unlearned": {…}, …}`, and
    `unseen`, the last comparison with rows never seen.
    """
    content = {
        "job": job,
        "party": party,
        "role": role,
        "joint": digest(joint),
        "began": began,
        "ended": now(not_before=began),
        "software": f"fedora {VERSION}",
        "commitment": commitment,
        "rows": {"dropped": dropped, "remaining": remaining},
        "phases": dict(phases),
        "models": {"before": _saved_model(before), "after": _saved_model(after)},
        "change_squared": change_squared,
        "dual": dict(dual) if dual else None,
        "residual": None if residual_squared is None else {"squared": residual_squared, "rows": residual_rows},
        "bytes": {kind: _traffic(*counted) for kind, counted in traffic.items()},
        "uncertainty": dict(uncertainty) if uncertainty else None,
        "metrics": None if metrics is None else {model: dict(figures) for model, figures in metrics.items()},
        "unseen": dict(unseen) if unseen else None,
    }
    return check(content, Attestation, origin=f"{party}'s statement").model_dump()


def sign_statement(content: Mapping[str, Any], key: SigningKey) -> Statement:
    """Sign a statement: the message has its text, the public key and the signature."""
    text = canonical(dict(content))
    return Statement(statement=text.decode(), public_key=key.public, signature=key.sign(text))


def now(*, not_before: str = "") -> str:
    """Return the time as documents give it, in UTC; a clock that was set back meanwhile stands still until then."""
    return max(not_before, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))


def _traffic(sent: int, received: int) -> dict[str, int]:
    return {"sent": sent, "received": received}


def _saved_model(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as file:
            return {"name": path.stem, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    except OSError as error:
        raise DataError(f"{path}: the model cannot be read for its digest: {error.strerror}") from None
