"""What the measure of bytes and seconds to an accuracy promises: a model that adds up, a front, advice that fits."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from fedora_vfl.bench import line as bench_line
from fedora_vfl.bench.line import ADVISED, Advice, Choice, Work, advise
from fedora_vfl.bench.to_accuracy import measuring
from fedora_vfl.bench.to_accuracy.measuring import Run
from fedora_vfl.bench.to_accuracy.report import lines_of, print_tables, worth_it, write_report
from fedora_vfl.bench.to_accuracy.seconds import FRAMING, LineSpeed, StepCost
from fedora_vfl.bench.to_accuracy.ways import MORE_EPOCHS, PLAIN, TIGHT, DataSet, Way
from fedora_vfl.cluster.local import free_address
from fedora_vfl.errors import PartyError

SLOW, FAR, NEAR = LineSpeed(10e6, 0.0), LineSpeed(1e9, 0.08), LineSpeed(10e9, 0.0002)


def test_a_step_waits_for_everything_and_with_batches_under_way_for_the_slowest() -> None:
    line = LineSpeed(8e6, 0.1)  # a megabyte a second
    assert StepCost(0.01, 20_000, 10_000).seconds(line) == pytest.approx(0.01 + 0.03 * FRAMING + 0.1)
    assert StepCost(0.01, 20_000, 10_000, overlap=1).seconds(line) == pytest.approx((0.11 + 0.03 * FRAMING) / 2)
    assert StepCost(0.01, 20_000, 10_000, overlap=32).seconds(line) == pytest.approx(0.02 * FRAMING)
    assert StepCost(0.05, 20_000, 10_000, overlap=32).seconds(line) == 0.05
    assert StepCost(0.01, 20_000, 10_000).seconds(LineSpeed(None, 0.0)) == 0.01


def test_advice_is_the_exact_step_near_by_overlap_far_away_and_few_bits_on_a_slow_line() -> None:
    work = Work(batch=256, embedding=64, parties=2, compute=0.005)
    assert advise(NEAR, work).choice == ADVISED[0]
    far = advise(FAR, work)
    assert far.way.overlap > 0
    assert far.faster > 2
    slow = advise(SLOW, work)
    assert slow.way.wire == TIGHT
    assert slow.faster > 3
    smaller = Choice(Way("smaller", train={"overlap": 8}, smaller=4))
    assert work.cost(smaller.way).up == work.cost(ADVISED[0].way).up / 4
    assert Advice(smaller, 64, 0.1, 0.2).settings == {"train": {"overlap": 8, "batch_size": 64}}
    assert Advice(ADVISED[0], 256, 0.2, 0.2).settings == {}


def run_of(way: str, accuracies: list[float], size: float, compute: float = 0.001) -> Run:
    return Run("toy", way, accuracies, size, size, steps=10, compute=compute)


def test_the_target_is_the_plain_runs_less_half_a_point_and_the_front_has_what_nothing_beats(tmp_path: Path) -> None:
    ways = [Way(PLAIN), Way("small"), Way("never"), Way("worse", {"encoding": "int8"}, {"overlap": 1})]
    runs = [
        run_of(PLAIN, [0.5, 0.8, 0.9, 0.91, 0.92], 1e6),
        run_of("small", [0.5, 0.7, 0.8, 0.9, 0.906], 1e5, compute=0.01),
        run_of("never", [0.5] * 5, 1e3),
        run_of("worse", [0.5, 0.8, 0.9, 0.91, 0.91], 2e6, compute=1.0),
    ]
    lines = lines_of(runs, ways)["toy"]
    assert lines[0].target == pytest.approx(0.905)
    assert [one.epochs for one in lines] == [4, 5, None, 4]
    assert lines[1].megabytes == pytest.approx(5 * 2e5 / 1e6)
    assert worth_it(lines, LineSpeed(1e9, 0.0)) == {PLAIN, "small"}
    write_report({"toy": lines}, tmp_path / "page.md", command="x", checked=[])
    assert "| **small** | 90.6% | 5 | 1.00 | 8.0 |" in (tmp_path / "page.md").read_text()
    assert (tmp_path / "page.svg").stat().st_size > 1000
    print_tables({"toy": lines}, Console(quiet=True))


def test_runs_are_measured_on_a_cluster_after_every_epoch_and_never_twice(tmp_path: Path) -> None:
    data_set = DataSet("digits", {"source": "digits", "limit": 300}, {"bottom": "mlp", "embedding": 8}, 64, 2)
    ways, told = [Way(PLAIN), Way("tight", TIGHT, {"overlap": 1})], list[Run]()

    def all_runs() -> list[Run]:
        return asyncio.run(measuring.measure([data_set], ways, tmp_path, seed=0, tell=told.append))

    runs = all_runs()
    assert [run.way for run in told] == [PLAIN, "tight"]
    assert [len(run.accuracies) for run in runs] == [2, 2 * MORE_EPOCHS]  # with batches under way
    assert runs[1].epoch_bytes < runs[0].epoch_bytes / 4
    assert all_runs() == runs
    assert len(told) == 2


def test_two_members_measure_the_line_between_them() -> None:
    address = free_address()
    words = [sys.executable, "-m", "fedora_vfl.cli", "bench", "line"]
    with subprocess.Popen([*words, "--listen", address], stdout=subprocess.PIPE, text=True) as listener:
        try:
            assert listener.stdout is not None
            assert "listening" in listener.stdout.readline()
            ended = subprocess.run([*words, address, "--json"], capture_output=True, text=True, check=True, timeout=60)
        finally:
            listener.terminate()
    told = json.loads(ended.stdout)
    assert 0 < told["round_trip_ms"] < 1000
    assert told["mbit_per_second"] > 1
    assert told["exact_step_ms"] >= told["step_ms"]


def test_a_member_that_does_not_listen_is_named_with_the_command_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_line, "WAIT_SECONDS", 0.5)
    with pytest.raises(PartyError, match="--listen"):
        asyncio.run(bench_line.measure(free_address()))
