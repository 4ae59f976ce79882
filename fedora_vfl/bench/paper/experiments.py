"""The experiment files: which data sets, requests, methods and seeds make up a table or figure of the paper."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveInt, RootModel, model_validator

from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.files import Settings, load
from fedora_vfl.settings.model import Model
from fedora_vfl.wire.protocol import VERSION

HERE = Path(__file__).parent
PRESETS = ("small", "medium", "paper")
Preset = Literal["small", "medium", "paper"]
RELEASE = r"\d+(\.\d+)*"
Release = Annotated[str, Field(pattern=f"^{RELEASE}$")]
Run = Literal["clean", "backdoor"]  # membership is measured in the first, the trigger in the second


class Size(Settings):
    """A data set at one preset: how much of it, the networks, their training."""

    data: dict[str, Any] = Field(default_factory=dict)  # beside what the data set says anyway
    test_rows: PositiveInt | None = None  # images: so many test rows, drawn at random
    model: Model
    train: dict[str, Any]
    seconds: Annotated[float, Field(gt=0)]  # that a cell takes, as a first guess; measured ones take its place


class DataSet(Settings):
    """A data set, whatever the experiment."""

    title: str
    in_paper: str | None = None  # what the paper calls it; null where it is an addition of ours
    classes: Annotated[list[str], Field(min_length=2)] | PositiveInt  # in the order in which they are forgotten
    target: str  # the class that a trigger stands for; never among the forgotten
    data: dict[str, Any]
    files: list[str] = Field(default_factory=list)  # any one of these, in --data, holds it; an .npz comes first
    small: Size | None = None
    medium: Size | None = None
    paper: Size | None = None

    def size(self, preset: Preset) -> Size | None:
        """Return what a preset makes of it."""
        found: Size | None = getattr(self, preset)
        return found

    @property
    def class_names(self) -> list[str]:
        """Name all classes."""
        return self.classes if isinstance(self.classes, list) else [str(one) for one in range(self.classes)]


class Method(Settings):
    """A way to forget."""

    title: str
    in_paper: str | None = None  # what the paper calls it
    colour: Annotated[str, Field(pattern="^#[0-9a-f]{6}$")]
    unlearn: dict[str, Any]  # the job's section
    # From which release on figures count; null: this one's alone.
    since: Release | dict[Preset, Release] | None = None
    about: str

    def current(self, release: str, preset: Preset) -> bool:
        """Tell whether a release's figures are what this one would find."""
        since = self.since.get(preset) if isinstance(self.since, dict) else self.since
        return re.fullmatch(RELEASE, release) is not None and _number(release) >= _number(since or VERSION)


class Request(Settings):
    """Who asks to be forgotten: m classes and n percent of each, or so many rows."""

    classes: PositiveInt | None = None
    percent: Annotated[float, Field(gt=0, le=100)] = 100
    samples: PositiveInt | None = None
    runs: list[Run] = Field(default=["clean", "backdoor"], min_length=1)

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.classes is None) == (self.samples is None):
            raise ValueError("wants one of `classes`, a number of them, and `samples`")
        return self

    @property
    def title(self) -> str:
        """Say it as the paper does."""
        if self.samples is not None:
            return "1 sample" if self.samples == 1 else f"{self.samples} samples"
        return f"m={self.classes}, n={self.percent:g}%"

    def forget(self, names: list[str]) -> dict[str, Any]:
        """Return the job's section."""
        if self.samples is not None:
            return {"samples": self.samples}
        return {"classes": names[: self.classes], "percent": self.percent}


class Setting(Settings):
    """One value of what an experiment varies."""

    name: str
    in_paper: bool = True
    unlearn: dict[str, Any] = Field(default_factory=dict)
    data: dict[str, Any] = Field(default_factory=dict)
    privacy: dict[str, Any] | None = None


class MethodLine(Settings):
    """A method as one experiment uses it: a known one, perhaps with changes and a name of its own."""

    method: str
    name: str | None = None
    in_paper: str | None = None  # what the paper calls it
    unlearn: dict[str, Any] = Field(default_factory=dict)


