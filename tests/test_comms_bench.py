"""What the measurement of communication promises: points that cover all that matters, a model that knows its error."""

import asyncio
import csv
import io
import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fedora_vfl.bench.comms.command import Asked, Teller
from fedora_vfl.bench.comms.model import Sample, fit
from fedora_vfl.bench.comms.points import (
    ALIGNMENT,
    METHODS,
    QUICK,
    REQUESTS,
    WHOLE,
    Extent,
    Point,
    all_points,
    as_cell,
    asked_lines,
    distinct,
    sweeps,
)
from fedora_vfl.bench.comms.report import Material, cells_csv, print_tables, write_report
from fedora_vfl.bench.comms.results import Result, Results, read_results
from fedora_vfl.bench.comms.stage import TEST_ROWS, write_table
from fedora_vfl.bench.comms.sweep import Sweep
from fedora_vfl.bench.hosts.network import why_not
from fedora_vfl.bench.paper.store import Store
from fedora_vfl.wire.masking import alignment_bytes

TINY = replace(
    QUICK, rows=512, epochs=1, parties=(2,), embeddings=(8,), batches=(128, 256), rates=(20,), delays=(), repeats=1
)


# Points


@pytest.mark.parametrize("extent", [QUICK, WHOLE])
def test_every_method_and_setting_is_swept(extent: Extent) -> None:
    points = set(all_points(extent))
    assert {(one.method, one.parties) for one in points} >= {(name, n) for name in METHODS for n in extent.parties}
    assert {one.tls for one in points} == {False, True}
    assert {one.dtype for one in points} == {"float32", "float16", "bfloat16"}
    assert {one.embedding for one in points} == {*extent.embeddings}
    assert {one.batch for one in points} == {*extent.batches}
    assert min(extent.rates) == 10
    assert set(WHOLE.parties) == {2, 4, 8, 16}
    assert {(one.request, one.delay) for one in points if one.method == "fedora"} >= {
        (request, delay / 1000) for request in REQUESTS for delay in extent.delays
    }


@pytest.mark.parametrize("extent", [QUICK, WHOLE])
def test_every_timed_point_has_its_like_without_a_limit(extent: Extent) -> None:
    points = set(all_points(extent))
    for point in points:
        assert replace(point, rate=None, delay=0.0) in points


def test_points_of_one_cluster_follow_each_other() -> None:
    places = [point.place for point in distinct(all_points(WHOLE))]
    changes = sum(one != other for one, other in itertools.pairwise(places))
    assert changes == len(set(places)) - 1


def test_a_cell_is_named_by_all_that_decides_it() -> None:
    base = Point()
    others = [
        replace(base, method="ga"),
        replace(base, parties=4),
        replace(base, embedding=8),
        replace(base, batch=32),
        replace(base, dtype="float16"),
        replace(base, tls=True),
        replace(base, request="1 row"),
        replace(base, rate=1e7),
        replace(base, delay=0.01),
        replace(base, whole_packets=True),
    ]
    cells = [as_cell(point, QUICK, hosts=True) for point in (base, *others)]
    cells += [as_cell(base, WHOLE, hosts=True), as_cell(base, QUICK, hosts=False)]
    assert len({cell.digest for cell in cells}) == len(cells)


# The model of time


def samples(*, a: float, b: float, wobble: float = 0.0) -> list[Sample]:
    found = [Sample("one", 0.5, 4e7, 30)]
    for number, (rate, delay) in enumerate([(1e7, 0.0), (5e7, 0.0), (2e8, 0.0), (None, 0.01), (None, 0.05)]):
        sample = Sample("one", 0.0, 4e7, 30, rate, delay)
        transfer, waiting = sample.terms
        off = 1 + wobble * (-1) ** number
        found.append(replace(sample, seconds=off * (0.5 + a * transfer + b * waiting)))
    return found


def test_the_fit_finds_what_made_the_times() -> None:
    model = fit(samples(a=1.1, b=1.7))
    assert model is not None
    assert model.a == pytest.approx(1.1)
    assert model.b == pytest.approx(1.7)
    assert model.largest_error == pytest.approx(0, abs=1e-9)


def test_the_models_error_is_that_of_points_it_has_not_seen() -> None:
    model = fit(samples(a=1.0, b=1.0, wobble=0.2))
    assert model is not None
    assert 0.05 < model.typical_error <= model.largest_error < 0.6


