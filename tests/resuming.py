"""A party that saves its state after all it does: python -m tests.resuming HOW --config PARTY.yaml

HOW is `round-trip`: it throws its state away each time and goes on with what it reads back from the file; or `resume`:
when a job is set up, it goes on with the state that an earlier process of the same party has left.
"""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from party.__main__ import main
from party.active import Active
from party.role import Role
from party.state import PartyState
from protos.fedora.v1.control_pb2 import Ready


def state_file(role: Role) -> Path:
    """Return where a party's state is kept, in its own folder."""
    return role.context.settings.models / "state"


def read_state(role: Role) -> None:
    """Go on with the state in the file."""
    role.take(PartyState.read(state_file(role), role.context.records))


def saving(work: Callable[..., Any], *, and_read: bool) -> Callable[..., Any]:
    """Have a role save its state after some work."""

    def then(role: Role, answer: Any) -> Any:
        role.state.write(state_file(role))
        if and_read:
            read_state(role)
        return answer

    async def wait(role: Role, answer: Awaitable[Any]) -> Any:
        return then(role, await answer)

    def saved(role: Role, *arguments: Any) -> Any:
        answer = work(role, *arguments)
        return wait(role, answer) if isinstance(answer, Awaitable) else then(role, answer)

    return saved


def install(how: str) -> None:
    """Change what all roles of this process do."""
    for kind, names in {Role: ("request", "drop", "restart", "run"), Active: ("assess",)}.items():
        for name in names:
            setattr(kind, name, saving(getattr(kind, name), and_read=how == "round-trip"))
    prepare = Role.prepare

    async def prepare_and_read(self: Role) -> Ready:
        ready = await prepare(self)
        if how == "resume" and state_file(self).exists():
            read_state(self)
        return ready

    Role.prepare = prepare_and_read  # type: ignore[method-assign]


if __name__ == "__main__":
    install(sys.argv.pop(1))
    sys.exit(main())
