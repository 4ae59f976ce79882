"""The joint statement: what a certificate says of request, method, time and phases, signed alike by every party."""

import hashlib
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from fedora_vfl.certificates.attestation import Digest, JobId, Name, Record, Time
from fedora_vfl.signing import canonical

# Clocks of several organisations differ; by more than this, one of them is wrong.
CLOCKS_DIFFER = timedelta(hours=1)

# How a request names its rows; those of pending requests were named by earlier jobs, and those of a request that was
# handed in at a party by somebody there.
Kind = Literal["ids", "classes", "samples", "pending", "request"]


class Parties(Record):
    """Who takes part."""

    active: Name
    passive: list[Name]


class Asked(Record):
    """What the rows of a request have in common.

    A passive party signs a digest of it: the names of classes would tell it the labels of the rows it drops.
    """

    kind: Kind
    classes: list[str] | None
    percent: Annotated[float, Field(gt=0, le=100)] | None
    salt: Digest  # 32 random bytes, without which a guess at the rest cannot be tested


class JointRequest(Record):
    """The request, as all parties may know it."""

    rows: PositiveInt
    commitment: Digest  # to the ids, the same at all parties
    asked: Digest  # SHA-256 of what was asked


class Method(Record):
    """How it was done."""

    name: Name
    settings: dict[str, Any]
    goal: Literal["uncertain", "as-retrained"] | None
    dual: Literal["scalar", "parameterwise"] | None
    rounds: NonNegativeInt
    stopped: str

    def listed(self, setting: str) -> list[object]:
        """Return what a setting lists, if it is there and is a list."""
        value = self.settings.get(setting)
        return value if isinstance(value, list) else []


class ModelNames(Record):
    """The names under which every party has saved its model."""

    before: Name
    after: Name


class JointStatement(Record):
    """What every party signs alike, beside its own statement."""

    format: Literal["fedora-joint-statement-2"] = "fedora-joint-statement-2"
    job: JobId
    time: Time
    software: str  # of the coordinator
    parties: Parties
    request: JointRequest
    method: Method
    phases: dict[str, NonNegativeInt]  # by name: how many were run since the rows were dropped
    models: ModelNames


def digest(record: Record) -> str:
    """Return the SHA-256 of a record as canonical JSON."""
    return hashlib.sha256(canonical(record.model_dump())).hexdigest()


def fits_clocks(time: str, began: str, ended: str) -> bool:
    """Tell whether a time lies between two others, as far as clocks agree."""
    moment, first, last = (datetime.fromisoformat(one) for one in (time, began, ended))
    # Differences, as there is no time before the year 1 or after 9999.
    return first <= last and first - moment <= CLOCKS_DIFFER and moment - last <= CLOCKS_DIFFER
