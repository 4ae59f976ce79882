"""Ways to exchange: the encodings and schedules that are compared, and the data sets they are compared on."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PLAIN = "plain"
TIGHT = {"encoding": "int4", "gradients": "int2", "error_feedback": True}  # the fewest bytes at full accuracy


@dataclass(frozen=True)
class Way:
    """One choice of `wire` and of the schedule in `train`."""

    name: str
    wire: dict[str, Any] = field(default_factory=dict, hash=False)
    train: dict[str, int] = field(default_factory=dict, hash=False)

    @property
    def overlap(self) -> int:
        """Batches under way beside the one that is due."""
        return self.train.get("overlap", 0)


WAYS = (
    Way(PLAIN),
    Way("float16", {"encoding": "float16"}),
    Way("int8", {"encoding": "int8"}),
    Way("int4", {"encoding": "int4"}),
    Way("int4, feedback", {"encoding": "int4", "error_feedback": True}),
    Way("int4 and int2", {"encoding": "int4", "gradients": "int2"}),
    Way("int4 and int2, feedback", TIGHT),
    Way("int2, feedback", {"encoding": "int2", "error_feedback": True}),
    Way("topk, feedback", {"encoding": "topk", "error_feedback": True}),
    Way("randtopk", {"encoding": "randtopk"}),
    Way("overlap 2", train={"overlap": 2}),
    Way("overlap 8", train={"overlap": 8}),
    Way("2 local steps", train={"local_steps": 2}),
    Way("4 local steps", train={"local_steps": 4}),
    Way("int4 and int2, feedback; overlap 4", TIGHT, {"overlap": 4}),
    Way("int4 and int2, feedback; overlap 4; 2 local steps", TIGHT, {"overlap": 4, "local_steps": 2}),
)
# Those that a quick look leaves out.
SLOW = {"float16", "int4", "int4 and int2", "randtopk", "overlap 2", "2 local steps"}


@dataclass(frozen=True)
class DataSet:
    """Rows, a model and a training that all ways share."""

    name: str
    data: dict[str, Any] = field(hash=False)
    model: dict[str, Any] = field(hash=False)
    batch: int
    epochs: int

    def job(self, way: Way, seed: int) -> dict[str, Any]:
        """Return the job of one way."""
        return {
            "model": self.model,
            "train": {"epochs": self.epochs, "batch_size": self.batch, "overwrite": True, **way.train},
            "evaluate": {"every": 1},
            "wire": way.wire,
            "seed": seed,
        }


def data_sets(folder: Path | None, *, rows: int) -> list[DataSet]:
    """Return Income and digits, and the images that the folder has as NAME.npz; `rows` of the larger ones."""
    mlp, cnn = {"bottom": "mlp", "embedding": 64}, {"bottom": "cnn", "embedding": 64}
    found = [
        DataSet("income", {"source": "income", "limit": rows}, mlp, 256, 8),
        DataSet("digits", {"source": "digits"}, cnn, 64, 16),
    ]
    for name in ("pathmnist", "cifar10") if folder else ():
        assert folder is not None
        path = folder / f"{name}.npz"
        if path.is_file():
            source = {"source": "npz", "path": str(path.absolute()), "limit": rows}
            found.append(DataSet(name, source, cnn, 128, 12))
    return found
