"""Credentials is the certificate: who may connect as whom, and what both sides are told when one may not."""

import asyncio
import shutil
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from coordinator.roster import JOIN
from fedora_vfl.authority import Authority, issue_all, make_request, read_request
from fedora_vfl.cluster.local import LocalCluster, free_address, loopback_federation
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.cluster.runs import run_on
from fedora_vfl.cluster.submission import submit
from fedora_vfl.errors import FedoraError, PartyError, SettingsError
from fedora_vfl.process.core_messages import told_by_core
from fedora_vfl.settings.federation import Deadlines, Federation
from fedora_vfl.wire.channels import Secured, check_right_service, dial, listen, path, reach
from fedora_vfl.wire.handshakes import diagnose
from fedora_vfl.wire.protocol import PROTOCOL
from fedora_vfl.wire.tls import COORDINATOR_MEMBER, ROLES, Credentials, Member, caller, check_secured, is_loopback
from protos.fedora.v1.control_pb2 import FromCoordinator, FromParty, Hello
from tests.conftest import as_job, run
from tests.test_command_line import fedora

JOB = {
    "data": {"source": "digits", "limit": 200},
    "model": {"bottom": "cnn", "channels": [4], "embedding": 4, "top": [8]},
    "train": {"epochs": 1, "batch_size": 64},
}
ACTIVE = Member("active", "active")
PATIENCE = 20.0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One federation's certificates, and another's with the same names."""
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("ours", "theirs"):
        issue_all(loopback_federation(["passive-1", "passive-2"]), folder / name)
    return folder


def credentials(certificates: Path, name: str, *, of: str = "ours") -> Credentials:
    return Credentials.load(certificates / of / name)


def expired(certificates: Path, name: str, folder: Path) -> Credentials:
    """Return a member's credentials whose certificate ran out yesterday; loading it would be refused."""
    authority, key = Authority.load(certificates / "ours" / "authority"), ec.generate_private_key(ec.SECP256R1())
    now, member = datetime.now(UTC), credentials(certificates, name).member
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=9))
        .not_valid_after(now - timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(member.dns)]), critical=True)
        .sign(authority.key, hashes.SHA256())
    )
    good = credentials(certificates, name)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain = certificate.public_bytes(serialization.Encoding.PEM)
    folder.mkdir()
    for file, content in (("authority.pem", good.authority), ("certificate.pem", chain), ("key.pem", private)):
        (folder / file).write_bytes(content)
    (folder / "key.pem").chmod(0o600)
    return replace(good, folder=folder, chain=chain, key=private, expires=certificate.not_valid_after_utc)


