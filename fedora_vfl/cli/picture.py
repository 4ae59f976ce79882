"""rounds.png: an unlearning round by round, drawn from result.json alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coordinator.methods import UnlearningTask
from coordinator.methods.fedora_settings import Fedora
from coordinator.methods.primal_dual import RECOVERY, REMAINING_PHASE, UNLEARNING, Problem
from coordinator.methods.proof import NAME as CERTIFICATE
from coordinator.methods.self_scaling import COMPARISON
from coordinator.train import Train

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "rounds.png"

# After Okabe and Ito: colours that readers with any kind of colour blindness can tell apart.
BLUE, ORANGE, GREEN, PURPLE, GREY, BLACK = "#0072B2", "#D55E00", "#009E73", "#A0447C", "#666666", "#000000"
PUSH_SHADE, RECOVERY_SHADE = "#F2F2F2", "#DFF2EA"
MODELS = {
    "original": ("original", ":", BLACK),
    "unlearned": ("unlearned", "-", ORANGE),
    "retrain": ("Retrain", "--", GREEN),
}
# The settings that decide what is drawn. The others may be of another release, which had more, or fewer.
DRAWN = ("steps", "goal", "dual", "omega", "reduction", "gamma")
RIGHT = 0.78  # of the width; beside it stand the names of the lines
LEAST_GAP = 0.15  # between two such names, as a share of a panel's height


@dataclass
class Series:
    """One quantity over the rounds."""

    rounds: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, round: int, value: float | None) -> None:
        """Add a round's value, if it has one."""
        if value is not None and math.isfinite(value):
            self.rounds.append(round)
            self.values.append(value)


@dataclass
class Story:
    """What a result has to tell of its rounds."""

    problem: Problem
    push_rounds: int = 0
    rounds: int = 0
    uncertainty: Series = field(default_factory=Series)  # L_u
    final_uncertainty: float | None = None  # over all of D_u, after the last round
    dual: Series = field(default_factory=Series)  # Ω, or its norm
    sigma: Series = field(default_factory=Series)
    tau: Series = field(default_factory=Series)
    accuracy: Series = field(default_factory=Series)
    rolled_back: list[int] = field(default_factory=list)
    unseen_level: float | None = None  # γ, where it was measured
    compared: bool = False  # whether D_u was held against rows never seen after the rounds

    @property
    def scalar(self) -> bool:
        """Whether the dual variable is one number."""
        return self.problem.settings.dual == "scalar"


def draw(result: dict[str, Any], folder: Path) -> str | None:
    """Draw a result's rounds into a folder; return the file's name, or nothing if FedORA ran no round."""
    story = read(result)
    if story is None:
        (folder / NAME).unlink(missing_ok=True)  # of an earlier job, which this one replaces
        return None
    figure = _figure(story, result)
    # Nothing but the drawing: the same result makes the same file.
    figure.savefig(folder / NAME, metadata={"Software": None})
    return NAME


def read(result: dict[str, Any]) -> Story | None:
    """Find the rounds of FedORA in a result."""
    names = {entry["phase"] for entry in result["rounds"]}
    fedora = "unlearned" in result and result["job"]["unlearn"].get("method") == "fedora"
    if not fedora or not names & {UNLEARNING, REMAINING_PHASE, RECOVERY}:
        return None
    story = Story(_problem(result))
    pushes = [entry["round"] for entry in result["rounds"] if entry["phase"] in (UNLEARNING, REMAINING_PHASE)]
    story.push_rounds = max(pushes, default=0)
    for entry in result["rounds"]:
        _add(story, entry)
    if story.rounds > story.push_rounds:
        for round in (story.push_rounds + 1, story.rounds):
            story.dual.add(round, 0.0)  # recovery has no push
    return story


def _problem(result: dict[str, Any]) -> Problem:
    """Return what was asked of the method, as far as it is drawn."""
    unlearn, forget = result["job"]["unlearn"], result["forget"]
    task = UnlearningTask(
        Train(),  # how the model was trained is not drawn
        classes=result["classes"],
        forget=forget["rows"],
        remaining=forget["remaining"],
        seed=0,
    )
    return Problem(Fedora.model_validate({name: unlearn[name] for name in DRAWN if name in unlearn}), task)


