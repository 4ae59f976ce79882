"""One end of a stream: every wait has a deadline, every error names the peer, whoever gives up breaks nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from fedora_vfl.cluster.local import free_address
from fedora_vfl.errors import PartyError
from fedora_vfl.wire.channels import Secured, dial, listen, path, reach
from fedora_vfl.wire.link import READ_AHEAD, Link, one_arrived
from fedora_vfl.wire.meter import Meter, Packed
from fedora_vfl.wire.started import Started
from fedora_vfl.wire.tls import Member
from protos.fedora.v1.exchange_pb2 import DESCRIPTOR
from protos.fedora.v1.failure_pb2 import Failure
from protos.fedora.v1.meter_pb2 import Kind


class Pipe:
    """A stream without a network: what is written waits for the gate; what is read comes from a list."""

    def __init__(self, incoming: list[bytes]) -> None:
        self.incoming, self.written = list(incoming), list[bytes]()
        self.gate, self.begun, self.writing = asyncio.Event(), asyncio.Event(), 0

    async def read(self) -> object:
        await asyncio.sleep(0)
        return self.incoming.pop(0) if self.incoming else grpc.aio.EOF

    async def write(self, message: bytes) -> None:
        self.writing += 1
        self.begun.set()
        assert self.writing == 1, "gRPC takes one message at a time"
        await self.gate.wait()
        self.written.append(message)
        self.writing -= 1


def unpack(data: bytes) -> tuple[str, Packed]:
    if data == b"junk":
        raise ValueError("is junk")
    return data.decode(), Packed(data, Kind.CONTROL)


def play(scenario: Callable[[Link[str, str], Pipe], Awaitable[None]], *incoming: bytes) -> Meter:
    """Run a scenario with one end of a stream and return its byte counts."""
    meter = Meter()

    async def run() -> None:
        pipe = Pipe(list(incoming))
        link: Link[str, str] = Link(
            pipe,
            me="here",
            peer="there",
            meter=meter,
            pack=lambda message: Packed(message.encode(), Kind.CONTROL),
            unpack=unpack,
        )
        await scenario(link, pipe)
        link.close()

    asyncio.run(run())
    return meter


def test_messages_arrive_in_order_and_both_ways_are_counted() -> None:
    async def scenario(link: Link[str, str], pipe: Pipe) -> None:
        pipe.gate.set()
        await link.send("one")
        await link.post("two")
        await link.send("three")
        assert pipe.written == [b"one", b"two", b"three"]
        assert [await link.receive() for _ in range(2)] == ["a", "bb"]

    counted = {one.sender: one.counts[0].protobuf_bytes for one in play(scenario, b"a", b"bb").close()}
    assert counted == {"here": 11, "there": 3}


def test_a_posted_message_begins_to_leave_at_once_while_its_sender_goes_on() -> None:
    async def scenario(link: Link[str, str], pipe: Pipe) -> None:
        await link.post("one")
        assert pipe.writing == 1 and not pipe.written
        pipe.gate.set()
        await link.post("two")
        assert pipe.written[0] == b"one"

    play(scenario)


def test_a_sender_that_is_cancelled_does_not_break_the_stream_for_the_next() -> None:
    async def scenario(link: Link[str, str], pipe: Pipe) -> None:
        given_up = asyncio.create_task(link.send("one"))
        await pipe.begun.wait()
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        following = asyncio.create_task(link.send("two"))
        await asyncio.sleep(0)
        pipe.gate.set()
        await following
        assert pipe.written == [b"one", b"two"]

    play(scenario)


def test_several_senders_take_turns() -> None:
    async def scenario(link: Link[str, str], pipe: Pipe) -> None:
        sending = [asyncio.create_task(link.send(str(number))) for number in range(5)]
        await pipe.begun.wait()
        pipe.gate.set()
        await asyncio.gather(*sending)
        assert sorted(pipe.written) == [b"0", b"1", b"2", b"3", b"4"]

    play(scenario)


def test_a_peer_that_takes_nothing_is_named() -> None:
    async def scenario(link: Link[str, str], pipe: Pipe) -> None:
        with pytest.raises(PartyError, match=r"there took no message for 0\.01 s") as caught:
            await link.send("one", timeout=0.01)
        assert caught.value.kind == Failure.SILENT

    play(scenario)


def test_a_peer_that_has_gone_is_named_to_everyone_who_asks() -> None:
    async def scenario(link: Link[str, str], pipe: Pipe) -> None:
        assert await link.receive() == "last words"
        for _ in range(2):
            with pytest.raises(PartyError, match="there is gone") as caught:
                await link.receive()
            assert caught.value.kind == Failure.LOST
        await link.ended()

    play(scenario, b"last words")


def test_a_message_that_cannot_be_read_names_its_sender() -> None:
    async def scenario(link: Link[str, str], pipe: Pipe) -> None:
        with pytest.raises(PartyError, match="there sent a message that cannot be read: it is junk"):
            await link.receive()

    play(scenario, b"junk")


def test_only_so_many_messages_are_read_ahead() -> None:
    async def scenario(link: Link[str, str], pipe: Pipe) -> None:
        for _ in range(10 * READ_AHEAD):
            await asyncio.sleep(0)
        assert len(pipe.incoming) == 5 * READ_AHEAD - READ_AHEAD - 1  # one more is in hand

    play(scenario, *[b"x"] * (5 * READ_AHEAD))


class Quiet(Pipe):
    """A stream over which nothing comes until it is let through."""

    async def read(self) -> object:
        await self.gate.wait()
        return await super().read()


def link_to(peer: str, pipe: Pipe) -> Link[str, str]:
    return Link(
        pipe,
        me="here",
        peer=peer,
        meter=Meter(),
        pack=lambda message: Packed(message.encode(), Kind.CONTROL),
        unpack=unpack,
    )


def test_of_several_links_whichever_has_something_is_noticed_at_once() -> None:
    async def scenario() -> None:
        silent, gone = link_to("silent", Quiet([])), link_to("gone", Pipe([]))
        await one_arrived([silent, gone], 60)
        assert not silent.has_arrived and gone.has_arrived
        with pytest.raises(PartyError, match="gone is gone"):
            gone.take()
        with pytest.raises(PartyError, match=r"silent sent nothing for 60 s") as caught:
            await one_arrived([silent, link_to("other", Quiet([]))], 60, left=0.01)
        assert caught.value.kind == Failure.SILENT

    asyncio.run(scenario())


def test_an_answer_begins_to_leave_before_the_link_reads_on() -> None:
    order = []

    class Noted(Quiet):
        async def read(self) -> object:
            order.append("read")
            return await super().read()

        async def write(self, message: bytes) -> None:
            order.append("write")
            await super().write(message)

    async def scenario() -> None:
        pipe = Noted([b"question"])
        link = link_to("there", pipe)
        asyncio.get_running_loop().call_soon(pipe.gate.set)  # once somebody waits
        await link.receive(timeout=60)
        await link.post("answer")
        assert order == ["read", "write"]
        await asyncio.sleep(0)
        assert order == ["read", "write", "read"]
        link.close()

    asyncio.run(scenario())


def test_whoever_gives_up_waiting_does_not_wake_or_silence_the_next() -> None:
    async def scenario() -> None:
        pipe = Quiet([b"late"])
        link = link_to("there", pipe)
        given_up = asyncio.create_task(link.receive(timeout=60))
        await asyncio.sleep(0)
        given_up.cancel()
        following = asyncio.create_task(link.receive(timeout=60))
        await asyncio.sleep(0)
        pipe.gate.set()
        assert await following == "late"
        assert given_up.cancelled()

    asyncio.run(scenario())


def test_a_write_that_grpc_cancels_is_a_lost_peer() -> None:
    async def scenario(link: Link[str, str], pipe: Pipe) -> None:
        async def write(message: bytes) -> None:
            await asyncio.sleep(0)
            raise asyncio.CancelledError

        pipe.write = write  # type: ignore[method-assign]
        await link.post("one")
        with pytest.raises(PartyError, match="there is gone"):
            await link.post("two")

    play(scenario)


def test_what_is_started_runs_to_its_first_wait_at_once_and_then_by_itself() -> None:
    async def run() -> None:
        gate, seen = asyncio.Event(), list[str]()

        async def work(end: Exception | None) -> int:
            seen.append("begun")
            await gate.wait()
            await asyncio.sleep(0)
            seen.append("ended")
            if end:
                raise end
            return 7

        good, bad = Started(work(None)), Started(work(ValueError("no")))
        assert seen == ["begun", "begun"] and not good.is_done
        assert not await good.wait(0)
        giving_up = asyncio.create_task(good.wait())
        await asyncio.sleep(0)
        giving_up.cancel()
        gate.set()
        assert await good.wait() and await bad.wait()
        assert good.result() == 7 and seen.count("ended") == 2
        with pytest.raises(ValueError, match="no"):
            bad.result()

    asyncio.run(run())


def test_a_channel_that_is_dialled_anew_has_a_connection_of_its_own() -> None:
    """Over the last one nothing may come any more, as after a change of addresses, and nobody has noticed yet."""
    method = DESCRIPTOR.services_by_name["Exchange"].methods_by_name["Open"]
    callers = []

    async def serve(_: object, context: Any) -> None:
        callers.append(context.peer())
        await context.write(b"here")
        await asyncio.Event().wait()

    async def work() -> None:
        address = free_address()
        handler: Any = grpc.stream_stream_rpc_method_handler(serve)
        server = await listen(address, {method: handler}, 3.0, credentials=None)
        secured: Secured = {"credentials": None, "peer": Member("active", "active")}
        calls: list[
            Any
        ] = []  # a stream that is under way holds its channel's connection, also when the channel is closed
        for _ in range(2):
            channel = dial(address, 3.0, **secured)
            await reach(channel, address, 10.0, **secured)
            calls.append(channel.stream_stream(path(method))())
            assert await calls[-1].read() == b"here"
            reading = asyncio.create_task(calls[-1].read())
            await asyncio.sleep(0)
            await channel.close()
            reading.cancel()
        await server.stop(grace=0)

    asyncio.run(work())
    assert len(set(callers)) == 2