@asynccontextmanager
async def server(shown: Credentials | None) -> AsyncIterator[str]:
    """Serve the coordinator's method under some certificate; whoever gets through is welcome."""

    async def join(_: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        await context.read()

    address = free_address()
    handler: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(join)
    running = await listen(address, {JOIN: handler}, 10, credentials=shown)
    try:
        yield address
    finally:
        await running.stop(grace=0)


async def knock(address: str, shown: Credentials | None, peer: Member) -> None:
    secured: Secured = {"credentials": shown, "peer": peer}
    async with dial(address, 10, **secured) as channel:
        await reach(channel, address, PATIENCE, **secured)


Make = Callable[[Path, Path], Credentials | None]


@pytest.mark.parametrize(
    ("server_shows", "caller_shows", "peer", "said"),
    [
        ("coordinator", "passive-1", COORDINATOR_MEMBER, None),
        (None, None, COORDINATOR_MEMBER, None),
        ("coordinator", None, COORDINATOR_MEMBER, "wants TLS, and no certificates were named on this side"),
        (None, "passive-1", COORDINATOR_MEMBER, "does not speak TLS at that address"),
        ("theirs coordinator", "passive-1", COORDINATOR_MEMBER, "shows a certificate that is of another authority"),
        (
            "coordinator",
            "theirs passive-1",
            COORDINATOR_MEMBER,
            "shows a certificate that is of another authority",
        ),
        (
            "coordinator",
            "forged passive-1",
            COORDINATOR_MEMBER,
            "does not accept the certificate of passive-1 (passive): it is of another authority",
        ),
        (
            "coordinator",
            "expired passive-1",
            COORDINATOR_MEMBER,
            "does not accept the certificate of passive-1 (passive): it has expired",
        ),
        ("expired coordinator", "passive-1", COORDINATOR_MEMBER, "shows a certificate that has expired"),
        (
            "passive-2",
            "passive-1",
            COORDINATOR_MEMBER,
            "shows the certificate of passive-2 (passive), not of coordinator (coordinator)",
        ),
        ("passive-2", "passive-1", ACTIVE, "shows the certificate of passive-2 (passive), not of active (active)"),
        ("active", "passive-1", ACTIVE, None),
    ],
)
def test_a_caller_is_told_why_it_cannot_connect(
    server_shows: str | None,
    caller_shows: str | None,
    peer: Member,
    said: str | None,
    certificates: Path,
    tmp_path: Path,
) -> None:
    def made(wanted: str | None, place: str) -> Credentials | None:
        if wanted is None:
            return None
        kind, _, name = wanted.rpartition(" ")
        if kind == "expired":
            return expired(certificates, name, tmp_path / place)
        if kind == "forged":  # the right authority to check others by, and a certificate of another
            return forged(certificates, name, tmp_path / place)
        return credentials(certificates, name, of=kind or "ours")

    async def meet() -> None:
        async with server(made(server_shows, "server")) as address:
            await knock(address, made(caller_shows, "caller"), peer)

    if said is None:
        asyncio.run(meet())
        return
    with pytest.raises(PartyError) as caught:
        asyncio.run(meet())
    assert said in str(caught.value)
    assert caught.value.culprit == peer.name


def forged(certificates: Path, name: str, folder: Path) -> Credentials:
    """Return an credentials with our authority's certificate and another authority's certificate of a member."""
    shutil.copytree(certificates / "theirs" / name, folder)
    shutil.copy(certificates / "ours" / name / "authority.pem", folder)
    foreign = credentials(certificates, name, of="theirs")
    return replace(foreign, folder=folder, authority=(folder / "authority.pem").read_bytes())


# The coordinator as a process: what it lets in, and what its log says


async def hello(address: str, shown: Credentials, name: str) -> FromCoordinator:
    """Join as some party and return the coordinator's answer."""
    secured: Secured = {"credentials": shown, "peer": COORDINATOR_MEMBER}
    async with dial(address, 10, **secured) as channel:
        await reach(channel, address, PATIENCE, **secured)
        while True:
            call: Any = channel.stream_stream(path(JOIN))()
            try:
                await call.write(FromParty(hello=Hello(protocol=PROTOCOL, party=name)).SerializeToString())
                return FromCoordinator.FromString(await call.read())
            except grpc.RpcError:
                await check_right_service(call, address, **secured)
                # A call that is refused while it is still being written loses its status: gRPC says INTERNAL then. A
                # party joins again, and is told; so do we.
                if await call.code() != grpc.StatusCode.INTERNAL:
                    raise


async def in_log(cluster: LocalCluster, name: str, sentence: str) -> None:
    """Wait until a process's log has a sentence."""
    async with asyncio.timeout(PATIENCE):
        while sentence not in cluster.log_path(name).read_text():  # noqa: ASYNC110 (another process writes it)
            await asyncio.sleep(0.02)


@asynccontextmanager
async def coordinator_alone(folder: Path) -> AsyncIterator[tuple[LocalCluster, Federation]]:
    federation = prepare(as_job(JOB), origin=folder / "job.yaml", out=folder / "run", tls=True)
    nobody: dict[str, list[str]] = {name: [] for name in federation.parties}
    async with LocalCluster(folder / "run", federation, programs=nobody) as cluster:
        yield cluster, federation


def test_nobody_joins_or_submits_under_a_name_or_role_that_is_not_its_certificates(tmp_path: Path) -> None:
    async def work() -> None:
        async with coordinator_alone(tmp_path) as (cluster, federation):
            address, folder = federation.coordinator.address, tmp_path / "run" / "certificates"
            mine = {name: Credentials.load(folder / name) for name in ("passive-1", "passive-2", "active", "operator")}
            for shown, name, said in (
                ("passive-1", "passive-2", "came as passive-2 (passive), which its certificate does not allow"),
                ("passive-1", "active", "came as active (active), which its certificate does not allow"),
            ):
                answer = await hello(address, mine[shown], name)
                assert answer.failure.reason == said and answer.failure.culprit == str(mine[shown].member)
                await in_log(cluster, "coordinator", said)
            said = "came to join, which only a certificate of role active or passive allows"
            for name in ("operator", "passive-1"):
                with pytest.raises(PartyError) as refused:
                    await hello(address, mine["operator"], name)
                assert str(refused.value) == f"operator (operator) {said}"
            await in_log(cluster, "coordinator", said)
            assert (await hello(address, mine["passive-1"], "passive-1")).WhichOneof("content") == "welcome"
            for shown in ("passive-1", "active"):
                with pytest.raises(PartyError) as caught:
                    await submit(address, "", origin="", follow=print, deadlines=Deadlines(), credentials=mine[shown])
                said = "came with a job, which only a certificate of role operator allows"
                assert str(caught.value) == f"{mine[shown].member} {said}"

    asyncio.run(work())


def test_the_coordinators_log_says_who_was_refused_and_why(tmp_path: Path, certificates: Path) -> None:
    async def work() -> None:
        async with coordinator_alone(tmp_path) as (cluster, federation):
            address, folder = federation.coordinator.address, tmp_path / "run" / "certificates"
            await knock(address, Credentials.load(folder / "passive-1"), COORDINATOR_MEMBER)
            shutil.copytree(folder, tmp_path / "ours")
            for shown, sentence in (
                (expired(tmp_path, "passive-1", tmp_path / "old"), "the other side's certificate has expired"),
                (
                    credentials(certificates, "passive-1", of="theirs"),
                    "one side does not accept the other's certificate",
                ),
            ):
                with pytest.raises(PartyError):
                    await knock(address, shown, COORDINATOR_MEMBER)
                await in_log(cluster, "coordinator", sentence)
            with pytest.raises(PartyError):
                await knock(address, None, COORDINATOR_MEMBER)
            await in_log(cluster, "coordinator", "the caller does not use TLS")

    asyncio.run(work())


def test_a_secured_run_equals_an_open_one_to_the_bit_and_survives_new_certificates(tmp_path: Path) -> None:
    run({**JOB, "forget": {"samples": 5}, "unlearn": {"method": "none"}}, tmp_path / "open")
    job = as_job({**JOB, "forget": {"samples": 5}, "unlearn": {"method": "none"}})
    folder = tmp_path / "secured"
    federation = prepare(job, origin=folder / "job.yaml", out=folder, threads=1, tls=True)

    async def work() -> None:
        async with LocalCluster(folder, federation) as cluster:
            await run_on(cluster, folder, lambda _: None)

    asyncio.run(work())
    for party in federation.parties:
        models = (load_file(tmp_path / one / "models" / party / "original.safetensors") for one in ("open", "secured"))
        first, second = models
        assert all(first[name].equal(second[name]) for name in first)
    # Rotation: new keys and certificates of the same authority, the same models.
    before = (folder / "certificates" / "active" / "key.pem").read_bytes()
    issue_all(federation, folder / "certificates", renew=True)
    assert (folder / "certificates" / "active" / "key.pem").read_bytes() != before
    again = "train: {from: original, allow_remembering: true}\nforget: {samples: 3}\nunlearn: {method: none, save: b}\n"
    (folder / "job.yaml").write_text(again)
    asyncio.run(work())


# Files and settings


def test_keys_are_for_their_owner_alone_and_never_overwritten(tmp_path: Path, certificates: Path) -> None:
    for key in [*certificates.rglob("*.key"), *certificates.rglob("key.pem")]:
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    make_request(Member("passive-1", "passive"), tmp_path)
    with pytest.raises(SettingsError, match="keys and authorities are never overwritten"):
        make_request(Member("passive-1", "passive"), tmp_path)
    shutil.copytree(certificates / "ours" / "active", tmp_path / "copy")
    (tmp_path / "copy" / "key.pem").chmod(0o644)
    with pytest.raises(SettingsError, match="can be read by everybody on this machine"):
        Credentials.load(tmp_path / "copy")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "key.pem").unlink(), "key.pem: cannot be read"),
        (lambda folder: (folder / "key.pem").write_text("?"), "key.pem: holds no private key in PEM form"),
        (lambda folder: (folder / "certificate.pem").write_text("?"), "certificate.pem: holds no certificate in PEM"),
        (lambda folder: shutil.copy(folder.parent / "active/key.pem", folder), "key.pem: is not the key of"),
        (
            lambda folder: shutil.copy(folder.parents[1] / "theirs/passive-1/authority.pem", folder),
            "certificate.pem: was not issued by the authority in",
        ),
    ],
)
def test_a_broken_folder_is_refused_before_any_connection(
    spoil: Callable[[Path], object], said: str, certificates: Path, tmp_path: Path
) -> None:
    shutil.copytree(certificates, tmp_path / "all")
    folder = tmp_path / "all" / "ours" / "passive-1"
    spoil(folder)
    with pytest.raises(SettingsError) as caught:
        Credentials.load(folder)
    assert said in str(caught.value)