def _add(story: Story, entry: dict[str, Any]) -> None:
    """Add what one phase says."""
    phase, round = entry["phase"], entry["round"]
    if phase == RECOVERY:
        round += story.push_rounds
    if phase in (UNLEARNING, REMAINING_PHASE, RECOVERY):
        story.rounds = max(story.rounds, round)
        if entry.get("rolled_back") and round not in story.rolled_back:
            story.rolled_back.append(round)
    if phase == UNLEARNING:
        story.uncertainty.add(round, _uncertainty(story, entry))
        story.dual.add(round, _dual(entry["figures"], scalar=story.scalar))
        story.sigma.add(round, entry["step_size"])
    elif phase in (REMAINING_PHASE, RECOVERY):
        story.tau.add(round, entry["step_size"])
        story.accuracy.add(round, entry["accuracy"])
    elif phase == CERTIFICATE and entry["round"] == 1:
        if not story.compared:
            story.final_uncertainty = _uncertainty(story, entry)
    elif phase == COMPARISON:
        for told in entry["figures"].values():
            if "unseen_level" in told:
                story.compared = story.rounds > 0
                story.unseen_level, story.final_uncertainty = told["unseen_level"], told["forgotten_level"]


def _uncertainty(story: Story, entry: dict[str, Any]) -> float | None:
    """Return L_u of a phase, if the active party told it."""
    return None if entry["loss"] is None else story.problem.loss(entry["loss"])


def _dual(figures: dict[str, dict[str, float]], *, scalar: bool) -> float | None:
    """Return Ω, which is the same at all parties, or the norm over all parties' parts."""
    known = [one for one in figures.values() if "dual_norm" in one]
    if not known:
        return None
    return known[0]["dual_largest"] if scalar else math.sqrt(sum(one["dual_norm"] ** 2 for one in known))


# Drawing


def _figure(story: Story, result: dict[str, Any]) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 11), dpi=100)
    FigureCanvasAgg(figure)
    panels = figure.subplots(4, 1, sharex=True, gridspec_kw={"height_ratios": [1.25, 0.9, 0.9, 1.25]})
    figure.subplots_adjust(left=0.075, right=RIGHT, top=0.865, bottom=0.055, hspace=0.34)
    uncertainty, dual, steps, accuracy = panels
    _head(figure, result)
    for panel in panels:
        _shade(panel, story)
    _draw_uncertainty(uncertainty, story)
    _draw_dual(dual, story)
    _draw_steps(steps, story)
    _draw_accuracy(accuracy, story, result)
    _name_stretches(uncertainty, story)
    accuracy.set_xlabel("round", fontsize=12)
    accuracy.set_xlim(0.5, story.rounds + 0.5)
    accuracy.xaxis.get_major_locator().set_params(integer=True)
    return figure


def _head(figure: "Figure", result: dict[str, Any]) -> None:
    """Say above the panels what was forgotten and how it ended."""
    forget = result["forget"]
    whole = forget["rows"] + forget["remaining"]
    rows = f"{forget['rows']:,} of {whole:,} training rows"
    figure.text(0.02, 0.975, f"Forgetting {rows}, round by round", fontsize=17, fontweight="bold", va="top")
    backdoor = result["unlearned"].get("backdoor_asr") is not None
    told = [_from_to(result, "test_accuracy", "Test accuracy")]
    if backdoor:
        told.append(_from_to(result, "backdoor_asr", "Backdoor success"))
    else:
        told.append(_from_to(result, "forget_accuracy", "Accuracy on the forgotten rows"))
    figure.text(0.02, 0.94, "      ".join(told), fontsize=12.5, va="top")


def _from_to(result: dict[str, Any], figure: str, name: str) -> str:
    before, after = result["original"][figure], result["unlearned"][figure]
    retrain = result.get("retrain", {}).get(figure)
    beside = f" (Retrain {retrain:.1%})" if retrain is not None else ""
    if before is None or after is None:
        return f"{name}: not told."
    return f"{name}: {before:.1%} before, {after:.1%} after{beside}."


