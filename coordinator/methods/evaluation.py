"""Evaluation: forward passes that change nothing."""

from collections.abc import Mapping

from coordinator.methods import Method, PhaseOutcome
from coordinator.phases import FORGET, PROBE, RECORD, REMAINING, TEST, VALIDATION, look, share
from fedora_vfl.sampling.seeds import derive
from protos.fedora.v1.phase_pb2 import Samples


def evaluation(*, batch_size: int, name: str = "test", over: Samples = TEST) -> Method[PhaseOutcome]:
    """Measure loss and accuracy on a sample set."""
    return (yield look(name, 1, over=over, batch_size=batch_size))


def observation(
    round: int, *, rows: Mapping["Samples.Set", int], batch_size: int, seed: int, prefix: str = ""
) -> Method[None]:
    """Have the active party record predictions of held-out rows, rows to forget, as many others, and triggered rows.

    The same seed looks at the same rows. A prefix sets the names of phases apart, and nothing else.
    """
    members = share(REMAINING, min(1.0, rows[Samples.TEST] / rows[Samples.REMAINING]))
    sets = {"test": TEST, "validation": VALIDATION, "forgotten": FORGET, "members": members, "probe": PROBE}
    phases = [
        look(prefix + name, round, over=over, batch_size=batch_size, seed=derive(seed, name), update=RECORD)
        for name, over in sets.items()
        if rows.get(over.set)
    ]
    if phases:
        yield phases
