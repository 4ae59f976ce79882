"""More passive parties in the compose cluster: python -m deploy.compose --passive 4

docker-compose.yml has two. Compose reads docker-compose.override.yml beside it too, and that is what this writes: the
services and volumes of further parties, and what the others have to know of them.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import yaml

from settings.federation import load_federation
from settings.storage import write_atomically
from wire.errors import FedoraError, SettingsError

COMPOSE, OVERRIDE = Path("docker-compose.yml"), Path("docker-compose.override.yml")
SETTINGS = "cluster"  # folder beside the override for the files of the larger federation
MOST = 32
MODEL = "passive-2"  # the service that further ones are made like


def main() -> int:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.compose",
        description="Write the files for a compose cluster with more than two passive parties.",
    )
    parser.add_argument("--passive", type=int, required=True, metavar="N", help=f"passive parties in all, 3 to {MOST}")
    parser.add_argument("--compose", type=Path, default=COMPOSE, metavar="FILE", help="the cluster of two")
    parser.add_argument("--out", type=Path, default=OVERRIDE, metavar="FILE", help="the override to write")
    options = parser.parse_args()
    try:
        extend(options.compose, options.out, options.passive)
    except FedoraError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 3
    settings = options.out.parent / SETTINGS
    print(f"{options.out} and {settings}: {options.passive} passive parties; now: docker compose up")
    return 0


def extend(compose: Path, out: Path, passive: int) -> None:
    """Write the override and the settings it names, for so many passive parties."""
    cluster = _read(compose)
    names = [f"passive-{number}" for number in range(1, passive + 1)]
    if MODEL not in cluster.get("services", {}):
        raise SettingsError(f"{compose}: has no service {MODEL}, which further ones would be made like")
    if not 3 <= passive <= MOST:
        raise SettingsError(f"--passive: {passive} is not possible; {compose} has 2, allowed: 3 to {MOST}")
    settings = _settings_folder(cluster)
    _write_settings(compose.parent / settings, out.parent / SETTINGS, names)
    # Compose takes paths in all its files from the folder of the first.
    place = os.path.relpath(out.parent / SETTINGS, compose.parent)
    write_atomically(out, _as_yaml(override(cluster, names, settings=settings, instead=f"./{place}")))


def override(cluster: dict[str, Any], names: list[str], *, settings: str, instead: str) -> dict[str, Any]:
    """Return what Compose is to lay over a cluster of two, so that it has these passive parties."""
    further = names[2:]
    services: dict[str, Any] = {}
    for name, service in cluster["services"].items():
        mounts = [_moved(mount, settings, instead) for mount in service.get("volumes", []) if _shared(mount, settings)]
        if name not in names:  # steps that serve all parties mount something of each
            own = [mount for mount in service.get("volumes", []) if mount.startswith(MODEL)]
            mounts += [mount.replace(MODEL, party) for party in further for mount in own]
        if mounts:
            services[name] = {"volumes": mounts}
    services["data"]["environment"] = {"PARTIES": str(len(names))}
    condition = cluster["services"]["demo"]["depends_on"][MODEL]
    services.setdefault("demo", {})["depends_on"] = dict.fromkeys(further, condition)
    for party in further:
        services[party] = _renamed(cluster["services"][MODEL], party)
        services[party]["volumes"] = [_moved(mount, settings, instead) for mount in services[party]["volumes"]]
    own = [name for name in cluster["volumes"] if name.startswith(MODEL)]
    return {"services": services, "volumes": {name.replace(MODEL, party): {} for party in further for name in own}}


def _shared(mount: str, settings: str) -> bool:
    """Tell whether a mount is a file that changes with the number of parties."""
    return mount.startswith(f"{settings}/federation.yaml:")


def _moved(mount: str, settings: str, instead: str) -> str:
    """Take a mount's file from the larger federation's folder."""
    return mount.replace(f"{settings}/", f"{instead}/", 1) if mount.startswith(f"{settings}/") else mount


def _renamed(value: Any, party: str) -> Any:
    """Copy a service for another party."""
    if isinstance(value, dict):
        return {key: _renamed(one, party) for key, one in value.items()}
    if isinstance(value, list):
        return [_renamed(one, party) for one in value]
    return value.replace(MODEL, party) if isinstance(value, str) else value


def _settings_folder(cluster: dict[str, Any]) -> str:
    """Find where a cluster has its federation file."""
    mounts: list[str] = cluster["services"][MODEL]["volumes"]
    source = next(mount.split(":")[0] for mount in mounts if "/federation.yaml:" in mount)
    return source.rpartition("/")[0]


def _write_settings(given: Path, folder: Path, names: list[str]) -> None:
    """Write the larger federation's file, and the party files that a cluster of two does not have."""
    federation = load_federation(given / "federation.yaml").model_dump(exclude_unset=True)
    write_atomically(folder / "federation.yaml", _as_yaml({**federation, "passive": names}))
    model = (given / "parties" / f"{MODEL}.yaml").read_text(encoding="utf-8")
    for name in names[2:]:
        write_atomically(folder / "parties" / f"{name}.yaml", model.replace(MODEL, name))


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}; run this in the project's folder") from None
    except yaml.YAMLError:
        raise SettingsError(f"{path}: is not YAML") from None
    if not isinstance(content, dict):
        raise SettingsError(f"{path}: is not a compose file")
    return content


class _Plain(yaml.SafeDumper):
    """Writes every value out, where PyYAML would refer to an equal one further up."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _as_yaml(content: dict[str, Any]) -> str:
    return yaml.dump(content, Dumper=_Plain, sort_keys=False, width=120)


if __name__ == "__main__":
    sys.exit(main())
