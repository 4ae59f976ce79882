"""Training: one phase per epoch."""

import math

from coordinator.methods import Method
from coordinator.phases import TRAIN, learn
from coordinator.train import Train
from fedora_vfl.sampling.seeds import derive
from protos.fedora.v1.phase_pb2 import Adam, Augmentation, Samples, Sgd, Update


def training(settings: Train, *, seed: int, name: str = "train", over: Samples = TRAIN) -> Method[None]:
    """Train on a sample set for the given number of epochs."""
    for epoch in range(settings.rounds):
        yield learn(
            name,
            epoch + 1,
            over=over,
            update=update(settings, learning_rate(settings, epoch), fresh=epoch == 0),
            batch_size=settings.batch_size,
            seed=derive(seed, name, epoch),
            augmentation=Augmentation(flip=settings.augment.flip, shift=settings.augment.shift),
        )


def update(settings: Train, lr: float, *, fresh: bool) -> Update:
    """Return the optimizer's rule for one epoch."""
    if settings.optimizer == "sgd":
        sgd = Sgd(lr=lr, momentum=settings.momentum, weight_decay=settings.weight_decay, nesterov=settings.nesterov)
        return Update(sgd=sgd, fresh=fresh)
    beta1, beta2 = settings.betas
    adam = Adam(lr=lr, beta1=beta1, beta2=beta2, epsilon=settings.epsilon, weight_decay=settings.weight_decay)
    return Update(adam=adam, fresh=fresh)


def learning_rate(settings: Train, epoch: int) -> float:
    """Return the rate of one epoch, counted from 0: linear warm-up, then the schedule."""
    if epoch < settings.warmup:
        return settings.rate * (epoch + 1) / settings.warmup
    past, all_epochs = epoch - settings.warmup, max(1, settings.rounds - settings.warmup)
    match settings.schedule:
        case "step":
            return settings.rate * settings.decay ** (past // settings.decay_every)
        case "cosine":
            return settings.rate * (1 + math.cos(math.pi * past / all_epochs)) / 2
        case _:
            return settings.rate