def test_an_expired_certificate_is_refused_by_its_own_member_first(certificates: Path, tmp_path: Path) -> None:
    expired(certificates, "passive-1", tmp_path / "old")
    with pytest.raises(SettingsError, match=r"passive-1 \(passive\)'s certificate expired on"):
        Credentials.load(tmp_path / "old")


def test_a_member_takes_the_certificates_of_two_authorities_while_one_follows_the_other(
    certificates: Path, tmp_path: Path
) -> None:
    for name, own in (("coordinator", "ours"), ("passive-1", "theirs")):
        shutil.copytree(certificates / own / name, tmp_path / name)
        both = [(certificates / of / name / "authority.pem").read_text() for of in ("ours", "theirs")]
        (tmp_path / name / "authority.pem").write_text("".join(both))

    async def meet() -> None:
        async with server(Credentials.load(tmp_path / "coordinator")) as address:
            await knock(address, Credentials.load(tmp_path / "passive-1"), COORDINATOR_MEMBER)

    asyncio.run(meet())


def test_beyond_this_machine_certificates_are_needed_or_plaintext_asked_for_by_name(
    certificates: Path, caplog: pytest.LogCaptureFixture
) -> None:
    check_secured("127.0.0.1:7000", None, plaintext=False, hint="")
    check_secured("10.0.0.1:7000", credentials(certificates, "active"), plaintext=False, hint="")
    with pytest.raises(SettingsError, match="is beyond this machine, and there are no certificates for it"):
        check_secured("10.0.0.1:7000", None, plaintext=False, hint="do this")
    assert not caplog.records
    check_secured("10.0.0.1:7000", None, plaintext=True, hint="")
    assert "is used in plaintext" in caplog.text


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("coordinator:1", False),
        ("localhost.example:1", False),
    ],
)
def test_what_is_on_this_machine_alone(address: str, here: bool) -> None:
    assert is_loopback(address) is here


