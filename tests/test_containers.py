"""The compose cluster on a real engine: the whole story, who can see what, and members that go.

The engine is the tests' own. It needs root and some packages; where there can be none, all of this is skipped, with the
reason.
"""

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
import yaml

from deploy.compose import extend, start_command
from fedora_vfl.certificates.verification import Evidence, examine
from fedora_vfl.cluster.preparation import load_job
from fedora_vfl.errors import StoppedError
from fedora_vfl.process.lifecycle import ENDS_WITHIN_SECONDS
from fedora_vfl.settings.federation import Deadlines
from tests.conftest import write_yaml
from tests.engine import BASE, REPOSITORY, Engine, NoEngine, engine
from tests.test_compose import MEMBERS, PARTIES, copy_cluster

IMAGE = "fedora-vfl:local"
USER = "10001"

ON_ENGINE = pytest.mark.timeout(1800)  # the first of these tests makes a base image and builds on it

SHORT: dict[str, Any] = {"train": {"epochs": 1}}
LONG: dict[str, Any] = {"train": {"epochs": 40}}  # a line is printed of every second one, and the first is soon over
# Longer than any of these takes on a busy machine.
PATIENCE = 600.0
SILENCE = Deadlines().silence
# From when a member has gone until the user is told: silence is noticed by both ends of a link, one after the other.
TOLD_WITHIN = 2 * SILENCE + 10
MODE_OWNER_NAME = ("-printf", "%m:%U %p\\n")


