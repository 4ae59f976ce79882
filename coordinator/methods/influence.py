"""Phases that ICO and CVFU share: measure what D_u has done to the model, to first order, and take some of it away."""

import math
from dataclasses import dataclass

from coordinator.methods import Method
from coordinator.phases import FORGET, look, share
from fedora_vfl.errors import SettingsError
from protos.fedora.v1.phase_pb2 import CrossEntropy, Influence, Loss, Phase, Shift, Update


@dataclass(frozen=True)
class Measured:
    """What the parties say of g = ∇L(D_u)."""

    loss: float  # L(D_u), mean
    gradient: float  # ‖g‖ over all parties
    parameters: float  # ‖Θ‖ over all parties


def influence(name: str, *, batch_size: int) -> Method[Measured]:
    """Have every party keep its gradient of the mean cross-entropy on D_u, the networks in eval mode."""
    found = yield look(
        name,
        1,
        over=FORGET,
        batch_size=batch_size,
        loss=Loss(cross_entropy=CrossEntropy(), reduction=Loss.SET_MEAN),
        update=Update(influence=Influence()),
    )
    if "figures" in found.left_out:
        reason = found.left_out["figures"]
        raise SettingsError(
            f"unlearn: {name} goes by the length of a gradient over the rows to forget, which is not told: {reason}; "
            "fedora, retrain and ga do without"
        )
    norms = (math.sqrt(found.total(figure)) for figure in ("gradient_squared", "parameters_squared"))
    return Measured(found.loss, *norms)


def shift(name: str, round: int, by: float) -> Phase:
    """Return the phase that moves every parameter by so much of its gradient; it exchanges nothing."""
    return look(name, round, over=share(FORGET, 0), batch_size=1, update=Update(shift=Shift(by=by)))
