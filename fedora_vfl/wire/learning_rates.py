"""What the message of an update rule says of its steps; coordinator and parties read it alike."""

from protos.fedora.v1.phase_pb2 import Correction, Update


def learning_rate(update: Update) -> float | None:
    """Return the learning rate of an update rule; None for one that does not learn."""
    match update.WhichOneof("rule"):
        case "sgd":
            return update.sgd.lr
        case "adam":
            return update.adam.lr
        case "ascent":
            return update.ascent.lr
        case "primal_descent":
            return update.primal_descent.tau
        case "correction":
            return _of_step(update.correction)
        case "joint_rounds":
            return update.joint_rounds.step
        case _:
            return None


def _of_step(rule: Correction) -> float:
    return rule.adam.lr if rule.WhichOneof("step") == "adam" else rule.sgd.lr
