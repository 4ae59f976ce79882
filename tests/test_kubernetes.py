"""The manifests in deploy/kubernetes: valid, complete, closed to whom they should be, and true to our command line."""

import argparse
import contextlib
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer
import yaml

from coordinator.job import Job
from fedora_vfl.authority import issue_all
from fedora_vfl.cli.__main__ import app
from fedora_vfl.cluster.local import free_address
from fedora_vfl.errors import SettingsError
from fedora_vfl.process.health import READY, UP
from fedora_vfl.settings.federation import Federation, load_federation
from fedora_vfl.settings.files import load
from fedora_vfl.wire.protocol import VERSION
from fedora_vfl.wire.tls import KEY, Credentials
from party.settings import load_party
from tests.conftest import write_people
from tests.kustomization import Object, build, config_map_references, place, pod_of

HERE = Path(__file__).parents[1]
ROOT = HERE / "deploy" / "kubernetes"
ONE_CLUSTER = ["overlays/one-cluster", "overlays/one-cluster/operator"]
ALONE = ["overlays/coordinator-only", "overlays/active-only", "overlays/passive-only"]
ALL = [*ONE_CLUSTER, *ALONE, "loading", "fetching"]
# `kubectl create secret` makes these; keys have no place in a folder that is under version control.
MADE_BY_HAND = {"certificates"}
OLDEST_KUBERNETES = "1.25"
USER = 10001

each = pytest.mark.parametrize("name", ALL)


@cache
def built(name: str) -> tuple[Object, ...]:
    """Build one kustomization."""
    return tuple(build(ROOT / name))


def of_kind(kind: str, *names: str) -> list[Object]:
    """Return all objects of a kind."""
    return [one for name in names for one in built(name) if one["kind"] == kind]


def pods(*names: str) -> list["Pod"]:
    """Return all pods, described with what is around them."""
    found = []
    for name in names:
        for one in built(name):
            if pod := pod_of(one):
                found.append(Pod(name, place(one), one["kind"], pod["metadata"]["labels"], pod["spec"]))
    return found


@dataclass(frozen=True)
class Pod:
    """A pod of a kustomization."""

    origin: str
    namespace: str
    kind: str
    labels: dict[str, str]
    spec: Object

    @property
    def role(self) -> str:
        return self.labels["app.kubernetes.io/component"]

    @property
    def container(self) -> Object:
        (only,) = self.spec["containers"]
        return dict(only)

    @property
    def command(self) -> list[str]:
        return [*self.container["command"], *self.container.get("args", [])]

    @property
    def probes(self) -> dict[str, list[str]]:
        """What its probes run, by name."""
        kinds = ("startupProbe", "livenessProbe", "readinessProbe")
        return {kind: self.container[kind]["exec"]["command"] for kind in kinds if kind in self.container}

    @property
    def mounts(self) -> dict[str, tuple[Object, Object]]:
        """By path in the container: the mount, and the volume that is mounted."""
        volumes = {volume["name"]: volume for volume in self.spec["volumes"]}
        return {mount["mountPath"]: (mount, volumes[mount["name"]]) for mount in self.container["volumeMounts"]}

    def files(self) -> dict[str, str]:
        """By path in the container: the text of every file that comes from a ConfigMap."""
        maps = {one["metadata"]["name"]: one["data"] for one in of_kind("ConfigMap", self.origin) if self._here(one)}
        found: dict[str, str] = {}
        for path, (mount, volume) in self.mounts.items():
            sources = volume.get("projected", {}).get("sources", [volume])
            data: dict[str, str] = {}
            for source in sources:
                data |= maps[source["configMap"]["name"]] if "configMap" in source else {}
            if single := mount.get("subPath"):
                found[path] = data[single]
            else:
                found |= {f"{path}/{name}": text for name, text in data.items()}
        return found

    def _here(self, one: Object) -> bool:
        return place(one) == self.namespace


def members(*names: str) -> list[Pod]:
    """Return the pods that are members of a federation."""
    return [pod for pod in pods(*names) if pod.kind == "Deployment"]


# --- what the cluster says of them


