"""The results, drawn: what each attack gets, and what is left of it and of accuracy behind each defence."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedora_vfl.bench.attacks.catalogue import LABEL_ATTACKS
from fedora_vfl.bench.attacks.results import Results
from fedora_vfl.bench.attacks.tables import NO_DEFENCE, rows_attack
from fedora_vfl.storage import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# After Okabe and Ito: colours that readers with any kind of colour blindness can tell apart.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#A0447C", "#666666"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE)
MARKS = ("o", "s", "D", "^")
SHADE = "#F2F2F2"
FONT = 10
HEADING: dict[str, Any] = {"x": 0.01, "ha": "left", "fontsize": FONT + 4, "fontweight": "bold"}
SHOWN = {
    "label.norm.last": "label: length of gradients",
    "label.direction.first": "label: direction, first epoch",
    "label.clusters": "label: clusters",
    "label.completion.100": "label: completion, 100 labels",
    "label.own.100": "   … from raw columns alone",
    "features.bottom.trained": "row: bottom known",
    "features.linear.200": "row: 200 rows known",
    "features.linear.50": "row: 50 rows known",
    "property.passive-2": "property of another party",
    "membership.active.original.gone": "member: active, original",
    "membership.active.unlearned.gone": "member: active, after FedORA",
    "membership.passive.original.gone": "member: passive, original",
    "membership.passive.unlearned.gone": "member: passive, after FedORA",
    "coordinator.group.1": "label: coordinator, groups of 1",
    "coordinator.group.10": "label: coordinator, groups of 10",
    "outsider.labels": "label: outsider",
}
COMPARED = ("income", "digits")


def draw(results: Results, path: Path) -> bool:
    """Draw the picture; tell whether there was anything to draw."""
    if not results.scenes:
        return False
    from matplotlib import rc_context

    buffer = io.BytesIO()
    # Without a date and with a fixed salt the same figures give the same file.
    with rc_context({"svg.hashsalt": "fedora", "svg.fonttype": "path"}):
        picture(results).savefig(buffer, format="svg", metadata={"Date": None})
    write_atomically(path, buffer.getvalue())
    return True


def picture(results: Results) -> "Figure":
    """Return the picture: attacks above, defences below."""
    from matplotlib.figure import Figure

    below = [scene for scene in COMPARED if len(results.defences(scene)) > 1]
    lines = list(dict.fromkeys(name for scene in below for name in results.defences(scene)))
    heights = [0.29 * len(SHOWN) + 1.3, *([0.29 * len(lines) + 1.6] if below else [])]
    canvas = Figure(figsize=(10, sum(heights)), layout="constrained", facecolor="white")
    parts = canvas.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    parts[0].suptitle("What each attack gets without a defence", **HEADING)
    _draw_attacks(parts[0].subplots(), results)
    parts[0].legend(loc="outside lower center", ncols=4, fontsize=FONT, frameon=False)
    if below:
        parts[1].suptitle("What is left behind a defence", **HEADING)
        axes = parts[1].subplots(1, len(below), squeeze=False, sharey=True)[0]
        for axis, scene in zip(axes, below, strict=True):
            _draw_defences(axis, results, scene, lines)
        axes[0].set_yticks(range(len(lines)), lines)
        axes[0].invert_yaxis()  # once: the panels share it
        handles, names = axes[0].get_legend_handles_labels()
        unique = dict(zip(names, handles, strict=True))
        parts[1].legend(unique.values(), unique, loc="outside lower center", ncols=3, fontsize=FONT, frameon=False)
    return canvas


def _draw_attacks(axis: "Axes", results: Results) -> None:
    """Draw a mark per attack and data set: how far it goes from guessing to certainty."""
    keys = [key for key in SHOWN if any(results.figure(scene, NO_DEFENCE, key) for scene in results.scenes)]
    for number, scene in enumerate(results.scenes):
        places, values = [], []
        for place, key in enumerate(keys):
            figure = results.figure(scene, NO_DEFENCE, key)
            if figure is not None and figure.advantage is not None:
                places.append(place + 0.14 * (number - (len(results.scenes) - 1) / 2))
                values.append(_inside(figure.advantage))
        axis.plot(values, places, MARKS[number % 4], color=COLOURS[number % 4], label=scene, markersize=6)
    axis.set_yticks(range(len(keys)), [SHOWN[key] for key in keys])
    axis.invert_yaxis()
    _style(axis, "0\nno better than guessing", "1\nalways right")


def _draw_defences(axis: "Axes", results: Results, scene: str, lines: Sequence[str]) -> None:
    """Draw what is left, behind each defence, of accuracy, of the label leak and of the row leak."""
    plain = results.figure(scene, NO_DEFENCE, "test_accuracy")
    for place, defence in enumerate(lines):
        accuracy = results.figure(scene, defence, "test_accuracy")
        labels = results.best(scene, defence, LABEL_ATTACKS)
        rows = rows_attack(results, scene, defence, often=True)
        if plain and accuracy and plain.advantage and accuracy.advantage is not None:
            kept = _inside(accuracy.advantage / plain.advantage)
            axis.plot(kept, place, "|", color=GREEN, ms=14, mew=3.5, ls="", label="accuracy above guessing")
        if labels and labels[1].advantage is not None:
            leak = _inside(labels[1].advantage)
            axis.plot(leak, place, "s", color=ORANGE, ms=6.5, ls="", label="labels, from gradients")
        if rows:
            axis.plot(_inside(rows.mean), place, "o", color=BLUE, ms=6.5, ls="", label="rows, from embeddings")
    axis.set_title(scene, loc="left", fontsize=FONT + 1, fontweight="bold")
    _style(axis, "0\nnone left", "1\nall left")


def _inside(value: float) -> float:
    """Keep a mark on the panel: what is worse than guessing is no leak."""
    return min(max(value, 0.0), 1.05)


def _style(axis: "Axes", least: str, most: str) -> None:
    axis.set_xlim(-0.05, 1.1)
    axis.set_xticks([0, 0.25, 0.5, 0.75, 1], [least, "0.25", "0.5", "0.75", most])
    axis.tick_params(labelsize=FONT, length=0)
    axis.set_facecolor(SHADE)
    axis.grid(axis="both", color="white", linewidth=1.2)
    axis.set_axisbelow(True)
    for side in axis.spines.values():
        side.set_visible(False)
