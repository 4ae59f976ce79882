"""Whose key is whose, told from outside: a certificate and what lies beside it cannot vouch for themselves."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.federation import PublicKey
from fedora_vfl.settings.files import Settings, load
from fedora_vfl.signing import is_public_key


class PinnedKeys(Settings):
    """A file of keys that its owner trusts, by member; written as in a federation file."""

    keys: dict[str, PublicKey]


def trusted_keys(
    federation: Mapping[str, str], pinned: Path | None = None, given: Sequence[str] = ()
) -> dict[str, str]:
    """Return all keys that somebody vouches for, by member.

    Args:
        federation: Keys of a federation file.
        pinned: A file of trusted keys.
        given: Keys from the command line, as NAME=KEY.
    """
    pairs = [*federation.items(), *(load(pinned, PinnedKeys).keys.items() if pinned else ()), *_split(given)]
    keys: dict[str, str] = {}
    for name, key in pairs:
        if keys.setdefault(name, key) != key:
            raise SettingsError(f"two different keys are given for {name}: leave the wrong one out")
    return keys


def as_options(keys: Mapping[str, str]) -> str:
    """Return the words that have `fedora verify` trust these keys."""
    return " ".join(f"--trust {name}={key}" for name, key in keys.items())


def _split(given: Iterable[str]) -> Iterable[tuple[str, str]]:
    for one in given:
        name, _, key = one.partition("=")
        if not name or not is_public_key(key):
            allowed = "NAME=KEY, the key in 64 hexadecimal digits in lower case"
            raise SettingsError(f"--trust: {one!r} is not a member's key; allowed: {allowed}")
        yield name, key
