"""None: the rows are dropped and the model stays as it is. What deleting rows alone achieves."""

from typing import Literal

from coordinator.methods import Case, Ending, Method
from coordinator.methods.registry import Unlearn, method


class Nothing(Unlearn):
    """There is nothing to set."""

    method: Literal["none"] = "none"


@method("none", Nothing)
def nothing(case: Case, settings: Nothing) -> Method[Ending]:
    """Yield no phase."""
    yield from ()
    return Ending(0, "rows were dropped, and nothing else was done")
