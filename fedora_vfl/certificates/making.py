"""certificate.json: what was asked, done and measured in one unlearning, signed by every party and the coordinator."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fedora_vfl.certificates.attestation import Attestation
from fedora_vfl.certificates.claims import claims, does_not_claim
from fedora_vfl.certificates.consistency import contradictions
from fedora_vfl.certificates.form import FORMAT, LinkBytes, PhaseBytes, final, gaps, read, sealed_bytes
from fedora_vfl.errors import CertificateError, FedoraError, PartyError
from fedora_vfl.settings.files import check
from fedora_vfl.signing import SigningKey, canonical, parse_canonical, verify
from fedora_vfl.wire.protocol import COORDINATOR, VERSION
from protos.fedora.v1.control_pb2 import Statement


def accept(party: str, message: Statement, *, job: str, active: str, keys: Mapping[str, str]) -> dict[str, Any]:
    """Return a party's signed statement as it goes into the certificate, or refuse it in that party's name.

    `keys` are the federation's public keys by member; a party that has none there may sign with any key.
    """
    text = message.statement.encode()
    if not verify(message.public_key, text, message.signature):
        raise PartyError(party, "sent a statement whose signature does not fit")
    if party in keys and keys[party] != message.public_key:
        raise PartyError(party, "signed its statement with another key than the federation file gives for it")
    try:
        content = parse_canonical(text)
        stated = check(content, Attestation, origin="statement")
    except FedoraError as error:
        raise PartyError(party, f"sent a statement that cannot be used: {error}") from None
    expected = (job, party, "active" if party == active else "passive")
    if (stated.job, stated.party, stated.role) != expected:
        said = f"{stated.role} party {stated.party} in job {stated.job}"
        raise PartyError(party, f"sent a statement of {said}, not its own of job {job}")
    return {"statement": content, "public_key": message.public_key, "signature": message.signature}


def certificate(
    *,
    job: str,
    key: SigningKey,
    active: str,
    statements: Mapping[str, Statement],
    keys: Mapping[str, str],
    kind: str,
    method: str,
    settings: Mapping[str, Any],
    rounds: int,
    stopped: str,
    goal: str | None = None,
    dual: str | None = None,
    classes: Sequence[str] | None = None,
    percent: float | None = None,
    metrics: Mapping[str, Mapping[str, float | None]] | None = None,
    traffic: Mapping[str, Any] | None = None,
    seconds: float | None = None,
) -> str:
    """Put the parties' statements and the coordinator's own account together, sign the whole, return the file's text.

    `kind` is ids, classes (with `classes` and `percent`) or samples; `dual` is scalar, parameterwise or None; `metrics`
    are figures by model (original, unlearned, retrain); `traffic` is the ledger's summary of the whole job.
    """
    signed = {name: accept(name, one, job=job, active=active, keys=keys) for name, one in sorted(statements.items())}
    stated = {name: check(one["statement"], Attestation, origin=name) for name, one in signed.items()}
    standing = final(stated, active)
    shortfall, stationarity = standing["constraint_residual"], standing["stationarity_residual"]
    figures = {model: dict(one) for model, one in (metrics or {}).items()}
    content: dict[str, Any] = {
        "format": FORMAT,
        "job": job,
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "software": f"fedora {VERSION}",
        "request": {
            "kind": kind,
            "rows": stated[active].rows.dropped,
            "classes": None if classes is None else list(classes),
            "percent": percent,
            "commitments": {name: one.commitment for name, one in stated.items()},
        },
        "method": {
            "name": method,
            "settings": dict(settings),
            "goal": goal,
            "dual": dual,
            "rounds": rounds,
            "stopped": stopped,
        },
        "final": standing,
        "models": {name: one.models.model_dump() for name, one in stated.items()},
        "rows": {name: one.rows.model_dump() for name, one in stated.items()},
        "metrics": figures,
        "gaps": gaps(figures),
        "bytes": None if traffic is None else _known(traffic),
        "seconds": seconds,
        "claims": claims(dual, shortfall),
        "does_not_claim": does_not_claim(dual, goal, shortfall, stationarity),
        "statements": signed,
    }
    sealed = content | {COORDINATOR: {"public_key": key.public, "signature": key.sign(sealed_bytes(content))}}
    if broken := contradictions(read(sealed)):
        raise CertificateError(f"the parties' statements do not fit together: {broken[0]}")
    return canonical(sealed).decode()


def _known(traffic: Mapping[str, Any]) -> dict[str, Any]:
    """Take from a ledger's summary what belongs into a certificate."""
    totals = PhaseBytes.model_fields
    return {
        **{name: traffic[name] for name in totals},
        "phases": {phase: {name: line[name] for name in totals} for phase, line in traffic["phases"].items()},
        "links": [{name: line[name] for name in LinkBytes.model_fields} for line in traffic["links"]],
    }