@given(name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", fullmatch=True), role=st.sampled_from(ROLES))
def test_name_and_role_are_read_back_as_they_were_written(name: str, role: str) -> None:
    member = COORDINATOR_MEMBER if role == "coordinator" or name == "coordinator" else Member(name, role)
    assert Member.parse(member.dns) == member


@pytest.mark.parametrize(
    "dns",
    [
        *("", "fedora", "x.fedora", "x.boss.fedora", "x.passive.fedora.example", ".passive.fedora"),
        *("*.coordinator.fedora", "*.active.fedora", "boss.coordinator.fedora", "COORDINATOR.coordinator.fedora"),
        *("coordinator.passive.fedora", "a b.passive.fedora", "x\n.passive.fedora", "x" * 64 + ".passive.fedora"),
    ],
)
def test_other_names_are_nobodys(dns: str) -> None:
    assert Member.parse(dns) is None


def test_a_port_where_nobody_is_has_nothing_to_do_with_certificates(certificates: Path) -> None:
    assert diagnose(free_address(), credentials(certificates, "active"), COORDINATOR_MEMBER) is None


def test_other_lines_of_the_core_are_not_about_handshakes() -> None:
    assert told_by_core("I1116 15:11:22.28 1 chttp2_transport.cc:1] something else") is None


class Shown:
    """What a server knows of a caller."""

    def __init__(self, pem: bytes) -> None:
        self._pem = pem

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"transport_security_type": [b"ssl"], "x509_pem_cert": [self._pem]}


