"""fedora bench: measurements and checks, each with its report."""

import json
import math
import sys
from collections.abc import Collection, Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from fedora_vfl.errors import DataError, SettingsError

if TYPE_CHECKING:
    from fedora_vfl.bench.line import Advice
    from fedora_vfl.bench.theorem import Walk
    from fedora_vfl.bench.to_accuracy.seconds import LineSpeed

app = typer.Typer(no_args_is_help=True, help="Measure, check and report.")


@app.command()
def theorem(
    out: Annotated[Path, typer.Option(help="Folder for theorem.png, theorem.csv and theorem-cases.csv.")],
    seed: Annotated[int, typer.Option(help="Decides rows, start and mini-batches.")] = 0,
    rows: Annotated[int, typer.Option(min=100, help="Training rows of Income.")] = 2000,
    mu: Annotated[float, typer.Option(min=1e-3, max=10.0, help="Strong convexity: the L2 regularisation.")] = 0.5,
    batch: Annotated[int, typer.Option(min=1, help="Rows of a mini-batch.")] = 256,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, of one primal step each.")] = 1500,
) -> None:
    """Check the paper's Theorem 1 by numbers, where its assumptions hold.

    Runs FedORA and train-from-scratch side by side on linear models, measures all that the theorem's bound is made of,
    and compares the bound with the distance between the two models in every round. docs/theorem.md explains it.
    """
    import torch

    from fedora_vfl.bench.theorem import cases, load, plot, train, walk, write_cases, write_rounds

    torch.set_num_threads(1)  # the matrices are too small to be worth sharing out
    console = Console(highlight=False)
    problem = load(rows, mu=mu, seed=seed)
    trained, fresh = train(problem, problem.start(seed + 1)), problem.start(seed)
    walks = {}
    with Progress(console=console, transient=True) as progress:
        chosen = cases(problem, batch=min(batch, len(problem.remaining)), rounds=rounds)
        for case, (scaled, steps) in progress.track(chosen.items(), description="walking"):
            walks[case] = walk(scaled, steps, trained, fresh, seed=seed)
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_rounds(walks, out / "theorem.csv")
        write_cases(walks, out / "theorem-cases.csv")
        plot(walks, out / "theorem.png")
    except OSError as error:
        print(f"error: {out}: cannot be written to: {error.strerror}", file=sys.stderr)
        sys.exit(DataError.exit_code)
    _print_theorem(walks, console)
    console.print(f"Written to {out}: theorem.png, theorem.csv, theorem-cases.csv", soft_wrap=True)


@app.command()
def privacy(
    clip: Annotated[float, typer.Option(min=1e-9, help="Largest L2 norm of a row.")] = 1.0,
    delta: Annotated[float, typer.Option(min=1e-300, max=0.999999, help="δ.")] = 1e-5,
    noise: Annotated[list[float] | None, typer.Option(min=0, help="Standard deviation; repeatable.")] = None,
    releases: Annotated[list[int] | None, typer.Option(min=0, help="How often a row is sent; repeatable.")] = None,
) -> None:
    """Print the ε that noise of some sizes amounts to. docs/privacy.md says what it protects."""
    from party.privacy import epsilon

    times = releases or [1, 30, 1000]
    table = Table(title=f"ε at δ = {delta:g}, rows clipped to norm {clip:g}", title_justify="left")
    table.add_column("noise", justify="right")
    for count in times:
        table.add_column(f"{count:,} release" + "s" * (count != 1), justify="right")
    for deviation in noise or [1e-5, 1e-4, 5e-4, 0.1, 1.0, 10.0, 100.0]:
        spent = (epsilon(clip=clip, noise=deviation, delta=delta, releases=count) for count in times)
        table.add_row(f"{deviation:g}", *(f"{one:,.0f}" if one >= 100 else f"{one:.2g}" for one in spent))
    Console(highlight=False).print(table)


class Preset(StrEnum):
    """The sizes that the paper's experiments come in."""

    SMALL = "small"
    MEDIUM = "medium"
    PAPER = "paper"


