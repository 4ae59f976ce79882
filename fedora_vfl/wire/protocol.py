"""What both ends of a connection must agree on before anything else."""

import re
from importlib.metadata import version

from fedora_vfl.errors import PartyError
from protos.fedora.v1.failure_pb2 import Failure

# Raised whenever a message changes its meaning. Members of different numbers refuse each other.
PROTOCOL = 13

VERSION = version("fedora-vfl")

COORDINATOR = "coordinator"

# Every id that a request names goes through memory of the coordinator and of the active party.
MOST_REQUESTED_IDS = 500_000

# Batches of training that a passive party may have under way beside the one that is due. Each is held at both ends.
MOST_OVERLAP = 32
# Steps of training for one exchange: more than anybody has found of use.
MOST_LOCAL_STEPS = 32

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def is_name(name: str) -> bool:
    """Return whether a member could be called so; a name also stands in certificates, paths and logs."""
    return _NAME.fullmatch(name) is not None


def check_protocol(theirs: int, *, peer: str) -> None:
    """Refuse a peer that speaks another version of the protocol."""
    if theirs != PROTOCOL:
        reason = (
            f"speaks protocol {theirs}, but protocol {PROTOCOL} is spoken here: install the same release everywhere"
        )
        raise PartyError(peer, reason, Failure.PROTOCOL)