def test_a_session_does_not_outlive_its_certificate(certificates: Path, tmp_path: Path) -> None:
    good: Any = Shown(credentials(certificates, "passive-1").chain)
    assert caller(good) == Member("passive-1", "passive")
    old: Any = Shown(expired(certificates, "passive-1", tmp_path / "old").chain)
    with pytest.raises(PartyError, match=r"passive-1 \(passive\) shows a certificate that has expired"):
        caller(old)


def test_a_caller_whose_name_is_none_is_not_repeated(tmp_path: Path) -> None:
    async def work() -> None:
        federation = prepare(as_job(JOB), origin=tmp_path / "job.yaml", out=tmp_path / "run")
        nobody: dict[str, list[str]] = {name: [] for name in federation.parties}
        async with LocalCluster(tmp_path / "run", federation, programs=nobody) as cluster:
            secured: Secured = {"credentials": None, "peer": COORDINATOR_MEMBER}
            async with dial(federation.coordinator.address, 10, **secured) as channel:
                await reach(channel, federation.coordinator.address, PATIENCE, **secured)
                call: Any = channel.stream_stream(path(JOIN))()
                forged = Hello(protocol=PROTOCOL, party="x\n12:00:00 INFO passive-1 left")
                await call.write(FromParty(hello=forged).SerializeToString())
                answer = FromCoordinator.FromString(await call.read())
            assert answer.failure.reason == "gave an invalid name"
            await in_log(cluster, "coordinator", "gave an invalid name")
            assert "passive-1 left" not in cluster.log_path("coordinator").read_text()

    asyncio.run(work())


# The authority