@dataclass(frozen=True)
class Cluster:
    """A compose cluster in a folder of its own."""

    engine: Engine
    folder: Path

    def compose(self, *words: str, check: bool = True) -> str:
        """Run Compose and return what it prints."""
        return self.engine.compose(self.folder, *words, check=check, seconds=PATIENCE).stdout

    def container(self, service: str) -> str:
        """Return the id of a service's container, running or not."""
        listed = self.engine.docker(
            *("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label=com.docker.compose.service={service}"),
            *("--filter", f"label=com.docker.compose.project={self.folder.name}"),
        )
        (found,) = listed.stdout.split()
        return found

    def inspect(self, service: str, what: str) -> str:
        """Return something that the engine knows of a service's container."""
        return self.engine.docker("inspect", "--format", what, self.container(service)).stdout.strip()

    def inside(self, service: str, *words: str) -> str:
        """Run something in a service's container."""
        return self.engine.docker("exec", self.container(service), *words).stdout

    def healthy(self, *members: str) -> None:
        """Wait until members are well."""
        status = "{{.State.Health.Status}}"
        until(lambda: {self.inspect(member, status) for member in members} == {"healthy"}, f"not all of {members} are")

    def submitting(self, job: dict[str, Any], *options: str) -> "subprocess.Popen[str]":
        """Submit a job, as a user would who does not mind that an earlier one's model is replaced."""
        write_yaml(self.folder / "job.yaml", {**job, "train": {**job.get("train", {}), "overwrite": True}})
        return subprocess.Popen(
            self.engine.compose_command("run", "--rm", "-T", "submit", "job.yaml", *options),
            cwd=self.folder,
            env=self.engine.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def submit(self, job: dict[str, Any], out: str) -> dict[str, Any]:
        """Run a job to its end and return its figures."""
        with self.submitting(job, "--out", f"runs/{out}", "--overwrite") as process:
            printed, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, printed + said
        return result_in(self.folder / "runs" / out)

    def submit_in_vain(self, *options: str) -> str:
        """Submit a job that is refused and return what is said."""
        with self.submitting(SHORT, *options) as process:
            _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode != 0
        (error,) = [line for line in said.splitlines() if line.startswith("error: ")]
        return error

    def listed(self, kind: str) -> list[str]:
        """Return what the engine has of this cluster: containers or volumes."""
        words = ["ps", "--all"] if kind == "container" else ["volume", "ls"]
        label = f"label=com.docker.compose.project={self.folder.name}"
        return self.engine.docker(*words, "--quiet", "--filter", label).stdout.split()


def result_in(folder: Path) -> dict[str, Any]:
    """Read a job's result."""
    figures = json.loads((folder / "result.json").read_text())
    assert isinstance(figures, dict)
    return figures


def until(true: Callable[[], bool], otherwise: str) -> None:
    """Look again and again until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.2)  # between two looks, not instead of one


@pytest.fixture(scope="module")
def running_engine() -> Iterator[Engine]:
    """An engine that has built the image, as `docker compose build` does."""
    with contextlib.ExitStack() as stack:
        try:
            running = stack.enter_context(engine())
        except NoEngine as reason:
            pytest.skip(str(reason))
        running.compose(REPOSITORY, "build", "coordinator", seconds=1500)
        yield running


@pytest.fixture(scope="module")
def cluster(running_engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that `docker compose up` has started, and whose demo has ended."""
    folder = tmp_path_factory.mktemp("federation")
    folder.chmod(0o755)  # as a user's folder mostly is: the image's user reads jobs there
    made = Cluster(running_engine, copy_cluster(folder))
    try:
        made.compose("up", "--detach", "--no-build")
        running_engine.docker("wait", made.container("demo"), seconds=PATIENCE)
        yield made
    finally:
        made.compose("down", "--volumes", "--timeout", "5", check=False)


@ON_ENGINE
def test_up_tells_the_whole_story(cluster: Cluster) -> None:
    logs = cluster.engine.docker("logs", cluster.container("demo"))
    assert cluster.inspect("demo", "{{.State.ExitCode}}") == "0", logs.stdout + logs.stderr
    folder = cluster.folder / "runs" / "compose"
    assert {"result.json", "ledger.csv", "certificate.json", "rounds.png"} <= {path.name for path in folder.iterdir()}
    _, checks = examine((folder / "certificate.json").read_bytes(), Evidence())
    assert not [check.said for check in checks if check.holds is False]
    figures = result_in(folder)
    assert figures["original"]["backdoor_asr"] > 0.95
    assert figures["unlearned"]["backdoor_asr"] < 0.2


@ON_ENGINE
def test_up_again_runs_no_job_and_replaces_no_model(cluster: Cluster) -> None:
    cluster.submit(SHORT, "mine")
    digests = ("sh", "-c", "sha256sum /private/models/*")
    before = {name: cluster.inside(name, *digests) for name in PARTIES}
    assert "/original.safetensors" in before["active"] and "/demo.safetensors" in before["active"]
    results = cluster.folder / "runs" / "compose" / "result.json"
    written = results.stat().st_mtime_ns
    cluster.compose("up", "--detach", "--no-build")
    cluster.engine.docker("wait", cluster.container("demo"), seconds=PATIENCE)
    assert cluster.inspect("demo", "{{.State.ExitCode}}") == "0"
    said = cluster.engine.docker("logs", "--tail", "1", cluster.container("demo")).stdout
    assert said.startswith("note: runs/compose holds results of the demo, so it is not run again")
    assert results.stat().st_mtime_ns == written
    cluster.healthy(*MEMBERS)
    assert {name: cluster.inside(name, *digests) for name in PARTIES} == before


@ON_ENGINE
def test_results_go_below_runs_and_can_be_removed_from_there(cluster: Cluster) -> None:
    for place in ("/tmp/mine", "mine"):
        assert cluster.submit_in_vain("--out", place) == f"error: {place}: cannot be written to: Read-only file system"
    cluster.submit(SHORT, "removed")
    cluster.compose("run", "--rm", "-T", "--entrypoint", "rm", "submit", "-r", "runs/removed")
    assert not (cluster.folder / "runs" / "removed").exists()


@ON_ENGINE
def test_files_that_members_cannot_read_are_named_at_once(
    running_engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    closed = Cluster(running_engine, copy_cluster(tmp_path_factory.mktemp("closed")))
    for path in (closed.folder / "deploy" / "cluster").rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    try:
        assert closed.engine.compose(closed.folder, "up", "--detach", "--no-build", check=False).returncode != 0
        said = closed.engine.docker("logs", closed.container("volumes")).stderr
    finally:
        closed.compose("down", "--volumes", "--timeout", "5", check=False)
    assert said.count("\n") == 1
    assert said.startswith("error: user 10001, as whom members run, may not read ")
    assert "federation.yaml" in said and "chmod -R a+rX deploy" in said


@ON_ENGINE
def test_a_job_gives_the_same_figures_as_on_one_machine(cluster: Cluster) -> None:
    """The rows that were poisoned when the data was cut are forgotten, in one epoch each, in containers and in one."""
    told = yaml.safe_load((REPOSITORY / "fedora_vfl" / "cli" / "demo.yaml").read_text())
    alone = write_yaml(cluster.folder / "alone.yaml", {**told, **SHORT, "compare": []})
    load_job(alone)
    apart = cluster.submit({**SHORT, "forget": {"ids": "/requests/poisoned.txt"}}, "apart")
    command = "fedora run /alone.yaml --out /tmp/out --threads 1 >&2 && cat /tmp/out/result.json"
    whole = cluster.engine.docker(
        *("run", "--rm", "--network", "none", "--volume", f"{alone}:/alone.yaml:ro", IMAGE, "sh", "-c", command)
    )
    together = json.loads(whole.stdout)
    for model in ("original", "unlearned"):
        assert lasting(apart[model]) == lasting(together[model])
    assert apart["bytes"]["tensor"] == together["bytes"]["tensor"]


def lasting(value: Any) -> Any:
    """Leave out of figures how long things took, and bytes: how often progress is told depends on that."""
    if isinstance(value, dict):
        return {key: lasting(one) for key, one in value.items() if key != "bytes" and "seconds" not in key}
    return value


@ON_ENGINE
def test_keys_are_their_owners_alone(cluster: Cluster) -> None:
    for name in MEMBERS:
        places = ["/certificates", "/etc/fedora", *(["/private"] if name in PARTIES else [])]
        listed = cluster.inside(name, "find", *places, "-type", "f", *MODE_OWNER_NAME)
        files = {path: mode for mode, path in (line.split(" ", 1) for line in listed.splitlines())}
        keys = {path: mode for path, mode in files.items() if Path(path).name in ("key.pem", "signing.key")}
        assert len(keys) == 2, listed
        assert set(keys.values()) == {f"600:{USER}"}
        assert not [path for path in files if path.endswith("authority.key")]


@ON_ENGINE
def test_a_member_is_nobody_in_particular_and_writes_only_to_its_own_volume(cluster: Cluster) -> None:
    places = "/ /opt/project /etc/fedora /certificates /data"
    attempt = f"for place in {places}; do touch $place/x 2>/dev/null && echo $place; done; id -u"
    for name in MEMBERS:
        assert cluster.inside(name, "sh", "-c", attempt).split() == [USER]
        status = cluster.inside(name, "cat", "/proc/1/status")
        assert "CapEff:\t0000000000000000" in status
        assert "NoNewPrivs:\t1" in status


@ON_ENGINE
def test_a_passive_party_listens_nowhere_that_others_could_reach(cluster: Cluster) -> None:
    for name in ("passive-1", "passive-2"):
        tables = cluster.inside(name, "sh", "-c", "cat /proc/net/tcp; cat /proc/net/tcp6 2>/dev/null; true")
        rows = [line.split() for line in tables.splitlines()]
        listening = [row[1] for row in rows if len(row) > 3 and row[3] == "0A"]
        # 127.x.x.x, written backwards in hexadecimal: its own figures, and the engine's name service.
        assert [place for place in listening if not re.fullmatch(r"[0-9A-F]{6}7F:[0-9A-F]{4}", place)] == []


@ON_ENGINE
def test_members_have_no_way_out(cluster: Cluster) -> None:
    network = json.loads(cluster.engine.docker("network", "inspect", f"{cluster.folder.name}_federation").stdout)[0]
    assert network["Internal"] is True
    for name in MEMBERS:
        assert json.loads(cluster.inspect(name, "{{json .NetworkSettings.Networks}}")).keys() == {network["Name"]}
        assert cluster.inspect(name, "{{json .HostConfig.PortBindings}}") in ("{}", "null")


@ON_ENGINE
def test_no_key_and_no_history_are_in_the_image(running_engine: Engine) -> None:
    pattern = r"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{32,}"
    looking = f"grep -rlPz -e '{pattern}' /opt /etc /tmp /var /home /root; ls /opt/project /build"
    found = running_engine.docker("run", "--rm", "--user", "0", IMAGE, "sh", "-c", looking, check=False).stdout.split()
    assert not [line for line in found if line.startswith("/") and line != "/opt/project:"]
    assert not {".git", "tests", "runs", "docs", "certs"} & set(found)
    assert "PRIVATE KEY" not in running_engine.docker("history", "--no-trunc", IMAGE).stdout
    settings = json.loads(running_engine.docker("inspect", "--format", "{{json .Config}}", IMAGE).stdout)
    assert settings["User"] == f"{USER}:{USER}"
    assert running_engine.has(BASE)


def hit(cluster: Cluster, fault: str, member: str) -> None:
    """Do something to a member."""
    network = f"{cluster.folder.name}_federation"
    words = ["network", "disconnect", network] if fault == "disconnect" else [fault]
    cluster.engine.docker(*words, cluster.container(member))


def mend(cluster: Cluster, fault: str, member: str) -> None:
    """Undo it, as an operator would."""
    match fault:
        case "pause":
            cluster.engine.docker("unpause", cluster.container(member))
        case "kill":
            cluster.engine.docker("start", cluster.container(member))
        case "disconnect":
            network = f"{cluster.folder.name}_federation"
            cluster.engine.docker("network", "connect", "--alias", member, network, cluster.container(member))


def first_epoch(printed: IO[str] | None) -> None:
    """Read what a user sees until an epoch is over."""
    assert printed
    for line in printed:
        if "train" in line and "loss" in line:
            return
    raise AssertionError("the job ended before its first epoch did")


@ON_ENGINE
@pytest.mark.parametrize(
    ("fault", "member"),
    [("pause", "passive-1"), ("kill", "active"), ("kill", "coordinator"), ("disconnect", "passive-2")],
)
def test_a_member_that_goes_is_named_and_the_job_goes_on_when_it_is_back(
    cluster: Cluster, fault: str, member: str
) -> None:
    cluster.healthy(*MEMBERS)
    with cluster.submitting(LONG) as process:
        first_epoch(process.stdout)
        hit(cluster, fault, member)
        begun = time.monotonic()
        try:
            assert process.stdout
            while f"{member} is gone" not in (line := process.stdout.readline()):
                assert line, "the job ended"
            assert time.monotonic() - begun < TOLD_WITHIN
        finally:
            mend(cluster, fault, member)
        printed, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    assert "the job goes on after request" in printed
    cluster.healthy(*MEMBERS)
    assert cluster.submit(SHORT, f"after-{fault}-{member}")["original"]["test_accuracy"] > 0.7


@ON_ENGINE
def test_a_job_goes_on_after_all_members_were_killed_at_once(cluster: Cluster) -> None:
    cluster.healthy(*MEMBERS)
    with cluster.submitting(LONG) as process:
        first_epoch(process.stdout)
        cluster.engine.docker("kill", *(cluster.container(name) for name in MEMBERS))
        cluster.compose("up", "--detach", "--no-build", *MEMBERS)
        printed, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    assert "the job goes on after request" in printed


@ON_ENGINE
def test_all_certificates_can_be_made_anew(cluster: Cluster) -> None:
    everyone = ("sha256sum", "/certificates/certificate.pem")
    before = {name: cluster.inside(name, *everyone) for name in MEMBERS}
    renewing = "fedora certs all --federation /etc/fedora/federation.yaml --out /certificates --renew"
    cluster.compose("run", "--rm", "-T", "certificates", *renewing.split())
    cluster.compose("restart", *MEMBERS)
    cluster.healthy(*MEMBERS)
    assert not set(before.values()) & {cluster.inside(name, *everyone) for name in MEMBERS}
    assert set(cluster.submit(SHORT, "renewed")["parties"]) == set(PARTIES)


@ON_ENGINE
def test_two_more_parties_join_a_cluster_that_is_there_and_one_goes(cluster: Cluster) -> None:
    compose, out = cluster.folder / "docker-compose.yml", cluster.folder / "docker-compose.override.yml"
    extend(compose, out, 4)
    everyone = [*MEMBERS, "passive-3", "passive-4"]
    cluster.compose("up", "--detach", "--no-build", *everyone)
    cluster.healthy(*everyone)
    assert set(cluster.submit(SHORT, "larger")["parties"]) == {*PARTIES, "passive-3", "passive-4"}
    extend(compose, out, 3)
    again = start_command(compose, out, again=True).split(" up ")[1].split()
    cluster.compose("up", "--detach", "--no-build", *again, *everyone[:-1])
    cluster.healthy(*everyone[:-1])
    assert set(cluster.submit(SHORT, "smaller")["parties"]) == {*PARTIES, "passive-3"}


@ON_ENGINE
def test_members_end_by_themselves_when_they_are_stopped(cluster: Cluster) -> None:
    begun = time.monotonic()
    cluster.engine.docker("stop", "--time", "60", *(cluster.container(name) for name in MEMBERS))
    assert time.monotonic() - begun < ENDS_WITHIN_SECONDS + 10
    for name in MEMBERS:
        assert cluster.inspect(name, "{{.State.ExitCode}}") == str(StoppedError.exit_code)


@ON_ENGINE
def test_nothing_is_left_of_a_cluster_that_is_taken_down_with_its_volumes(cluster: Cluster) -> None:
    """Also of parties that only an override names: this is the way back to two."""
    assert cluster.listed("container") and cluster.listed("volume")
    cluster.compose("down", "--volumes", "--remove-orphans")
    assert cluster.listed("container") == []
    # The fourth went before, when the number was changed; its volumes stay, as the docs say.
    assert {name.partition("_")[2].rpartition("-")[0] for name in cluster.listed("volume")} == {"passive-4"}
