"""fedora certs: a federation's authority, and one certificate per member."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedora_vfl.errors import FedoraError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Make the certificates of a federation: one authority, one certificate per member. A member is who its "
    "certificate says. docs/several-machines.md tells who runs which of these.",
)

Days = Annotated[int, typer.Option(min=1, max=3650, help="Days until certificates expire.")]
Role = Annotated[str, typer.Option(help="coordinator, active, passive, or operator: one who submits jobs.")]


@app.command("all")
def everything(
    federation: Annotated[Path, typer.Option(help="The federation file, which names the members.")],
    out: Annotated[Path, typer.Option(help="Folder for the authority's and every member's own folder.")],
    renew: Annotated[bool, typer.Option("--renew", help="Replace certificates and keys that are there.")] = False,
    days: Days = 365,
) -> None:
    """Make an authority and all certificates at once, for one who runs all members: a test, a compose cluster.

    OUT/authority holds the authority and its key, OUT/NAME what the member of that name gets and nobody else;
    `operator` submits jobs. With an authority there already, it issues to those who have no certificate yet.
    """
    from fedora_vfl.authority import issue_all
    from fedora_vfl.settings.federation import load_federation

    def work() -> None:
        for member in issue_all(load_federation(federation), out, days=days, renew=renew):
            _say(f"{out / member.name}: certificate and key of {member}")

    _run(work)


@app.command("authority")
def make_authority(
    out: Annotated[Path, typer.Option(help="Folder for the authority; its key must never leave it.")],
    name: Annotated[str, typer.Option(help="What people call it.")] = "fedora authority",
    days: Annotated[int, typer.Option(min=1, max=36500, help="Days until it expires.")] = 3650,
) -> None:
    """Make a federation's authority. Whoever holds its key decides who is a member."""
    from fedora_vfl.authority import Authority
    from fedora_vfl.wire.tls import AUTHORITY

    def work() -> None:
        Authority.make(out, name=name, days=days)
        _say(f"{out / AUTHORITY}: give this to every member; keep the other file to yourself")

    _run(work)


@app.command("request")
def request(
    name: Annotated[str, typer.Argument(help="The member's name in the federation file.")],
    role: Role,
    out: Annotated[Path, typer.Option(help="The member's folder of certificates.")],
) -> None:
    """Make a member's key, which stays where it is, and a request for the authority to sign."""
    from fedora_vfl.authority import REQUEST, make_request
    from fedora_vfl.settings.federation import check_member
    from fedora_vfl.wire.tls import Member

    def work() -> None:
        check_member(name, role)
        make_request(Member(name, role), out)
        _say(f"{out / REQUEST}: send this to whoever holds the authority; the key beside it stays here")

    _run(work)


@app.command("sign")
def sign(
    request: Annotated[Path, typer.Argument(help="The request that a member has sent.")],
    authority: Annotated[Path, typer.Option(help="The authority's folder.")],
    out: Annotated[Path, typer.Option(help="File for the certificate, which goes back to the member.")],
    name: Annotated[str | None, typer.Option(help="Refuse a request for any other name.")] = None,
    role: Annotated[str | None, typer.Option(help="Refuse a request for any other role.")] = None,
    days: Days = 365,
) -> None:
    """Sign a request. Make sure first that it comes from whom it names: the certificate is that member's identity."""
    from fedora_vfl.authority import Authority, read_request, requested
    from fedora_vfl.errors import SettingsError
    from fedora_vfl.storage import write_atomically

    def work() -> None:
        asked = read_request(request)
        member = requested(asked)
        wanted = (member.name if name is None else name, member.role if role is None else role)
        if wanted != (member.name, member.role):
            raise SettingsError(f"{request}: asks for a certificate of {member}; nothing was signed")
        _check_replaceable(out)
        write_atomically(out, Authority.load(authority).sign(asked, days=days))
        _say(f"{out}: the certificate of {member}; send it back, with {authority / 'authority.pem'}")

    _run(work)


@app.command("show")
def show(
    folder: Annotated[Path, typer.Argument(help="A member's folder of certificates.")],
) -> None:
    """Check a member's folder of certificates, and say whose it is and until when."""
    from fedora_vfl.wire.tls import Credentials

    def work() -> None:
        credentials = Credentials.load(folder)
        left = (credentials.expires - datetime.now(UTC)).days
        _say(f"{credentials.member}, valid until {credentials.expires:%Y-%m-%d %H:%M} UTC, {left} days from now")

    _run(work)


def _check_replaceable(out: Path) -> None:
    """Refuse to write a certificate over what is no member's certificate, such as a key."""
    from cryptography import x509

    from fedora_vfl.errors import SettingsError
    from fedora_vfl.wire.tls import member_of

    if out.is_dir():
        raise SettingsError(f"{out}: is a folder; --out wants a file")
    if out.exists():
        try:
            earlier = member_of(x509.load_pem_x509_certificate(out.read_bytes()))
        except ValueError:
            earlier = None
        if earlier is None:
            raise SettingsError(f"{out}: is there already, and is no member's certificate; choose another file")


def _say(line: str) -> None:
    Console(highlight=False).print(line, soft_wrap=True, markup=False)


def _run(work: Callable[[], None]) -> None:
    """Do the work; end with the code of what went wrong, if something did."""
    try:
        work()
    except FedoraError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(3)
