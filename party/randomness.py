"""Randomness of a party's own: a secret that never leaves it, and fresh parameters that nobody else can draw again."""

import contextlib
import hashlib
import secrets
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from fedora_vfl.errors import SettingsError
from fedora_vfl.sampling.seeds import derive
from fedora_vfl.storage import create_privately

SECRET_FILE = "own.secret"
SECRET_BYTES = 32

# torch keeps its generator's state as bytes: 24 of counters, then 624 words of the Mersenne Twister in 8 bytes each.
_COUNTERS, _WORDS = 24, 624


def load_or_make_secret(folder: Path) -> bytes:
    """Return the secret kept in a folder; the first call makes it, for nobody else to read."""
    path = folder / SECRET_FILE
    try:
        if not path.exists():
            create_privately(path, secrets.token_bytes(SECRET_BYTES))
        if path.stat().st_mode & 0o077:
            raise SettingsError(f"{path}: others may read this secret; run: chmod 600 {path}")
        secret = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path}: the party's secret cannot be read or made: {error.strerror}") from None
    if len(secret) != SECRET_BYTES:
        raise SettingsError(f"{path}: is not a secret of {SECRET_BYTES} bytes; move it away, and a new one is made")
    return secret


@contextlib.contextmanager
def drawing(secret: bytes, seed: int, *purpose: str | int) -> Iterator[None]:
    """Draw what is drawn inside from a secret, a seed and a purpose; without a secret, from the other two alone.

    torch takes only 32 bits of a seed, which can be tried out one by one: a secret fills the generator's whole state.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, *purpose))
        if secret:
            _fill_state(secret, "/".join(str(part) for part in (seed, *purpose)))
        yield


def _fill_state(secret: bytes, purpose: str) -> None:
    stream = hashlib.shake_256(secret + purpose.encode()).digest(4 * _WORDS)
    state = torch.get_rng_state()
    words = np.frombuffer(stream, dtype="<u4").astype("<u8")
    state[_COUNTERS : _COUNTERS + 8 * _WORDS] = torch.from_numpy(np.frombuffer(words.tobytes(), np.uint8).copy())
    torch.set_rng_state(state)
