"""The paper's experiments: files that are right, cells known by what decides them, sweeps that go on."""

import csv
import io
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as some
from pydantic import TypeAdapter

from coordinator.job import Job
from fedora_vfl.bench.paper import originals
from fedora_vfl.bench.paper.cells import Cell, Group, digest, distinct, places
from fedora_vfl.bench.paper.experiments import HERE, Plan, Preset, load_plan
from fedora_vfl.bench.paper.figures import NUMBERS, figures
from fedora_vfl.bench.paper.sources import Source, find
from fedora_vfl.bench.paper.store import Store, locked
from fedora_vfl.bench.paper.sweep import failed
from fedora_vfl.bench.paper.trimming import trim
from fedora_vfl.datasets.catalogue import DataSource
from fedora_vfl.errors import DataError, SettingsError
from fedora_vfl.settings.files import check
from party import models
from tests.conftest import write_yaml

PAPER = Path(__file__).parents[2] / "shared" / "paper" / "fedora-paper.tex"
SMALL = ["income", "digits", "pathmnist", "cifar10", "cifar100", "tiny-imagenet"]


@pytest.fixture(scope="module")
def plan() -> Plan:
    """The experiment files that come with the project."""
    return load_plan()


def everywhere(plan: Plan) -> dict[str, Source]:
    """All data sets, as if their files were here."""
    return {name: Source(one.data, one.data) for name, one in plan.data_sets.items()}


# Experiment files


def test_every_table_and_figure_of_results_has_an_experiment(plan: Plan) -> None:
    covered = {label for experiment in plan.experiments.values() for label in experiment.labels}
    assert covered == set(NUMBERS)


@pytest.mark.parametrize(("preset", "least"), [("small", 100), ("medium", 48), ("paper", 100)])
def test_every_cell_is_a_job_that_passes_all_checks(plan: Plan, preset: Preset, least: int) -> None:
    cells = distinct(places(plan, preset, everywhere(plan)))
    assert len(cells) >= least
    for group in {cell.group.digest: cell.group for cell in cells.values()}.values():
        job = check(group.job(), Job, origin=group.data_set)
        assert job.model
        models.bottom(job.model.bottom, job.model.bottom_settings, origin=group.data_set)
        TypeAdapter(DataSource).validate_python(job.data)


def test_the_small_preset_has_every_experiment_and_method(plan: Plan) -> None:
    found = list(places(plan, "small", everywhere(plan)))
    assert {place.experiment for place in found} == set(plan.experiments)
    assert {place.method for place in found} == set(plan.methods)
    assert {place.data_set for place in found} == set(SMALL)


def test_the_medium_preset_has_every_method_on_two_image_sets_clean_and_poisoned(plan: Plan) -> None:
    found = list(places(plan, "medium", everywhere(plan)))
    assert {place.data_set for place in found} == {"cifar10", "pathmnist"}
    assert {place.request for place in found} == {"m=2, n=50%", "m=2, n=100%"}
    assert {place.method for place in found} == set(plan.methods) and {place.run for place in found} == {
        "clean",
        "backdoor",
    }
    assert {place.cell.group.content["model"]["bottom"] for place in found} == {"resnet18"}


def test_a_data_set_that_is_run_once_has_the_first_seed_alone(plan: Plan) -> None:
    found = list(places(plan, "small", everywhere(plan)))
    seeds = {name: {place.seed for place in found if place.data_set == name} for name in ("cifar100", "cifar10")}
    assert seeds == {"cifar100": {0}, "cifar10": {0, 1, 2}}


def test_the_paper_preset_has_the_papers_data_sets(plan: Plan) -> None:
    found = {place.data_set for place in places(plan, "paper", everywhere(plan))}
    assert {"income", "pathmnist", "cifar10", "cifar100", "tiny-imagenet"} <= found


