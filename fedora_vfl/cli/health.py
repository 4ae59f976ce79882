"""fedora health: whether a member is well, as an exit code."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from fedora_vfl.errors import FedoraError, SettingsError
from fedora_vfl.process.lifecycle import run_until_done


class UnwellError(FedoraError):
    """A member is not well, or cannot be asked."""


def health(
    address: Annotated[
        str | None, typer.Argument(help="Where the coordinator or the active party listens.", metavar="[HOST:PORT]")
    ] = None,
    certificates: Annotated[
        Path | None, typer.Option(help="The folder of certificates of the one who asks.", metavar="DIR")
    ] = None,
    member: Annotated[
        str | None,
        typer.Option(
            help="With certificates: who should answer. [default: whose certificates they are, if it listens, else "
            "coordinator]",
            metavar="NAME",
        ),
    ] = None,
    service: Annotated[
        str, typer.Option(help="What is asked about: nothing for the process, or fedora.ready.", metavar="NAME")
    ] = "",
    timeout: Annotated[float, typer.Option(help="How many seconds the answer may take.", min=0.1)] = 5.0,
    file: Annotated[
        Path | None,
        typer.Option(help="Look at the alive file of a party instead, which listens nowhere.", metavar="PATH"),
    ] = None,
    max_age: Annotated[float, typer.Option(help="How many seconds old the alive file may be.", min=0.1)] = 15.0,
) -> None:
    """Tell whether a member is well: exit code 0 if it is, else 1 and a sentence.

    \b
        fedora health 10.0.0.1:7000                             # the process is up
        fedora health 10.0.0.1:7000 --service fedora.ready      # the coordinator: all parties have joined;
                                                                # the active party: it has joined the coordinator
        fedora health --file /run/fedora/alive                  # python -m party ... --alive-file /run/fedora/alive

    A member that computes answers between two batches: allow for the longest one.
    """

    async def work() -> None:
        if (address is None) == (file is None):
            raise SettingsError("say what to look at: an address HOST:PORT, or --file PATH, one of the two")
        if file and (service or certificates or member):
            raise SettingsError("--file is looked at, and nobody asked: leave out --service, --certificates, --member")
        if file:
            _check_file(file, max_age)
        elif address:
            await _check_service(address, service, certificates, member, timeout)

    if code := run_until_done(work()):
        sys.exit(code)


def _check_file(path: Path, max_age: float) -> None:
    """Refuse an alive file that is not there or too old."""
    try:
        age = time.time() - path.stat().st_mtime
    except OSError as error:
        reason = "it has not joined the coordinator yet, or has ended"
        raise UnwellError(f"the party is not well: {path} cannot be read: {error.strerror}; {reason}") from None
    if age > max_age:
        reason = "it has lost the coordinator, or hangs"
        raise UnwellError(f"the party is not well: {path} was last touched {age:.0f} s ago; {reason}")


async def _check_service(
    address: str, service: str, certificates: Path | None, member: str | None, timeout: float
) -> None:
    """Ask a member's health service."""
    import grpc

    from fedora_vfl.errors import PartyError
    from fedora_vfl.process.health import ask
    from fedora_vfl.wire.addresses import check_address
    from fedora_vfl.wire.channels import dial, reach
    from fedora_vfl.wire.tls import COORDINATOR_MEMBER, Credentials, Member

    check_address(address, option="HOST:PORT")
    credentials = Credentials.load(certificates) if certificates else None
    peer = COORDINATOR_MEMBER
    if member and member != COORDINATOR_MEMBER.name:
        peer = Member(member, "active")
    elif credentials and credentials.member.role == "active" and not member:
        peer = credentials.member
    called = member or (peer.name if credentials else "whoever listens there")
    deadline = time.monotonic() + timeout
    async with dial(address, timeout, credentials=credentials, peer=peer) as channel:
        try:
            await reach(channel, address, timeout, credentials=credentials, peer=peer)
        except PartyError as error:
            raise UnwellError(f"{called} {error.reason}") from None
        try:
            word = await ask(channel, service, timeout=max(0.1, deadline - time.monotonic()))
        except grpc.aio.AioRpcError as error:
            raise UnwellError(f"{called} {_why(error.code(), service, timeout)} ({address})") from None
    if word != "SERVING":
        raise UnwellError(f"{called} says {word} of {service or 'itself'} ({address})")


def _why(code: object, service: str, timeout: float) -> str:
    """Say why there was no answer."""
    import grpc

    match code:
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"did not answer within {timeout:g} s"
        case grpc.StatusCode.NOT_FOUND:
            return f"knows no service {service!r}; it knows the empty name and fedora.ready"
        case grpc.StatusCode.UNIMPLEMENTED:
            return "has no health service: the address leads to something else"
        case _:
            return "is gone: the connection broke"
