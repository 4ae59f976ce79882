"""FedORA: rounds that set their own scales, or rounds with the paper's steps."""

from coordinator.methods import Method, MethodResult, UnlearningTask
from coordinator.methods.fedora_settings import Fedora
from coordinator.methods.paper_steps import paper
from coordinator.methods.primal_dual import Problem
from coordinator.methods.registry import method
from coordinator.methods.self_scaling import auto


@method("fedora", Fedora)
def fedora(task: UnlearningTask, settings: Fedora) -> Method[MethodResult]:
    """Forget by rounds that set their own scales, or by the paper's."""
    problem = Problem(settings, task)
    return paper(problem) if settings.steps == "paper" else auto(problem)
