"""A federation whose members run on hosts of their own: the folder of a local run, moved there."""

from pathlib import Path

import yaml

from fedora_vfl.bench.hosts.network import Network
from fedora_vfl.settings.federation import Federation
from fedora_vfl.storage import write_atomically
from fedora_vfl.wire.protocol import COORDINATOR

COORDINATOR_PORT, ACTIVE_PORT = 7000, 7001
EVERYWHERE = "0.0.0.0"


def move(
    folder: Path, federation: Federation, network: Network, *, plaintext: bool = False, by_name: bool = False
) -> Federation:
    """Give the members of a folder made by `lay_out` the addresses of the hosts that have their names.

    Args:
        folder: The run's.
        federation: As it was laid out.
        network: Its hosts.
        plaintext: Whether connections are not secured.
        by_name: Whether members are known by names, behind which addresses may change; the coordinator is then told
            with --listen to listen everywhere.
    """
    place = network.name if by_name else network.address
    coordinator = f"{place(COORDINATOR)}:{COORDINATOR_PORT}"
    active = f"{place(federation.active.name)}:{ACTIVE_PORT}"
    if by_name:
        file = folder / "parties" / f"{federation.active.name}.yaml"
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        listening = {**content, "listen": f"{EVERYWHERE}:{ACTIVE_PORT}"}
        write_atomically(file, yaml.safe_dump(listening, sort_keys=False))
    moved = federation.model_copy(
        update={
            "coordinator": federation.coordinator.model_copy(update={"address": coordinator}),
            "active": federation.active.model_copy(update={"address": active}),
            "plaintext": plaintext,
            "open_ids": True,  # all hosts are this machine
        }
    )
    path = folder / "federation.yaml"
    keys = yaml.safe_load(path.read_text(encoding="utf-8")).get("keys", {})
    write_atomically(path, yaml.safe_dump({**moved.model_dump(), "keys": keys}, sort_keys=False))
    return moved


def starters(federation: Federation, network: Network) -> dict[str, list[str]]:
    """Return, for every member, the words that run a command on its host."""
    return {name: network.command(name) for name in (COORDINATOR, *federation.parties)}
