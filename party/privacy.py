"""Gaussian noise on what a party sends, and the (ε, δ) that it amounts to. docs/privacy.md says what that protects."""

import hmac
import math
import secrets
from dataclasses import dataclass, field

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from torch import Tensor

from fedora_vfl.sampling.seeds import derive
from party.settings import PrivacySettings

KEY_BYTES = 32
MANTISSA = 52  # random bits per value: as many as a double holds when a half is added


@dataclass(frozen=True)
class PrivacyLoss:
    """What the noise of one job amounts to, for the party that sent it."""

    delta: float
    releases: int  # how often the row that was sent most often was sent
    epsilon: float  # for that row's own releases, the networks taken as given
    rows_sent: int  # rows of all tensors together, every time counted
    epsilon_whole: float  # for all that was sent, whatever changes in this party's table
    repeatable: bool  # whether the noise came from a seed, and hides nothing from those who know it


@dataclass
class Releases:
    """How often each row of the common order has left a party in one job."""

    counts: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))

    def count(self, rows: Tensor) -> None:
        """Add one release of some rows."""
        if not len(rows):
            return
        missing = int(rows.max()) + 1 - len(self.counts)
        if missing > 0:
            self.counts = torch.cat([self.counts, self.counts.new_zeros(missing)])
        self.counts.index_add_(0, rows, torch.ones_like(rows))


class Noise:
    """Clips and blurs every row that leaves a party in one job, and counts how often each has left."""

    def __init__(
        self,
        settings: PrivacySettings | None,
        *,
        party: str,
        releases: Releases | None = None,
        key: bytes | None = None,
    ) -> None:
        """`key` is what noise without a seed is drawn from: 32 bytes, fresh for every job and known to nobody else."""
        self._settings, self._party = settings, party
        self.releases = releases or Releases()
        self.key = key or secrets.token_bytes(KEY_BYTES)

    def apply(self, tensor: Tensor, rows: Tensor, *moment: str | int) -> Tensor:
        """Return what may be sent of a batch; without privacy settings that is the tensor itself.

        Gradients that come back flow through the clipping. `moment` names this sending, and no other in the job, so
        that noise from a seed is the same when a phase is done again: phase, step, and receiver if there are several.
        """
        if self._settings is None:
            return tensor
        if len(rows) != len(tensor):
            raise ValueError(f"{len(rows)} row numbers were given for a tensor of {len(tensor)} rows")
        self.releases.count(rows)
        clipped = self.clipped(tensor)
        if not self._settings.noise:
            return clipped
        return clipped + self._settings.noise * self._gaussian(clipped.detach(), moment)

    def clipped(self, tensor: Tensor) -> Tensor:
        """Return a tensor that is not sent as its rows would be clipped if it were."""
        if self._settings is None or self._settings.clip is None:
            return tensor
        return clip_rows(tensor, self._settings.clip)

    def loss(self) -> PrivacyLoss | None:
        """Return the (ε, δ) of all sent so far; there is none without settings, or where rows have no largest norm."""
        settings = self._settings
        if settings is None or settings.clip is None:
            return None
        counts = self.releases.counts
        most, total = int(counts.max()) if len(counts) else 0, int(counts.sum())
        terms = {"clip": settings.clip, "noise": settings.noise, "delta": settings.delta}
        return PrivacyLoss(
            delta=settings.delta,
            releases=most,
            epsilon=epsilon(**terms, releases=most),
            rows_sent=total,
            epsilon_whole=epsilon(**terms, releases=total),
            repeatable=settings.seed is not None,
        )

    def _gaussian(self, like: Tensor, moment: tuple[str | int, ...]) -> Tensor:
        """Draw standard normal values from this job's key, or from the seed if there is one.

        A key, not fresh entropy: what is sent again after a loss is then what was sent before, and tells nothing new.
        What is sent has a part in it: other values in the same place, which a coordinator could ask for by going back,
        get other noise.
        """
        assert self._settings is not None
        if self._settings.seed is None:
            bits = np.frombuffer(self._stream(like, moment), dtype=np.uint64)
        else:
            seed = derive(self._settings.seed, "noise", self._party, *moment)
            bits = np.random.Philox(seed).random_raw(like.numel())
        # Never 0 and never 1, whose normal values would be infinite.
        uniform = ((bits >> np.uint64(64 - MANTISSA)) + 0.5) / 2**MANTISSA
        gaussian: Tensor = torch.special.ndtri(torch.from_numpy(uniform))
        return gaussian.view(like.shape).to(like.dtype)

    def _stream(self, sent: Tensor, moment: tuple[str | int, ...]) -> bytes:
        """Return eight random bytes for each value of one sending: ChaCha20 under a key of that sending's own."""
        purpose = "/".join(str(part) for part in ("noise", self._party, *moment, tuple(sent.shape), ""))
        content = purpose.encode() + sent.cpu().contiguous().numpy().tobytes()
        cipher = Cipher(algorithms.ChaCha20(hmac.digest(self.key, content, "sha256"), bytes(16)), mode=None)
        return cipher.encryptor().update(bytes(8 * sent.numel()))


def clip_rows(tensor: Tensor, clip: float) -> Tensor:
    """Scale every row whose L2 norm exceeds `clip` down to it; the others stay as they are, to the bit."""
    norms: Tensor = torch.linalg.vector_norm(tensor, dim=1, keepdim=True)
    return tensor * (clip / norms.clamp(min=clip))


def epsilon(*, clip: float, noise: float, delta: float, releases: int) -> float:
    """Return the exact ε of rows of norm `clip` sent `releases` times, each time with fresh noise.

    A row can change by 2·clip at most. Gaussian releases compose exactly: T of them, each perhaps depending on those
    before it, protect as one does with √T times the sensitivity (Dong, Roth and Su, "Gaussian differential privacy").
    """
    if not (clip > 0 and noise >= 0 and 0 < delta < 1 and releases >= 0):
        given = f"clip {clip}, noise {noise}, delta {delta}, releases {releases}"
        raise ValueError(
            f"clip should be positive, noise and releases not negative, delta between 0 and 1; got {given}"
        )
    if releases == 0:
        return 0.0
    from dp_accounting.gaussian_mechanism import get_epsilon_gaussian  # a second to load, needed once a job

    return float(get_epsilon_gaussian(noise / (2 * clip * math.sqrt(releases)), delta))
