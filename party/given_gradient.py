"""Backpropagation from a gradient that another party has sent, by torch's engine itself.

torch's own `backward(output, gradient)` imports its symbolic shapes, and sympy with them, when it is first given a
gradient: half a second of every passive party's first step. What it then checks with them takes a third of a small
network's way back, every time. The engine below it does the same to the bit.
"""

from collections.abc import Sequence

from torch import Tensor
from torch.autograd import Variable

_run = Variable._execution_engine.run_backward


def go_back(output: Tensor, gradient: Tensor) -> None:
    """Add to the gradients of all parameters that the output was made with, as the output has this gradient."""
    _run((output,), (gradient,), False, False, (), allow_unreachable=True, accumulate_grad=True)


def gradients_given(parameters: Sequence[Tensor], output: Tensor, gradient: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradient of every parameter, None where the output was made without it; the graph is kept."""
    found: tuple[Tensor | None, ...] = _run(
        (output,), (gradient,), True, False, tuple(parameters), allow_unreachable=True, accumulate_grad=False
    )
    return found
