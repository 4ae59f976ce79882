"""What came of the runs: every figure as mean and spread over seeds, beside that of guessing."""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from fedora_vfl.bench.attacks.figures import GUESS
from fedora_vfl.bench.attacks.scenes import Extent, Point, as_cell
from fedora_vfl.bench.paper.store import Store


@dataclass(frozen=True)
class Figure:
    """One attack's success, over seeds."""

    mean: float
    spread: float  # standard deviation over seeds; 0 of one
    guess: float | None  # what is reached without looking
    seeds: int

    @property
    def advantage(self) -> float | None:
        """How much of the way from guessing to certainty was gone: 0 is guessing, 1 is always right."""
        return None if self.guess is None or self.guess >= 1 else (self.mean - self.guess) / (1 - self.guess)


@dataclass(frozen=True)
class Results:
    """All figures, by data set, defence and name."""

    figures: dict[tuple[str, str], dict[str, Figure]]
    failed: dict[str, str]  # runs, with reasons
    missing: int
    runs: int
    releases: dict[str, int] = field(default_factory=dict)  # of this software that made the runs, with how many each

    @property
    def scenes(self) -> list[str]:
        """The data sets of which there are figures."""
        return list(dict.fromkeys(scene for scene, _ in self.figures))

    def defences(self, scene: str) -> list[str]:
        """Return the defences that were tried on a data set."""
        return [defence for one, defence in self.figures if one == scene]

    def figure(self, scene: str, defence: str, name: str) -> Figure | None:
        """Return a figure, if there is one."""
        return self.figures.get((scene, defence), {}).get(name)

    def best(self, scene: str, defence: str, names: Sequence[str]) -> tuple[str, Figure] | None:
        """Return the most successful of some attacks."""
        found = [(name, one) for name in names if (one := self.figure(scene, defence, name)) is not None]
        return max(found, key=lambda pair: pair[1].mean, default=None)


def read_results(store: Store, extent: Extent, points: Sequence[Point]) -> Results:
    """Read what the store has."""
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    failed: dict[str, str] = {}
    releases: Counter[str] = Counter()
    missing = 0
    for point in points:
        record = store.read(as_cell(point, extent))
        if record is None:
            missing += 1
        elif not record.done:
            failed[point.describe()] = record.why
        else:
            releases[record.versions["fedora"]] += 1
            kept = values.setdefault((point.scene.name, point.defence.name), {})
            for name, value in record.figures.items():
                if value is not None:
                    kept.setdefault(name, []).append(value)
    return Results(
        {place: _figures(kept) for place, kept in values.items()}, failed, missing, releases.total(), releases
    )


def _figures(values: dict[str, list[float]]) -> dict[str, Figure]:
    """Put means, spreads and guesses together."""
    found = {}
    for name, several in values.items():
        if not name.endswith(GUESS):
            guesses = values.get(f"{name}{GUESS}")
            spread = statistics.stdev(several) if len(several) > 1 else 0.0
            found[name] = Figure(
                statistics.mean(several), spread, statistics.mean(guesses) if guesses else None, len(several)
            )
    return found
