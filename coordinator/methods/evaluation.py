"""Evaluation: forward passes that change nothing."""

from coordinator.methods import Method, Outcome
from coordinator.phases import TEST, look
from protos.phase_pb2 import Samples


def evaluation(*, batch_size: int, name: str = "test", over: Samples = TEST) -> Method[Outcome]:
    """Measure loss and accuracy on a sample set."""
    return (yield look(name, 1, over=over, batch_size=batch_size))
