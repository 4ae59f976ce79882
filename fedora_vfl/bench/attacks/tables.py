"""Tables of the report: the same lines for a terminal of 80 columns and for the page."""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.table import Table

from fedora_vfl.bench.attacks.catalogue import LABEL_ATTACKS, ROW_ATTACKS, ROW_ATTACKS_OFTEN, Line
from fedora_vfl.bench.attacks.defences import DEFENCES
from fedora_vfl.bench.attacks.results import Figure, Results

NOTHING = "–"
DEFENCE_COLUMNS = ("test accuracy", "labels", "completion", "rows", "rows, 30 times", "property", "ε")
SHORT_DEFENCE_COLUMNS = ("accuracy", "labels", "compl.", "rows", "30 times", "property")
NO_DEFENCE = "none"
EXPERIMENTS = {one.name for one in DEFENCES if not one.is_setting}  # marked with a star


def shown(figure: Figure | None, *, spread: bool) -> str:
    """Show a figure with, in brackets, that of guessing."""
    if figure is None:
        return NOTHING
    about = f" ± {figure.spread:.2f}" if spread and figure.seeds > 1 else ""
    beside = "" if figure.guess is None else f" ({_number(figure.guess)})"
    return f"{_number(figure.mean)}{about}{beside}"


def _number(value: float) -> str:
    return f"{value + 0.0:.2f}".replace("-0.00", "0.00").replace("-", "−")


def attack_lines(lines: Sequence[Line], results: Results, *, spread: bool) -> Iterator[list[str]]:
    """Yield a line for every attack of which there is a figure, a column per data set."""
    for line in lines:
        figures = [results.figure(scene, NO_DEFENCE, line.key) for scene in results.scenes]
        if any(figures):
            yield [line.title, *(shown(one, spread=spread) for one in figures)]


def rows_attack(results: Results, scene: str, defence: str, *, often: bool) -> Figure | None:
    """Return the strongest reconstruction; that of many releases where fresh noise makes them differ."""
    names = [*ROW_ATTACKS, *ROW_ATTACKS_OFTEN] if often else ROW_ATTACKS
    best = results.best(scene, defence, names)
    return best[1] if best else None


def defence_lines(results: Results, scene: str, *, spread: bool) -> Iterator[list[str]]:
    """Yield a line for every defence on one data set: what is left of accuracy and of each kind of leak."""
    for defence in results.defences(scene):
        labels = results.best(scene, defence, LABEL_ATTACKS)
        figures = [
            results.figure(scene, defence, "test_accuracy"),
            labels[1] if labels else None,
            results.figure(scene, defence, "label.completion.100"),
            rows_attack(results, scene, defence, often=False),
            rows_attack(results, scene, defence, often=True),
            results.figure(scene, defence, "property.passive-2"),
        ]
        loss = results.figure(scene, defence, "epsilon")
        yield [
            f"{defence} *" if defence in EXPERIMENTS else defence,
            *(shown(None if one is None else _alone(one), spread=spread) for one in figures),
            NOTHING if loss is None else f"{loss.mean:,.0f}" if loss.mean >= 10 else f"{loss.mean:.1f}",
        ]


def guesses(results: Results, scene: str) -> list[str]:
    """Return the line of guessing that a table of defences begins with."""
    names = ("test_accuracy", LABEL_ATTACKS[0], "label.completion.100", ROW_ATTACKS[0], ROW_ATTACKS[0])
    found = [results.figure(scene, NO_DEFENCE, name) for name in (*names, "property.passive-2")]
    return [
        "guessing",
        *(NOTHING if one is None or one.guess is None else _number(one.guess) for one in found),
        NOTHING,
    ]


def _alone(figure: Figure) -> Figure:
    """Return a figure without that of guessing, where a line of its own has it."""
    return Figure(figure.mean, figure.spread, None, figure.seeds)


def printed(console: Console, title: str, header: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    """Print a table."""
    console.print(f"\n{title}", style="bold")
    table = Table(box=None, padding=(0, 1, 0, 0))
    for place, name in enumerate(header):
        table.add_column(name, justify="right" if place else "left", no_wrap=True)
    for line in lines:
        table.add_row(*line)
    console.print(table)


def written(header: Sequence[str], lines: Iterable[Sequence[str]], *, texts: bool = False) -> str:
    """Return a table in Markdown; numbers stand to the right."""
    rule = ["---"] * len(header) if texts else ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, rule, *lines])