def test_too_few_points_give_no_model() -> None:
    assert fit(samples(a=1.0, b=1.0)[:3]) is None
    assert fit([Sample("one", 1.0, 1e6, 10)] * 5) is None


def test_a_moment_in_which_the_machine_was_busy_does_not_count_as_compute() -> None:
    quiet = samples(a=1.0, b=1.0)
    busy = replace(quiet[0], seconds=9.0)
    model = fit([busy, *quiet[1:]])
    assert model is not None
    assert model.compute["one"] == min(sample.seconds for sample in quiet[1:])


# The report


def result(point: Point) -> Result:
    bytes_ = 1_000_000.0
    cost = {"predicted": bytes_, "tensor": bytes_, "protobuf": bytes_ + 1000, "waits": 20.0}
    seconds = 0.2 + (8 * bytes_ * 1.1 / point.rate if point.rate else 0.0) + 20 * 2 * point.delay
    wire = {"job_protobuf": 2e6, "job_wire": 2.2e6, "job_packets": 2000.0}
    return Result(point, {**cost, **wire}, {"method": seconds, "job": 2 * seconds, "cell": 3 * seconds})


def test_the_page_tells_wire_bytes_rates_and_the_models_error(tmp_path: Path) -> None:
    results = Results({point: result(point) for point in distinct(all_points(QUICK))}, {}, 0)
    page = tmp_path / "comms.md"
    write_report(Material(QUICK, results, None, "fedora bench comms --quick"), page, table=tmp_path / "comms.csv")
    text = page.read_text()
    assert "| retrain | 4 | 1.000 | 1.000 | 1.001 | 1.101 | +10.0% | 6.6% | 3.4% |" in text
    assert "| fedora | 64 KB packets | 1.000 |" in text
    assert "a = 1.00, b = 1.00." in text
    assert "| fedora | 1.08 *(1.08)* |" in text
    assert (tmp_path / "comms-bytes.svg").exists() and (tmp_path / "comms-seconds.svg").exists()
    lines = list(csv.DictReader(io.StringIO((tmp_path / "comms.csv").read_text())))
    assert len(lines) == len(results.measured)
    assert {line["job_wire"] for line in lines} == {"2200000"}


def test_a_terminal_of_eighty_columns_shows_every_method_whole() -> None:
    results = Results({point: result(point) for point in distinct(all_points(WHOLE))}, {}, 0)
    console = Console(file=io.StringIO(), width=80)
    print_tables(Material(WHOLE, results, None, "fedora bench comms"), console)
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()
    assert "…" not in printed
    assert "retrain              16     1.000  1.000    1.001 1.101 +10.0%    0.20" in printed
    assert "retrain     1.08     0.64     0.38     0.29     0.24   (0.22)     0.21     0.20" in printed


def test_without_hosts_the_page_says_why_and_shows_the_rest(tmp_path: Path) -> None:
    measured = {}
    for point in distinct(all_points(QUICK)):
        if not point.needs_hosts:
            whole = result(point)
            known = {name: value for name, value in whole.cost.items() if name not in ("job_wire", "job_packets")}
            measured[point] = Result(point, known, whole.seconds)
    results = Results(measured, {}, 0)
    page = tmp_path / "comms.md"
    material = Material(QUICK, results, "hosts in network namespaces need root", "fedora bench comms --quick")
    write_report(material, page, table=tmp_path / "comms.csv")
    text = page.read_text()
    assert "Bytes on the wire and rates are left out: hosts in network namespaces need root." in text
    assert "| retrain | 4 | 1.000 | 1.000 | 1.001 | – | – | – | – |" in text
    assert "Mbit/s" not in text


def test_failed_points_are_told_with_their_reasons(tmp_path: Path) -> None:
    results = Results({}, {Point(): "passive-1 is gone"}, 3)
    page = tmp_path / "comms.md"
    write_report(Material(QUICK, results, None, "fedora bench comms"), page, table=tmp_path / "comms.csv")
    assert "no limit, 0 ms, frames: passive-1 is gone" in page.read_text()
    assert "3 points are not measured yet" in page.read_text()


# Measuring