def _shade(panel: "Axes", story: Story) -> None:
    """Tell rounds that push from those that recover, and mark the ones that were undone."""
    border = story.push_rounds + 0.5
    panel.axvspan(0.5, border, color=PUSH_SHADE, zorder=0)
    panel.axvspan(border, story.rounds + 0.5, color=RECOVERY_SHADE, zorder=0)
    for round in story.rolled_back:
        panel.axvspan(round - 0.5, round + 0.5, facecolor="none", edgecolor=PURPLE, hatch="////", alpha=0.6, zorder=1)
    panel.grid(axis="y", color="white", linewidth=1.2)
    panel.set_axisbelow(True)
    panel.tick_params(labelsize=11)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def _name_stretches(panel: "Axes", story: Story) -> None:
    """Name the shaded stretches above the first panel."""
    recoveries = story.rounds - story.push_rounds
    stretches = [
        (story.push_rounds / 2 + 0.5, story.push_rounds, f"rounds that forget: {story.push_rounds}", GREY),
        (story.push_rounds + recoveries / 2 + 0.5, recoveries, f"recovery: {recoveries}", GREEN),
    ]
    place = panel.get_xaxis_transform()
    for middle, count, name, colour in stretches:
        if count:
            panel.text(middle, 1.17, name, transform=place, color=colour, ha="center", fontsize=12, fontweight="bold")
    if story.rolled_back:
        undone = f"hatched: taken back ({len(story.rolled_back)})"
        panel.text(1.012, 1.17, undone, transform=panel.transAxes, color=PURPLE, fontsize=11)


def _draw_uncertainty(panel: "Axes", story: Story) -> None:
    if story.problem.settings.steps == "auto" and story.problem.settings.goal == "as-retrained":
        _draw_loss(panel, story)
        return
    line, problem = story.uncertainty, story.problem
    _title(panel, "How unsure the model is of the rows to forget:  uncertainty loss $L_u$")
    panel.plot(line.rounds, line.values, "o-", color=BLUE, markersize=3.5)
    panel.axhline(problem.level, color=ORANGE, linestyle="--", linewidth=1.8)
    panel.set_ylim(-1.12 * problem.largest, 1.12 * problem.largest)
    named = [(problem.level, _level_name(story), ORANGE), (-problem.largest, "lowest: wholly certain", GREY)]
    if line.values and story.final_uncertainty is not None:
        panel.plot(
            [line.rounds[-1], story.rounds], [line.values[-1], story.final_uncertainty], ":", color=BLUE, linewidth=1.5
        )
        panel.plot([story.rounds], [story.final_uncertainty], "D", color=BLUE, clip_on=False)
        after = "after recovery" if story.rounds > story.push_rounds else "at the end"
        named.append((story.final_uncertainty, f"{after}: {story.final_uncertainty:.3g}".replace("-", "−"), BLUE))
    _name_lines(panel, named)


def _draw_loss(panel: "Axes", story: Story) -> None:
    line = story.uncertainty
    _title(panel, "How little the model expects the labels of the rows to forget:  loss $L_u$, cut off at its ceiling")
    panel.plot(line.rounds, line.values, "o-", color=BLUE, markersize=3.5)
    named = []
    if story.unseen_level is not None:
        panel.axhline(story.unseen_level, color=ORANGE, linestyle="--", linewidth=1.8)
        named.append((story.unseen_level, f"rows never seen: γ = {story.unseen_level:.3g}", ORANGE))
    if story.final_uncertainty is not None and story.compared:
        panel.plot([story.rounds], [story.final_uncertainty], "D", color=BLUE, clip_on=False)
        named.append((story.final_uncertainty, f"after recovery: {story.final_uncertainty:.3g}", BLUE))
    panel.set_ylim(0, 1.12 * max([*line.values, *(value for value, *_ in named), 0.1]))
    _name_lines(panel, named)


