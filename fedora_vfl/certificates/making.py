"""certificate.json: what was asked, done and measured in one unlearning, signed by every party and the coordinator."""

from collections.abc import Mapping
from typing import Any

from fedora_vfl.certificates.attestation import Attestation
from fedora_vfl.certificates.claims import claims, does_not_claim
from fedora_vfl.certificates.consistency import contradictions
from fedora_vfl.certificates.form import FORMAT, LinkBytes, PhaseBytes, final, read, sealed_bytes
from fedora_vfl.certificates.joint import Asked, JointStatement, digest
from fedora_vfl.errors import CertificateError, FedoraError, PartyError
from fedora_vfl.settings.files import check
from fedora_vfl.signing import SigningKey, canonical, parse_canonical, verify
from fedora_vfl.verdicts.retrains import gap_deviations, gaps
from fedora_vfl.wire.protocol import COORDINATOR
from protos.fedora.v1.control_pb2 import Statement


def accept(party: str, message: Statement, *, joint: JointStatement, keys: Mapping[str, str]) -> dict[str, Any]:
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
    expected = (joint.job, party, "active" if party == joint.parties.active else "passive")
    if (stated.job, stated.party, stated.role) != expected:
        said = f"{stated.role} party {stated.party} in job {stated.job}"
        raise PartyError(party, f"sent a statement of {said}, not its own of job {joint.job}")
    if stated.joint != digest(joint):
        raise PartyError(party, "signed another joint statement than the one that it was sent")
    return {"statement": content, "public_key": message.public_key, "signature": message.signature}


def certificate(
    *,
    joint: JointStatement,
    asked: Asked,
    statements: Mapping[str, Statement],
    key: SigningKey,
    keys: Mapping[str, str],
    traffic: Mapping[str, Any],
    seconds: float,
) -> str:
    """Put the parties' statements together, add what is the coordinator's own, sign the whole, return the file's text.

    Args:
        joint: What all parties have signed alike.
        asked: What the rows of the request have in common, which the joint statement has a digest of.
        statements: Every party's own statement.
        key: The coordinator's.
        keys: The federation's public keys by member, as far as they are known.
        traffic: The ledger's summary of the whole job.
        seconds: How long the job took.
    """
    signed = {name: accept(name, one, joint=joint, keys=keys) for name, one in sorted(statements.items())}
    stated = {name: check(one["statement"], Attestation, origin=name) for name, one in signed.items()}
    standing, metrics = final(stated, joint.parties.active), dict(stated[joint.parties.active].metrics or {})
    shortfall, stationarity = standing["constraint_residual"], standing["stationarity_residual"]
    unseen = stated[joint.parties.active].unseen
    request = {"rows": joint.request.rows, "commitment": joint.request.commitment}
    content: dict[str, Any] = {
        **joint.model_dump(),
        "format": FORMAT,
        "request": asked.model_dump() | request,
        "final": standing,
        "models": {name: one.models.model_dump() for name, one in stated.items()},
        "rows": {name: one.rows.model_dump() for name, one in stated.items()},
        "metrics": metrics,
        "gaps": gaps(metrics),
        "gap_deviations": gap_deviations(metrics),
        "bytes": _known(traffic),
        "seconds": seconds,
        "claims": claims(joint.method.dual, shortfall, stationarity, unseen),
        "does_not_claim": does_not_claim(joint.method.dual, joint.method.goal, shortfall, stationarity, unseen),
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
