"""A job goes on while its cluster is looked after: certificates renewed, members restarted, moved, a disk full."""

import asyncio
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from fedora_vfl.authority import issue_all
from fedora_vfl.bench.hosts.network import HostLine, Network, why_not
from fedora_vfl.bench.hosts.placement import COORDINATOR_PORT, EVERYWHERE, move, starters
from fedora_vfl.cluster.local import CERTIFICATES, LocalCluster
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.cluster.runs import keep, run_on
from fedora_vfl.cluster.submission import submit
from fedora_vfl.settings.federation import Deadlines, Federation
from fedora_vfl.wire.addresses import split
from fedora_vfl.wire.protocol import COORDINATOR
from tests.conftest import as_job
from tests.test_recovery import MEMBERS, NOISY, Strike, Strikes, assert_same, run_with

DEADLINES = Deadlines(join=60, step=20, silence=2)
NO_HOSTS = why_not()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job as it goes where nothing happens."""
    out = tmp_path_factory.mktemp("rolling") / "whole"
    run_with(NOISY, out)
    return out


def stop(member: str) -> Strike:
    """Have a member end in order, as those who restart it do."""

    def strike(cluster: LocalCluster) -> None:
        os.kill(cluster.processes[member].pid, signal.SIGTERM)

    return strike


def shown_at(address: str, folder: Path) -> int:
    """Return the serial number of the certificate that a server shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    with socket.create_connection(split(address), timeout=5) as line, context.wrap_socket(line) as secured:
        content = secured.getpeercert(binary_form=True)
    assert content
    return x509.load_der_x509_certificate(content).serial_number


def test_certificates_are_renewed_and_all_members_restarted_one_after_the_other(
    undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    federation = prepare(as_job(NOISY), origin=out / "job.yaml", out=out, threads=1, deadlines=DEADLINES, tls=True)
    certificates = out / CERTIFICATES
    shown: list[int] = []

    def renew(cluster: LocalCluster) -> None:
        issue_all(federation, certificates, renew=True)
        shown.append(shown_at(federation.active.address, certificates / "passive-1"))

    async def work() -> list[str]:
        async with LocalCluster(out, federation) as cluster:
            strikes = {1: renew} | {2 + place: stop(member) for place, member in enumerate(MEMBERS)}
            follow = Strikes(cluster, strikes)
            await run_on(cluster, out, follow)
            assert not follow._strikes
            return follow.notes

    notes = asyncio.run(work())
    assert_same(undisturbed, out)
    for member in MEMBERS:
        assert any(note.startswith(f"{member}") and "it is started again" in note for note in notes), member
    new = x509.load_pem_x509_certificates((certificates / "active" / "certificate.pem").read_bytes())[0]
    assert shown == [new.serial_number], "before its process was started again"


@pytest.mark.skipif(NO_HOSTS is not None, reason=NO_HOSTS or "")
def test_the_coordinator_and_the_active_party_get_other_addresses_behind_their_names(
    undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    federation = prepare(as_job(NOISY), origin=out / "job.yaml", out=out, threads=1, deadlines=DEADLINES)
    with Network(dict.fromkeys((COORDINATOR, *federation.parties), HostLine())) as network:
        moved = move(out, federation, network, plaintext=True, by_name=True)
        asyncio.run(_run_and_move(out, moved, network))
    assert_same(undisturbed, out)


async def _run_and_move(out: Path, federation: Federation, network: Network) -> None:
    programs = {COORDINATOR: ["coordinator", "--listen", f"{EVERYWHERE}:{COORDINATOR_PORT}"]}
    words = ("fedora_vfl.bench.faults.user", federation.coordinator.address, str(out / "job.yaml"), str(out), "60", "")
    async with LocalCluster(out, federation, programs=programs, hosts=starters(federation, network)):
        user = await asyncio.create_subprocess_exec(
            *network.command("passive-1", sys.executable, "-m", *words), stdout=asyncio.subprocess.PIPE
        )
        assert user.stdout
        over, moves = 0, {1: "active", 3: COORDINATOR}
        async for line in user.stdout:
            over += line.split()[1] == b"finished"
            if host := moves.pop(over, None):
                network.move(host)
        assert await user.wait() == 0
        assert not moves


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that is soon full."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", str(folder)], capture_output=True)
    if made.returncode:
        pytest.skip("a disk of one's own needs root and `mount`")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_coordinator_whose_disk_is_full_says_so_and_its_job_goes_on_when_there_is_room(
    undisturbed: Path, tmp_path: Path, small_disk: Path
) -> None:
    out, ballast = tmp_path / "run", small_disk / "ballast"
    federation = prepare(as_job(NOISY), origin=out / "job.yaml", out=out, threads=1, deadlines=DEADLINES)
    programs = {COORDINATOR: ["coordinator", "--jobs", str(small_disk)]}

    def fill(cluster: LocalCluster) -> None:
        with ballast.open("wb", buffering=0) as file:
            while _written(file, bytes(4096)):
                pass

    async def work() -> list[Any]:
        async with LocalCluster(out, federation, programs=programs) as cluster:

            async def make_room() -> int:
                code = await cluster.processes[COORDINATOR].wait()
                ballast.unlink()
                await cluster.start(COORDINATOR)
                return code

            follow = Strikes(cluster, {2: fill})
            mended = asyncio.create_task(make_room())
            address, settings = federation.coordinator.address, (out / "job.yaml").read_text()
            keep(
                await submit(address, settings, origin="job", follow=follow, deadlines=DEADLINES, patience=60),
                out,
            )
            return [await mended, *follow.notes]

    code, *notes = asyncio.run(work())
    assert code == 3
    assert "coordinator is back" in notes
    said = next(
        line for line in (out / "logs" / "coordinator.log").read_text().splitlines() if line.startswith("error:")
    )
    assert "disk is full; make room or mend the disk, and start the coordinator again: jobs go on" in said
    assert_same(undisturbed, out)


def _written(file: Any, content: bytes) -> bool:
    try:
        return bool(file.write(content))
    except OSError:
        return False
