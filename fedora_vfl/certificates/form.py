"""The form of an unlearning certificate, field by field, and the arithmetic between its fields."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from fedora_vfl.certificates.attestation import (
    Attestation,
    Digest,
    Dual,
    Figures,
    JobId,
    Models,
    Name,
    ParameterwiseDual,
    Record,
    Rows,
    ScalarDual,
    Time,
    Uncertainty,
    Unseen,
    check_form,
)
from fedora_vfl.certificates.joint import Asked, JointRequest, JointStatement, Method, ModelNames, Parties, digest
from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.files import check
from fedora_vfl.signing import canonical
from fedora_vfl.wire.protocol import COORDINATOR

# Raised whenever a field, or a sentence in claims.py, changes: a certificate is held to the form and words of its time.
FORMAT = "fedora-certificate-4"

NO_SLACKNESS = {
    "parameterwise": "Complementary slackness belongs to the scalar form; the parameterwise form compares γ with the "
    "gradient and not with L_u.",
    None: "No dual variable was stated.",
}


class Request(Asked):
    """What was asked, without the ids: every party has committed to these under the secret that the parties share."""

    rows: PositiveInt
    commitment: Digest


class Final(Record):
    """Where the final model stands in the constrained problem. What was not measured, or does not exist, is null."""

    uncertainty: Uncertainty | None
    largest_uncertainty: float | None  # the uncertainty loss of a uniform prediction
    constraint_residual: NonNegativeFloat | None
    dual: Dual | None
    complementary_slackness: float | None
    no_slackness: str | None  # why there is none
    stationarity_residual: NonNegativeFloat | None
    residual_rows: PositiveInt | None
    change: NonNegativeFloat | None  # ‖Θ − Θ_init‖; None where a party keeps its part back
    unseen: Unseen | None = None


class PhaseBytes(Record):
    """Embeddings and gradients of one phase."""

    predicted: NonNegativeInt
    tensor: NonNegativeInt
    protobuf: NonNegativeInt


class LinkBytes(Record):
    """Messages of one kind, one way over one link, in one phase."""

    link: str
    direction: str
    phase: str
    kind: str
    messages: NonNegativeInt
    tensor: NonNegativeInt
    protobuf: NonNegativeInt


class Bytes(PhaseBytes):
    """Embeddings and gradients of the whole job, by phase; every message by link."""

    phases: dict[str, PhaseBytes]
    links: list[LinkBytes]


class SignedStatement(Record):
    """A party's statement as it signed it."""

    statement: Attestation
    public_key: Digest
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]


class Seal(Record):
    """The coordinator's signature over everything else."""

    public_key: Digest
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]


class Certificate(Record):
    """The whole."""

    format: Literal["fedora-certificate-4"]
    job: JobId
    time: Time
    software: str
    parties: Parties
    request: Request
    method: Method
    phases: dict[str, NonNegativeInt]
    final: Final
    models: dict[Name, Models]
    rows: dict[Name, Rows]
    metrics: dict[Name, Figures]
    gaps: dict[str, float] | None
    gap_deviations: dict[str, float] | None  # the same in standard deviations between Retrains, where there are several
    bytes: Bytes
    seconds: NonNegativeFloat
    claims: list[str]
    does_not_claim: list[str]
    statements: dict[Name, SignedStatement]
    coordinator: Seal


def read(content: object) -> Certificate:
    """Read a certificate from parsed JSON: every field there and of its form."""
    check_form(content)
    made = check(content, Certificate, origin="certificate")
    if missing := next(_missing(made, "certificate"), None):
        raise SettingsError(f"{missing}: is missing")
    return made


def _missing(value: object, where: str) -> Iterator[str]:
    """Name the fields that were filled in though the content does not have them."""
    if isinstance(value, Record):
        for name in type(value).model_fields:
            if name in value.model_fields_set:
                yield from _missing(getattr(value, name), f"{where}.{name}")
            else:
                yield f"{where}.{name}"
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from _missing(one, f"{where}.{name}")


