"""How long one training step takes: in one process, over raw sockets, over bare gRPC streams, and in this system.

All do the same arithmetic with the same bottom models and top model, one compute thread per process, and exchange
the same tensors. The bare ones have no metering, no checks, no protobuf and no deadlines: they are the floor. They are
measured in turn, several times in one run, because shared cores are noisy: compare the ratios, not the times. A time is
the mean over an epoch; the first epoch, in which everything warms up, is told apart from the median of the later ones.

    python -m fedora_vfl.bench.step [--repeat 10] [--parties 2 --parties 16] [--shape wide-linear] [--tls] [--json]
    python -m fedora_vfl.bench.step --transports     # other ways to use gRPC
    python -m fedora_vfl.bench.step --standing       # evaluation and forgetting, against the slowest party's computing

With --json one object is printed: for each shape, number of parties and way the milliseconds of a step (the median of
every repetition), the bytes and the messages that cross for it, both ways and all parties together, and its time as a
share of bare gRPC's.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedora_vfl.bench.step import transports
from fedora_vfl.bench.step.floors import bare_grpc, make_certificates, one_process, sockets
from fedora_vfl.bench.step.shapes import SHAPES, VALUE_BYTES, Shape
from fedora_vfl.bench.step.system import Measured, standing_still, this_system
from fedora_vfl.wire.protocol import VERSION

Way = Callable[[Shape], Measured]

BARE = "bare gRPC"
WAYS = ("one process", "raw sockets", BARE, "this system")


def _floor(measure: Callable[[Shape], list[float]], *, crosses: bool = True) -> Way:
    """Return a way that exchanges nothing but values, if it exchanges anything."""

    def way(shape: Shape) -> Measured:
        messages = 2 * shape.parties if crosses else 0
        return Measured(measure(shape), messages * shape.batch * shape.embedding * VALUE_BYTES, messages)

    return way


def _ways(certificates: Path | None) -> dict[str, Way]:
    """Return the ways that are compared."""
    return {
        "one process": _floor(one_process, crosses=False),
        "raw sockets": _floor(sockets),
        BARE: _floor(lambda shape: bare_grpc(shape, certificates)),
        "this system": lambda shape: this_system(shape, tls=certificates is not None),
    }


def compare(name: str, shape: Shape, ways: Mapping[str, Way], repeat: int) -> list[dict[str, Any]]:
    """Measure all ways in turn, several times; return a line for each."""
    runs = {way: list[Measured]() for way in ways}
    for number in range(1, repeat + 1):
        for way, measure in ways.items():
            runs[way].append(one := measure(shape))
            said = f"{1000 * statistics.median(one.seconds[1:]):.2f} ms, first epoch {1000 * one.seconds[0]:.2f}"
            print(f"{name}, {shape.parties} passive, {number} of {repeat}, {way}: {said}", file=sys.stderr, flush=True)
    later = {way: [1000 * statistics.median(one.seconds[1:]) for one in some] for way, some in runs.items()}
    first = {way: statistics.median(1000 * one.seconds[0] for one in some) for way, some in runs.items()}
    floor = statistics.median(later[BARE]) if BARE in ways else None
    return [
        {
            "shape": name,
            "batch": shape.batch,
            "embedding": shape.embedding,
            "parties": shape.parties,
            "way": way,
            "step_ms": [round(one, 4) for one in later[way]],
            "median_ms": round(statistics.median(later[way]), 4),
            "first_epoch_ms": round(first[way], 4),
            "of_bare_grpc": round(statistics.median(later[way]) / floor, 3) if floor else None,
            "bytes": round(some[0].bytes),
            "messages": round(some[0].messages, 2),
        }
        for way, some in runs.items()
    ]


def _shown(lines: list[dict[str, Any]]) -> Table:
    table = Table(title="One training step, mean of an epoch, in milliseconds", title_justify="left")
    for column in ("step", "way", "times", "median", "first epoch", "of bare", "kB", "messages"):
        table.add_column(column, justify="left" if column in ("step", "way") else "right", no_wrap=column != "times")
    for line, following in zip(lines, [*lines[1:], None], strict=True):
        label = f"{line['shape']}, {line['parties']} passive"
        times = " ".join(f"{one:.2f}" for one in line["step_ms"])
        share = "" if line["of_bare_grpc"] is None else f"{line['of_bare_grpc']:.2f}"
        figures = (f"{line['median_ms']:.2f}", f"{line['first_epoch_ms']:.2f}", share, f"{line['bytes'] / 1000:.1f}")
        same = following and (following["shape"], following["parties"]) == (line["shape"], line["parties"])
        table.add_row(label, line["way"], times, *figures, f"{line['messages']:g}", end_section=not same)
    return table


def _show_transports(repeat: int, *, as_json: bool) -> None:
    found = transports.compare(repeat)
    if as_json:
        print(json.dumps({"echo_ms": found}, indent=2))
        return
    table = Table(title="A message there and back over one stream, in milliseconds", title_justify="left")
    for column in ("gRPC used", *transports.MESSAGES):
        table.add_column(column, justify="left" if column == "gRPC used" else "right")
    for name, sizes in found.items():
        table.add_row(name, *(f"{one:.2f}" for one in sizes.values()))
    Console().print(table)


def _show_standing(name: str, shape: Shape, *, repeat: int, tls: bool, as_json: bool) -> None:
    runs = [standing_still(shape, tls=tls).standing for _ in range(repeat)]
    found = {phase: round(statistics.median(one[phase] for one in runs), 3) for phase in runs[0]}
    if as_json:
        print(json.dumps({"shape": name, "parties": shape.parties, "of_slowest_computing": found}))
        return
    for phase, share in found.items():
        print(f"{name}, {shape.parties} passive, {phase}: {share:.2f} of the slowest party's own computing")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, help="how often each way is measured")
    parser.add_argument("--parties", type=int, action="append", help="passive parties; repeatable; 2 unless told")
    parser.add_argument("--shape", choices=SHAPES, action="append", help="repeatable; all unless told")
    parser.add_argument("--way", choices=WAYS, action="append", help="repeatable; all unless told")
    parser.add_argument("--steps", type=int, help="steps of an epoch, of which there are six")
    parser.add_argument("--tls", action="store_true", help="with certificates, where gRPC is used")
    parser.add_argument("--transports", action="store_true", help="compare other ways to use gRPC, without a step")
    parser.add_argument("--standing", action="store_true", help="measure phases in which parameters stand still")
    parser.add_argument("--json", action="store_true", help="print JSON, and nothing else")
    asked = parser.parse_args()
    shapes = [
        (name, replace(SHAPES[name], parties=parties, steps=asked.steps or SHAPES[name].steps))
        for name in asked.shape or SHAPES
        for parties in asked.parties or [2]
    ]
    if asked.transports:
        _show_transports(asked.repeat, as_json=asked.json)
        return
    if asked.standing:
        for name, shape in shapes:
            _show_standing(name, shape, repeat=asked.repeat, tls=asked.tls, as_json=asked.json)
        return
    with tempfile.TemporaryDirectory() as folder:
        ways = _ways(make_certificates(Path(folder)) if asked.tls else None)
        ways = {one: ways[one] for one in asked.way or WAYS}
        lines = [line for name, shape in shapes for line in compare(name, shape, ways, asked.repeat)]
    if asked.json:
        print(json.dumps({"software": f"fedora {VERSION}", "cores": os.cpu_count(), "steps": lines}, indent=2))
    else:
        Console().print(_shown(lines))


if __name__ == "__main__":
    main()
