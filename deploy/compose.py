"""More passive parties in the compose cluster: python -m deploy.compose --passive 4

docker-compose.yml has two. Compose reads docker-compose.override.yml beside it too, and that is what this writes: the
services and volumes of further parties, and what the others have to know of them. What somebody else wrote is never
replaced.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import yaml

from fedora_vfl.datasets.income.loading import PASSIVE_COLUMNS
from fedora_vfl.errors import FedoraError, SettingsError
from fedora_vfl.settings.federation import load_federation
from fedora_vfl.storage import write_atomically

COMPOSE, OVERRIDE = Path("docker-compose.yml"), Path("docker-compose.override.yml")
SETTINGS = "cluster"  # folder beside the override for the files of the larger federation
MODEL = "passive-2"  # the service that further ones are made like
# The `data` step cuts the demo's table, and every passive party gets one of its columns at least.
MOST = len(PASSIVE_COLUMNS)
MARK = "# Written by python -m deploy.compose, which replaces it when it is run again: change nothing here.\n"


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
        again = _is_ours(options.out)
        extend(options.compose, options.out, options.passive)
    except FedoraError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 3
    settings = options.out.parent / SETTINGS
    command = start_command(options.compose, options.out, again=again)
    print(f"{options.out} and {settings}: {options.passive} passive parties; now: {command}")
    return 0


def start_command(compose: Path, out: Path, *, again: bool) -> str:
    """Return what starts the larger cluster; `again`: there was a larger one before."""
    words = ["docker", "compose"]
    found = COMPOSE.resolve().with_name(OVERRIDE.name)  # what Compose reads unasked
    if (compose.resolve(), out.resolve()) != (COMPOSE.resolve(), found):
        beside = compose.with_name(OVERRIDE.name)
        own = [beside] if beside.exists() and not _is_ours(beside) else []
        words += [word for file in (compose, out, *own) for word in ("-f", str(file))]
    # The files have the names they had, by which Compose does not see that they are others.
    words += ["up", *(["--force-recreate", "--remove-orphans"] if again else [])]
    return shlex.join(words)


def extend(compose: Path, out: Path, passive: int) -> None:
    """Write the override and the settings it names, for so many passive parties."""
    cluster = _read(compose)
    names = [f"passive-{number}" for number in range(1, passive + 1)]
    if MODEL not in cluster.get("services", {}):
        raise SettingsError(f"{compose}: has no service {MODEL}, which further ones would be made like")
    _check_number(passive, compose, out)
    settings, folder = _settings_folder(cluster), out.parent / SETTINGS
    # Compose takes paths in all its files from the folder of the first.
    place = os.path.relpath(folder, compose.parent)
    files = _settings(compose.parent / settings, folder, names)
    files[out] = _as_yaml(override(cluster, names, settings=settings, instead=f"./{place}"))
    _check_ours(files)
    for path, content in files.items():
        write_atomically(path, MARK + content)
    _remove_others(folder / "parties", files)


def _check_number(passive: int, compose: Path, out: Path) -> None:
    """Refuse a number of parties that the demo's table cannot be cut for, or that needs no override."""
    if passive == 2:
        raise SettingsError(
            f"--passive: {compose} has 2 by itself; to go back to them, run "
            f"`docker compose down --volumes --remove-orphans`, then remove {out} and {out.parent / SETTINGS}"
        )
    if not 3 <= passive <= MOST:
        why = f"the demo's table has {MOST} columns for passive parties"
        raise SettingsError(f"--passive: {passive} is not possible; {compose} has 2, allowed: 3 to {MOST}, as {why}")


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


def _settings(given: Path, folder: Path, names: list[str]) -> dict[Path, str]:
    """Return the larger federation's file, and the party files that a cluster of two does not have."""
    federation = load_federation(given / "federation.yaml").model_dump(exclude_unset=True)
    model = (given / "parties" / f"{MODEL}.yaml").read_text(encoding="utf-8")
    parties = {folder / "parties" / f"{name}.yaml": model.replace(MODEL, name) for name in names[2:]}
    return {folder / "federation.yaml": _as_yaml({**federation, "passive": names}), **parties}


def _is_ours(path: Path) -> bool:
    """Tell whether a file is there and was written here."""
    return path.is_file() and path.read_bytes().startswith(MARK.encode())


def _check_ours(paths: Iterable[Path]) -> None:
    """Refuse, before anything is written, to replace what somebody else wrote."""
    for path in paths:
        if path.exists() and not _is_ours(path):
            raise SettingsError(
                f"{path}: was not written by this command, so it is not replaced; move it away, or write to "
                "another folder or name with --out"
            )


def _remove_others(parties: Path, kept: Collection[Path]) -> None:
    """Remove the files of parties that a larger cluster had."""
    for path in parties.glob("*.yaml"):
        if path not in kept and _is_ours(path):
            path.unlink()


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
