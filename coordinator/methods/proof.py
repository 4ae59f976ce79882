"""The last pass over a model that has forgotten: what the certificate says of it."""

from dataclasses import dataclass

from coordinator.methods import Method, UnlearningTask
from coordinator.methods.fedora_settings import Fedora
from coordinator.methods.primal_dual import Problem
from coordinator.methods.registry import Unlearn
from coordinator.phases import REMAINING, look, share
from fedora_vfl.sampling.seeds import derive
from protos.fedora.v1.phase_pb2 import CrossEntropy, Loss, Phase, Residual, Update

NAME = "certificate"
ROWS = 2000  # of D_r, drawn at random, on which ∇L_r is measured
MICRO_BATCH = 1024


@dataclass(frozen=True)
class Proof:
    """How the final model stands to the constrained problem."""

    loss: float | None  # L_u over all of D_u; None for a method without a dual variable, or where it is not told
    residual_squared: float  # ‖∇L_r − push + ρ·(Θ − Θ_init)‖²
    residual_rows: int
    moved_squared: float | None  # ‖Θ − Θ_init‖²; None where it is not told


def proof(task: UnlearningTask, settings: Unlearn, *, pushed: bool) -> Method[Proof]:
    """Measure L_u over D_u, then the stationarity residual over a part of D_r; nothing changes but Ω, to 0 at rest.

    When recovery rounds came last, without a push, the dual variable is 0: complementary slackness asks for that where
    the constraint is not tight, and the residual is that of the model as it was left.
    """
    loss, rho, batch_size = None, 0.0, MICRO_BATCH
    phases: list[Phase] = []
    if isinstance(settings, Fedora):
        problem, rho, batch_size = Problem(settings, task), settings.rho, settings.micro_batch
        ascent = problem.unlearning(1, 0.0, fresh=not pushed)
        ascent.name = NAME
        phases.append(ascent)
    phases.append(
        look(
            NAME,
            2,
            over=share(REMAINING, min(1.0, ROWS / task.remaining)),
            batch_size=batch_size,
            seed=derive(task.seed, NAME),
            loss=Loss(cross_entropy=CrossEntropy(), reduction=Loss.SET_MEAN),
            update=Update(residual=Residual(rho=rho)),
        )
    )
    residual = yield phases
    if isinstance(settings, Fedora):
        (forgotten,) = residual.earlier
        loss = None if "loss" in forgotten.left_out else problem.loss(forgotten.loss)
    found = residual.figures
    told = len(found) > len(task.passive) and all("moved_squared" in one for one in found.values())
    moved = residual.total("moved_squared") if told else None
    return Proof(loss, residual.total("residual_squared"), residual.rows, moved)
