"""Every random number of a run comes from the job's one seed; this is the only place where seeds are made."""

import hashlib


def derive(seed: int, *purpose: str | int) -> int:
    """Make an independent seed for one purpose, the same on every machine.

    The first eight bytes of SHA-256 over the seed and the purpose, joined by slashes, without the sign bit (protobuf's
    uint64 would hold it, torch's generators take it only as a negative number).
    """
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
