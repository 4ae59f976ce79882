"""A job's way to a coordinator that is up, and its events' way back."""

from collections.abc import Callable

import grpc

from fedora_vfl.errors import PartyError, from_failure
from fedora_vfl.settings.federation import Deadlines
from fedora_vfl.wire.channels import Secured, check_right_service, dial, path, reach
from fedora_vfl.wire.protocol import COORDINATOR, PROTOCOL
from fedora_vfl.wire.tls import COORDINATOR_MEMBER, Credentials
from protos.fedora.v1.control_pb2 import DESCRIPTOR, Event, Job, Result
from protos.fedora.v1.failure_pb2 import Failure

SUBMIT = DESCRIPTOR.services_by_name["Jobs"].methods_by_name["Submit"]


async def submit(
    address: str,
    settings: str,
    *,
    origin: str,
    follow: Callable[[Event], None],
    deadlines: Deadlines,
    credentials: Credentials | None = None,
) -> Result:
    """Run a job on a cluster and return its result; every event on the way is handed to `follow`."""
    secured: Secured = {"credentials": credentials, "peer": COORDINATOR_MEMBER}
    async with dial(address, deadlines.silence, **secured) as channel:
        await reach(channel, address, deadlines.join, waiting=lambda said: follow(Event(note=said)), **secured)
        job = Job(protocol=PROTOCOL, settings=settings, origin=origin)
        ask: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(path(SUBMIT))
        call = ask(job.SerializeToString())
        try:
            async for data in call:
                event = Event.FromString(data)
                match event.WhichOneof("content"):
                    case "failure":
                        raise from_failure(event.failure)
                    case "result":
                        return event.result
                    case _:
                        follow(event)
        except grpc.RpcError:
            await check_right_service(call, address, **secured)
    why = "the process ended or was stopped, or the network is cut"
    raise PartyError(COORDINATOR, f"is gone: the connection to it broke ({why})", Failure.LOST)
