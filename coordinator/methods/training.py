"""Training: one phase per epoch."""

import math
from dataclasses import dataclass

from coordinator.methods import Method
from coordinator.phases import TEST, TRAIN, learn, look
from coordinator.train import Train
from fedora_vfl.sampling.seeds import derive
from protos.fedora.v1.phase_pb2 import Adam, Augmentation, Phase, Samples, Schedule, Sgd, Update

TOGETHER = 64  # phases that are made at once: a training may have a hundred thousand epochs


@dataclass(frozen=True)
class Looks:
    """Evaluations between epochs."""

    every: int  # so many epochs
    batch_size: int


def training(
    settings: Train, *, seed: int, name: str = "train", over: Samples = TRAIN, looks: Looks | None = None
) -> Method[None]:
    """Train on a sample set for the given number of epochs, with looks at the test rows in between if there are any."""
    phases: list[Phase] = []
    for epoch in range(settings.rounds):
        phases.append(
            learn(
                name,
                epoch + 1,
                over=over,
                update=update(settings, learning_rate(settings, epoch), fresh=epoch == 0),
                batch_size=settings.batch_size,
                seed=derive(seed, name, epoch),
                augmentation=Augmentation(flip=settings.augment.flip, shift=settings.augment.shift),
                schedule=schedule(settings, goes_on=epoch + 1 < settings.rounds),
            )
        )
        if looks and (epoch + 1) % looks.every == 0:
            phases.append(look("progress", epoch + 1, over=TEST, batch_size=looks.batch_size))
        if len(phases) >= TOGETHER or epoch + 1 == settings.rounds:
            yield phases
            phases = []


def schedule(settings: Train, *, goes_on: bool) -> Schedule | None:
    """Return the schedule of an epoch, which another one may follow; none where all parties wait at every step."""
    if settings.overlap == 0 and settings.local_steps == 1:
        return None
    goes_on = goes_on and settings.overlap > 0
    return Schedule(overlap=settings.overlap, local_steps=settings.local_steps, goes_on=goes_on)


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
