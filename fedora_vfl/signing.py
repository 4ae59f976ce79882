"""Signatures: Ed25519 keys that stay in their owner's folder, and the one way to write JSON that is signed."""

import json
import re
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from fedora_vfl.errors import CertificateError, SettingsError
from fedora_vfl.storage import create_privately

KEY_FILE = "signing.key"

# Lower case only: of two ways to write a key or a signature one is enough.
_PUBLIC_KEY = re.compile(r"[0-9a-f]{64}")
_SIGNATURE = re.compile(r"[0-9a-f]{128}")


class SigningKey:
    """A member's private key. What it has signed, only its owner can have signed."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private

    @classmethod
    def load_or_make(cls, folder: Path) -> "SigningKey":
        """Return the key kept in a folder; the first call makes it, for nobody else to read."""
        path = folder / KEY_FILE
        try:
            if not path.exists():
                create_privately(path, _to_pem(Ed25519PrivateKey.generate()))
            return cls(_read_key(path))
        except OSError as error:
            raise SettingsError(f"{path}: the signing key cannot be read or made: {error.strerror}") from None

    @property
    def public(self) -> str:
        """The public key, 64 hexadecimal digits: what others know this member by."""
        return self._private.public_key().public_bytes_raw().hex()

    def sign(self, data: bytes) -> str:
        """Return the signature over some bytes, 128 hexadecimal digits."""
        return self._private.sign(data).hex()


def verify(public: str, data: bytes, signature: str) -> bool:
    """Tell whether the owner of a public key signed exactly these bytes."""
    if not is_public_key(public) or not _SIGNATURE.fullmatch(signature):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signature), data)
    except (InvalidSignature, ValueError):
        return False
    return True


def is_public_key(text: str) -> bool:
    """Tell whether a text has the form of a public key."""
    return _PUBLIC_KEY.fullmatch(text) is not None


def canonical(value: object) -> bytes:
    """Write a value as JSON in the one way in which it is signed.

    Sorted names, two spaces of indentation, UTF-8, a newline at the end; numbers as Python writes them, the shortest
    digits that give the same number again. NaN and infinity, which JSON does not have, are refused.
    """
    try:
        _check_names(value)
        text = json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
        return text.encode() + b"\n"
    except (ValueError, TypeError, RecursionError) as error:
        raise CertificateError(f"a value cannot be written as canonical JSON: {error}") from None


def parse_canonical(data: bytes) -> Any:
    """Read JSON that `canonical` wrote; other bytes, though they may mean the same, are refused."""
    try:
        value = json.loads(data.decode())
        again = canonical(value)
    except (ValueError, RecursionError) as error:
        raise CertificateError(f"is not JSON: {error}") from None
    except CertificateError as error:
        raise CertificateError(f"is not canonical JSON: {error}") from None
    if again != data:
        raise CertificateError(f"is not canonical JSON: line {_first_difference(again, data)} is written another way")
    return value


def _first_difference(expected: bytes, given: bytes) -> int:
    """Return the number of the first line that differs."""
    pairs = zip(expected.splitlines(), given.splitlines(), strict=False)
    return next((number for number, (one, other) in enumerate(pairs, 1) if one != other), len(expected.splitlines()))


def _check_names(value: object) -> None:
    """Refuse names that are no text: JSON would turn the number 1 into the name "1", which then means both."""
    if isinstance(value, dict):
        for name, one in value.items():
            if not isinstance(name, str):
                raise CertificateError(f"a value cannot be written as canonical JSON: the name {name!r} is not text")
            _check_names(one)
    elif isinstance(value, list | tuple):
        for one in value:
            _check_names(one)


def _to_pem(private: Ed25519PrivateKey) -> bytes:
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _read_key(path: Path) -> Ed25519PrivateKey:
    """Read a private key, unless others might have read it too."""
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        raise SettingsError(f"{path}: others may read this private key (mode {mode:o}); run: chmod 600 {path}")
    try:
        private = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise SettingsError(f"{path}: is not an unencrypted private key in PEM form") from None
    if not isinstance(private, Ed25519PrivateKey):
        raise SettingsError(f"{path}: is a private key of another kind; an Ed25519 key is needed")
    return private