def measure(out: Path, points: list[Point], *, hosts: bool) -> tuple[Results, str]:
    """Measure points; return what came of them, and what was told."""
    console = Console(file=io.StringIO(), width=200)
    store = Store(out)
    asyncio.run(Sweep(store, TINY, hosts=hosts, tell=Teller(console, len(points))).run(points))
    assert isinstance(console.file, io.StringIO)
    return read_results(store, TINY, points, hosts=hosts), console.file.getvalue()


def test_a_point_without_hosts_has_all_but_the_wire(tmp_path: Path) -> None:
    point = Point("ga", embedding=8)
    results, told = measure(tmp_path, [point], hosts=False)
    one = results.measured[point]
    assert one.cost["predicted"] == one.cost["tensor"] < one.cost["protobuf"] < one.cost["job_protobuf"]
    assert one.wire is None
    assert told.startswith("1/1  ga, 2 passive, embedding 8")
    assert not list((tmp_path / "work").iterdir())


def test_an_alignment_is_measured_in_a_federation_that_has_never_aligned(tmp_path: Path) -> None:
    point = Point(ALIGNMENT, embedding=8)
    results, _ = measure(tmp_path, [point], hosts=False)
    cost = results.measured[point].cost
    ids = TINY.rows + TEST_ROWS
    assert cost["predicted"] == cost["tensor"] == alignment_bytes(ids, [ids, ids], told=ids, masking=True)
    assert cost["tensor"] < cost["protobuf"] < 1.02 * cost["tensor"]


def test_what_is_asked_for_is_held_against_retrain(tmp_path: Path) -> None:
    lines = asked_lines(QUICK)
    points = {replace(line, request=request): 0.2 for line in lines for request in REQUESTS}
    points |= {replace(line, method="retrain"): 10.0 for line in lines}
    results = {point: result(point) for point in points}
    for point, seconds in points.items():
        results[point].seconds["method"] = seconds
    results[replace(lines[0], request="1 row")].seconds["method"] = 1.4
    page = tmp_path / "comms.md"
    write_report(Material(QUICK, Results(results, {}, 0), None, ""), page, table=tmp_path / "comms.csv")
    text = page.read_text()
    assert "| Retrain |  | 10.0 | 10.0 | 10.0 |" in text
    # Here every method has as many bytes.
    assert "| 1 row | **90.0** (1.0) | **1.4** (1.2) | 0.2 (1.2) | 0.2 (1.2) |" in text
    assert "| half of two classes | **100.0** (8.0) | 0.2 (2.6) |" in text


@pytest.mark.parametrize("request_", REQUESTS)
def test_every_request_is_measured(tmp_path: Path, request_: str) -> None:
    point = Point(request=request_, embedding=8)
    results, told = measure(tmp_path, [point], hosts=False)
    assert results.measured[point].cost["tensor"] > 0
    assert request_ in told


@pytest.mark.skipif(why_not() is not None, reason=why_not() or "")
def test_on_hosts_a_limit_slows_a_method_down_and_leaves_its_bytes(tmp_path: Path) -> None:
    free, slow = Point("ga", embedding=8), Point("ga", embedding=8, rate=0.4e6)
    results, _ = measure(tmp_path, [free, slow], hosts=True)
    one, other = results.measured[free], results.measured[slow]
    assert one.cost["protobuf"] == other.cost["protobuf"]
    assert one.wire_factor is not None and other.wire_factor is not None
    assert 1.02 < one.wire_factor < 2
    assert other.seconds["method"] > 0.5 * 8 * one.cost["protobuf"] / 0.4e6


def test_a_command_says_how_to_measure_the_same_again(tmp_path: Path) -> None:
    assert Asked(tmp_path, quick=True, loopback=True).command == "fedora bench comms --quick --loopback"
    columns = "method,parties,embedding,batch,dtype,tls,request,rate,delay,whole_packets,predicted"
    assert cells_csv(Results({}, {}, 0)).startswith(columns)
    others = {"embedding", "batch", "dtype", "tls", "whole_packets", "rate", "request"}
    assert set(sweeps(QUICK)) == {"parties", "alignment", *others}


def test_the_table_has_columns_for_every_party(tmp_path: Path) -> None:
    import pyarrow.parquet

    write_table(tmp_path / "table.parquet", parties=16, rows=10)
    names = pyarrow.parquet.read_table(tmp_path / "table.parquet").column_names
    assert len([name for name in names if name.startswith("x")]) >= 16
