"""What `fedora bench comms --to-accuracy` does, step by step."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from fedora_vfl.bench.paper.store import locked
from fedora_vfl.bench.to_accuracy.checking import check_model
from fedora_vfl.bench.to_accuracy.measuring import Run, measure
from fedora_vfl.bench.to_accuracy.over_a_line import time_over, told
from fedora_vfl.bench.to_accuracy.report import advice, lines_of, print_tables, write_report
from fedora_vfl.bench.to_accuracy.ways import SLOW, WAYS, data_sets


@dataclass(frozen=True)
class Asked:
    """What the user wants measured."""

    out: Path
    data: Path | None = None
    page: Path | None = None  # where the page goes besides `out`
    quick: bool = False
    loopback: bool = False
    seed: int = 0

    @property
    def command(self) -> str:
        """The command that measures the same."""
        chosen = [*(["--quick"] if self.quick else []), *(["--loopback"] if self.loopback else [])]
        return " ".join(["fedora bench comms --to-accuracy", *chosen, *(["--data FOLDER"] if self.data else [])])


async def run(asked: Asked, console: Console) -> None:
    """Measure what is not measured yet, and report."""
    sets = data_sets(asked.data, rows=3000 if asked.quick else 8000)

    def tell(run: Run) -> None:
        size = f"{run.epoch_bytes / 1e6:.2f} MB an epoch"
        console.print(f"{run.data_set}, {run.way}: best {max(run.accuracies):.1%}, {size}", soft_wrap=True)

    asked.out.mkdir(parents=True, exist_ok=True)
    with locked(asked.out):
        ways = [way for way in WAYS if not (asked.quick and way.name in SLOW)]
        runs = await measure(sets, ways, asked.out, seed=asked.seed, tell=tell)
        found = lines_of(runs, WAYS)
        print_tables(found, console)
        checked = await check_model(asked.out, console, loopback=asked.loopback)
        timed = await time_over(
            sets,
            found,
            asked.out,
            seed=asked.seed,
            loopback=asked.loopback,
            say=lambda said: console.print(said, soft_wrap=True),
        )
    for said in advice(found):
        console.print(said, soft_wrap=True)
    for page in [asked.out / "to-accuracy.md", *([asked.page] if asked.page else [])]:
        write_report(found, page, command=asked.command, checked=checked, timed=told(timed))
    console.print(f"Written to {asked.out}: to-accuracy.md, to-accuracy.csv, to-accuracy.svg", soft_wrap=True)
