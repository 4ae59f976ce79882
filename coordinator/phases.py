"""The vocabulary of methods: sample sets, losses, update rules, and phases made of them."""

from protos.fedora.v1.phase_pb2 import Augmentation, CrossEntropy, Loss, Observe, Phase, Plan, Samples, Schedule, Update

TRAIN = Samples(set=Samples.TRAIN, share=1)
VALIDATION = Samples(set=Samples.VALIDATION, share=1)
TEST = Samples(set=Samples.TEST, share=1)
FORGET = Samples(set=Samples.FORGET, share=1)
REMAINING = Samples(set=Samples.REMAINING, share=1)
PROBE = Samples(set=Samples.PROBE, share=1)

CROSS_ENTROPY = Loss(cross_entropy=CrossEntropy())
OBSERVE = Update(observe=Observe())
RECORD = Update(observe=Observe(record=True))
# Update rules that need no gradient: in their phases none is sent back.
FORWARD_ONLY = {"observe", "shift", "retreat", "compare", "soften"}


def share(samples: Samples, part: float) -> Samples:
    """Return a part of a sample set, drawn anew by each phase's seed."""
    return Samples(set=samples.set, share=part)


def learn(
    name: str,
    round: int,
    *,
    over: Samples,
    update: Update,
    batch_size: int,
    seed: int,
    loss: Loss = CROSS_ENTROPY,
    augmentation: Augmentation | None = None,
    schedule: Schedule | None = None,
) -> Phase:
    """Return a phase that changes parameters over shuffled batches, the networks in train mode."""
    plan = Plan(seed=seed, batch_size=batch_size, shuffle=True)
    return Phase(
        name=name,
        round=round,
        over=over,
        plan=plan,
        loss=loss,
        update=update,
        train_mode=True,
        augmentation=augmentation,
        schedule=schedule,
    )


def look(
    name: str,
    round: int,
    *,
    over: Samples,
    batch_size: int,
    seed: int = 0,
    loss: Loss = CROSS_ENTROPY,
    update: Update = OBSERVE,
) -> Phase:
    """Return a phase over which parameters stand still, the networks in eval mode."""
    plan = Plan(seed=seed, batch_size=batch_size, shuffle=False)
    return Phase(
        name=name,
        round=round,
        over=over,
        plan=plan,
        loss=loss,
        update=update,
        forward_only=update.WhichOneof("rule") in FORWARD_ONLY,
    )