@app.command()
def paper(
    out: Annotated[Path, typer.Option(help="Folder for cells, which are never run twice, and the report.")] = Path(
        "runs/paper"
    ),
    preset: Annotated[Preset, typer.Option(help="small: an hour on two cores; medium: three; paper: for a GPU.")] = (
        Preset.SMALL
    ),
    only: Annotated[
        list[str] | None, typer.Option(help="A data set, an experiment, or DATA-SET:EXPERIMENT; repeatable.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the image data sets.")] = None,
    experiments: Annotated[
        Path | None, typer.Option(help="Folder of other experiment files than those that come with it.")
    ] = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch data sets that are not there.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run cells that failed once more.")] = False,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Compute threads of each party. [default: the cores, shared out]")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Where parties compute: cpu, cuda or cuda:N. [default: cpu]")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Show experiments, cells and times; run nothing.")] = False,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Write the report from cells that are done.")
    ] = False,
    cells: Annotated[
        Path | None,
        typer.Option(help="With --report-only: a cells.csv, for figures that OUT does not have.", metavar="FILE"),
    ] = None,
) -> None:
    """Run the paper's experiments, and report the paper's figures beside ours.

    Stopped at any moment, the same command goes on where it was. docs/comparing.md explains experiments and report.

    \b
        fedora bench paper --list
        fedora bench paper --only income                          # minutes
        fedora bench paper --only cifar10:table-ablation --data FOLDER
    """
    from fedora_vfl.bench.paper import command
    from fedora_vfl.bench.paper.experiments import HERE
    from fedora_vfl.process.lifecycle import run_until_done

    console = Console(highlight=False)
    asked = command.Asked(
        preset=preset.value,
        only=only or [],
        data=data,
        out=out,
        experiments=experiments or HERE,
        download=download,
        retry_failed=retry_failed,
        threads=threads,
        device=device,
        cells=cells,
    )

    async def work() -> None:
        if listing:
            command.listing(asked, console)
        elif report_only:
            command.report(asked, console)
        else:
            await command.run(asked, console)

    if code := run_until_done(work()):
        sys.exit(code)


@app.command()
def inputs(
    data_set: Annotated[str, typer.Option(help="The one data set to search on.")] = "digits",
    preset: Annotated[Preset, typer.Option(help="Its size.")] = Preset.SMALL,
    trials: Annotated[int, typer.Option(min=1, max=1000, help="Inputs to draw; more of them go on from fewer.")] = 40,
    data: Annotated[Path | None, typer.Option(help="Folder with the image data sets.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for trials, which are never run twice.")] = Path("runs/inputs"),
) -> None:
    """Search, on one data set, for inputs of FedORA with the paper's steps, which the paper does not give.

    Trials are drawn at random and ranked by their distance from Retrain (test accuracy, unlearning accuracy, honest
    AUC). Stopped at any moment, the same command goes on where it was.
    """
    from fedora_vfl.bench.paper.search import search
    from fedora_vfl.process.lifecycle import run_until_done

    console = Console(highlight=False)
    if code := run_until_done(search(data_set, preset.value, trials, data, out, console)):
        sys.exit(code)


