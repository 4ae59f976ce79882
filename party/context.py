"""What a party has before any job."""

from dataclasses import dataclass, field

from fedora_vfl.settings.federation import Federation
from fedora_vfl.wire.meter import Meter
from fedora_vfl.wire.tls import Credentials
from party.data.records import Records
from party.drawn_parts import Told
from party.masked_before import MaskedBefore
from party.metrics import PartyMetrics
from party.settings import PartySettings


@dataclass(frozen=True)
class PartyContext:
    """A party's settings, its rows, its byte meter: the same for all its jobs."""

    settings: PartySettings
    federation: Federation
    records: Records
    meter: Meter
    metrics: PartyMetrics
    secret: bytes  # known to this party alone
    credentials: Credentials | None = None  # this party's certificate
    data_digest: str = ""  # SHA-256 of the data file as it was read
    told: dict[str, Told] = field(default_factory=dict)  # by job that goes on
    masked: MaskedBefore = field(default_factory=MaskedBefore)  # in an alignment that is not done
