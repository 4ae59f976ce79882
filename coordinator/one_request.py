"""One request, one set: all parties commit to the same rows before the first round."""

from collections.abc import Mapping

from fedora_vfl.errors import CertificateError
from protos.fedora.v1.control_pb2 import Accepted


def check_one_set(accepted: Mapping[str, Accepted], *, active: str) -> None:
    """Refuse a request that parties understand differently, and name them.

    A commitment is made under a secret that the parties share. The coordinator can compare commitments, and cannot tell
    who of two that differ is to blame: the active party may have named other rows, or the passive one may say so.
    """
    others = [name for name, one in accepted.items() if one.commitment != accepted[active].commitment]
    if others:
        pairs = ", ".join(f"{active} and {name}" for name in others)
        remedy = "what each was told is in the file of this job in its keys/requests"
        raise CertificateError(f"{pairs} have not committed to the same rows to forget; no round was run; {remedy}")
