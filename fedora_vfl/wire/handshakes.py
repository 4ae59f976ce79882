"""Why a connection could not be secured, in words; gRPC itself only says that it is not there."""

import socket
import ssl
from datetime import UTC, datetime

from cryptography import x509

from fedora_vfl.wire import addresses
from fedora_vfl.wire.tls import AUTHORITY, CERTIFICATE, KEY, Credentials, Member, member_of
from fedora_vfl.wire.tls_reasons import in_words

PROBE_SECONDS = 2.0


def diagnose(address: str, credentials: Credentials | None, expected: Member) -> str | None:
    """Return why a member at an address cannot be talked to; None if certificates are not the reason.

    It blocks for up to two seconds: call it in a thread.
    """
    try:
        with socket.create_connection(addresses.split(address), timeout=PROBE_SECONDS) as plain:
            return _without(plain) if credentials is None else _with(plain, credentials, expected)
    except (OSError, UnicodeError):
        return None  # nobody is there, or the network is cut


def look(address: str) -> str:
    """Say what stands in the way of a connection, to be put behind a sentence; nothing if it is not known."""
    host, port = addresses.split(address)
    try:
        socket.create_connection((host, port), timeout=PROBE_SECONDS).close()
    except socket.gaierror:
        return f": the name {host} is not known on this machine"
    except ConnectionRefusedError:
        return ": nobody listens there"
    except TimeoutError:
        return ": nothing answers there; it is down, or a firewall is in between"
    except OSError as error:
        return f": {error.strerror}" if error.strerror else ""
    return ""


def _without(plain: socket.socket) -> str | None:
    """Find out whether a member that was called without a certificate wants one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with context.wrap_socket(plain):
            return "wants TLS, and no certificates were named on this side"
    except ssl.SSLError:
        return None


def _with(plain: socket.socket, credentials: Credentials, expected: Member) -> str | None:
    """Shake hands as gRPC would, and hear what either side has against it."""
    folder = credentials.folder
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
            # In TLS 1.3 a server looks at the caller's certificate only now; one that accepts it begins to talk.
            return None if _talks(secured) else _refused(credentials)
    except ssl.SSLCertVerificationError as error:
        return f"shows a certificate that {in_words(error.verify_message)}"
    except ssl.SSLError as error:
        said = str(error.reason or error)
        if "WRONG_VERSION" in said or "HTTP_REQUEST" in said:
            return "does not speak TLS at that address"
        return (
            f"does not accept the certificate of {credentials.member}: it {in_words(said)}" if "ALERT" in said else None
        )


def _talks(secured: ssl.SSLSocket) -> bool:
    try:
        return bool(secured.recv(1))
    except ssl.SSLError:
        raise
    except OSError:
        return False


def _refused(credentials: Credentials) -> str:
    """Say why a server hung up at the sight of a certificate; gRPC's servers mostly do so without a word."""
    refused = f"does not accept the certificate of {credentials.member}: it"
    if datetime.now(UTC) > credentials.expires:
        return f"{refused} has expired"
    return f"{refused} is of another authority, or not valid by the clock over there; the log there says more"
