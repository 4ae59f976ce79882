"""Why a connection could not be secured, in words; gRPC itself only says that it is not there."""

import logging
import os
import re
import socket
import ssl
import sys
import threading
from collections.abc import Iterator

from cryptography import x509

from wire.tls import AUTHORITY, CERTIFICATE, KEY, Identity, Member, member_of

PROBE_SECONDS = 2.0

log = logging.getLogger(__name__)

# What OpenSSL and BoringSSL call it, and what a reader should be told.
_REASONS = (
    ("expired", "has expired"),
    ("not yet valid", "is not valid yet; clocks may differ"),
    ("unknown ca", "is of another authority"),
    ("local issuer", "is of another authority"),
    ("self-signed", "is of another authority"),
    ("self signed", "is of another authority"),
    ("certificate signature failure", "is of another authority with the same name"),
    ("decrypt error", "is of another authority with the same name"),
)


def in_words(said: str) -> str:
    """Turn the reason of a TLS library into what follows on "its certificate"."""
    lower = said.lower().replace("_", " ")
    return next((words for sign, words in _REASONS if sign in lower), f"is not accepted ({said.strip()})")


def diagnose(address: str, identity: Identity | None, expected: Member) -> str | None:
    """Return why a member at an address cannot be talked to; None if certificates are not the reason.

    It blocks for up to two seconds: call it in a thread.
    """
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_SECONDS) as plain:
            return _without(plain) if identity is None else _with(plain, identity, expected)
    except (OSError, UnicodeError):
        return None  # nobody is there, or the network is cut


def _without(plain: socket.socket) -> str | None:
    """Find out whether a member that was called without a certificate wants one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with context.wrap_socket(plain):
            return "wants TLS, and this member was started without certificates"
    except ssl.SSLError:
        return None


def _with(plain: socket.socket, identity: Identity, expected: Member) -> str | None:
    """Shake hands as gRPC would, and hear what either side has against it."""
    folder = identity.folder
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False  # members are known by name and role, wherever they are
    context.load_verify_locations(folder / AUTHORITY)
    context.load_cert_chain(folder / CERTIFICATE, folder / KEY)
    context.set_alpn_protocols(["h2"])
    try:
        with context.wrap_socket(plain) as secured:
            shown = secured.getpeercert(binary_form=True)
            found = member_of(x509.load_der_x509_certificate(shown)) if shown else None
            if found != expected:
                return f"shows the certificate of {found or 'nobody in a federation'}, not of {expected}"
            secured.recv(1)  # in TLS 1.3 a server says only now what it has against the caller's certificate
            return None
    except ssl.SSLCertVerificationError as error:
        return f"shows a certificate that {in_words(error.verify_message)}"
    except ssl.SSLError as error:
        said = str(error.reason or error)
        if "WRONG_VERSION" in said or "HTTP_REQUEST" in said:
            return "does not speak TLS at that address"
        return f"does not accept this member's certificate: it {in_words(said)}" if "ALERT" in said else None


# A server learns of a failed handshake only from lines that gRPC's core writes to the process's standard error.
_FAILED = re.compile(r"ssl_transport_security.*Handshake failed with error (?P<said>.*)")
_CHATTER = re.compile(r"^[IW]\d{4} \d\d:\d\d:\d\d\.\d+ ")


def told_by_core(line: str) -> str | None:
    """Return the sentence for a line of gRPC's core about a handshake; None for any other line."""
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
    return f"a connection failed while it was secured: {said}"


def explain_core_messages() -> None:
    """Have gRPC's own lines about handshakes appear in the log as sentences.

    What Python writes to standard error goes there as before, at once; only what the core writes takes a detour.
    """
    own = os.dup(2)
    reader, writer = os.pipe()
    os.dup2(writer, 2)
    os.close(writer)
    sys.stderr = os.fdopen(own, "w", buffering=1, errors="backslashreplace")
    threading.Thread(target=_pass_on, args=(reader,), daemon=True, name="core messages").start()


def _pass_on(reader: int) -> None:
    for line in _lines(reader):
        sentence = told_by_core(line)
        if sentence:
            log.warning(sentence)
        elif not _CHATTER.match(line):
            sys.stderr.write(line)


def _lines(reader: int) -> Iterator[str]:
    with os.fdopen(reader, "r", errors="backslashreplace") as file:
        yield from file
