"""Who is at the other end: certificates of one authority per federation, with each member's name and role in them."""

import ipaddress
import logging
import re
import stat
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from fedora_vfl.errors import PartyError, SettingsError
from fedora_vfl.wire import addresses
from fedora_vfl.wire.protocol import COORDINATOR, is_name

AUTHORITY, CERTIFICATE, KEY = "authority.pem", "certificate.pem", "key.pem"
ROLES = (COORDINATOR, "active", "passive", "operator")  # the coordinator's role is called as it is
# A certificate's DNS name is NAME.ROLE.fedora. It is not an address: members are known by it wherever they are.
DOMAIN = "fedora"
EXPIRES_SOON = timedelta(days=30)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Member:
    """Whom a certificate names."""

    name: str
    role: str

    @property
    def dns(self) -> str:
        """The name in the certificate."""
        return f"{self.name}.{self.role}.{DOMAIN}"

    def __str__(self) -> str:
        return f"{self.name} ({self.role})"

    @classmethod
    def parse(cls, dns: str) -> "Member | None":
        """Read the name in a certificate; None if it is not one of ours."""
        found = re.fullmatch(rf"(.+)\.({'|'.join(ROLES)})\.{DOMAIN}", dns)
        member = cls(found[1], found[2]) if found else None
        return member if member and member.possible else None

    @property
    def possible(self) -> bool:
        """Whether there can be such a member: a name that is one, and the coordinator's only with its role."""
        return is_name(self.name) and (self.name == COORDINATOR) == (self.role == COORDINATOR)


COORDINATOR_MEMBER = Member(COORDINATOR, COORDINATOR)


def member_of(certificate: x509.Certificate | x509.CertificateSigningRequest) -> Member | None:
    """Return whom a certificate names."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):  # there are none, or they cannot be read
        return None
    found = [Member.parse(name) for name in names.get_values_for_type(x509.DNSName)]
    return found[0] if len(found) == 1 else None


@dataclass(frozen=True)
class Credentials:
    """One member's certificate and key, and the authority's certificate that it checks others by."""

    member: Member
    folder: Path
    expires: datetime
    authority: bytes = field(repr=False)
    chain: bytes = field(repr=False)
    key: bytes = field(repr=False)

    @classmethod
    def load(cls, folder: Path) -> "Credentials":
        """Read a member's folder of certificates; what would fail at the first connection is said now."""
        authority, chain, key = (_read(folder / name) for name in (AUTHORITY, CERTIFICATE, KEY))
        check_private(folder / KEY)
        certificate, authorities = (
            _certificates(chain, folder / CERTIFICATE)[0],
            _certificates(authority, folder / AUTHORITY),
        )
        member = member_of(certificate)
        if member is None:
            raise SettingsError(f"{folder / CERTIFICATE}: names no member of a federation; make it with `fedora certs`")
        _check_pair(certificate, key, folder)
        check_dates(certificate, folder / CERTIFICATE, str(member))
        issuer = next((one for one in authorities if _issued(certificate, by=one)), None)
        if issuer is None:
            raise SettingsError(f"{folder / CERTIFICATE}: was not issued by the authority in {folder / AUTHORITY}")
        check_dates(issuer, folder / AUTHORITY, "the authority")
        return cls(member, folder, certificate.not_valid_after_utc, authority, chain, key)

    def check(self, me: Member) -> None:
        """Refuse to go on under another name than the certificate's."""
        if self.member != me:
            raise SettingsError(f"{self.folder / CERTIFICATE}: is the certificate of {self.member}, and this is {me}")

    def warn(self) -> None:
        """Say in the log when the certificate has to be replaced soon."""
        left = self.expires - datetime.now(UTC)
        if left < EXPIRES_SOON:
            log.warning("the certificate of %s expires on %s: replace it", self.member, f"{self.expires:%Y-%m-%d}")

    def renewed(self) -> "Credentials":
        """Return what the folder holds now: a certificate may be replaced while its member works.

        Files that do not fit, as when they are just being replaced, are left for the next time.
        """
        try:
            now = Credentials.load(self.folder)
            now.check(self.member)
        except SettingsError as error:
            log.warning("goes on with the certificate that it has: %s", error)
            return self
        return now

    def for_server(self) -> grpc.ServerCredentials:
        """Return what a server shows; it asks every caller for a certificate of the same authority.

        A certificate that was replaced since is shown to those who connect from then on.
        """
        shown = self

        def renewed() -> grpc.ServerCertificateConfiguration | None:
            nonlocal shown
            before, shown = shown, shown.renewed()
            return None if shown == before else shown._shown_by_server()

        first = self._shown_by_server()
        # None, where nothing has changed, is not in the type stubs.
        return grpc.dynamic_ssl_server_credentials(first, renewed, require_client_authentication=True)  # type: ignore[arg-type]

    def _shown_by_server(self) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(self.key, self.chain)], root_certificates=self.authority)

    def for_client(self) -> grpc.ChannelCredentials:
        """Return what a client shows from now on; it is read anew for every connection."""
        now = self.renewed()
        return grpc.ssl_channel_credentials(now.authority, now.key, now.chain)