def test_an_authority_whose_key_is_elsewhere_is_not_replaced(certificates: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(certificates / "ours", tmp_path / "ours")
    (folder / "authority" / "authority.key").unlink()
    before = (folder / "authority" / "authority.pem").read_bytes()
    with pytest.raises(SettingsError, match=r"authority\.key: cannot be read"):
        issue_all(loopback_federation(["passive-1", "passive-2", "passive-3"]), folder)
    with pytest.raises(SettingsError, match=r"authority\.pem: is there already"):
        Authority.make(folder / "authority", name="another", days=1)
    assert (folder / "authority" / "authority.pem").read_bytes() == before


def test_members_whose_certificates_cannot_be_used_are_named(certificates: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(certificates / "ours", tmp_path / "ours")
    federation = loopback_federation(["passive-1", "passive-2"])
    assert issue_all(federation, folder) == []
    (folder / "passive-2" / "key.pem").unlink()
    with pytest.raises(SettingsError, match=r"passive-2/key\.pem: cannot be read.*--renew"):
        issue_all(federation, folder)
    assert len(issue_all(federation, folder, renew=True)) == 5
    Credentials.load(folder / "passive-2")


def test_new_certificates_leave_a_member_both_authorities_while_one_follows_the_other(
    certificates: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(certificates / "ours", tmp_path / "ours")
    both = folder / "active" / "authority.pem"
    both.write_bytes(both.read_bytes() + (certificates / "theirs" / "active" / "authority.pem").read_bytes())
    before = both.read_bytes()
    issue_all(loopback_federation(["passive-1", "passive-2"]), folder, renew=True)
    assert both.read_bytes() == before


def asking(dns: str, key: Any = None) -> x509.CertificateSigningRequest:
    """Return a request for some name, made by other means than ours."""
    names = x509.SubjectAlternativeName([x509.DNSName(dns)])
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).add_extension(names, critical=False)
    return request.sign(key or ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())


@pytest.mark.parametrize("dns", ["*.coordinator.fedora", "boss.coordinator.fedora", "[/red].operator.fedora"])
def test_a_request_for_a_name_that_nobody_can_have_is_not_signed(dns: str, certificates: Path) -> None:
    authority = Authority.load(certificates / "ours" / "authority")
    with pytest.raises(SettingsError, match="names no member of a federation"):
        authority.sign(asking(dns), days=1)


@pytest.mark.parametrize(
    ("key", "taken"),
    [
        (lambda: rsa.generate_private_key(65537, 1024), False),
        (lambda: ec.generate_private_key(ec.SECP521R1()), False),
        (lambda: rsa.generate_private_key(65537, 2048), True),
        (lambda: ec.generate_private_key(ec.SECP384R1()), True),
    ],
)
def test_weak_keys_and_those_no_handshake_takes_are_not_signed(
    key: Callable[[], Any], taken: bool, certificates: Path
) -> None:
    authority, request = Authority.load(certificates / "ours" / "authority"), asking("clinic.passive.fedora", key())
    if taken:
        assert b"BEGIN CERTIFICATE" in authority.sign(request, days=1)
        return
    with pytest.raises(SettingsError, match="of a kind that is not taken"):
        authority.sign(request, days=1)


def test_a_certificate_is_not_written_over_anything_else(certificates: Path, tmp_path: Path) -> None:
    make_request(Member("clinic", "passive"), tmp_path)
    authority = str(certificates / "ours" / "authority")
    for out, said in (("key.pem", "is no member's certificate"), (".", "is a folder")):
        done = fedora("certs", "sign", "request.pem", "--authority", authority, "--out", out, cwd=tmp_path)
        assert done.returncode == 2 and said in done.stderr
    done = fedora(
        *("certs", "sign", "request.pem", "--authority", authority, "--out", "certificate.pem", "--name", ""),
        cwd=tmp_path,
    )
    assert done.returncode == 2 and "nothing was signed" in done.stderr


# The command line


def test_a_key_never_travels_the_request_does(tmp_path: Path) -> None:
    def certs(*words: str) -> str:
        done = fedora("certs", *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    certs("authority", "--out", "bank/authority")
    certs("request", "clinic", "--role", "passive", "--out", "clinic")
    shutil.copy(tmp_path / "clinic" / "request.pem", tmp_path / "bank")
    certs("sign", "bank/request.pem", "--authority", "bank/authority", "--out", "bank/clinic.pem", "--name", "clinic")
    shutil.copy(tmp_path / "bank" / "clinic.pem", tmp_path / "clinic" / "certificate.pem")
    shutil.copy(tmp_path / "bank" / "authority" / "authority.pem", tmp_path / "clinic")
    assert "clinic (passive), valid until" in certs("show", "clinic")
    assert read_request(tmp_path / "clinic" / "request.pem").is_signature_valid
    keys = [file for file in tmp_path.rglob("*") if file.is_file() and b"PRIVATE KEY" in file.read_bytes()]
    assert sorted(str(key.relative_to(tmp_path)) for key in keys) == ["bank/authority/authority.key", "clinic/key.pem"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["request", "x", "--role", "boss", "--out", "x"], "--role: 'boss' is not a role"),
        (["request", "x", "--role", "coordinator", "--out", "x"], "the coordinator's name and role are"),
        (["request", "coordinator", "--role", "passive", "--out", "x"], "the coordinator's name and role are"),
        (["request", "a b", "--role", "passive", "--out", "x"], "'a b' is not a name"),
        (["show", "nowhere"], "cannot be read"),
        (["sign", "nowhere", "--authority", "x", "--out", "y"], "nowhere: cannot be read"),
    ],
)
def test_mistakes_get_a_sentence(words: list[str], said: str, tmp_path: Path) -> None:
    done = fedora("certs", *words, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


def test_a_party_does_not_start_under_another_members_certificate(tmp_path: Path) -> None:
    federation = prepare(as_job(JOB), origin=tmp_path / "job.yaml", out=tmp_path / "run", tls=True)
    party = tmp_path / "run" / "parties" / "passive-1.yaml"
    party.write_text(party.read_text().replace("certificates/passive-1", "certificates/passive-2"))

    async def work() -> FedoraError:
        async with LocalCluster(tmp_path / "run", federation) as cluster:
            return await cluster.first_to_end()

    said = str(asyncio.run(work()))
    assert "is the certificate of passive-2 (passive), and this is passive-1 (passive)" in said
