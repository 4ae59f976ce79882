"""What gRPC's core writes to standard error about connections, turned into sentences of the log.

It must be imported before gRPC is, which reads once how much it is to say.
"""

import logging
import math
import os
import re
import sys
import threading
import time
from collections.abc import Iterator

from fedora_vfl.process import logs
from fedora_vfl.wire.tls_reasons import in_words

QUIET_SECONDS = 10.0
MOST_QUOTED = 200  # letters

log = logging.getLogger(__name__)

# A server learns of a failed handshake only from lines that gRPC's core writes to the process's standard error.
_OTHER_NAME = re.compile(r"No match found for server name")
_FAILED = re.compile(r"ssl_transport_security.*Handshake failed with error (?P<said>.*)")
_CHATTER = re.compile(r"^[IW]\d{4} \d\d:\d\d:\d\d\.\d+ ")


def told_by_core(line: str) -> str | None:
    """Return the sentence for a line of gRPC's core about a handshake; None for any other line."""
    if _OTHER_NAME.search(line):
        return "a caller asks for another member than this one"
    found = _FAILED.search(line)
    if not found:
        return None
    said = found["said"]
    if "WRONG_VERSION" in said or "HTTP_REQUEST" in said:
        return "refused a connection: the caller does not use TLS"
    if "PEER_DID_NOT_RETURN" in said:
        return "refused a connection: the caller shows no certificate"
    if "CERTIFICATE_VERIFY_FAILED" in said:
        return f"refused a connection: the other side's certificate {in_words(said.rpartition(':')[2])}"
    if "ALERT" in said or "alert" in said:
        return f"a connection failed: the other side refused this member's certificate: it {in_words(said)}"
    return (
        "a connection failed while it was secured: one side does not accept the other's certificate, as of another "
        f"authority with the same name, or they have no version or cipher of TLS in common ({said[:MOST_QUOTED]})"
    )


def explain_core_messages() -> None:
    """Have gRPC's own lines about handshakes appear in the log as sentences.

    What Python writes to standard error goes there as before, at once; only what the core writes takes a detour.
    """
    os.environ["GRPC_VERBOSITY"] = "INFO"
    own = os.dup(2)
    reader, writer = os.pipe()
    os.dup2(writer, 2)
    os.close(writer)
    sys.stderr = os.fdopen(own, "w", buffering=1, errors="backslashreplace")
    threading.Thread(target=_pass_on, args=(reader,), daemon=True, name="core messages").start()


def _pass_on(reader: int) -> None:
    told: dict[str, float] = {}  # when each sentence was last said: a caller that is refused tries again at once
    for line in _lines(reader):
        sentence = told_by_core(line)
        if sentence:
            now = time.monotonic()
            if now - told.get(sentence, -math.inf) > QUIET_SECONDS:
                told[sentence] = now
                log.warning(sentence)
        elif not _CHATTER.match(line):
            logs.pass_through(line)


def _lines(reader: int) -> Iterator[str]:
    with os.fdopen(reader, "r", errors="backslashreplace") as file:
        yield from file
