"""What the rounds of a joint phase are called in books and statements; coordinator and parties must agree."""

from protos.fedora.v1.phase_pb2 import Phase

REMAINING_HALF = "remaining"  # of a round that pushes: its descent on D_r


def names_of(phase: Phase) -> list[str]:
    """Return what every round of a phase counts as: a joint round that pushes is both halves of a round at once."""
    pushes = phase.update.WhichOneof("rule") == "joint_rounds" and phase.joint.forget
    return [phase.name, REMAINING_HALF] if pushes else [phase.name]