def caller(context: "grpc.aio.ServicerContext[Any, Any]") -> Member | None:
    """Return whose certificate a caller has shown, now or when its session began; None without certificates."""
    shown = context.auth_context()
    if shown.get("transport_security_type") != [b"ssl"]:
        return None
    (pem,) = shown["x509_pem_cert"]
    certificate = x509.load_pem_x509_certificate(pem)
    member = member_of(certificate)
    if member is None:
        raise PartyError("a caller", "shows a certificate that names no member of a federation")
    # The handshake has looked at the dates, but not that of a caller that goes on with an earlier session.
    if datetime.now(UTC) > certificate.not_valid_after_utc:
        raise PartyError(str(member), "shows a certificate that has expired")
    return member


def check_caller(context: "grpc.aio.ServicerContext[Any, Any]", claimed: Member) -> None:
    """Refuse whoever gives another name than its certificate's, or has another role; plaintext is believed."""
    shown = caller(context)
    if shown is not None and shown != claimed:
        raise PartyError(str(shown), f"came as {claimed}, which its certificate does not allow")


def is_loopback(address: str) -> bool:
    """Return whether an address is on this machine alone."""
    host, _ = addresses.split(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_secured(address: str, credentials: Credentials | None, *, plaintext: bool, hint: str) -> None:
    """Refuse an unprotected connection beyond this machine, unless it is asked for by name; then warn."""
    if credentials is not None or is_loopback(address):
        return
    if not plaintext:
        raise SettingsError(
            f"{address} is beyond this machine, and there are no certificates for it: {hint}, or ask for plaintext, "
            "without encryption and authentication, by name: `plaintext: true` in the federation file, or --plaintext"
        )
    log.warning(
        "%s is used in plaintext: anybody on the way can read and change what is sent, or pose as a member", address
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}; `fedora certs` makes certificates") from None


def check_private(path: Path) -> None:
    """Refuse a key that others may read."""
    if path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
        raise SettingsError(f"{path}: can be read by everybody on this machine; chmod 600 it, and make a new one")


def _certificates(pem: bytes, path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise SettingsError(f"{path}: holds no certificate in PEM form") from None


def _check_pair(certificate: x509.Certificate, key: bytes, folder: Path) -> None:
    try:
        private = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError):
        raise SettingsError(f"{folder / KEY}: holds no private key in PEM form without a password") from None
    if private.public_key() != certificate.public_key():
        raise SettingsError(f"{folder / KEY}: is not the key of {folder / CERTIFICATE}")


def check_dates(certificate: x509.Certificate, path: Path, whose: str) -> None:
    """Refuse a certificate that is not valid now."""
    now = datetime.now(UTC)
    if now > certificate.not_valid_after_utc:
        when = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
        raise SettingsError(f"{path}: {whose}'s certificate expired on {when}; it takes a new one")
    if now < certificate.not_valid_before_utc:
        when = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        raise SettingsError(f"{path}: {whose}'s certificate is valid from {when} only; is this machine's clock right?")


def _issued(certificate: x509.Certificate, *, by: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(by)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
