"""Who is here: a party takes part in jobs from its welcome on, and in none that ended before it heard of the end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from coordinator.metrics import CoordinatorMetrics
from coordinator.roster import Roster
from fedora_vfl.process.health import Health
from fedora_vfl.settings.federation import Active, Coordinator, Federation
from fedora_vfl.wire.meter import Totals
from fedora_vfl.wire.protocol import PROTOCOL
from protos.fedora.v1.control_pb2 import FromCoordinator, FromParty, Hello
from protos.fedora.v1.failure_pb2 import Failure

PARTY = "passive-1"
FEDERATION = Federation(
    coordinator=Coordinator(address="127.0.0.1:7000"), active=Active(address="127.0.0.1:7001"), passive=[PARTY]
)


class Call:
    """A party's call as the coordinator's server hands it over, without a socket."""

    def __init__(self, jobs: list[str]) -> None:
        self._sent: asyncio.Queue[Any] = asyncio.Queue()
        self._sent.put_nowait(FromParty(hello=Hello(protocol=PROTOCOL, party=PARTY, jobs=jobs)).SerializeToString())
        self.heard: asyncio.Queue[FromCoordinator] = asyncio.Queue()
        self.before_it_hears: Callable[[], Awaitable[None]] | None = None

    async def read(self) -> Any:
        return await self._sent.get()

    async def write(self, message: bytes) -> None:
        if self.before_it_hears:
            await self.before_it_hears()
        self.heard.put_nowait(FromCoordinator.FromString(message))

    def hang_up(self) -> None:
        self._sent.put_nowait(grpc.aio.EOF)

    def auth_context(self) -> dict[str, Any]:
        return {}

    def peer(self) -> str:
        return "nowhere"


def new_roster() -> Roster:
    return Roster(FEDERATION, CoordinatorMetrics(FEDERATION.parties), Health(), Totals())


def test_no_job_reaches_a_party_before_its_welcome_does() -> None:
    async def work() -> None:
        roster, call = new_roster(), Call(["one"])
        asked, answered = asyncio.Event(), asyncio.Event()

        async def going_on(jobs: list[str]) -> list[str]:
            asked.set()
            await answered.wait()
            return jobs

        roster.going_on = going_on
        serving = asyncio.create_task(roster.join(None, call))  # type: ignore[arg-type] # as much of a call as is used
        await asked.wait()
        assert PARTY in roster.missing() and not roster.present(), "its books are not open yet"
        answered.set()
        await roster.change(roster.missing(), timeout=None)
        assert PARTY not in roster.missing()
        assert list(call.heard.get_nowait().welcome.jobs) == ["one"]
        call.hang_up()
        await serving
        assert PARTY in roster.missing()

    asyncio.run(work())


def test_a_party_whose_job_ended_while_it_was_let_in_has_to_join_again() -> None:
    async def work() -> None:
        roster, call = new_roster(), Call(["one"])
        answers = [["one"], []]

        async def going_on(jobs: list[str]) -> list[str]:
            return answers.pop(0)

        roster.going_on = going_on
        await roster.join(None, call)  # type: ignore[arg-type] # it returns when the coordinator hangs up
        assert list(call.heard.get_nowait().welcome.jobs) == ["one"]

    asyncio.run(work())


def test_a_party_that_is_back_before_its_loss_was_noticed_is_still_expected() -> None:
    async def work() -> None:
        roster, earlier, later = new_roster(), Call([]), Call([])
        serving = asyncio.create_task(roster.join(None, earlier))  # type: ignore[arg-type]
        await roster.change(roster.missing(), timeout=None)

        async def notice() -> None:
            earlier.hang_up()
            await serving

        later.before_it_hears = notice
        await roster.join(None, later)  # type: ignore[arg-type]
        assert later.heard.get_nowait().failure.kind == Failure.TAKEN
        roster._been_here.add(FEDERATION.active.name)
        assert PARTY in roster.missing() and roster.expected_back(), "it tries again in a moment"

    asyncio.run(work())
