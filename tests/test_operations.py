"""What operators can count on: health that follows the truth, an orderly end, true figures, and discreet logs."""

import asyncio
import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from grpc_health.v1 import health_pb2
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from coordinator.metrics import OUTCOMES
from fedora_vfl.authority import issue_all
from fedora_vfl.cluster.local import LocalCluster, free_address
from fedora_vfl.cluster.preparation import prepare
from fedora_vfl.cluster.runs import run_on
from fedora_vfl.errors import PortError, SettingsError, StoppedError
from fedora_vfl.process import logs
from fedora_vfl.process.health import READY, UP, WATCH, Health
from fedora_vfl.process.lifecycle import ENDS_WITHIN_SECONDS
from fedora_vfl.process.metrics import Figure, TrafficMetrics, served
from fedora_vfl.settings.federation import Deadlines, Federation
from fedora_vfl.wire.channels import dial, path
from fedora_vfl.wire.meter import Meter, Packed, Sums, Totals, TrafficKey
from fedora_vfl.wire.protocol import COORDINATOR, VERSION
from fedora_vfl.wire.tls import COORDINATOR_MEMBER
from party.clock import COMPUTING, SENDING, WAITING, Clock
from protos.fedora.v1.control_pb2 import Event
from protos.fedora.v1.meter_pb2 import Kind
from tests.conftest import Training, as_job, write_people
from tests.promql import asked_for
from tests.test_command_line import alive
from tests.test_faults import LONG

ROOT = Path(__file__).parent.parent
PARTIES = ["passive-1", "passive-2", "active"]
MEMBERS = [COORDINATOR, *PARTIES]
PATIENCE = 60.0
# Silence is found out later than all that is tested here, and a busy machine is no fault.
WAITS = Deadlines(join=60, step=60, silence=20)
# A little more than is promised: this machine may be busy.
AN_END = ENDS_WITHIN_SECONDS + 4

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


# A run that all figures are read from


