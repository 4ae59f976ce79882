"""A federation's own certificate authority: it signs one certificate per member and is trusted by nobody else."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.federation import Federation
from fedora_vfl.storage import write_atomically
from fedora_vfl.wire.tls import (
    AUTHORITY,
    CERTIFICATE,
    COORDINATOR_MEMBER,
    KEY,
    Credentials,
    Member,
    check_dates,
    check_private,
    member_of,
)

AUTHORITY_FOLDER, AUTHORITY_KEY = "authority", "authority.key"
OPERATOR = Member("operator", "operator")  # submits jobs
REQUEST = "request.pem"
PRIVATE = 0o600
SMALLEST_RSA = 2048
# Clocks of members may differ by so much.
SKEW = timedelta(minutes=5)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _refuse_existing(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise SettingsError(f"{path}: is there already; keys and authorities are never overwritten")


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


@dataclass(frozen=True)
class Authority:
    """The authority's certificate and key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls, folder: Path, *, name: str, days: int) -> "Authority":
        """Make an authority and keep it in a folder."""
        if not name.strip():
            raise SettingsError("--name: is empty; an authority has a name for people to know it by")
        _refuse_existing(folder / AUTHORITY_KEY, folder / AUTHORITY)
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named(name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - SKEW)
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        write_atomically(folder / AUTHORITY_KEY, _private(key), mode=PRIVATE)
        write_atomically(folder / AUTHORITY, _pem(certificate))
        return cls(certificate, key)

    @classmethod
    def load(cls, folder: Path) -> "Authority":
        """Read an authority from its folder."""
        try:
            certificate = x509.load_pem_x509_certificate((folder / AUTHORITY).read_bytes())
            key = serialization.load_pem_private_key((folder / AUTHORITY_KEY).read_bytes(), password=None)
        except OSError as error:
            raise SettingsError(f"{error.filename}: cannot be read: {error.strerror}") from None
        except (ValueError, TypeError):
            raise SettingsError(f"{folder}: does not hold an authority made by `fedora certs authority`") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise SettingsError(f"{folder}: the authority's key and certificate do not belong together")
        check_private(folder / AUTHORITY_KEY)
        check_dates(certificate, folder / AUTHORITY, "the authority")
        return cls(certificate, key)

    def sign(self, request: x509.CertificateSigningRequest, *, days: int) -> bytes:
        """Return a certificate for a request, whose name and role somebody has looked at."""
        if not request.is_signature_valid:
            raise SettingsError("the request is not signed by the key it is for")
        member = requested(request)
        _check_strength(request.public_key())
        now = datetime.now(UTC)
        until = min(now + timedelta(days=days), self.certificate.not_valid_after_utc)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_named(str(member)))
            .issuer_name(self.certificate.subject)
            .public_key(request.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - SKEW)
            .not_valid_after(until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(member.dns)]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return _pem(certificate)

    def issue(self, member: Member, folder: Path, *, days: int) -> None:
        """Make key and certificate of a member at once, for whoever runs all members; earlier ones are replaced."""
        key, request = _new_request(member)
        certificate = self.sign(request, days=days)
        write_atomically(folder / KEY, _private(key), mode=PRIVATE)
        write_atomically(folder / CERTIFICATE, certificate)
        if not self._is_among(folder / AUTHORITY):
            write_atomically(folder / AUTHORITY, _pem(self.certificate))

    def _is_among(self, path: Path) -> bool:
        """Return whether a member's file of authorities has this one, alone or while it follows another."""
        try:
            return self.certificate in x509.load_pem_x509_certificates(path.read_bytes())
        except (OSError, ValueError):
            return False


def issue_all(federation: Federation, folder: Path, *, days: int = 365, renew: bool = False) -> list[Member]:
    """Make an authority, if there is none yet, and the certificates that are missing; return whose were made."""
    if taken := {AUTHORITY_FOLDER, OPERATOR.name} & set(federation.parties):
        raise SettingsError(f"a party is named {min(taken)!r}, as another folder here is: give it another name")
    place = folder / AUTHORITY_FOLDER
    there = (place / AUTHORITY_KEY).exists() or (place / AUTHORITY).exists()
    authority = Authority.load(place) if there else Authority.make(place, name="fedora authority", days=3650)
    passive = [Member(name, "passive") for name in federation.passive]
    members = [COORDINATOR_MEMBER, Member(federation.active.name, "active"), *passive, OPERATOR]
    made = [one for one in members if renew or not (folder / one.name / CERTIFICATE).exists()]
    for member in (one for one in members if one not in made):
        try:
            Credentials.load(folder / member.name).check(member)
        except SettingsError as error:
            raise SettingsError(f"{error}; or make all anew: --renew") from None
    for member in made:
        authority.issue(member, folder / member.name, days=days)
    return made


def make_request(member: Member, folder: Path) -> x509.CertificateSigningRequest:
    """Make a member's key, which stays in its folder, and the request that goes to the authority."""
    _refuse_existing(folder / KEY)
    key, request = _new_request(member)
    write_atomically(folder / KEY, _private(key), mode=PRIVATE)
    write_atomically(folder / REQUEST, request.public_bytes(serialization.Encoding.PEM))
    return request


def _new_request(member: Member) -> tuple[ec.EllipticCurvePrivateKey, x509.CertificateSigningRequest]:
    key = ec.generate_private_key(ec.SECP256R1())
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(_named(str(member)))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(member.dns)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return key, request


def read_request(path: Path) -> x509.CertificateSigningRequest:
    """Read a request from a file."""
    try:
        return x509.load_pem_x509_csr(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise SettingsError(f"{path}: is not a request made by `fedora certs request`") from None


def requested(request: x509.CertificateSigningRequest) -> Member:
    """Return whom a request names."""
    member = member_of(request)
    if member is None:
        raise SettingsError("the request names no member of a federation; make it with `fedora certs request`")
    return member


def _check_strength(key: object) -> None:
    """Refuse keys that are too weak, or that a handshake does not take."""
    curve = isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1 | ec.SECP384R1)
    if not curve and not (isinstance(key, rsa.RSAPublicKey) and key.key_size >= SMALLEST_RSA):
        allowed = f"P-256, P-384, or RSA of {SMALLEST_RSA} bits and more"
        raise SettingsError(f"the request's key is of a kind that is not taken; allowed: {allowed}")


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