@each
@pytest.mark.parametrize("version", [OLDEST_KUBERNETES, str(kubernetes_validate.latest_version())])
def test_every_object_is_what_kubernetes_expects(name: str, version: str) -> None:
    assert built(name)
    for one in built(name):
        kubernetes_validate.validate(one, version, strict=True)


@each
def test_kustomize_builds_what_the_tests_look_at(name: str) -> None:
    if not (command := _kustomize()):
        pytest.skip("neither kubectl nor kustomize is installed")
    done = subprocess.run([*command, str(ROOT / name)], capture_output=True, text=True, check=True, timeout=60)
    assert sorted(yaml.safe_load_all(done.stdout), key=identity) == sorted(built(name), key=identity)


def _kustomize() -> list[str] | None:
    if shutil.which("kustomize"):
        return ["kustomize", "build"]
    return ["kubectl", "kustomize"] if shutil.which("kubectl") else None


def identity(one: Object) -> tuple[str, str, str]:
    """Return what an object is known by in a cluster."""
    return one["kind"], place(one), one["metadata"]["name"]


@each
def test_no_object_is_there_twice(name: str) -> None:
    names = [identity(one) for one in built(name)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", ALONE + ONE_CLUSTER)
def test_every_namespace_is_made_and_takes_restricted_pods_only(name: str) -> None:
    made = {one["metadata"]["name"]: one["metadata"]["labels"] for one in of_kind("Namespace", name)}
    assert {place(one) for one in built(name) if one["kind"] != "Namespace"} <= made.keys()
    assert {labels["pod-security.kubernetes.io/enforce"] for labels in made.values()} == {"restricted"}


# --- what they say of each other


@each
def test_whatever_a_pod_names_exists(name: str) -> None:
    for one in built(name):
        if not (pod := pod_of(one)):
            continue
        there = {kind: {other["metadata"]["name"] for other in of_kind(kind, name) if place(other) == place(one)}
                 for kind in ("ConfigMap", "PersistentVolumeClaim", "ServiceAccount")}  # fmt: skip
        volumes = pod["spec"]["volumes"]
        claims = {
            volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume
        }
        # The operator's claim is made with the job; who fetches its results comes after it.
        assert claims <= there["PersistentVolumeClaim"] | ({"results"} if name == "fetching" else set())
        assert {reference["name"] for reference in config_map_references(one)} <= there["ConfigMap"]
        assert {volume["secret"]["secretName"] for volume in volumes if "secret" in volume} <= MADE_BY_HAND
        if account := pod["spec"].get("serviceAccountName"):
            assert account in there["ServiceAccount"]
        mounted = {mount["name"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
        assert mounted == {volume["name"] for volume in volumes}


def test_a_claim_is_the_same_wherever_it_is_described() -> None:
    (loaded,) = of_kind("PersistentVolumeClaim", "loading")
    used = [one for one in of_kind("PersistentVolumeClaim", *ALL) if one["metadata"]["name"] == "data"]
    assert len(used) > 1 and all(one["spec"] == loaded["spec"] for one in used)


@pytest.mark.parametrize("name", [ONE_CLUSTER[0], *ALONE])
def test_a_deployment_knows_its_own_pods(name: str) -> None:
    for one in of_kind("Deployment", name):
        assert one["spec"]["selector"]["matchLabels"] == pod_of(one)["metadata"]["labels"]  # type: ignore[index]


@pytest.mark.parametrize("name", [ONE_CLUSTER[0], *ALONE])
def test_only_the_coordinator_and_the_active_party_have_a_service_and_it_leads_to_them(name: str) -> None:
    services = of_kind("Service", name)
    reached = []
    for service in services:
        selector, (port,) = service["spec"]["selector"], service["spec"]["ports"]
        (pod,) = [pod for pod in members(name) if pod.namespace == place(service) and fits(selector, pod.labels)]
        reached.append(pod.role)
        (behind,) = [one for one in pod.container["ports"] if one["name"] == port["targetPort"]]
        assert behind["containerPort"] == port["port"] and behind["protocol"] == port["protocol"]
        # Parties join through it before the coordinator is ready.
        assert service["spec"]["publishNotReadyAddresses"]
    assert sorted(reached) == sorted(pod.role for pod in members(name) if pod.role != "passive")


@pytest.mark.parametrize("name", ["overlays/coordinator-only", "overlays/active-only"])
def test_a_member_alone_in_its_cluster_can_be_reached_from_outside(name: str) -> None:
    (service,) = of_kind("Service", name)
    assert service["spec"]["type"] == "LoadBalancer"


def fits(selector: dict[str, str], labels: dict[str, str]) -> bool:
    """Tell whether labels are among those that are looked for."""
    return selector.items() <= labels.items()


# --- who may reach whom


def peers_match(peers: list[Object] | None, namespace: dict[str, str]) -> bool:
    """Tell whether a rule's peers take in a namespace; a rule without peers takes in the whole world."""
    return peers is None or any(_selected(peer.get("namespaceSelector"), namespace) for peer in peers)


def _selected(selector: Object | None, labels: dict[str, str]) -> bool:
    if selector is None:
        return False
    expressions = selector.get("matchExpressions", [])
    assert all(expression["operator"] == "In" for expression in expressions)
    wanted = all(labels.get(expression["key"]) in expression["values"] for expression in expressions)
    return wanted and fits(selector.get("matchLabels", {}), labels)


def opened(pod: Pod, direction: str, labels: dict[str, str], port: int) -> bool:
    """Tell whether the policies of a pod's namespace let it send to, or receive from, a namespace with such labels."""
    policies = [
        policy["spec"]
        for policy in of_kind("NetworkPolicy", pod.origin)
        if place(policy) == pod.namespace
        and direction.capitalize() in policy["spec"]["policyTypes"]
        and fits(policy["spec"]["podSelector"].get("matchLabels", {}), pod.labels)
    ]
    assert policies, "a pod without a policy is open to all"
    peers = {"ingress": "from", "egress": "to"}[direction]
    return any(
        peers_match(rule.get(peers), labels) and port in [one["port"] for one in rule["ports"]]
        for policy in policies
        for rule in policy.get(direction, [])
    )


def namespace_labels(name: str) -> dict[str, str]:
    """Return a namespace's labels, with the one that every cluster adds."""
    made = {one["metadata"]["name"]: one["metadata"]["labels"] for one in of_kind("Namespace", *ONE_CLUSTER, *ALONE)}
    return {**made.get(name, {}), "kubernetes.io/metadata.name": name}


def test_in_one_cluster_those_connections_are_open_that_a_federation_makes_and_no_others() -> None:
    everyone = pods(*ONE_CLUSTER)
    found = set()
    for source in everyone:
        for target in everyone:
            for port in (22, 53, 7000, 7001, 9100):
                sent = opened(source, "egress", namespace_labels(target.namespace), port)
                if sent and opened(target, "ingress", namespace_labels(source.namespace), port):
                    found.add((source.role, target.role, port))
    assert found == {
        ("active", "coordinator", 7000),
        ("passive", "coordinator", 7000),
        ("operator", "coordinator", 7000),
        ("passive", "active", 7001),
    }


@pytest.mark.parametrize("pod", members(ONE_CLUSTER[0], *ALONE), ids=lambda pod: f"{pod.origin}-{pod.namespace}")
def test_metrics_are_for_the_monitoring_namespace_alone(pod: Pod) -> None:
    assert opened(pod, "ingress", namespace_labels("monitoring"), 9100)
    assert not opened(pod, "ingress", namespace_labels("default"), 9100)
    assert opened(pod, "egress", namespace_labels("kube-system"), 53)


@pytest.mark.parametrize("name", [ONE_CLUSTER[0], "overlays/passive-only"])
def test_nobody_reaches_a_passive_party(name: str) -> None:
    passive = [pod for pod in members(name) if pod.role == "passive"]
    assert passive
    for pod in passive:
        assert [port["name"] for port in pod.container["ports"]] == ["metrics"]
        for port in (7000, 7001, 22, 443):
            assert not opened(pod, "ingress", namespace_labels("fedora-coordinator"), port)
            assert not opened(pod, "ingress", namespace_labels("monitoring"), port)


@pytest.mark.parametrize("name", ALONE)
def test_a_member_alone_in_its_cluster_may_use_the_ports_of_the_federation_file(name: str) -> None:
    (pod,) = members(name)
    federation = federation_of(pod)
    coordinator, active = (port_of(one.address) for one in (federation.coordinator, federation.active))
    outside = namespace_labels("elsewhere")
    sends = {"coordinator": [], "active": [coordinator], "passive": [coordinator, active]}[pod.role]
    receives = {"coordinator": [coordinator], "active": [active], "passive": []}[pod.role]
    assert [port for port in (coordinator, active) if opened(pod, "egress", outside, port)] == sends
    assert [port for port in (coordinator, active) if opened(pod, "ingress", outside, port)] == receives


# --- what they may do on a node


@pytest.mark.parametrize("pod", pods(*ALL), ids=lambda pod: f"{pod.origin}-{pod.namespace or pod.role}")
def test_a_pod_has_no_rights_that_it_does_not_need(pod: Pod) -> None:
    spec, container = pod.spec, pod.container
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & spec.keys()
    assert not any("hostPath" in volume for volume in spec["volumes"])
    assert spec["automountServiceAccountToken"] is False
    around = spec["securityContext"]
    assert around["runAsNonRoot"] and around["seccompProfile"] == {"type": "RuntimeDefault"}
    # With Always, Kubernetes would open the signing key to the group, and the process would then refuse it.
    assert around["fsGroupChangePolicy"] == "OnRootMismatch"
    assert {around["runAsUser"], around["runAsGroup"], around["fsGroup"]} == {USER}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"].keys() == {"requests", "limits"}
    assert all(container["resources"][kind].keys() == {"cpu", "memory"} for kind in ("requests", "limits"))


def test_the_user_is_the_image_s() -> None:
    assert f"USER {USER}:{USER}" in (HERE / "deploy" / "Dockerfile").read_text().splitlines()


def test_every_container_runs_the_image_of_this_release() -> None:
    images = {pod.container["image"] for pod in pods(*ALL)}
    assert images == {f"fedora-vfl:{VERSION}"}, "deploy/kubernetes/components/image names another release"


@pytest.mark.parametrize("name", [ONE_CLUSTER[0], *ALONE])
def test_no_member_runs_twice(name: str) -> None:
    for one in of_kind("Deployment", name):
        assert one["spec"]["replicas"] == 1 and one["spec"]["strategy"] == {"type": "Recreate"}


@pytest.mark.parametrize("pod", [pod for pod in pods(*ALL) if "secret" in str(pod.spec)], ids=lambda pod: pod.namespace)
def test_certificates_can_be_read_by_the_member_alone(pod: Pod) -> None:
    (mount, volume) = pod.mounts["/run/fedora/certificates"]
    assert mount["readOnly"] and volume["secret"]["defaultMode"] == 0o400


def test_a_key_as_kubernetes_shows_it_is_taken_and_one_that_all_may_read_is_not(tmp_path: Path) -> None:
    issue_all(federation_of(members(ONE_CLUSTER[0])[0]), tmp_path, days=1, renew=False)
    # A Secret's file of mode 0400 in a pod with an fsGroup: it belongs to root, and the group may read it.
    (tmp_path / "active" / KEY).chmod(0o440)
    assert Credentials.load(tmp_path / "active").member.name == "active"
    (tmp_path / "active" / KEY).chmod(0o444)  # Kubernetes' default
    with pytest.raises(SettingsError, match="by everybody"):
        Credentials.load(tmp_path / "active")


# --- what they run


class ParsedError(Exception):
    """Carries the options that a process has read, which then goes no further."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.options = options


def parsed(command: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Have our own command line read a command, and return what it understood."""
    if command[0] == "fedora":
        return _parsed_by_typer(command[1:])
    assert command[:2] == ["python", "-m"]
    read = argparse.ArgumentParser.parse_args

    def stop(*arguments: Any, **named: Any) -> None:
        raise ParsedError(read(*arguments, **named))

    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", stop)
        patch.setattr(sys, "argv", command[2:])
        with pytest.raises(ParsedError) as caught:
            runpy.run_module(command[2], run_name="__main__", alter_sys=False)
    return vars(caught.value.options)


def _parsed_by_typer(arguments: list[str]) -> dict[str, Any]:
    command: Any = typer.main.get_command(app)
    with contextlib.ExitStack() as open_contexts:
        context = open_contexts.enter_context(command.make_context("fedora", list(arguments)))
        while hasattr(command, "get_command"):
            verb, *arguments = arguments
            command = command.get_command(context, verb)
            assert command, f"there is no {context.command_path} {verb}"
            context = open_contexts.enter_context(command.make_context(verb, list(arguments), parent=context))
        return dict(context.params)


@pytest.mark.parametrize("pod", members(ONE_CLUSTER[0], *ALONE), ids=lambda pod: f"{pod.origin}-{pod.namespace}")
def test_our_command_line_takes_a_member_s_arguments(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    options = parsed(pod.command, monkeypatch)
    assert str(options["config"]) in pod.files()
    assert port_of(options["metrics"]) == port_named(pod, "metrics")
    if pod.role == "coordinator":
        assert port_of(options["listen"]) == port_named(pod, "control")
        assert str(options["certificates"]) in pod.mounts
        # It keeps its signing key in the folder `keys` beside the federation file.
        assert not pod.mounts[f"{options['config'].parent}/keys"][0].get("readOnly")


@pytest.mark.parametrize("pod", members(ONE_CLUSTER[0], *ALONE), ids=lambda pod: f"{pod.origin}-{pod.namespace}")
def test_our_command_line_takes_the_probes(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pod.probes.keys() == {"startupProbe", "livenessProbe", "readinessProbe"}
    for kind, command in pod.probes.items():
        options = parsed(command, monkeypatch)
        if pod.role == "passive":
            assert options["file"] == parsed(pod.command, monkeypatch)["alive_file"]
        else:
            port = port_named(pod, {"coordinator": "control", "active": "exchange"}[pod.role])
            assert options["address"] == f"127.0.0.1:{port}"
            assert str(options["certificates"]) in pod.mounts
            assert options["timeout"] < pod.container[kind]["timeoutSeconds"]
            assert options["service"] == (READY if kind == "readinessProbe" else UP)


@pytest.mark.parametrize("pod", members(ONE_CLUSTER[0], *ALONE), ids=lambda pod: f"{pod.origin}-{pod.namespace}")
def test_a_probe_ends_no_party_that_still_looks_for_its_coordinator(pod: Pod) -> None:
    for kind in ("startupProbe", "livenessProbe"):
        probe = pod.container[kind]
        if pod.role == "passive":  # the others' probes ask whether the process is up, not whether it has joined
            assert probe["periodSeconds"] * probe["failureThreshold"] > federation_of(pod).deadlines.join


@pytest.mark.parametrize("pod", members(ONE_CLUSTER[0], *ALONE), ids=lambda pod: f"{pod.origin}-{pod.namespace}")
def test_a_probe_ends_no_member_that_computes_a_long_batch(pod: Pod) -> None:
    # A member answers between two batches, and one may take as long as the deadline for a step.
    probe = pod.container["livenessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] > federation_of(pod).deadlines.step


def test_the_job_is_submitted_to_the_coordinator_and_leaves_results_that_last(monkeypatch: pytest.MonkeyPatch) -> None:
    (pod,) = pods("overlays/one-cluster/operator")
    options = parsed(expanded(pod, name="submit-abcde"), monkeypatch)
    assert options["coordinator"] == federation_of(members(ONE_CLUSTER[0])[0]).coordinator.address
    assert str(options["job"]) in pod.files()
    assert options["out"] == Path("/results/submit-abcde")
    assert pod.mounts["/results"][1]["persistentVolumeClaim"] == {"claimName": "results"}


def expanded(pod: Pod, *, name: str) -> list[str]:
    """Return a pod's command with its variables put in, as Kubernetes does."""
    maps = {one["metadata"]["name"]: one["data"] for one in of_kind("ConfigMap", pod.origin)}
    values = {}
    for variable in pod.container["env"]:
        match variable["valueFrom"]:
            case {"configMapKeyRef": {"name": where, "key": key}}:
                values[variable["name"]] = maps[where][key]
            case {"fieldRef": {"fieldPath": "metadata.name"}}:
                values[variable["name"]] = name
    return [re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], word) for word in pod.command]


# --- what they are told


def port_of(address: str) -> int:
    """Return the port of HOST:PORT."""
    return int(address.rpartition(":")[2])


def port_named(pod: Pod, name: str) -> int:
    """Return a container's port by its name."""
    (found,) = [port["containerPort"] for port in pod.container["ports"] if port["name"] == name]
    return int(found)


def lay_out(pod: Pod, folder: Path, change: Any = lambda text: text) -> None:
    """Write the files that a pod finds in its ConfigMaps below a folder, and make the folders of its volumes."""
    for path in pod.mounts:
        (folder / path[1:]).parent.mkdir(parents=True, exist_ok=True)
    for path, text in pod.files().items():
        target = folder / path[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(change(text))


def federation_of(pod: Pod) -> Federation:
    """Read the federation file that a member finds."""
    return Federation.model_validate(yaml.safe_load(pod.files()["/etc/fedora/federation.yaml"]))


@pytest.mark.parametrize("pod", members(ONE_CLUSTER[0], *ALONE), ids=lambda pod: f"{pod.origin}-{pod.namespace}")
def test_the_settings_a_member_finds_are_right(pod: Pod, tmp_path: Path) -> None:
    lay_out(pod, tmp_path)
    federation = load_federation(tmp_path / "etc/fedora/federation.yaml")
    assert not federation.plaintext
    if pod.role == "coordinator":
        return
    settings, _ = load_party(tmp_path / "etc/fedora/party.yaml")
    assert (settings.name == federation.active.name) == (pod.role == "active")
    assert str(settings.certificates) in pod.mounts
    assert pod.mounts[str(settings.data.path.parent)][0]["readOnly"]
    for kept in (settings.models, settings.keys):
        # In a folder of its own, which the party makes for itself alone; a volume's top is the group's.
        mount, volume = pod.mounts[str(kept.parent)]
        assert not mount.get("readOnly") and "persistentVolumeClaim" in volume
    # More threads than cores would only wait for each other.
    assert str(settings.threads) == pod.container["resources"]["limits"]["cpu"]
    if pod.role == "active":
        assert settings.listen == f"0.0.0.0:{port_named(pod, 'exchange')}"


def test_in_one_cluster_everybody_has_the_same_federation_file_and_addresses_are_services() -> None:
    everyone = members(ONE_CLUSTER[0])
    assert len({pod.files()["/etc/fedora/federation.yaml"] for pod in everyone}) == 1
    federation = federation_of(everyone[0])
    services = {
        f"{one['metadata']['name']}.{place(one)}.svc:{one['spec']['ports'][0]['port']}"
        for one in of_kind("Service", ONE_CLUSTER[0])
    }
    assert services == {federation.coordinator.address, federation.active.address}
    named = [
        yaml.safe_load(pod.files()["/etc/fedora/party.yaml"])["name"] for pod in everyone if pod.role != "coordinator"
    ]
    assert sorted(named) == sorted(federation.parties)


def test_organisations_apart_have_the_same_federation_file() -> None:
    assert len({pod.files()["/etc/fedora/federation.yaml"] for pod in members(*ALONE)}) == 1


def test_the_job_file_is_a_job(tmp_path: Path) -> None:
    (pod,) = pods("overlays/one-cluster/operator")
    lay_out(pod, tmp_path)
    assert load(tmp_path / "etc/fedora/job.yaml", Job).forget


def test_changed_settings_give_another_name_so_that_pods_are_replaced(tmp_path: Path) -> None:
    shutil.copytree(ROOT, tmp_path / "kubernetes")
    changed = tmp_path / "kubernetes" / "overlays" / "passive-only"
    (changed / "party.yaml").write_text((changed / "party.yaml").read_text().replace("threads: 2", "threads: 1"))
    before, after = (
        {one["metadata"]["name"] for one in objects if one["kind"] == "ConfigMap"}
        for objects in (built("overlays/passive-only"), build(changed))
    )
    assert len(before ^ after) == 2


# --- what the guide says


GUIDE = (HERE / "docs" / "kubernetes.md").read_text()
# Commands stand in indented lines; a backslash joins two.
SHOWN = [line.strip() for line in GUIDE.replace("\\\n", " ").splitlines() if line.startswith("    ")]


def test_the_guide_s_kustomizations_and_files_exist() -> None:
    named = [word for line in SHOWN for word in line.split() if word.startswith("deploy/")]
    assert len(named) > 10
    for path in named:
        assert (HERE / path.replace("$member", "active")).exists(), path
    assert {path for path in named if "-only" in path} >= {f"deploy/kubernetes/{name}" for name in ALONE}


def test_the_guide_s_namespaces_exist() -> None:
    made = {one["metadata"]["name"] for one in of_kind("Namespace", *ONE_CLUSTER, *ALONE)}
    named = set(re.findall(r"\bfedora-(?!vfl)[a-z0-9-]+(?![\w$])", "\n".join(SHOWN)))
    assert named and named <= made


def test_our_command_line_takes_the_guide_s_commands() -> None:
    commands = [shlex.split(line) for line in SHOWN if line.startswith("fedora ")]
    assert {command[1] for command in commands} == {"certs", "data", "submit", "verify"}
    for command in commands:
        assert _parsed_by_typer(command[1:])


def test_the_guide_s_certificates_go_to_every_member_in_one_cluster() -> None:
    (loop, *others) = [line for line in SHOWN if line.startswith("for member in")]
    assert set(loop.removeprefix("for member in ").removesuffix("; do").split()) == {
        pod.namespace.removeprefix("fedora-") for pod in pods(*ONE_CLUSTER)
    }
    assert set(others) == {loop}


def test_the_guide_s_third_passive_party_is_as_complete_as_the_others(tmp_path: Path) -> None:
    shutil.copytree(ROOT, tmp_path / "deploy" / "kubernetes")
    begin = SHOWN.index("cd deploy/kubernetes/overlays/one-cluster")
    subprocess.run(["bash", "-ec", "\n".join(SHOWN[begin : begin + 4])], cwd=tmp_path, check=True, timeout=30)
    objects = build(tmp_path / "deploy/kubernetes/overlays/one-cluster")
    third = [one for one in objects if place(one) == "fedora-passive-3"]
    second = [one for one in objects if place(one) == "fedora-passive-2"]
    assert sorted(one["kind"] for one in third) == sorted(one["kind"] for one in second)
    settings = {name: text for one in third if one["kind"] == "ConfigMap" for name, text in one["data"].items()}
    assert yaml.safe_load(settings["party.yaml"])["name"] == "passive-3"
    assert yaml.safe_load(settings["federation.yaml"])["passive"] == ["passive-1", "passive-2", "passive-3"]
    (namespace,) = [one for one in objects if identity(one) == ("Namespace", "", "fedora-passive-3")]
    assert namespace["metadata"]["labels"]["fedora/role"] == "passive"


# --- and it all runs


def test_the_members_of_one_cluster_run_a_job_with_the_commands_and_files_of_their_pods(tmp_path: Path) -> None:
    """No cluster is needed: a pod's volumes are folders, its addresses on loopback, its probes run as they are."""
    everyone = members(ONE_CLUSTER[0])
    federation = federation_of(everyone[0])
    issue_all(federation, tmp_path / "certificates", days=1, renew=False)
    write_people(tmp_path / "people.csv")
    node = Node(tmp_path, federation)
    with contextlib.ExitStack() as running:
        for pod in everyone:
            running.enter_context(node.started(pod))
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            for pod in everyone:
                node.wait_until(pod, kind)
        (operator,) = pods("overlays/one-cluster/operator")
        node.prepare(operator)
        (node.folder(operator) / "etc/fedora/job.yaml").write_text(
            "train: {epochs: 1}\nmodel: {hidden: [8], top: [8]}\n"
        )
        done = node.run(operator, expanded(operator, name="submit-abcde"))
        assert done.returncode == 0, done.stderr + node.logs()
    result = json.loads((node.folder(operator) / "results/submit-abcde/result.json").read_text())
    assert result["original"]["test_accuracy"] > 0
    for pod in everyone:
        keys = "etc/fedora/keys/coordinator" if pod.role == "coordinator" else "var/lib/fedora/keys"
        assert (node.folder(pod) / keys / "signing.key").stat().st_mode & 0o777 == 0o600


class Node:
    """Runs pods as plain processes: paths lead into a folder per pod, addresses to ports of this machine."""

    WAIT_SECONDS = 120.0

    def __init__(self, top: Path, federation: Federation) -> None:
        self._top = top
        self._places = {
            federation.coordinator.address: (coordinator := free_address()),
            federation.active.address: (active := free_address()),
            **{f"{host}:{port_of(federation.coordinator.address)}": coordinator for host in ("0.0.0.0", "127.0.0.1")},
            **{f"{host}:{port_of(federation.active.address)}": active for host in ("0.0.0.0", "127.0.0.1")},
        }
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def folder(self, pod: Pod) -> Path:
        """Return what stands for a pod's file system."""
        return self._top / pod.namespace

    def prepare(self, pod: Pod) -> None:
        """Fill a pod's volumes."""
        lay_out(pod, self.folder(pod), lambda text: self._here(pod, text))
        name = self._name(pod)
        for path, (_, volume) in pod.mounts.items():
            target = self.folder(pod) / path[1:]
            if "secret" in volume:
                shutil.copytree(self._top / "certificates" / name, target)
                (target / KEY).chmod(0o440)
            elif "persistentVolumeClaim" in volume or "emptyDir" in volume:
                target.mkdir(parents=True, exist_ok=True)
        if pod.role in ("active", "passive"):
            self._cut(name, self.folder(pod) / "data" / "rows.csv")

    @contextlib.contextmanager
    def started(self, pod: Pod) -> Iterator[None]:
        """Run a pod's container while inside."""
        self.prepare(pod)
        with (self._top / f"{pod.namespace}.log").open("wb") as log:
            process = subprocess.Popen(
                self._command(pod, pod.command), stderr=log, stdout=log, cwd=self._top, env=self._environment()
            )
        self._processes[pod.namespace] = process
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(pod.spec["terminationGracePeriodSeconds"])
            finally:
                process.kill()

    def wait_until(self, pod: Pod, probe: str) -> None:
        """Run a probe until it succeeds."""
        ends = time.monotonic() + self.WAIT_SECONDS
        while True:
            done = self.run(pod, pod.probes[probe])
            if done.returncode == 0:
                return
            alive = self._processes[pod.namespace].poll() is None
            assert alive and time.monotonic() < ends, f"{pod.namespace}: {probe}: {done.stderr}\n{self.logs()}"

    def run(self, pod: Pod, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command in a pod to its end."""
        words, surroundings = self._command(pod, command), self._environment()
        return subprocess.run(
            words,
            cwd=self._top,
            env=surroundings,
            text=True,
            capture_output=True,
            timeout=self.WAIT_SECONDS,
            check=False,
        )

    def logs(self) -> str:
        """Return what all containers have said."""
        return "\n".join(f"{path.name}\n{path.read_text()}" for path in sorted(self._top.glob("*.log")))

    def _name(self, pod: Pod) -> str:
        return pod.namespace.removeprefix("fedora-")

    def _command(self, pod: Pod, command: list[str]) -> list[str]:
        program = {"python": [sys.executable], "fedora": [sys.executable, "-m", "fedora_vfl.cli"]}[command[0]]
        return [*program, *(self._here(pod, word) for word in command[1:])]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"}

    def _here(self, pod: Pod, text: str) -> str:
        """Rewrite what is an address or a path of the pod in a text; in one go, as one may contain another."""
        places = {**self._places, "0.0.0.0:9100": free_address(), "threads: 2": "threads: 1"}
        tops = {f"/{path.split('/')[1]}/" for path in pod.mounts}
        pattern = "|".join([*map(re.escape, places), *(rf"(?<![\w.]){top}" for top in sorted(tops))])
        return re.sub(pattern, lambda found: places.get(found[0]) or f"{self.folder(pod)}{found[0]}", text)

    def _cut(self, name: str, target: Path) -> None:
        """Write a party's columns of a small table."""
        columns = {"active": [0, 1, 5], "passive-1": [0, 2], "passive-2": [0, 3, 4]}[name]
        lines = [line.split(",") for line in (self._top / "people.csv").read_text().splitlines()]
        lines[0][0] = "id"
        target.write_text("".join(",".join(line[column] for column in columns) + "\n" for line in lines))