def joint_of(made: Certificate) -> JointStatement:
    """Return the joint statement that a certificate's fields amount to."""
    request, models = made.request, made.statements[made.parties.active].statement.models
    asked = Asked(kind=request.kind, classes=request.classes, percent=request.percent, salt=request.salt)
    return JointStatement(
        job=made.job,
        time=made.time,
        software=made.software,
        parties=made.parties,
        request=JointRequest(rows=request.rows, commitment=request.commitment, asked=digest(asked)),
        method=made.method,
        phases=made.phases,
        models=ModelNames(before=models.before.name, after=models.after.name),
    )


def sealed_bytes(content: Mapping[str, Any]) -> bytes:
    """Return what the coordinator signs: the certificate without the coordinator's own entry."""
    return canonical({name: one for name, one in content.items() if name != COORDINATOR})


def signed_bytes(content: Mapping[str, Any]) -> dict[str, bytes]:
    """Return what every party signed."""
    return {name: canonical(one["statement"]) for name, one in content["statements"].items()}


# Arithmetic: the same functions make a certificate and check it


def final(stated: Mapping[str, Attestation], active: str) -> dict[str, Any]:
    """Return where the final model stands, from what the parties state."""
    uncertainty, dual = stated[active].uncertainty, combined_dual([one.dual for one in stated.values()])
    slackness = complementary_slackness(dual, uncertainty)
    residuals = [one.residual for one in stated.values()]
    squares = [one.squared for one in residuals if one is not None]
    measured = residuals[0] if len(squares) == len(residuals) else None
    changes = [one.change_squared for one in stated.values() if one.change_squared is not None]
    return {
        "uncertainty": None if uncertainty is None else uncertainty.model_dump(),
        "largest_uncertainty": largest_uncertainty(uncertainty, stated[active].rows.dropped),
        "constraint_residual": constraint_residual(uncertainty),
        "dual": None if dual is None else dual.model_dump(),
        "complementary_slackness": slackness,
        "no_slackness": why_no_slackness(dual, slackness),
        "stationarity_residual": None if measured is None else root_of_sum(squares),
        "residual_rows": None if measured is None else measured.rows,
        "change": root_of_sum(changes) if len(changes) == len(stated) else None,
        "unseen": None if (unseen := stated[active].unseen) is None else unseen.model_dump(),
    }


def largest_uncertainty(uncertainty: Uncertainty | None, rows: int) -> float | None:
    """Return ω·log C, the uncertainty loss of a uniform prediction; times the rows if it is a sum."""
    if uncertainty is None:
        return None
    return uncertainty.weight * math.log(uncertainty.classes) * (rows if uncertainty.reduction == "sum" else 1)


def constraint_residual(uncertainty: Uncertainty | None) -> float | None:
    """Return max(0, γ − L_u)."""
    if uncertainty is None or uncertainty.gamma is None:
        return None
    return max(0.0, uncertainty.gamma - uncertainty.loss)


def complementary_slackness(dual: Dual | None, uncertainty: Uncertainty | None) -> float | None:
    """Return Ω·(γ − L_u), where there is one Ω."""
    if not isinstance(dual, ScalarDual) or uncertainty is None or uncertainty.gamma is None:
        return None
    return dual.omega * (uncertainty.gamma - uncertainty.loss) + 0.0  # never -0.0


def why_no_slackness(dual: Dual | None, slackness: float | None) -> str | None:
    """Say why there is no complementary slackness, if there is none."""
    if slackness is not None:
        return None
    form = None if dual is None else dual.form
    return NO_SLACKNESS.get(form, "The uncertainty loss or γ was not stated.")


def combined_dual(duals: Sequence[Dual | None]) -> Dual | None:
    """Return one summary of all parties' dual variables; None unless all have one of the same form."""
    scalar = [one for one in duals if isinstance(one, ScalarDual)]
    if duals and len(scalar) == len(duals):
        return scalar[0]
    parts = [one for one in duals if isinstance(one, ParameterwiseDual)]
    if not parts or len(parts) < len(duals):
        return None
    parameters = sum(one.parameters for one in parts)
    return ParameterwiseDual(
        form="parameterwise",
        norm=root_of_sum(one.norm * one.norm for one in parts),
        largest=max(one.largest for one in parts),
        positive_share=sum(one.positive_share * one.parameters for one in parts) / max(1, parameters),
        parameters=parameters,
    )


def root_of_sum(squares: Iterable[float]) -> float:
    """Return the norm of a whole from the squared norms of its parts."""
    return math.sqrt(sum(squares))