class Extent(Settings):
    """How much of an experiment a preset has."""

    data: list[str] = Field(default_factory=list)  # none: the preset does without the experiment
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] = Field(default=[0])
    once: list[str] = Field(default_factory=list)  # data sets of which the first seed is enough
    classes: list[PositiveInt] | None = None  # only requests for so many classes; null: all requests

    def seeds_of(self, data_set: str) -> list[int]:
        """Return the seeds that a data set is run with."""
        return self.seeds[:1] if data_set in self.once else self.seeds

    def has(self, request: Request) -> bool:
        """Tell whether a request is among those that are run."""
        return self.classes is None or request.classes in self.classes


class Experiment(Settings):
    """A table or figure: data sets × requests × settings × methods × seeds."""

    title: str
    about: str
    labels: Annotated[list[str], Field(min_length=1)]  # of the paper's tables and figures
    layout: Literal["methods", "settings", "curves", "time", "cost"]  # how the report shows it
    requests: dict[str, Annotated[list[Request], Field(min_length=1)]]  # by data set
    methods: Annotated[list[str | MethodLine], Field(min_length=1)]
    varies: str | None = None  # what `settings` are values of
    settings: list[Setting] = Field(default=[Setting(name="")], min_length=1)
    beside: list[str] = Field(default_factory=list)  # methods run once, untouched by `settings`, to compare with
    small: Extent
    medium: Extent = Extent()
    paper: Extent

    def extent(self, preset: Preset) -> Extent:
        """Return how much of it a preset has."""
        found: Extent = getattr(self, preset)
        return found

    @property
    def lines(self) -> list[MethodLine]:
        """Return all methods in one form."""
        return [MethodLine(method=one) if isinstance(one, str) else one for one in self.methods]

    @model_validator(mode="after")
    def _requests_for_all(self) -> Self:
        for preset in PRESETS:
            for name in getattr(self, preset).data:
                if name not in self.requests:
                    raise ValueError(f"`requests` says nothing of {name}, which `{preset}.data` names")
        return self


class _DataSets(RootModel[dict[str, DataSet]]):
    pass


class _Methods(RootModel[dict[str, Method]]):
    pass


class Plan(Settings):
    """All experiments with all that they name."""

    data_sets: dict[str, DataSet]
    methods: dict[str, Method]
    experiments: dict[str, Experiment]


def load_plan(folder: Path = HERE) -> Plan:
    """Read the experiment files and what they share."""
    data_sets = load(folder / "datasets.yaml", _DataSets).root
    methods = load(folder / "methods.yaml", _Methods).root
    experiments = {}
    for path in sorted((folder / "experiments").glob("*.yaml")):
        name = path.stem.split("-", 1)[1] if path.stem[:2].isdigit() else path.stem
        experiments[name] = load(path, Experiment)
        _check_names(experiments[name], path, data_sets, methods)
    if not experiments:
        raise SettingsError(f"{folder / 'experiments'}: holds no experiment files (*.yaml)")
    return Plan(data_sets=data_sets, methods=methods, experiments=experiments)


def _check_names(
    experiment: Experiment, path: Path, data_sets: Mapping[str, DataSet], methods: Mapping[str, Method]
) -> None:
    """Refuse names that stand for nothing."""
    for name in (*experiment.requests, *(one for preset in PRESETS for one in getattr(experiment, preset).data)):
        if name not in data_sets:
            raise SettingsError(f"{path}: {name!r} is no data set; allowed: {', '.join(data_sets)}")
    for preset in PRESETS:
        for name in getattr(experiment, preset).data:
            if data_sets[name].size(preset) is None:  # type: ignore[arg-type]
                raise SettingsError(f"{path}: {preset}.data: {name} has no preset `{preset}` in datasets.yaml")
    for name in (*(line.method for line in experiment.lines), *experiment.beside):
        if name not in methods:
            raise SettingsError(f"{path}: {name!r} is no method; allowed: {', '.join(methods)}")
    for name, requests in experiment.requests.items():
        _check_requests(requests, data_sets[name], f"{path}: requests.{name}")


def _check_requests(requests: list[Request], data_set: DataSet, where: str) -> None:
    names = data_set.class_names
    for request in requests:
        forgotten = names[: request.classes or 0]
        if (request.classes or 0) > len(names):
            raise SettingsError(f"{where}: {request.classes} classes are more than the {len(names)} there are")
        if "backdoor" in request.runs and data_set.target in forgotten:
            said = "set `runs: [clean]`, or another `target` in datasets.yaml"
            raise SettingsError(f"{where}: {request.title} forgets {data_set.target!r}, the trigger's target; {said}")


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))
