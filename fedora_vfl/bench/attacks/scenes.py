"""What is attacked: data sets, how they are cut and trained, and how much of each is looked at."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedora_vfl.bench.attacks.defences import DEFENCES, NONE, Defence
from fedora_vfl.bench.paper.cells import Cell, Group

VERSION = 1  # of the measurement: cells of another are measured anew
IMAGES = ("cifar10", "pathmnist")  # looked for in the data folder, as NAME.npz in MedMNIST's layout
FEW = ("noise embeddings 0.2", "noise gradients 2/B", "embedding 4", "label shield 16", "distance corr. 3")
FOR_IMAGES = ("embedding 4", "label shield 16")
FORGOTTEN = 10  # one row in so many asks to be forgotten


@dataclass(frozen=True)
class Scene:
    """One data set, cut and trained in one way."""

    name: str
    data: dict[str, Any] = field(hash=False)
    bottom: dict[str, Any] = field(hash=False)
    epochs: int
    # By passive party whose embeddings are looked at: another party's column that is inferred. None: brightness.
    properties: dict[str, str] | None = field(hash=False, default=None)

    def job(self, defence: Defence, seed: int) -> dict[str, Any]:
        """Return the job that is run."""
        return {
            "data": self.data,
            "model": {**self.bottom, "embedding": defence.embedding, "top": [64]},
            "train": {"epochs": self.epochs, "batch_size": defence.batch},
            "wire": {"encoding": defence.wire},
            "seed": seed,
        }


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    income_rows: int
    image_rows: int
    epochs: int
    image_epochs: int
    seeds: tuple[int, ...]
    image_seeds: tuple[int, ...]
    defences: tuple[Defence, ...]
    image_defences: tuple[Defence, ...]
    targets: int  # rows, or images, that are reconstructed with the bottom at hand
    image_targets: int
    steps: int  # of that


def _named(names: tuple[str, ...]) -> tuple[Defence, ...]:
    return tuple(one for one in DEFENCES if one is NONE or one.name in names)


QUICK = Extent(
    income_rows=1500,
    image_rows=1000,
    epochs=8,
    image_epochs=5,
    seeds=(0, 1),
    image_seeds=(0,),
    defences=_named(FEW),
    image_defences=(NONE,),
    targets=50,
    image_targets=8,
    steps=15,
)
WHOLE = Extent(
    income_rows=3000,
    image_rows=2000,
    epochs=12,
    image_epochs=8,
    seeds=(0, 1, 2),
    image_seeds=(0, 1),
    defences=DEFENCES,
    image_defences=_named(FOR_IMAGES),
    targets=100,
    image_targets=12,
    steps=15,
)


@dataclass(frozen=True)
class Point:
    """One run that is attacked."""

    scene: Scene
    defence: Defence
    seed: int

    def describe(self) -> str:
        """Say which run this is, in one line."""
        return f"{self.scene.name}, {self.defence.name}, seed {self.seed}"


def scenes(extent: Extent, data: Path | None) -> list[Scene]:
    """Return the data sets at hand: Income, digits, and the images that the folder has."""
    found = [
        Scene(
            "income",
            {"source": "income", "parties": 2, "limit": extent.income_rows},
            {"bottom": "mlp", "hidden": [64]},
            extent.epochs,
            {"passive-1": "passive-2.sex", "passive-2": "passive-1.age"},
        ),
        Scene("digits", {"source": "digits", "parties": 2}, {"bottom": "mlp", "hidden": [64]}, extent.epochs),
    ]
    for name in IMAGES if data else ():
        assert data is not None
        path = data / f"{name}.npz"
        if path.is_file():
            source = {"source": "npz", "path": str(path.absolute()), "parties": 2, "limit": extent.image_rows}
            found.append(Scene(name, source, {"bottom": "cnn"}, extent.image_epochs))
    return found


def points(extent: Extent, data: Path | None) -> list[Point]:
    """Return all runs, those that share a cut of the data one after the other."""
    return [
        Point(scene, defence, seed)
        for scene in scenes(extent, data)
        for seed in (extent.image_seeds if scene.name in IMAGES else extent.seeds)
        for defence in (extent.image_defences if scene.name in IMAGES else extent.defences)
    ]


def as_cell(point: Point, extent: Extent) -> Cell:
    """Return a point as the store keeps it: named by all that decides its figures."""
    scene = point.scene
    content = {
        "version": VERSION,
        "seed": point.seed,
        "data": {name: value for name, value in scene.data.items() if name != "path"},
        "bottom": scene.bottom,
        "epochs": scene.epochs,
        "defence": point.defence.content,
        "targets": [extent.targets, extent.image_targets, extent.steps],
    }
    group = Group(data_set=scene.name, content=content, places={}, run="clean")
    return Cell(group, forget={"share": 1 / FORGOTTEN}, unlearn={"method": "fedora"}, method="attacks")
