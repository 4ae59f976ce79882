"""Ways to exchange: the encodings and schedules that are compared, and the data sets they are compared on."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PLAIN = "plain"
FEEDBACK: dict[str, Any] = {"encoding": "int4", "error_feedback": True}
TIGHT = {"encoding": "int4", "gradients": "int2", "error_feedback": True}  # the fewest at full accuracy on tables


@dataclass(frozen=True)
class Way:
    """One choice of `wire`, of the schedule in `train`, and of the size of batches."""

    name: str
    wire: dict[str, Any] = field(default_factory=dict, hash=False)
    train: dict[str, int] = field(default_factory=dict, hash=False)
    smaller: int = 1  # batches have so many times fewer rows than the data set's: more steps for the same bytes

    @property
    def overlap(self) -> int:
        """Batches under way beside the one that is due."""
        return self.train.get("overlap", 0)


WAYS = (
    Way(PLAIN),
    Way("float16", {"encoding": "float16"}),
    Way("int8", {"encoding": "int8"}),
    Way("int4", {"encoding": "int4"}),
    Way("int4, feedback", FEEDBACK),
    Way("int4 and int2", {"encoding": "int4", "gradients": "int2"}),
    Way("int4 and int2, feedback", TIGHT),
    Way("int2, feedback", {"encoding": "int2", "error_feedback": True}),
    Way("topk, feedback", {"encoding": "topk", "error_feedback": True}),
    Way("randtopk", {"encoding": "randtopk"}),
    Way("overlap 2", train={"overlap": 2}),
    Way("overlap 8", train={"overlap": 8}),
    Way("2 local steps", train={"local_steps": 2}),
    Way("4 local steps", train={"local_steps": 4}),
    Way("overlap 2; 4 local steps", train={"overlap": 2, "local_steps": 4}),
    Way("overlap 4; 2 local steps", train={"overlap": 4, "local_steps": 2}),
    Way("overlap 8; 2 local steps", train={"overlap": 8, "local_steps": 2}),
    Way("overlap 8; batches of a quarter", train={"overlap": 8}, smaller=4),
    Way("int4 and int2, feedback; overlap 4", TIGHT, {"overlap": 4}),
    Way("int4 and int2, feedback; overlap 4; 2 local steps", TIGHT, {"overlap": 4, "local_steps": 2}),
    Way("int4 and int2, feedback; overlap 8; batches of a quarter", TIGHT, {"overlap": 8}, smaller=4),
)
# Those that a quick look leaves out.
SLOW = {"float16", "int4", "int4 and int2", "randtopk", "overlap 2", "2 local steps", "overlap 4; 2 local steps"}
# Epochs that take less time may be more: those of ways with batches under way are so many times as many.
MORE_EPOCHS = 2


@dataclass(frozen=True)
class DataSet:
    """Rows, a model and a training that all ways share."""

    name: str
    data: dict[str, Any] = field(hash=False)
    model: dict[str, Any] = field(hash=False)
    batch: int
    epochs: int
    schedules: bool = True  # whether schedules are compared on it too, or encodings alone

    def among(self, ways: Sequence[Way]) -> list[Way]:
        """Return the ways that are compared on it."""
        return [way for way in ways if self.schedules or not way.train]

    def batch_of(self, way: Way) -> int:
        """Return the rows of a batch."""
        return self.batch // way.smaller

    def job(self, way: Way, seed: int) -> dict[str, Any]:
        """Return the job of one way."""
        epochs = self.epochs * (MORE_EPOCHS if way.overlap else 1)
        return {
            "model": self.model,
            "train": {"epochs": epochs, "batch_size": self.batch_of(way), "overwrite": True, **way.train},
            "evaluate": {"every": 1},
            "wire": way.wire,
            "seed": seed,
        }


def data_sets(folder: Path | None, *, rows: int) -> list[DataSet]:
    """Return Income, of which `rows`, digits, and the images that the folder has as NAME.npz, half as many."""
    mlp, cnn = {"bottom": "mlp", "embedding": 64}, {"bottom": "cnn", "embedding": 64}
    found = [
        DataSet("income", {"source": "income", "limit": rows}, mlp, 256, 8),
        DataSet("digits", {"source": "digits"}, cnn, 64, 16),
    ]
    for name in ("pathmnist", "cifar10") if folder else ():
        assert folder is not None
        path = folder / f"{name}.npz"
        if path.is_file():
            source = {"source": "npz", "path": str(path.absolute()), "limit": rows // 2}
            found.append(DataSet(name, source, cnn, 128, 8, schedules=False))  # an epoch takes long
    return found