def _level_name(story: Story) -> str:
    name = "to be reached: γ" if story.scalar else "to be reached"
    return f"{name} = {story.problem.level:.3g}"


def _draw_dual(panel: "Axes", story: Story) -> None:
    words = "How hard the model is pushed to forget:  dual variable Ω"
    _title(panel, words if story.scalar else "Dual variable:  norm of Ω over all parties")
    panel.plot(story.dual.rounds, story.dual.values, drawstyle="steps-mid", color=BLUE)
    panel.fill_between(story.dual.rounds, story.dual.values, step="mid", color=BLUE, alpha=0.25, linewidth=0)
    panel.set_ylim(bottom=0, top=1.12 * max(story.dual.values, default=1.0) or 1.0)
    if story.scalar and story.dual.values:
        _name_lines(panel, [(0.0, "0: no push", GREY), (max(story.dual.values), "largest push", BLUE)])


def _draw_steps(panel: "Axes", story: Story) -> None:
    _title(panel, "How large the steps are (a scale of powers of ten)")
    named = []
    steps = ((story.tau, "τ, of the model", BLUE, "-"), (story.sigma, "σ, of Ω", ORANGE, "--"))
    for line, name, colour, style in steps:
        if line.values:
            panel.semilogy(line.rounds, line.values, style, color=colour, linewidth=2)
            named.append((line.values[-1], name, colour))
    values = [value for line, *_ in steps for value in line.values if value > 0]
    if values:
        low, high = (math.log10(one) for one in (min(values), max(values)))
        panel.set_ylim(10 ** math.floor(low - 0.01), 10 ** math.ceil(high + 0.01))
        panel.minorticks_off()
    _name_lines(panel, named)


def _draw_accuracy(panel: "Axes", story: Story, result: dict[str, Any]) -> None:
    _title(panel, "What the model still can do:  accuracy on the remaining rows drawn in each round")
    panel.plot(story.accuracy.rounds, story.accuracy.values, "o-", color=BLUE, markersize=3.5)
    named = []
    for model, (name, style, colour) in MODELS.items():
        if result.get(model, {}).get("test_accuracy") is not None:
            value = result[model]["test_accuracy"]
            panel.axhline(value, linestyle=style, color=colour, linewidth=1.8)
            named.append((value, f"test, {name}: {value:.1%}", colour))
    panel.locator_params(axis="y", nbins=5, steps=[1, 2, 5, 10])
    panel.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
    shown = [*story.accuracy.values, *(value for value, _, _ in named)] or [0.0, 1.0]
    room = 0.12 * (max(shown) - min(shown)) or 0.01
    panel.set_ylim(min(shown) - room, max(shown) + room)
    _name_lines(panel, named)


def _title(panel: "Axes", words: str) -> None:
    panel.set_title(words, loc="left", fontsize=12.5, pad=6)


def _name_lines(panel: "Axes", named: Sequence[tuple[float, str, str]]) -> None:
    """Write each line's name beside its end, moved apart where lines lie close."""
    heights = [float(panel.transAxes.inverted().transform(panel.transData.transform((1, one[0])))[1]) for one in named]
    places = spread(heights, least=LEAST_GAP)
    for (_, name, colour), place in zip(named, places, strict=True):
        panel.text(1.012, place, name, transform=panel.transAxes, color=colour, fontsize=12, va="center")


def spread(heights: Sequence[float], *, least: float) -> list[float]:
    """Move heights apart until they differ by at least so much, in the same order, about the same middle."""
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    placed = list(heights)
    groups: list[list[int]] = []
    for index in order:
        groups.append([index])
        while True:
            group = groups[-1]
            middle = sum(heights[one] for one in group) / len(group)
            for position, one in enumerate(group):
                placed[one] = middle + (position - (len(group) - 1) / 2) * least
            # Two groups that have come to touch are moved as one.
            if len(groups) > 1 and placed[groups[-1][0]] - placed[groups[-2][-1]] < least - 1e-9:
                groups[-2:] = [groups[-2] + groups[-1]]
            else:
                break
    return placed
