"""Cells: one original model, one request, one method, one seed. Experiments are made of them and may share them."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from coordinator.job import Job
from fedora_vfl.bench.paper.experiments import DataSet, Experiment, MethodLine, Plan, Preset, Request, Run, Setting
from fedora_vfl.bench.paper.sources import PLACES, Source
from fedora_vfl.settings.files import check

DIGEST_LENGTH = 24  # of 64 hexadecimal digits: 96 bits, which no two of a sweep's cells will share


def digest(content: object) -> str:
    """Name something by what it says, whatever the order in which it says it."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


@dataclass(frozen=True)
class Group:
    """All that decides an original model: cells that agree in it share one cut of the data and one training."""

    data_set: str
    content: dict[str, Any] = field(hash=False)  # settings, by what they mean
    places: dict[str, Any] = field(hash=False, compare=False)  # where the data lie: no result depends on it
    run: Run

    @cached_property
    def digest(self) -> str:
        """The group's name."""
        return digest({"data_set": self.data_set, **self.content})

    @property
    def seed(self) -> int:
        """The seed of all that is random."""
        return int(self.content["seed"])

    def job(self) -> dict[str, Any]:
        """Return what cuts the data and trains the original, as a job."""
        content = {name: value for name, value in self.content.items() if value is not None and name != "test_rows"}
        data = {key: value for key, value in content["data"].items() if key != "sha256"}
        return {**content, "data": {**data, **self.places}}


@dataclass(frozen=True)
class Cell:
    """One measurement."""

    group: Group
    forget: dict[str, Any] = field(hash=False)
    unlearn: dict[str, Any] = field(hash=False)
    method: str = field(compare=False)  # its name in methods.yaml, for estimates of time

    @cached_property
    def digest(self) -> str:
        """The cell's name: a digest of all that decides its figures, and of nothing else."""
        return digest(self.content)

    @property
    def content(self) -> dict[str, Any]:
        """All that decides the figures."""
        return {
            "data_set": self.group.data_set,
            "original": self.group.content,
            "forget": self.forget,
            "unlearn": self.unlearn,
        }


@dataclass(frozen=True)
class Place:
    """Where a cell stands in an experiment."""

    experiment: str
    data_set: str
    request: str
    setting: str
    method: str  # in methods.yaml
    title: str  # as the experiment calls it
    in_paper: str | None  # as the paper calls it
    seed: int
    run: Run
    cell: Cell = field(compare=False)


def places(plan: Plan, preset: Preset, sources: dict[str, Source]) -> Iterator[Place]:
    """Yield every cell of every experiment whose data set is at hand, experiment by experiment."""
    for name, experiment in plan.experiments.items():
        extent = experiment.extent(preset)
        for data_set in extent.data:
            if data_set in sources:
                for seed in extent.seeds_of(data_set):
                    yield from _of_data_set(name, experiment, data_set, seed, plan, preset, sources[data_set])


def _of_data_set(
    name: str, experiment: Experiment, data_set: str, seed: int, plan: Plan, preset: Preset, source: Source
) -> Iterator[Place]:
    described = plan.data_sets[data_set]
    for request in filter(experiment.extent(preset).has, experiment.requests[data_set]):
        for run in request.runs:
            for setting, line in _lines(experiment):
                cell = _cell(data_set, described, preset, source, request, run, setting, line, plan, seed)
                method = plan.methods[line.method]
                yield Place(
                    experiment=name,
                    data_set=data_set,
                    request=request.title,
                    setting=setting.name,
                    method=line.method,
                    title=line.name or method.title,
                    in_paper=line.in_paper or method.in_paper,
                    seed=seed,
                    run=run,
                    cell=cell,
                )


def _lines(experiment: Experiment) -> Iterator[tuple[Setting, MethodLine]]:
    """Yield what is run for each request: every setting with every method, and the methods beside them."""
    for one in experiment.beside:
        yield Setting(name=""), MethodLine(method=one)
    for setting in experiment.settings:
        for line in experiment.lines:
            yield setting, line


def _cell(
    data_set: str,
    described: DataSet,
    preset: Preset,
    source: Source,
    request: Request,
    run: Run,
    setting: Setting,
    line: MethodLine,
    plan: Plan,
    seed: int,
) -> Cell:
    size = described.size(preset)
    assert size is not None
    forget = request.forget(described.class_names)
    content: dict[str, Any] = {
        "data": {**source.content, **size.data, **setting.data},
        "test_rows": size.test_rows,
        "model": size.model.model_dump(mode="json", exclude_unset=True),
        "train": size.train,
        "privacy": setting.privacy,
        "backdoor": {"target": described.target} if run == "backdoor" else None,
        # The rows that carry the trigger are those to forget: they decide the original too.
        "forget": forget if run == "backdoor" else None,
        "seed": seed,
    }
    group = Group(data_set, content, {key: source.data[key] for key in PLACES if key in source.data}, run)
    unlearn = {**plan.methods[line.method].unlearn, **line.unlearn, **setting.unlearn}
    where = f"{data_set}, {request.title}, {line.name or line.method}"
    return Cell(group, forget, _unlearn(unlearn, where), line.method)


def _unlearn(given: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the section without what is at its default anyway, so that the same settings have the same digest."""
    job = check({"forget": {"samples": 1}, "unlearn": given}, Job, origin=where)
    chosen: dict[str, Any] = job.unlearn.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {"method": job.unlearn.method, **chosen}


def distinct(all_places: Iterable[Place]) -> dict[str, Cell]:
    """Return every cell once, by its digest, cells of a group one after the other."""
    cells: dict[str, Cell] = {}
    for place in all_places:
        cells.setdefault(place.cell.digest, place.cell)
    groups: dict[str, list[Cell]] = {}
    for cell in cells.values():
        groups.setdefault(cell.group.digest, []).append(cell)
    return {cell.digest: cell for group in groups.values() for cell in group}