@app.command()
def comms(
    out: Annotated[
        Path, typer.Option(help="Folder for points, which are never measured twice, and the report.")
    ] = Path("runs/comms"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and smaller points: two minutes, not twenty.")] = False,
    loopback: Annotated[
        bool, typer.Option("--loopback", help="Without hosts: no bytes on the wire, no rates; needs no root.")
    ] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Measure failed points once more.")] = False,
    page: Annotated[Path | None, typer.Option(help="Also write the page here, its plots beside it.")] = None,
    to_accuracy: Annotated[
        bool, typer.Option("--to-accuracy", help="Bytes and seconds to an accuracy, by encoding and schedule.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="With --to-accuracy: a folder with cifar10.npz or pathmnist.npz.")
    ] = None,
) -> None:
    """Measure what communication costs: bytes of every method, down to the wire, and seconds at rates and distances.

    As root on Linux every member gets a host of its own (a network namespace) whose line is counted by the kernel, and
    may be slow or long. Elsewhere only what the ledger knows is measured. Stopped at any moment, the same command goes
    on where it was.
    """
    from fedora_vfl.bench.comms import command
    from fedora_vfl.bench.to_accuracy import command as to_accuracy_command
    from fedora_vfl.process.lifecycle import run_until_done

    console = Console(highlight=False)
    if to_accuracy:
        wanted = to_accuracy_command.Asked(out=out, data=data, page=page, quick=quick, loopback=loopback)
        work = to_accuracy_command.run(wanted, console)
    else:
        asked = command.Asked(out=out, page=page, quick=quick, loopback=loopback, retry_failed=retry_failed)
        work = command.run(asked, console)
    if code := run_until_done(work):
        sys.exit(code)


@app.command()
def line(
    address: Annotated[str | None, typer.Argument(help="HOST:PORT of the member that listens.")] = None,
    listen: Annotated[str | None, typer.Option(help="Listen at HOST:PORT for the other member, until Ctrl-C.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Rows of a batch.")] = 256,
    embedding: Annotated[int, typer.Option(min=1, help="Width of embeddings.")] = 64,
    parties: Annotated[int, typer.Option(min=1, max=32, help="Passive parties.")] = 2,
    compute: Annotated[float, typer.Option(min=0, help="Milliseconds of computing in a step.")] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Measure rate and round trip between two members, and say which settings to take.

    \b
        fedora bench line --listen 0.0.0.0:7070        # at the active party
        fedora bench line active.example.org:7070      # at a passive party
    """
    from fedora_vfl.bench import line as bench_line
    from fedora_vfl.process.lifecycle import run_until_done

    async def work() -> None:
        if (address is None) == (listen is None):
            raise SettingsError("give the address of a member that listens, or --listen")
        if listen:
            print(f"listening at {listen}; stop with Ctrl-C", flush=True)
            await bench_line.serve(listen)
            return
        assert address is not None
        if not as_json:
            print(f"measuring the line to {address}, about five seconds", file=sys.stderr, flush=True)
        measured, faster = await bench_line.measure(address)
        step = bench_line.Work(batch, embedding, parties, compute / 1000)
        _print_line(measured, faster, bench_line.advise(measured, step), as_json=as_json)

    if code := run_until_done(work()):
        sys.exit(code)


def _print_line(measured: "LineSpeed", faster: float, advice: "Advice", *, as_json: bool) -> None:
    settings = advice.settings
    assert measured.rate is not None
    if as_json:
        told = {
            "round_trip_ms": 1000 * measured.round_trip,
            "mbit_per_second": measured.rate / 1e6,
            "mbit_per_second_other_way": faster / 1e6,
            "settings": settings,
            "step_ms": 1000 * advice.seconds,
            "exact_step_ms": 1000 * advice.exact,
            "epochs": advice.choice.epochs,
            "times_faster": advice.faster,
        }
        print(json.dumps(told))
        return
    console = Console(highlight=False, soft_wrap=True)
    rates = f"{measured.rate / 1e6:.0f} Mbit/s the slower way, {faster / 1e6:.0f} the other"
    console.print(f"round trip {1000 * measured.round_trip:.2f} ms, {rates}")
    if not settings:
        console.print(f"Leave encoding and schedule as they are: a step takes about {1000 * advice.exact:.1f} ms.")
        return
    step = f"As many rows as a batch has now take about {1000 * advice.seconds:.1f} ms, not {1000 * advice.exact:.1f}"
    epochs = f"and it takes about {advice.choice.epochs:g} times as many to the same accuracy"
    console.print(f"In the job file:\n\n{yaml.safe_dump(settings, sort_keys=False).rstrip()}\n")
    console.print(f"{step}, {epochs}: {advice.faster:.1f} times as fast. docs/faster.md says what the settings change.")


@app.command()
def alignment(
    out: Annotated[Path, typer.Option(help="Folder for alignment.json and the page.")] = Path("runs/alignment"),
    ids: Annotated[
        list[int] | None, typer.Option(min=10, help="Ids of each party; repeatable. [default: 10000 and 50000]")
    ] = None,
    passive: Annotated[int, typer.Option(min=1, max=31, help="Passive parties.")] = 2,
    page: Annotated[Path | None, typer.Option(help="Also write the page here.")] = None,
) -> None:
    """Measure private alignment: seconds beside the bare library's in the same run, bytes, memory over set size.

    A million ids of each of three parties take four to eight minutes on two cores.
    """
    from fedora_vfl.bench import alignment as measuring
    from fedora_vfl.process.lifecycle import run_until_done

    console = Console(highlight=False)
    sizes = ids or [10_000, 50_000]
    work = measuring.run(sizes, passive, out, page, lambda line: console.print(line, soft_wrap=True))
    if code := run_until_done(work):
        sys.exit(code)


@app.command()
def attacks(
    out: Annotated[Path, typer.Option(help="Folder for runs, which are never attacked twice, and the report.")] = Path(
        "runs/attacks"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and smaller runs: two minutes, not twenty.")] = False,
    data: Annotated[
        Path | None, typer.Option(help="Folder with cifar10.npz or pathmnist.npz, in MedMNIST's layout.")
    ] = None,
    report_only: Annotated[bool, typer.Option("--report-only", help="Write the report from runs that are done.")] = (
        False
    ),
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Attack failed runs once more.")] = False,
    page: Annotated[Path | None, typer.Option(help="Also write the page here, its picture beside it.")] = None,
) -> None:
    """Measure what leaks by design: attacks from every role on what it sees of a run, and what defences give and cost.

    Labels from gradients, rows from embeddings, membership before and after unlearning, properties; each beside what
    guessing reaches. Stopped at any moment, the same command goes on where it was.
    """
    from fedora_vfl.bench.attacks import command
    from fedora_vfl.process.lifecycle import run_until_done

    asked = command.Asked(
        out=out, data=data, page=page, quick=quick, report_only=report_only, retry_failed=retry_failed
    )
    if code := run_until_done(command.run(asked, Console(highlight=False))):
        sys.exit(code)


@app.command()
def standing(
    count: Annotated[int, typer.Option(min=2, help="How many jobs.")] = 200,
    seed: Annotated[int, typer.Option(help="Of the first job; each further one has the next.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for standing.csv.")] = Path("runs/standing"),
) -> None:
    """Run jobs in a row on one cluster, two submitted at once, and see that nobody holds more and more.

    A training and a job that forgets two people, again and again; after every pair memory, open files and disk of each
    process are looked at. Exit code 1 if one of them has grown.
    """
    from fedora_vfl.bench.standing import check_flat, growth, measure, write
    from fedora_vfl.process.lifecycle import run_until_done

    console = Console(highlight=False)

    async def work() -> None:
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task("jobs", total=count)
            held = await measure(count, seed=seed, told=lambda done, _: progress.update(task, completed=done))
        write(held, out / "standing.csv")
        found = growth(held)
        table = Table(title=f"What each process holds, early and after {count} jobs", title_justify="left")
        for name in ("process", "memory, MB", "open files", "threads", "disk, kB"):
            table.add_column(name, justify="left" if name == "process" else "right")
        for one in found:
            early, late = one.early, one.late
            table.add_row(
                one.member,
                f"{early.memory / 1e6:.0f} → {late.memory / 1e6:.0f}",
                f"{early.files} → {late.files}",
                f"{early.threads} → {late.threads}",
                f"{early.disk / 1e3:,.0f} → {late.disk / 1e3:,.0f}",
            )
        console.print(table)
        console.print(f"Written to {out}: standing.csv", soft_wrap=True)
        check_flat(found)

    if code := run_until_done(work()):
        sys.exit(code)


@app.command()
def faults(
    seed: Annotated[int, typer.Option(help="What all faults follow from.")] = 0,
    count: Annotated[
        int | None, typer.Option(min=1, help="How many jobs, with one to three faults each. [default: 20]")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for faults.md.")] = Path("runs/faults"),
    only: Annotated[list[str] | None, typer.Option(help="A job of the harness, by name; repeatable.")] = None,
    loopback: Annotated[
        bool, typer.Option("--loopback", help="Without hosts: no line is cut or slowed; needs no root.")
    ] = False,
    points: Annotated[
        bool,
        typer.Option(
            "--points", help="Kill every member at every named point; --count of each job, which the seed chooses."
        ),
    ] = False,
    kind: Annotated[
        list[str] | None, typer.Option(help="What may go wrong, by name; repeatable. [default: all]")
    ] = None,
    at_once: Annotated[
        int, typer.Option(min=1, help="How many kinds of job run at the same time, each on a cluster of its own.")
    ] = 1,
    cold: Annotated[
        bool,
        typer.Option("--cold", help="Have every process import for itself, instead of forking it from one that has."),
    ] = False,
) -> None:
    """Kill, stop, cut off and damage members of real clusters while jobs run; see that nothing is lost.

    Faults are drawn from the seed: kill -9 at a random instant and at named points of the protocol, of one member,
    several or all; SIGSTOP; full disks, torn and flipped commits; as root on Linux, where every member gets a host of
    its own (a network namespace), cut and slow lines. What each job leaves is compared to the bit with what it leaves
    undisturbed. Exit code 1 if anything differs.

    \b
        fedora bench faults --seed 7 --count 1000
        fedora bench faults --only forgetting --loopback
        fedora bench faults --count 50 --kind kill-all
    """
    from fedora_vfl.bench.faults.plan import Kind, possible
    from fedora_vfl.bench.faults.report import HEADER, check_nothing_lost, page, rows
    from fedora_vfl.bench.faults.scenarios import SCENARIOS
    from fedora_vfl.bench.faults.trials import Series, run_series
    from fedora_vfl.bench.hosts.network import why_not
    from fedora_vfl.process.lifecycle import run_until_done
    from fedora_vfl.storage import write_atomically

    console = Console(highlight=False, markup=False)

    async def work() -> None:
        named = {one.short: one for one in Kind}
        _check_known(only or (), SCENARIOS, "--only: there is no job")
        _check_known(kind or (), named, "--kind: there is no fault")
        if kind and points:
            raise SettingsError("--kind: with --points all faults are kills at named points; leave one of them out")
        missing = None if loopback else why_not()
        if missing:
            console.print(f"note: no line is cut or slowed: {missing}")
        hosts = not loopback and missing is None
        kinds = [named[name] for name in kind or named]
        if not possible(kinds, hosts=hosts):
            raise SettingsError("--kind: lines are cut and slowed only where members have hosts of their own")

        def told(line: str) -> None:
            console.print(line, soft_wrap=True)

        series = Series(seed)
        try:
            await run_series(
                series,
                count or (None if points else 20),
                hosts=hosts,
                points=points,
                scenarios=tuple(only or SCENARIOS),
                kinds=kinds,
                at_once=at_once,
                warm=not cold,
                told=told,
            )
        finally:  # what was found until it was stopped is kept
            write_atomically(out / "faults.md", page(series, hosts=hosts))
        table = Table(*HEADER, title=f"Seed {seed}, {len(series.verdicts)} trials", title_justify="left")
        for row in rows(series):
            table.add_row(*row)
        console.print(table)
        console.print(f"Written to {out}: faults.md", soft_wrap=True)
        check_nothing_lost(series)

    if code := run_until_done(work()):
        sys.exit(code)


def _check_known(names: Iterable[str], allowed: Collection[str], said: str) -> None:
    """Refuse a name that stands for nothing, with those that do."""
    for name in names:
        if name not in allowed:
            raise SettingsError(f"{said} {name!r}; allowed: {', '.join(allowed)}")


@app.command()
def commits(
    repeats: Annotated[int, typer.Option(min=1, help="Runs of the job.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the job.")] = 0,
) -> None:
    """Measure what it costs that nothing is lost: a job on Income that commits in every other block of rounds."""
    from fedora_vfl.bench.commits import measure
    from fedora_vfl.process.lifecycle import run_until_done

    console = Console(highlight=False)

    async def work() -> None:
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task("runs", total=repeats)
            found = await measure(repeats, seed=seed, told=lambda done: progress.update(task, completed=done))
        table = Table(title="What commits cost", title_justify="left")
        for name in ("", "without, ms", "with, ms", "more", "at most"):
            table.add_column(name, justify="right" if name else "left")
        for one in found:
            spent = (f"{1000 * seconds:.1f}" for seconds in (one.without, one.with_commits))
            table.add_row(one.stretch.name, *spent, f"{one.share:+.1%} ± {one.error:.1%}", f"{one.stretch.most:.0%}")
        console.print(table)

    if code := run_until_done(work()):
        sys.exit(code)


def _print_theorem(walks: "dict[str, Walk]", console: Console) -> None:
    from fedora_vfl.bench.theorem import PROOF, judge, printed_bound, sharper_bound

    first = walks[PROOF]
    contracting = all(one.steps.tau * one.problem.smoothness <= 1 + 1e-9 for one in walks.values())
    console.print(
        f"μ = {first.problem.strong_convexity:.3g}, L = {first.problem.smoothness:.3g}; |D_r| = "
        f"{len(first.problem.remaining):,}, |D_u| = {len(first.problem.forgotten):,}; {first.steps.rounds:,} rounds; "
        f"τ ≤ 1/L: {'always' if contracting else 'NOT always'}"
    )
    table = Table(
        title="Distance and bounds after the last round; rounds in which Theorem 1 is broken",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=0,
    )
    for name in ("case", "τ", "σ_r/√B", "G·Ω_max", "distance", "Theorem 1", "broken", "our bound"):
        table.add_column(name, justify="left" if name == "case" else "right", no_wrap=True)
    for case, one in walks.items():
        printed = printed_bound(one)
        noise = one.deviation.max() / math.sqrt(one.steps.batch)
        table.add_row(
            case,
            *(f"{value:.2g}" for value in (one.steps.tau, noise, one.forget_gradient.max() * one.dual.max())),
            *(f"{value:.3g}" for value in (one.distance[-1], printed[-1])),
            f"{judge(one, printed).broken:,}",
            f"{sharper_bound(one)[-1]:.3g}",
        )
    console.print(table)
    for line in _findings(walks):
        console.print(line, soft_wrap=True)


def _findings(walks: "dict[str, Walk]") -> list[str]:
    """Say in plain words what the walks show."""
    from fedora_vfl.bench.theorem import UNIT, judge, printed_bound, sharper_bound

    usual = [judge(one, printed_bound(one)) for case, one in walks.items() if case != UNIT]
    low, high = min(one.tightest for one in usual), max(one.loosest for one in usual)
    holds = "holds in every round" if not any(one.broken for one in usual) else "does NOT hold in every round"
    other = judge(walks[UNIT], printed_bound(walks[UNIT])).broken
    elsewhere = f"fails in {other:,} rounds" if other else "holds for as long as this run was"
    ours = sum(judge(one, sharper_bound(one)).broken for one in walks.values())
    excess = max(one.excess for one in walks.values())
    return [
        f"With losses as they are, Theorem 1's bound {holds}: {low:.1f} to {high:.0f} times the measured distance.",
        f"With both losses times 10⁻⁸ the models are the same, and it {elsewhere}: see docs/theorem.md.",
        f"Our bound {f'fails in {ours:,} rounds' if ours else 'holds in every round of every case'}.",
        f"Assumption 2 (‖ε_r‖ ≤ σ_r/√|B_r|) fails in up to {excess:.0%} of the rounds: it is true on average only.",
    ]
