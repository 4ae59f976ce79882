"""A method once more in the same job: its phases get names of their own, so that their cost can be told apart."""

from coordinator.methods import Method, R, Rollback


def repeated(method: Method[R], *, mark: str) -> Method[R]:
    """Pass a method's phases on, each with a mark behind its name."""
    try:
        phase = next(method)
        while True:
            if not isinstance(phase, Rollback):
                phase.name += mark
            phase = method.send((yield phase))
    except StopIteration as stop:
        value: R = stop.value
        return value
    finally:
        method.close()