@dataclass
class Observed:
    """A job that was run once for many tests: its files, and what was scraped on the way and at the end."""

    folder: Path
    under_way: dict[str, Series] = field(default_factory=dict)
    at_the_end: dict[str, Series] = field(default_factory=dict)

    def ledger(self) -> dict[tuple[str, str, str, str], list[int]]:
        """Return the ledger's lines, rounds added up, by sender, receiver, phase and kind."""
        sums: defaultdict[tuple[str, str, str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
        with (self.folder / "ledger.csv").open() as file:
            for row in csv.DictReader(file):
                sender, receiver = row["direction"].split("->")
                line = sums[sender, receiver, row["phase"], row["kind"]]
                for place, column in enumerate(("messages", "tensor_bytes", "protobuf_bytes")):
                    line[place] += int(row[column])
        return dict(sums)

    def result(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return content

    def logs(self) -> dict[str, list[str]]:
        return {name: (self.folder / "logs" / f"{name}.log").read_text().splitlines() for name in MEMBERS}


def scrape(address: str) -> Series:
    """Read all figures of a process."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(series: Series, name: str, **labels: str) -> float:
    """Return the one value of a metric with these labels, whatever its other labels are."""
    found = [one for (metric, has), one in series.items() if metric == name and labels.items() <= dict(has).items()]
    assert len(found) == 1, f"{name} {labels}: {found}"
    return found[0]


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Observed:
    """Train, forget and prove it, with real processes that are scraped while they work."""
    folder = tmp_path_factory.mktemp("operations")
    run = Observed(folder / "run")
    data = {"source": "csv", "path": str(write_people(folder / "people.csv")), "id": "person"}
    unlearn = {"method": "fedora", "steps": "paper", "rounds": 3, "patience": 100, "delta": 0.3}
    job = as_job(
        {
            "data": data,
            "train": {"epochs": 80, "batch_size": 64},  # it still trains when the first epoch has been told of
            "forget": {"ids": ["p0001", "p0002", "p0004"]},
            "unlearn": unlearn,
        }
    )
    federation = prepare(job, origin=run.folder / "job.yaml", out=run.folder, threads=1)
    places = {name: free_address() for name in MEMBERS}
    programs = {
        name: ["coordinator" if name == COORDINATOR else "party", "--metrics", place, "--log", "json"]
        for name, place in places.items()
    }

    def follow(event: Event) -> None:
        if event.WhichOneof("content") == "finished" and not run.under_way:
            run.under_way.update({name: scrape(place) for name, place in places.items()})

    async def work() -> None:
        async with LocalCluster(run.folder, federation, programs=programs) as cluster:
            await run_on(cluster, run.folder, follow)
            run.at_the_end.update({name: scrape(place) for name, place in places.items()})

    asyncio.run(work())
    return run


# Metrics


COUNTERS = ("fedora_messages_total", "fedora_tensor_bytes_total", "fedora_protobuf_bytes_total")


def test_both_ends_of_every_link_count_what_the_ledger_says(observed: Observed) -> None:
    told: defaultdict[tuple[str, str, str, str], dict[str, list[float]]] = defaultdict(dict)
    for member, series in observed.at_the_end.items():
        for (name, has), count in series.items():
            labels = dict(has)
            if name in COUNTERS:
                line = (labels["sender"], labels["receiver"], labels["phase"], labels["kind"])
                assert labels["direction"] == ("sent" if member == labels["sender"] else "received")
                assert labels["member"] == member in line[:2]
                told[line].setdefault(member, [0, 0, 0])[COUNTERS.index(name)] = count
    assert {line: [*counts.values()] for line, counts in told.items()} == {
        line: [sums, sums] for line, sums in observed.ledger().items()
    }


def test_figures_are_there_while_a_job_runs_and_counters_only_grow(observed: Observed) -> None:
    assert value(observed.under_way[COORDINATOR], "fedora_job_running") == 1
    for member in MEMBERS:
        earlier, later = observed.under_way[member], observed.at_the_end[member]
        counters = {key: count for key, count in earlier.items() if key[0].endswith("_total")}
        assert counters and all(later[key] >= count for key, count in counters.items())
        assert any(later[key] > count for key, count in counters.items() if key[0] == "fedora_messages_total")
    embeddings = {"sender": "passive-1", "receiver": "active", "phase": "train", "kind": "embedding"}
    assert value(observed.under_way["active"], "fedora_tensor_bytes_total", **embeddings) > 0


def test_the_coordinator_tells_what_the_result_tells(observed: Observed) -> None:
    series, history = observed.at_the_end[COORDINATOR], observed.result()["rounds"]
    for phase in {entry["phase"] for entry in history}:
        entries = [entry for entry in history if entry["phase"] == phase]
        last = entries[-1]
        assert value(series, "fedora_phases_finished_total", phase=phase) == len(entries)
        assert value(series, "fedora_round", phase=phase) == last["round"]
        for figure in ("loss", "accuracy", "change"):
            assert value(series, f"fedora_{figure}", phase=phase) == last[figure]
        taken = sum(entry["seconds"] for entry in entries)
        assert value(series, "fedora_phase_seconds_total", phase=phase) == pytest.approx(taken)
    rates = {"train": "lr", "unlearning": "sigma", "remaining": "tau"}
    for phase, rate in rates.items():
        last = [entry for entry in history if entry["phase"] == phase][-1]
        assert value(series, "fedora_step_size", phase=phase, rate=rate) == last["step_size"]
    last = [entry for entry in history if entry["phase"] == "unlearning"][-1]
    for party in PARTIES:
        for figure in ("dual_norm", "dual_largest"):
            assert value(series, f"fedora_{figure}", party=party) == last["figures"][party][figure]
    assert value(series, "fedora_jobs_total", outcome="finished") == 1
    assert sum(value(series, "fedora_jobs_total", outcome=outcome) for outcome in OUTCOMES) == 1
    assert value(series, "fedora_job_running") == 0
    assert value(series, "fedora_parties") == 3
    assert all(value(series, "fedora_party_joined", party=party) == 1 for party in PARTIES)


def test_a_party_s_seconds_are_those_of_its_reports(observed: Observed) -> None:
    history = observed.result()["rounds"]
    for party in PARTIES:
        series = observed.at_the_end[party]
        for phase in {entry["phase"] for entry in history}:
            entries = [entry for entry in history if entry["phase"] == phase]
            spent = {
                activity: value(series, "fedora_seconds_total", phase=phase, activity=activity)
                for activity in (COMPUTING, WAITING, SENDING)
            }
            computed = sum(entry["compute_seconds"][party] for entry in entries)
            waited = sum(entry["wait_seconds"][party] for entry in entries)
            assert spent[COMPUTING] == pytest.approx(computed, abs=0.05)
            assert spent[WAITING] + spent[SENDING] == pytest.approx(waited, abs=0.05)
            assert spent[SENDING] > 0 or party == "active"
            assert value(series, "fedora_rows_total", phase=phase) == sum(entry["rows"] for entry in entries)
        assert value(series, "fedora_joined") == 1
        assert value(series, "fedora_own_rows") > 0


def documented() -> dict[str, tuple[set[str], str]]:
    """Return the metrics in the docs' table, each with its labels and who tells it."""
    rows = re.findall(
        r"^\| `(\w+)` \| ([^|]*) \| (all|coordinator|parties) \|", (ROOT / "docs/operations.md").read_text(), re.M
    )
    assert len({name for name, _, _ in rows}) == len(rows)
    return {name: (set(re.findall(r"`(\w+)`", labels)), who) for name, labels, who in rows}


def exported(observed: Observed, members: list[str]) -> dict[str, set[str]]:
    """Return the metrics that members serve, each with its labels."""
    found: dict[str, set[str]] = {}
    for member in members:
        for name, has in observed.at_the_end[member]:
            labels = {label for label, _ in has}
            assert found.setdefault(name, labels) == labels, f"{name} has different labels here and there"
    return found


def test_the_docs_list_every_metric_with_its_labels_and_no_other(observed: Observed) -> None:
    for who, members in (("coordinator", [COORDINATOR]), ("parties", PARTIES)):
        told = {name: labels | {"member"} for name, (labels, by) in documented().items() if by in (who, "all")}
        served = exported(observed, members)
        assert {name: labels for name, labels in served.items() if name.startswith("fedora_")} == told
        assert all(name.startswith(("fedora_", "process_")) for name in served)


def test_the_docs_list_every_outcome() -> None:
    text = (ROOT / "docs/operations.md").read_text()
    sentence = text[text.index("**Outcomes**") :].split("\n- ")[0]
    assert set(re.findall(r"`(\w+)`", sentence)) == set(OUTCOMES)


def test_the_dashboard_asks_for_metrics_and_labels_that_are_there(observed: Observed) -> None:
    there = exported(observed, MEMBERS)
    dashboard = json.loads((ROOT / "deploy/grafana/dashboard.json").read_text())
    targets = [target for panel in dashboard["panels"] for target in panel.get("targets", [])]
    seen: set[str] = set()
    for target in targets:
        for metric, labels in asked_for(target["expr"]).items():
            assert labels <= there.get(metric, set()), f"{target['expr']}: {metric} with {labels}"
            seen.add(metric)
        shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        known = set().union(*(there[metric] for metric in asked_for(target["expr"])))
        assert shown <= known, f"{target['legendFormat']} of {target['expr']}"
    assert set(documented()) <= seen, "a metric that no panel shows"
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_alerts_in_the_docs_ask_for_metrics_and_labels_that_are_there(observed: Observed) -> None:
    there = exported(observed, MEMBERS)
    text = (ROOT / "docs/operations.md").read_text()
    alerts = text[text.index("Worth an alert") :].split("\n\n")[1].splitlines()
    assert len(alerts) == 5
    # `up` is Prometheus's own; the cluster here has no certificates, and so no date on which they expire.
    for alert in (alert for alert in alerts if not alert.strip().startswith(("up ", "fedora_certificate_"))):
        for metric, labels in asked_for(alert.partition("#")[0]).items():
            assert labels <= there[metric], alert


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("fedora_loss", {"fedora_loss": set()}),
        ('a{b!="c{d", e=~"f"} > 0', {"a": {"b", "e"}}),
        ("60 * rate(a_total[$__rate_interval])", {"a_total": set()}),
        ("sum by (x, y) (rate(a[1m])) / sum(b) by (z)", {"a": {"x", "y", "z"}, "b": {"x", "y", "z"}}),
        ("a == 1 and on (m) sum by (m) (increase(b[10m])) == 0", {"a": {"m"}, "b": {"m"}}),
    ],
)
def test_expressions_are_read(expression: str, found: dict[str, set[str]]) -> None:
    assert asked_for(expression) == found


def test_prometheus_looks_for_every_member_that_a_federation_can_have() -> None:
    (scraped,) = yaml.safe_load((ROOT / "deploy/prometheus.yml").read_text())["scrape_configs"]
    (found,) = scraped["dns_sd_configs"]
    most = next(one.max_length for one in Federation.model_fields["passive"].metadata if hasattr(one, "max_length"))
    assert found["names"] == [COORDINATOR, "active", *(f"passive-{number + 1}" for number in range(most))]
    assert (found["type"], found["port"]) == ("A", 9100)


def test_grafana_finds_its_data_source_and_its_dashboard() -> None:
    folder = ROOT / "deploy/grafana/provisioning"
    (source,) = yaml.safe_load((folder / "datasources/prometheus.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((folder / "dashboards/fedora.yml").read_text())["providers"]
    dashboard = json.loads((ROOT / "deploy/grafana/dashboard.json").read_text())
    (variable,) = dashboard["templating"]["list"]
    assert variable["current"]["value"] == source["uid"] and variable["query"] == source["type"] == "prometheus"
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards"


def test_totals_outlive_the_books_and_add_up_rounds() -> None:
    totals = Totals()
    first, second = Meter(totals), Meter(totals)
    for meter, round in ((first, 1), (first, 2), (second, 1)):
        meter.enter("train", round)
        meter.count("a", "b", Packed(bytes(100), Kind.EMBEDDING, 80))
        meter.close()
    assert totals.read() == {TrafficKey("a", "b", "train", Kind.EMBEDDING): Sums(3, 240, 300)}


def test_figures_are_served_while_inside_and_no_longer() -> None:
    totals, address = Totals(), free_address()
    Meter(totals).count("a", "b", Packed(b"12345", Kind.CONTROL))
    for _ in range(2):  # nothing is left behind that a second time would meet
        with served(address, member="a", role="passive", sources=[TrafficMetrics("a", totals)]):
            series = scrape(address)
        assert value(series, "fedora_protobuf_bytes_total", direction="sent", kind="control", member="a") == 5
        assert value(series, "fedora_member_info", role="passive", version=VERSION) == 1
        with pytest.raises(OSError):
            scrape(address)
    with served(None, member="a", role="passive", sources=[]):
        pass


def test_an_address_that_cannot_serve_figures_is_said() -> None:
    class Nothing:
        def figures(self) -> Iterator[Figure]:
            yield from ()

    address = free_address()
    taken = f"--metrics: {address} cannot be listened on: Address already in use"
    with (
        served(address, member="a", role="passive", sources=[Nothing()]),
        pytest.raises(PortError, match=taken),
        served(address, member="b", role="passive", sources=[]),
    ):
        pass
    for wrong in ("9100", "localhost", ":9100", "a:b", "a:0", "a:65536"):
        no_address = pytest.raises(SettingsError, match=r"--metrics: .* is not an address: write HOST:PORT")
        with no_address, served(wrong, member="a", role="passive", sources=[]):
            pass


# The clock


class Hand:
    """A clock's hand that the test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_every_second_of_a_phase_goes_into_one_activity() -> None:
    hand = Hand()
    clock = Clock(hand)
    hand.now = 5  # before a phase nothing is booked
    with clock.phase("train") as spent:
        hand.now += 1
        with clock.spend(WAITING):
            hand.now += 2
            with clock.spend(WAITING):  # for two at once
                hand.now += 3
        with clock.spend(SENDING):
            hand.now += 4
        hand.now += 10
        assert spent() == (11, 5, 4)
    hand.now += 100
    with clock.phase("train") as spent:
        hand.now += 1
        assert spent() == (1, 0, 0)
    assert clock.read() == {("train", COMPUTING): 12, ("train", WAITING): 5, ("train", SENDING): 4}


@given(st.lists(st.sampled_from([WAITING, SENDING, "end", "look"]), max_size=30))
def test_the_clock_never_goes_back_however_activities_overlap(happenings: list[str]) -> None:
    hand, before = Hand(), dict[tuple[str, ...], float]()
    clock, under_way = Clock(hand), list[AbstractContextManager[None]]()
    with clock.phase("train"):
        for happening in happenings:
            hand.now += 1
            if happening in (WAITING, SENDING):
                under_way.append(clock.spend(happening))
                under_way[-1].__enter__()
            elif happening == "end" and under_way:
                under_way.pop(0).__exit__(None, None, None)  # the first to begin, not the last
            now = clock.read()
            assert all(now[key] >= seconds for key, seconds in before.items())
            assert sum(now.values()) == hand.now
            before = now


# Health


@asynccontextmanager
async def watching(address: str, service: str) -> AsyncIterator[Callable[[], Any]]:
    """Watch a service; the function returns the next word that is said of it, or None at the end."""
    async with dial(address, 10.0, credentials=None, peer=COORDINATOR_MEMBER) as channel:
        watch: Any = channel.unary_stream(path(WATCH))
        call = watch(health_pb2.HealthCheckRequest(service=service).SerializeToString(), wait_for_ready=True)

        async def following() -> str | None:
            async with asyncio.timeout(PATIENCE):
                data = await call.read()
            if data is grpc.aio.EOF:
                return None
            word: str = health_pb2.HealthCheckResponse.ServingStatus.Name(
                health_pb2.HealthCheckResponse.FromString(data).status
            )
            return word

        yield following
        call.cancel()


def prepared(folder: Path, train: dict[str, Any] | None = None) -> Federation:
    """Lay out a run over a small table."""
    data = {"source": "csv", "path": str(write_people(folder / "people.csv")), "id": "person"}
    job = as_job({"data": data, "train": train or {"epochs": 1}})
    return prepare(job, origin=folder / "run" / "job.yaml", out=folder / "run", threads=1, deadlines=WAITS)


def test_health_follows_who_is_here_and_ends_before_the_process_does(tmp_path: Path) -> None:
    federation = prepared(tmp_path)
    place, active = federation.coordinator.address, federation.active.address

    async def work() -> None:
        cluster = LocalCluster(tmp_path / "run", federation)
        try:
            await cluster.start(COORDINATOR)
            async with watching(place, UP) as up, watching(place, READY) as ready, watching(active, READY) as party:
                assert [await up(), await ready()] == ["SERVING", "NOT_SERVING"]
                for name in ("passive-1", "passive-2", "active"):
                    await cluster.start(name)
                assert await ready() == "SERVING"
                assert await party() in ("NOT_SERVING", "SERVING")  # it may have joined before it was asked
                cluster.processes["passive-1"].kill()
                assert await ready() == "NOT_SERVING"
                await cluster.processes["passive-1"].wait()
                await cluster.start("passive-1")
                assert await ready() == "SERVING"
                began = time.monotonic()
                cluster.processes[COORDINATOR].send_signal(signal.SIGTERM)
                assert [await up(), await ready()] == ["NOT_SERVING", "NOT_SERVING"]
                assert await cluster.processes[COORDINATOR].wait() == StoppedError.exit_code
                assert time.monotonic() - began < AN_END
                assert [await up(), await ready()] == [None, None]
                word = await party()
                assert (await party() if word == "SERVING" else word) == "NOT_SERVING"
        finally:
            await cluster.stop()

    asyncio.run(work())


def test_a_watcher_that_does_not_read_holds_nobody_up() -> None:
    async def work() -> None:
        health = Health()
        nobody: Any = None
        seen: Any = health._watch(health_pb2.HealthCheckRequest(service=READY).SerializeToString(), nobody)
        first = health_pb2.HealthCheckResponse.FromString(await anext(seen)).status
        for ready in (True, False, True):
            health.set_ready(ready)
        words = [first, health_pb2.HealthCheckResponse.FromString(await anext(seen)).status]
        assert words == [health_pb2.HealthCheckResponse.NOT_SERVING, health_pb2.HealthCheckResponse.SERVING]
        health.leave()
        health.set_ready(True)
        last = [health_pb2.HealthCheckResponse.FromString(data).status async for data in seen]
        assert last == [health_pb2.HealthCheckResponse.NOT_SERVING]

    asyncio.run(work())


def fedora_health(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fedora_vfl.cli", "health", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.parametrize("tls", [False, True])
def test_fedora_health_says_how_a_member_is_by_its_exit_code(tmp_path: Path, tls: bool) -> None:
    federation = prepared(tmp_path)
    run, place = tmp_path / "run", federation.coordinator.address
    certificates = run / "certificates"
    if tls:
        issue_all(federation, certificates)
    shown = {name: ["--certificates", str(certificates / name)] if tls else [] for name in ("operator", "passive-1")}
    beside = {"active": []} if not tls else {"active": ["--certificates", str(certificates / "active")]}
    for party in PARTIES if tls else []:
        file = run / "parties" / f"{party}.yaml"
        file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"certificates": f"../certificates/{party}"}))

    async def answers(*words: str) -> tuple[int, str]:
        told = await asyncio.to_thread(fedora_health, *words)
        return told.returncode, told.stderr

    async def until_well(*words: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while (answer := await answers(*words))[0]:
            assert time.monotonic() < deadline, answer

    async def work() -> None:
        alive_file = tmp_path / "alive"
        programs = {"passive-1": ["party", "--alive-file", str(alive_file)]}
        cluster = LocalCluster(run, federation, programs=programs)
        try:
            code, said = await answers(place, *shown["operator"], "--timeout", "1")
            assert code == 1 and "cannot be reached" in said and said.count("\n") == 1
            await cluster.start(COORDINATOR)
            await until_well(place, *shown["operator"])
            code, said = await answers(place, *shown["operator"], "--service", READY)
            who = COORDINATOR if tls else "whoever listens there"
            assert (code, said) == (1, f"error: {who} says NOT_SERVING of {READY} ({place})\n")
            code, said = await answers(place, *shown["operator"], "--service", "lunch")
            assert code == 1 and "knows no service 'lunch'" in said
            code, said = await answers("--file", str(alive_file))
            assert code == 1 and "has not joined the coordinator yet, or has ended" in said
            for party in PARTIES:
                await cluster.start(party)
            await until_well(place, *shown["passive-1"], "--service", READY)
            await until_well(federation.active.address, *beside["active"], "--service", READY)
            await until_well("--file", str(alive_file))
            if tls:
                code, said = await answers(place, *shown["operator"], "--member", "active")
                assert code == 1 and "shows the certificate of coordinator" in said
                code, said = await answers(federation.active.address, *shown["operator"], "--member", "active")
                assert code == 0
                code, said = await answers(place)
                assert code == 1 and "wants TLS" in said
            cluster.processes["passive-1"].send_signal(signal.SIGTERM)
            assert await cluster.processes["passive-1"].wait() == StoppedError.exit_code
            assert not alive_file.exists()
        finally:
            await cluster.stop()

    asyncio.run(work())


def test_an_alive_file_that_is_too_old_is_no_sign_of_life(tmp_path: Path) -> None:
    file = tmp_path / "alive"
    file.touch()
    assert fedora_health("--file", str(file)).returncode == 0
    os.utime(file, (time.time() - 100, time.time() - 100))
    told = fedora_health("--file", str(file), "--max-age", "15")
    assert told.returncode == 1
    assert re.search(r"was last touched 10\d s ago; it has lost the coordinator, or hangs", told.stderr)


@pytest.mark.parametrize("words", [[], ["127.0.0.1:1", "--file", "x"], ["nowhere"]])
def test_a_question_that_cannot_be_meant_is_refused(words: list[str]) -> None:
    told = fedora_health(*words)
    assert told.returncode == SettingsError.exit_code
    assert told.stderr.startswith("error: ") and told.stderr.count("\n") == 1


def test_a_process_that_is_no_member_has_no_health() -> None:
    async def work() -> None:
        server = grpc.aio.server()
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        told = await asyncio.to_thread(fedora_health, f"127.0.0.1:{port}")
        assert told.returncode == 1 and "has no health service: the address leads to something else" in told.stderr
        await server.stop(None)

    asyncio.run(work())


def test_an_alive_file_that_cannot_be_written_is_said_at_the_start(tmp_path: Path) -> None:
    prepared(tmp_path)
    missing = tmp_path / "nowhere" / "alive"
    config = tmp_path / "run" / "parties" / "passive-1.yaml"
    command = [sys.executable, "-m", "party", "--config", str(config), "--alive-file", str(missing)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert told.returncode == SettingsError.exit_code
    said = f"error: --alive-file: {missing} cannot be written: No such file or directory"
    assert told.stderr.splitlines()[-1] == said


# The end


@pytest.mark.parametrize("answering", [True, False])
def test_a_coordinator_that_is_stopped_ends_in_time_and_its_next_process_goes_on_with_the_job(
    answering: bool, tmp_path: Path
) -> None:
    federation, run = prepared(tmp_path, train=LONG), tmp_path / "run"

    async def work() -> None:
        async with LocalCluster(run, federation) as cluster:
            watch = Training()
            job = asyncio.create_task(run_on(cluster, run, watch))
            await asyncio.wait_for(watch.begun.wait(), PATIENCE)
            if not answering:
                os.kill(cluster.processes["passive-2"].pid, signal.SIGSTOP)
            began, coordinator = time.monotonic(), cluster.processes[COORDINATOR]
            os.kill(coordinator.pid, signal.SIGTERM)
            assert await coordinator.wait() == StoppedError.exit_code
            assert time.monotonic() - began < AN_END
            os.kill(cluster.processes["passive-2"].pid, signal.SIGCONT)
            watch.begun.clear()
            await asyncio.wait_for(watch.begun.wait(), PATIENCE)
            job.cancel()
            with pytest.raises(asyncio.CancelledError):
                await job
            assert "error: stopped by Ctrl-C or a signal" in cluster.log_path(COORDINATOR).read_text().splitlines()

    asyncio.run(work())


def test_a_job_that_waits_for_a_party_goes_on_waiting_at_the_next_process(tmp_path: Path) -> None:
    federation = prepared(tmp_path)
    waits: asyncio.Queue[str] = asyncio.Queue()

    def follow(event: Event) -> None:
        if event.note.startswith("waiting for") and "passive-2" in event.note:
            waits.put_nowait(event.note)

    async def work() -> None:
        async with LocalCluster(tmp_path / "run", federation, programs={"passive-2": []}) as cluster:
            job = asyncio.create_task(run_on(cluster, tmp_path / "run", follow))
            await asyncio.wait_for(waits.get(), PATIENCE)
            os.kill(cluster.processes[COORDINATOR].pid, signal.SIGTERM)
            await asyncio.wait_for(waits.get(), PATIENCE)
            job.cancel()
            with pytest.raises(asyncio.CancelledError):
                await job

    asyncio.run(work())


def test_a_process_that_cannot_let_go_of_its_work_ends_all_the_same(tmp_path: Path) -> None:
    stubborn = (
        "import asyncio, sys, time\n"
        "from fedora_vfl.process.lifecycle import run_until_done\n"
        "async def work():\n"
        "    print('begun', flush=True)\n"
        "    while True: time.sleep(0.05)\n"
        "sys.exit(run_until_done(work(), ends_within=0.5))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", stubborn], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stderr
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE) == StoppedError.exit_code
        assert process.stderr.read() == "error: stopped by Ctrl-C or a signal\n"
    assert not alive(process.pid)


# Logs


def test_logs_of_json_parse_and_say_where_they_belong(observed: Observed) -> None:
    for member, lines in observed.logs().items():
        records = [json.loads(line) for line in lines]
        for record in records:
            assert {"time", "level", "member", "logger", "message"} <= set(record)
            assert set(record) <= {"time", "level", "member", "logger", "message", "job", "phase", "round"}
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record["time"])
        named = [record["member"] for record in records]
        assert set(named) == {member}
        assert records[-1] | {"time": "", "logger": ""} == {
            "time": "",
            "level": "INFO",
            "member": member,
            "logger": "",
            "message": "stopped by Ctrl-C or a signal",
        }
    messages = [json.loads(line) for line in observed.logs()[COORDINATOR]]
    (ended,) = (one for one in messages if one["message"] == "the job has ended: finished")
    assert re.fullmatch(r"[0-9a-f]{32}", ended["job"]) and ended["phase"] and ended["round"] >= 1


def test_no_log_and_no_figure_holds_an_id_or_a_label(tmp_path: Path) -> None:
    """Also not where an error quotes one to the user."""
    people = write_people(tmp_path / "people.csv")
    people.write_text(people.read_text().replace(",yes\n", ",label-yes\n").replace(",no\n", ",label-no\n"))
    data = {"source": "csv", "path": str(people), "id": "person"}
    out = tmp_path / "run"
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"ids": ["p0001", "p9999"]}, "p9999"),
        ({"classes": ["label-maybe"]}, "label-maybe"),
        ({"classes": ["label-yes", "label-yes"]}, "label-yes"),
    ]
    job = {"data": data, "train": {"epochs": 1}, "forget": wrong[0][0]}
    federation = prepare(as_job(job), origin=out / "job.yaml", out=out, threads=1)
    place = free_address()
    programs = {"active": ["party", "--metrics", place], COORDINATOR: ["coordinator", "--log", "json"]}
    figures = []

    async def work() -> None:
        async with LocalCluster(out, federation, programs=programs) as cluster:
            for forget, said in wrong:
                (out / "job.yaml").write_text(yaml.safe_dump({"train": {"epochs": 1}, "forget": forget}))
                with pytest.raises(SettingsError, match=said):
                    await run_on(cluster, out, Training())
            (out / "job.yaml").write_text(yaml.safe_dump({"train": {"epochs": 1}}))
            await run_on(cluster, out, Training())
            figures.append(str(scrape(place)))

    asyncio.run(work())
    for text in [*(log.read_text() for log in (out / "logs").iterdir()), *figures]:
        assert not re.search(r"p\d{4}|label-|Bonn|Rome|Oslo", text)
    assert "forget.ids: '…' is not among the rows in common" in (out / "logs" / "active.log").read_text()


@given(st.text(), st.text(), st.text())
def test_what_a_sentence_quotes_is_not_in_the_log(before: str, quoted: str, after: str) -> None:
    plain = [part.replace("'", "").replace('"', "").replace("\\", "") for part in (before, after)]
    assert logs.discreet(f"{plain[0]} {quoted!r} {plain[1]}") == f"{plain[0]} '…' {plain[1]}"


@pytest.mark.parametrize(
    ("sentence", "logged"),
    [
        ("st mary's/a.csv: 'SECRET' is not one of 'A', 'B'", "st mary's/a.csv: '…' is not one of '…', '…'"),
        ("o'neil/rows.csv: id 'p0001' stands twice", "o'neil/rows.csv: id '…' stands twice"),
        ("the parties' files: \"O'Brien\" is new", "the parties' files: '…' is new"),
        ("label ('it\\'s \"so\"'): unknown", "label ('…'): unknown"),
    ],
)
def test_an_apostrophe_opens_no_quotation(sentence: str, logged: str) -> None:
    assert logs.discreet(sentence) == logged


def test_a_message_cannot_pass_for_two_lines_of_the_log() -> None:
    forged = "x\n12:00:00 INFO hospital left\x1b[2J\u2028"
    assert logs.printable(forged) == "x\n    12:00:00 INFO hospital left\\x1b[2J\\u2028"
    assert len(logs.printable("x" * 1_000_000)) == logs.LONGEST
    steering = "Ärztin 患者 \x1b[2J\x9b2J\x7f\u2028\u202e"  # also in the forms that JSON need not escape
    line = logs.Lines().line("INFO", steering, logger="test")
    assert line.isprintable() and "Ärztin 患者" in line and json.loads(line)["message"] == steering


def test_an_unforeseen_error_is_logged_without_what_it_quotes() -> None:
    try:
        {"a": 1}["p0001"]
    except KeyError as error:
        said = logs.unexpected(error)
    assert said.endswith("KeyError: '…'") and "test_operations.py" in said


def test_a_line_of_json_is_one_line_whatever_the_message() -> None:
    line = logs.Lines().line("INFO", "two\nlines, “quotes” and \u2028", logger="x", seconds=0)
    assert "\n" not in line
    assert json.loads(line)["message"] == "two\nlines, “quotes” and \u2028"
    assert json.loads(line)["time"] == "1970-01-01T00:00:00.000Z"


def test_what_others_write_to_standard_error_is_a_line_of_json_too() -> None:
    program = (
        "import argparse, os, threading, warnings\n"
        "from fedora_vfl.process.lifecycle import begin\n"
        "begin(argparse.Namespace(end_with_parent=False, log='json'))\n"
        "warnings.warn('careful')\n"
        "thread = threading.Thread(target=lambda: {}['p0001'])\n"
        "thread.start(); thread.join()\n"
        "raise RuntimeError('no more')\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    records = [json.loads(line) for line in told.stderr.splitlines()]
    assert [record["level"] for record in records] == ["WARNING", "CRITICAL", "CRITICAL"]
    assert "careful" in records[0]["message"]
    assert records[1]["message"].endswith("KeyError: '…'")
    assert records[2]["message"].endswith("RuntimeError: no more")
    assert told.returncode == 1
