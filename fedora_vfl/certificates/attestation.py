"""What a party signs about its part in an unlearning: the form of the statement, and of the request it commits to."""

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    model_validator,
)

from fedora_vfl.errors import CertificateError

JOB_ID = r"[0-9A-Za-z-]{1,64}"


def _moment(text: str) -> str:
    datetime.fromisoformat(text)  # a ValueError says what is wrong with it
    return text


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
JobId = Annotated[str, Field(pattern=f"^{JOB_ID}$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Time = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"), AfterValidator(_moment)]
# Arithmetic with these stays finite, whatever a document says.
Norm = Annotated[float, Field(ge=0, le=1e150)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Figures = dict[str, float | None]

SECRET_BYTES = 32  # of a request, shared by its parties

# Documents of earlier forms, and the last release that reads them.
EARLIER = {
    **dict.fromkeys(("fedora-certificate-1", "fedora-statement-1", "fedora-request-1"), "0.4.0"),
    **dict.fromkeys(("fedora-certificate-2", "fedora-statement-2"), "0.5.0"),
    **dict.fromkeys(("fedora-certificate-3", "fedora-statement-3"), "0.12.0"),
}


class Record(BaseModel):
    """A part of a signed document: no field more, no field less, no number that is not one."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ScalarDual(Record):
    """The dual variable of the scalar form, one number for all parties."""

    form: Literal["scalar"]
    omega: NonNegativeFloat  # Ω


class ParameterwiseDual(Record):
    """A summary of dual variables of the parameterwise form."""

    form: Literal["parameterwise"]
    norm: Norm  # ‖Ω_i‖
    largest: NonNegativeFloat
    positive_share: Annotated[float, Field(ge=0, le=1)]  # of the parameters, those with Ω > 0
    parameters: Count


Dual = Annotated[ScalarDual | ParameterwiseDual, Field(discriminator="form")]


class Uncertainty(Record):
    """The uncertainty loss of the final model on the rows to forget, as the active party measured it."""

    loss: float  # L_u
    weight: NonNegativeFloat  # ω
    classes: Annotated[Count, Field(ge=1)]  # C
    reduction: Literal["mean", "sum"] = "mean"
    gamma: float | None = None  # γ; none for a method without the constraint


class Unseen(Record):
    """The final model on rows to forget beside rows that were never seen, as the active party measured it.

    Levels are null where a policy keeps them back, and `alike` too where labels of few rows would decide it.
    """

    alike: bool | None  # whether there is no difference
    forgotten_rows: PositiveInt
    forgotten_level: NonNegativeFloat | None  # L_u of the goal `as-retrained`: mean loss, cut off at its ceiling
    unseen_level: NonNegativeFloat | None  # γ: the same of held-out rows of the same classes
    unseen_rows: PositiveInt | None
    tolerance: NonNegativeFloat | None  # two standard errors of the difference

    @model_validator(mode="after")
    def _fits(self) -> "Unseen":
        """Refuse a word that levels contradict, and levels of which some are missing."""
        levels = (self.forgotten_level, self.unseen_level, self.unseen_rows, self.tolerance)
        if None in levels and levels != (None,) * len(levels):
            raise ValueError("has some of its levels, not all")
        if self.forgotten_level is not None and self.unseen_level is not None and self.tolerance is not None:
            apart = abs(self.forgotten_level - self.unseen_level)
            if self.alike != (apart <= self.tolerance):
                raise ValueError("alike: is not what follows from the levels")
        return self


class SavedModel(Record):
    """A model file of a party."""

    name: Name
    sha256: Digest


class Models(Record):
    """A party's model files before and after the forgetting."""

    before: SavedModel
    after: SavedModel


class Rows(Record):
    """A party's training rows."""

    dropped: Count
    remaining: Count


class Residual(Record):
    """A party's part of the stationarity residual, ‖∂L_r/∂θ_i − push_i + ρ·(θ_i − θ_i,init)‖²."""

    squared: NonNegativeFloat
    rows: PositiveInt  # on how many rows it was measured


class CountedBytes(Record):
    """Protobuf bytes of one kind of message that a party counted in this job, up to its statement."""

    sent: NonNegativeInt
    received: NonNegativeInt


class Attestation(Record):
    """A party's statement. Figures it does not know, or that the method does not have, are null."""

    format: Literal["fedora-statement-4"] = "fedora-statement-4"
    job: JobId
    party: Name
    role: Literal["active", "passive"]
    joint: Digest  # SHA-256 of the joint statement, which it stands by too
    began: Time  # when it dropped the rows
    ended: Time  # when it signed
    software: str
    commitment: Digest  # to the ids it dropped
    rows: Rows
    phases: dict[str, NonNegativeInt]  # by name: how many it ran since it dropped the rows
    models: Models
    change_squared: NonNegativeFloat | None  # ‖θ_i − θ_i,init‖²; None where it is kept back
    dual: Dual | None
    residual: Residual | None
    bytes: dict[str, CountedBytes]  # by kind of message
    uncertainty: Uncertainty | None  # active party
    metrics: dict[str, Figures] | None  # active party: by model, figures by name
    unseen: Unseen | None = None  # active party, after `goal: as-retrained`

    @model_validator(mode="after")
    def _labels_are_the_active_party_s(self) -> Self:
        if self.role == "passive" and (self.uncertainty or self.metrics or self.unseen):
            raise ValueError(f"{self.party} is passive and has no labels, so it cannot state a loss or metrics")
        return self


class Opening(Record):
    """What opens a commitment. It stays with the party that made it, until that party shows it to somebody."""

    format: Literal["fedora-request-2"] = "fedora-request-2"
    job: JobId
    party: Name
    key: Digest  # the request's secret, 32 random bytes
    ids: list[str]
    commitment: Digest


def commit_to(ids: Sequence[str], secret: bytes, *, job: str) -> str:
    """Return a commitment to some ids in any order: it tells nothing without the secret, and fits no other ids.

    HMAC-SHA256 over the job and the sorted ids, each behind its length in eight bytes, so that no two lists run
    together alike. The job is there so that a secret used twice does not show that two jobs forget the same ids.
    """
    texts = [job.encode(), *sorted(one.encode() for one in ids)]
    content = b"".join(len(text).to_bytes(8, "big") + text for text in texts)
    return hmac.new(secret, content, hashlib.sha256).hexdigest()


def check_form(content: object) -> None:
    """Refuse a document of an earlier form, and say which release reads it."""
    found = content.get("format") if isinstance(content, Mapping) else None
    if isinstance(found, str) and found in EARLIER:
        release = EARLIER[found]
        raise CertificateError(f"is of the form {found}, which is read by release {release} and earlier: install that")


def is_job_id(text: str) -> bool:
    """Tell whether a text may stand for a job in the name of a file."""
    return re.fullmatch(JOB_ID, text) is not None
