"""A method once more in the same job: its phases get names of their own, so that their cost can be told apart."""

from coordinator.methods import Method, R, phases_in


def repeated(method: Method[R], *, mark: str) -> Method[R]:
    """Pass a method's phases on, each with a mark behind its name."""
    try:
        step = next(method)
        while True:
            for phase in phases_in(step):
                phase.name += mark
            step = method.send((yield step))
    except StopIteration as stop:
        value: R = stop.value
        return value
    finally:
        method.close()
