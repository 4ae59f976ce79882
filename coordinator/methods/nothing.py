"""None: the rows are dropped and the model stays as it is. What deleting rows alone achieves."""

from typing import Literal

from coordinator.methods import Method, MethodResult, UnlearningTask
from coordinator.methods.registry import Unlearn, method


class Nothing(Unlearn):
    """There is nothing to set."""

    method: Literal["none"] = "none"


@method("none", Nothing)
def nothing(task: UnlearningTask, settings: Nothing) -> Method[MethodResult]:
    """Yield no phase."""
    yield from ()
    return MethodResult(0, "rows were dropped, and nothing else was done")
