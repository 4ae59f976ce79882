"""Feature reconstruction by the active party: from embeddings, with the bottom at hand or with a few rows known."""

import copy
import functools
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from party.data.inputs import TableInputs

ALPHAS = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
NETWORK_STEPS = 300
LEAST_NOISE = 1e-7  # share of the embeddings' variance that counts as noise where there is none, as rounding is
LEAST_NOISE_OF_WIDE = 0.03  # the same where rows are wider than embeddings, and many rows fit: the likelier are better
SMALLEST = 1e-12  # of that share, so that embeddings which are all alike can be asked about too
REACH = 6.0  # pixels, over which images are taken to change
ACROSS_CHANNELS = 0.8  # how alike two colours of a pixel are taken to be


@dataclass(frozen=True)
class Prior:
    """What an attacker believes of rows before it has seen any: x = mean + factor·z, z standard normal."""

    mean: Tensor
    factor: Tensor

    @classmethod
    def of(cls, rows: Tensor) -> "Prior":
        """Take mean and deviation of every column from rows; of images, neighbouring pixels are taken to be alike."""
        mean, deviation = rows.double().mean(dim=0), rows.double().flatten(1).std(dim=0).clamp(min=1e-3)
        if rows.dim() == 2:
            return cls(mean, torch.diag(deviation))
        grid = torch.meshgrid(*(torch.arange(size, dtype=torch.float64) for size in rows.shape[1:]), indexing="ij")
        channel, *place = (axis.flatten()[:, None] for axis in grid)
        distance = torch.cdist(torch.cat(place, dim=1), torch.cat(place, dim=1))
        alike = torch.exp(-distance / REACH) * torch.where(channel == channel.T, 1.0, ACROSS_CHANNELS)
        covariance = alike * deviation[:, None] * deviation[None, :]
        return cls(mean, torch.linalg.cholesky(covariance + 1e-6 * torch.eye(len(deviation), dtype=torch.float64)))


def with_bottom(
    bottom: nn.Module, embeddings: Tensor, prior: Prior, *, noise: float, steps: int, centre: Tensor | None = None
) -> Tensor:
    """Find the likeliest inputs that have these embeddings, with the bottom and the size of its noise at hand.

    `centre` is the mean embedding of many rows: where rows are wider than embeddings, the mean row is taken to have it.
    Minimises ‖φ(x) − h‖² + noise²·‖z‖², row by row, by the steps of Levenberg and Marquardt.
    """
    exact = copy.deepcopy(bottom).double().eval()
    wanted = embeddings.double()
    rows, shape = len(wanted), prior.mean.shape
    wide = prior.mean.numel() > wanted.shape[1]
    least = LEAST_NOISE_OF_WIDE if wide else LEAST_NOISE
    if wide and centre is not None:
        with torch.no_grad():
            wanted = wanted - centre.double() + exact(prior.mean[None])
    weight = max(noise**2, least * float(wanted.var(dim=0).mean()), SMALLEST)
    place = functools.partial(_place, prior)
    jacobians = torch.func.vmap(torch.func.jacrev(lambda row: exact(row.view(1, *shape))[0]))
    z = torch.zeros(rows, len(prior.factor), dtype=torch.float64)
    damping = torch.ones(rows, 1, 1, dtype=torch.float64)
    with torch.no_grad():
        missing = wanted - exact(place(z))
        for _ in range(steps):
            jacobian = jacobians(place(z).flatten(1)) @ prior.factor
            towards = (jacobian.mT @ missing[..., None]) - weight * z[..., None]
            # Of the two equal systems the one as wide as an embedding is solved, not that as wide as a row.
            inner = jacobian @ jacobian.mT
            unit = torch.eye(inner.shape[1], dtype=torch.float64)
            held = weight + damping * inner.diagonal(dim1=1, dim2=2).mean(dim=1)[:, None, None]
            solved = torch.linalg.solve(held * unit + inner, jacobian @ towards)
            tried = z + ((towards - jacobian.mT @ solved) / held).squeeze(-1)
            left = wanted - exact(place(tried))
            better = _objective(left, tried, weight) < _objective(missing, z, weight)
            z, missing = torch.where(better, tried, z), torch.where(better, left, missing)
            damping = torch.where(better[..., None], damping / 5, damping * 5).clamp(1e-9, 1e9)
    return place(z).float()


def _place(prior: Prior, z: Tensor) -> Tensor:
    return prior.mean + (z @ prior.factor.T).view(len(z), *prior.mean.shape)


def _objective(missing: Tensor, z: Tensor, weight: float) -> Tensor:
    return missing.square().sum(dim=1, keepdim=True) + weight * z.square().sum(dim=1, keepdim=True)


def linear_inverse(known: Tensor, features: Tensor, embeddings: Tensor) -> Tensor:
    """Guess features by a ridge regression from embeddings, fitted to the rows whose features are known."""
    from sklearn.linear_model import RidgeCV
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(known.numpy())
    model = RidgeCV(alphas=ALPHAS).fit(scaler.transform(known.numpy()), features.flatten(1).numpy())
    guess = torch.from_numpy(model.predict(scaler.transform(embeddings.numpy()))).float()
    return guess.view(len(embeddings), *features.shape[1:])


def network_inverse(known: Tensor, features: Tensor, embeddings: Tensor, *, seed: int) -> Tensor:
    """Guess features by a small network from embeddings, fitted to the rows whose features are known."""
    centre, spread = known.mean(dim=0), known.std(dim=0).clamp(min=1e-6)
    wanted = features.flatten(1)
    mean = wanted.mean(dim=0)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        network = nn.Sequential(
            nn.Linear(known.shape[1], 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, wanted.shape[1])
        )
        optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=0.1)
        for _ in range(NETWORK_STEPS):
            optimizer.zero_grad()
            torch.autograd.backward(functional.mse_loss(network((known - centre) / spread), wanted - mean))
            optimizer.step()
    with torch.no_grad():
        guess: Tensor = network.eval()((embeddings - centre) / spread) + mean
    return guess.view(len(embeddings), *features.shape[1:])


def explained(guess: Tensor, truth: Tensor) -> float:
    """Return R², over all columns: 1 for the rows themselves, 0 for their mean; worse than the mean is below 0."""
    wanted = truth.flatten(1).double()
    left = (guess.flatten(1).double() - wanted).square().sum()
    return float(1 - left / (wanted - wanted.mean(dim=0)).square().sum())


def categories_named(guess: Tensor, inputs: TableInputs, rows: Tensor) -> tuple[float, float]:
    """Return the share of categories named right, and that of always naming a column's most frequent one."""
    right, frequent = [], []
    for column in inputs.ones.T.long():
        places, counts = torch.unique(column, return_counts=True)
        named = places[guess[:, places].argmax(dim=1)]
        right.append(float((named == column[rows]).double().mean()))
        frequent.append(float((column[rows] == places[counts.argmax()]).double().mean()))
    return sum(right) / len(right), sum(frequent) / len(frequent)