def test_experiments_share_cells(plan: Plan) -> None:
    found = list(places(plan, "small", everywhere(plan)))
    by_experiment = {
        name: {place.cell.digest for place in found if place.experiment == name} for name in plan.experiments
    }
    assert by_experiment["table-running-time"] <= by_experiment["sample-unlearning"]
    assert by_experiment["table-cost"] == by_experiment["table-running-time"]
    assert by_experiment["figure-omega"] & by_experiment["figure-delta"] & by_experiment["table-ablation"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"methods": ["sorcery"]}, "'sorcery' is no method; allowed: retrain, ga"),
        ({"small": {"data": ["mnist"], "seeds": [0]}}, "`requests` says nothing of mnist"),
        ({"small": {"data": ["digits"], "seeds": []}}, "small.seeds: .*at least 1"),
        ({"requests": {"digits": [{"classes": 11}]}}, "11 classes are more than the 10 there are"),
        ({"requests": {"digits": [{"classes": 10}]}}, "forgets '9', the trigger's target"),
        ({"requests": {"digits": [{"classes": 2, "samples": 1}]}}, "wants one of `classes`"),
        ({"sedes": [1]}, "sedes: unknown setting"),
    ],
)
def test_a_wrong_experiment_file_is_named_with_what_is_wrong(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    folder = tiny(tmp_path)
    path = folder / "experiments" / "only.yaml"
    write_yaml(path, {**yaml.safe_load(path.read_text()), **change})
    with pytest.raises(SettingsError, match=sentence) as error:
        load_plan(folder)
    assert "only.yaml" in str(error.value)


# The paper's figures


def test_figures_agree_where_the_paper_repeats_them() -> None:
    known: dict[tuple[str, ...], float] = {}
    for one in figures():
        setting = "" if one.setting == "IID" else one.setting
        key = (one.data_set, one.request, setting, one.method, one.metric, one.relation)
        assert known.setdefault(key, one.value) == one.value, key


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's source is not beside the project")
def test_figures_are_those_of_the_papers_tables() -> None:
    text = PAPER.read_text(encoding="utf-8")
    for label in sorted({one.label for one in figures() if one.where == "table"}):
        ours = [one.value for one in figures() if one.label == label]
        assert sorted(ours) == sorted(_numbers_of_table(text, label)), label


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's source is not beside the project")
def test_lines_of_the_main_tables_are_in_the_papers_order() -> None:
    text = PAPER.read_text(encoding="utf-8")
    for label in ("tab:ta_sample", "tab:ta_label", "tab:running time", "tab:ablation"):
        for name, numbers in _lines_of_table(text, label):
            by_data_set = label == "tab:running time"
            titles = {"income": "Income", "pathmnist": "MedMNIST", "cifar10": "CIFAR-10"}
            titles |= {"cifar100": "CIFAR-100", "tiny-imagenet": "Tiny-ImageNet"}
            ours = [
                one.value
                for one in figures()
                if one.label == label and (titles[one.data_set] if by_data_set else one.method) == name
            ]
            assert ours == numbers, (label, name)


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's source is not beside the project")
def test_figures_from_the_text_stand_in_the_section_they_name() -> None:
    text = PAPER.read_text(encoding="utf-8")
    for one in figures():
        if one.where == "table":
            continue
        section = text.split(f"\\subsubsection{{{one.where.removeprefix('text: ')}}}")[1].split("\\subsubsection")[0]
        shown = f"{one.value:g}" if one.metric == "speedup" else f"{100 * one.value:.4g}\\%"
        assert shown in section, one


def _table(text: str, label: str) -> str:
    """Return what stands between a table's first rule below its head and its end."""
    after = text.split(f"\\label{{{label}}}")[1].split("\\bottomrule")[0]
    return after.split("\\midrule", 1)[1]


def _numbers_of_table(text: str, label: str) -> list[float]:
    body = _table(text, label)
    if label in ("tab:extreme", "tab:gaussian_noise"):  # the first columns are settings
        body = re.sub(r"\\multirow\{2\}\{\*\}\{\d+\}", "", body)
        body = "\n".join(line.split("&", 2 if label == "tab:extreme" else 1)[-1] for line in body.splitlines())
    return [float(one) for one in re.findall(r"\d+\.\d+", body)]


def _lines_of_table(text: str, label: str) -> Iterator[tuple[str, list[float]]]:
    for line in _table(text, label).split("\\\\"):
        numbers = [float(one) for one in re.findall(r"(?<!-)\b\d+\.\d+", line)]
        if numbers:
            yield line.split("&")[0].strip(), numbers


# Digests

json_like = some.recursive(
    some.none() | some.booleans() | some.integers(-9, 9) | some.text(max_size=3) | some.floats(-1, 1),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def turned_round(value: Any) -> Any:
    """Return the same content with every mapping written backwards."""
    if isinstance(value, dict):
        return {key: turned_round(value[key]) for key in reversed(value)}
    return [turned_round(one) for one in value] if isinstance(value, list) else value


@given(json_like)
def test_a_digest_does_not_depend_on_the_order_of_names(content: Any) -> None:
    assert digest(content) == digest(turned_round(content))


@given(json_like, json_like)
def test_what_differs_has_another_digest(first: Any, second: Any) -> None:
    same = json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
    assert (digest(first) == digest(second)) == same


def cell(**changes: Any) -> Cell:
    """Return a cell; changes go to its group's settings."""
    content = {"data": {"source": "digits"}, "model": {}, "train": {"epochs": 1}, "seed": 0, "test_rows": None}
    group = Group("digits", {**content, **changes}, {}, "clean")
    return Cell(group, {"samples": 3}, {"method": "retrain"}, "retrain")


@settings(max_examples=50)
@given(some.sampled_from(["data", "model", "train", "seed"]), some.integers(1, 5))
def test_a_cell_is_known_by_all_that_decides_the_original(name: str, value: int) -> None:
    assert cell(**{name: {"changed": value}}).digest != cell().digest
    assert cell().digest == cell().digest


def test_a_data_set_is_known_by_its_content_and_not_by_its_place(tmp_path: Path, plan: Plan) -> None:
    found = []
    for folder, pixel in (("a", 0), ("b", 0), ("c", 1)):
        (tmp_path / folder).mkdir()
        np.savez(tmp_path / folder / "cifar10.npz", train_images=np.full((2, 4, 4), pixel, np.uint8))
        sources = find(["cifar10"], plan.data_sets, tmp_path / folder, download=False)
        found.append({place.cell.digest for place in places(plan, "small", sources.found)})
    assert found[0] == found[1]
    assert not found[0] & found[2]


def test_a_data_set_that_is_not_there_is_left_out_with_a_sentence(tmp_path: Path, plan: Plan) -> None:
    sources = find(["income", "cifar10"], plan.data_sets, tmp_path, download=False)
    assert set(sources.found) == {"income"}
    assert "holds no cifar10.npz or cifar-10-batches-py" in sources.missing["cifar10"]


# Store and originals


def test_a_cell_is_read_back_as_it_was_kept(tmp_path: Path) -> None:
    store, one = Store(tmp_path), cell()
    assert store.read(one) is None
    store.keep(one, failed(one, "it did not work"))
    record = store.read(one)
    assert record is not None and not record.done and record.why == "it did not work"


@pytest.mark.parametrize("text", ["", "{", '{"format": 1}', "[]", '{"format": 0}'])
def test_a_file_that_is_no_cell_is_named(tmp_path: Path, text: str) -> None:
    store, one = Store(tmp_path), cell()
    store.path(one).parent.mkdir(parents=True)
    store.path(one).write_text(text)
    with pytest.raises(DataError, match=str(one.digest)):
        store.read(one)


def test_two_sweeps_in_one_folder_are_refused(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(SettingsError, match="another sweep is at work"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_an_original_counts_only_whole_and_for_its_own_settings(tmp_path: Path) -> None:
    run, kept, group = tmp_path / "run", tmp_path / "kept", cell().group
    for party in ("active", "passive-1"):
        (run / "models" / party).mkdir(parents=True)
        (run / "models" / party / f"{originals.NAME}.safetensors").write_bytes(party.encode())
    assert originals.find(group, kept) is None
    originals.keep(group, run, kept, ["active", "passive-1"])
    assert originals.find(group, kept) is not None
    assert originals.find(cell(seed=1).group, kept) is None
    (kept / "active.safetensors").write_bytes(b"act")
    assert originals.find(group, kept) is None


def test_trimming_keeps_training_rows_and_some_test_rows_at_every_party(tmp_path: Path) -> None:
    ids = np.array(["train-1", "test-1", "test-2", "test-3", "test-1+trigger", "test-2+trigger", "test-3+trigger"])
    split = np.array(["train", "test", "test", "test", "probe", "probe", "probe"])
    np.savez(tmp_path / "active.npz", ids=ids, split=split)
    np.savez(tmp_path / "passive-1.npz", ids=ids[::-1], images=np.arange(7))
    trim(tmp_path, 2, seed=0)
    left = {path.stem: set(np.load(path)["ids"].tolist()) for path in tmp_path.iterdir()}
    assert left["active"] == left["passive-1"]
    tests = {one for one in left["active"] if one.startswith("test") and not one.endswith("+trigger")}
    assert len(tests) == 2 and "train-1" in left["active"]
    assert {one for one in left["active"] if one.endswith("+trigger")} == {f"{one}+trigger" for one in tests}


# Sweeps with real processes


def tiny(folder: Path) -> Path:
    """Write experiment files whose sweep takes seconds; its second cell asks for what cannot be."""
    digits = {"title": "Digits", "classes": 10, "target": "9", "data": {"source": "digits"}}
    size = {"data": {"limit": 200}, "model": {"bottom": "mlp", "hidden": [8], "embedding": 4, "top": [8]}}
    size |= {"train": {"epochs": 1, "batch_size": 64}, "seconds": 1}
    write_yaml(folder / "datasets.yaml", {"digits": {**digits, "small": size, "paper": size}})
    (folder / "methods.yaml").write_text((HERE / "methods.yaml").read_text())
    impossible = {"method": "fedora-paper", "name": "impossible", "unlearn": {"gamma": 100}}
    extent = {"data": ["digits"], "seeds": [0]}
    write_yaml(
        folder / "experiments" / "only.yaml",
        {
            "title": "Tiny",
            "about": "A sweep for tests.",
            "labels": ["tab:ablation"],
            "layout": "settings",
            "requests": {"digits": [{"classes": 2, "percent": 50, "runs": ["clean"]}]},
            "methods": ["retrain", impossible, "ga"],
            "small": extent,
            "paper": extent,
        },
    )
    return folder


def begin(folder: Path, out: Path) -> "subprocess.Popen[str]":
    """Start a sweep."""
    command = [
        sys.executable,
        "-m",
        "fedora_vfl.cli",
        "bench",
        "paper",
        "--experiments",
        str(folder),
        "--out",
        str(out),
    ]
    return subprocess.Popen(
        [*command, "--threads", "1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    )


def stop_at(sweep: "subprocess.Popen[str]", words: str, number: signal.Signals) -> str:
    """Signal a sweep as soon as it has said something; return all that it said."""
    assert sweep.stdout
    said = ""
    for line in sweep.stdout:
        said += line
        if words in line:
            sweep.send_signal(number)
            break
    said += sweep.stdout.read()
    sweep.wait(timeout=60)
    return said


def figures_of(out: Path) -> list[dict[str, str]]:
    """Return the table of cells without its seconds."""
    rows = csv.DictReader(io.StringIO((out / "cells.csv").read_text()))
    return [{name: value for name, value in row.items() if "seconds" not in name} for row in rows]


def test_a_sweep_that_was_killed_gives_the_same_figures(tmp_path: Path) -> None:
    folder = tiny(tmp_path / "files")
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    stop_at(begin(folder, broken), "the original model", signal.SIGKILL)
    stop_at(begin(folder, broken), "1/3", signal.SIGKILL)
    stopped = begin(folder, broken)
    said = stop_at(stopped, "FAILED", signal.SIGINT)
    assert stopped.returncode == 130
    assert "2 of 3 cells are kept; the same command goes on from there" in said
    for out in (broken, whole):
        last = begin(folder, out)
        said = stop_at(last, "no such line", signal.SIGTERM)
        assert last.returncode == 0, said
    assert figures_of(broken) == figures_of(whole)
    status = {row["method"]: row["status"] for row in figures_of(whole)}
    assert status == {"Retrain": "done", "impossible": "failed", "GA": "done"}
    assert "largest" in next(row["why"] for row in figures_of(whole) if row["method"] == "impossible")
    assert not list((whole / "work").glob("*/run-*"))
    again = subprocess.run(
        [
            sys.executable,
            "-m",
            "fedora_vfl.cli",
            "bench",
            "paper",
            "--experiments",
            folder,
            "--out",
            whole,
            "--report-only",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "report.html" in again.stdout
