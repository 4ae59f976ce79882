"""The model of seconds, held against a few runs over lines that really are slow and long."""

import asyncio
import json
import statistics
from pathlib import Path
from typing import Any

from rich.console import Console

from fedora_vfl.bench.comms.points import MEGABIT, QUICK, Point
from fedora_vfl.bench.comms.stage import Stage, open_stage
from fedora_vfl.bench.hosts.network import why_not
from fedora_vfl.bench.to_accuracy.seconds import LineSpeed, StepCost
from fedora_vfl.bench.to_accuracy.ways import TIGHT, Way
from fedora_vfl.storage import write_atomically
from fedora_vfl.wire.protocol import VERSION

BATCH, EPOCHS = 256, 3
WAYS = (
    Way("plain"),
    Way("overlap 4", train={"overlap": 4}),
    Way("int4 and int2, feedback; overlap 4", TIGHT, {"overlap": 4}),
)
# Megabits per second, and milliseconds there and back.
LINES = ((20, 20), (100, 40))


async def check_model(out: Path, console: Console, *, loopback: bool) -> list[str]:
    """Return what there is to say of the model's error, for the page."""
    obstacle = "loopback was asked for" if loopback else await asyncio.to_thread(why_not, delay=True)
    if obstacle:
        console.print(f"The model of seconds is not checked: {obstacle}.", soft_wrap=True)
        return []
    kept = out / f"checked-{VERSION}.json"
    if not kept.is_file():
        write_atomically(kept, json.dumps(await _check(out)).encode())
    measured: list[tuple[str, float]] = [(said, error) for said, error in json.loads(kept.read_text())]
    errors = [error for _, error in measured]
    told = "; ".join(said for said, _ in measured)
    said = f"The model was held against lines in network namespaces, step by step: {told}."
    console.print(said, soft_wrap=True)
    return [f"{said} Typical error {statistics.median(errors):.0%}, largest {max(errors):.0%}."]


async def _check(out: Path) -> list[tuple[str, float]]:
    """Measure steps over lines; return what came of each, and the model's error."""
    point = Point()
    async with open_stage(point, QUICK, out / "work", hosts=True) as stage:
        costs = {way: await _cost(stage, way) for way in WAYS}
    found = []
    for rate, trip in LINES:
        line = LineSpeed(rate * MEGABIT, trip / 1000)
        async with open_stage(Point(delay=line.round_trip / 2), QUICK, out / "work", hosts=True) as stage:
            stage.limit(line.rate)
            for way in WAYS:
                measured = (await _cost(stage, way)).compute
                modelled = costs[way].seconds(line)
                said = f"{way.name} at {line.describe()}: {1000 * measured:.1f} ms, {1000 * modelled:.1f} by the model"
                found.append((said, abs(modelled / measured - 1)))
    return found


async def _cost(stage: Stage, way: Way) -> StepCost:
    """Train a few epochs; return what a step took."""
    train = {"epochs": EPOCHS, "batch_size": BATCH, "overwrite": True, **way.train}
    figures: dict[str, Any] = await stage.submit({"train": train, "model": {"embedding": 64}, "wire": way.wire})
    epochs = [one for one in figures["rounds"] if one["phase"] == "train"]
    steps = -(-epochs[0]["rows"] // BATCH)
    links = figures["original"]["bytes"]["links"]
    up, down = (
        sum(one["protobuf"] for one in links if one["kind"] == kind) / len(epochs) / steps
        for kind in ("embedding", "gradient")
    )
    return StepCost(min(one["seconds"] for one in epochs) / steps, up, down, way.overlap)
