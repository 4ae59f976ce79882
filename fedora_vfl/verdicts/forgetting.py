"""What the figures of an unlearning mean, in plain sentences."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fedora_vfl.verdicts.retrains import Spread, names, spreads

AUC_MARGIN = 0.05  # an attack this close to its reference is no better than it
ACCURACY_MARGIN = 0.02
ENOUGH_ROWS = 30  # forgotten, from which on attack figures say something
BACKDOOR_LIMIT = 0.05
ASK = "`compare: [{method: retrain, seeds: 3}]` asks for one"

Figures = dict[str, Any]


@dataclass(frozen=True)
class Yardstick:
    """What a model without the rows gives: the Retrains of the job, one draw each. Without any there is none."""

    known: dict[str, Spread]

    @classmethod
    def of(cls, measured: dict[str, Figures]) -> "Yardstick":
        """Return the yardstick that a job's models give."""
        figures = {name: measured[name] for name in names(measured)}
        return cls(spreads({name: _numbers(one) for name, one in figures.items()}))

    def get(self, figure: str) -> Spread | None:
        """Return what Retrains make of a figure, if all have it."""
        return self.known.get(figure)

    @property
    def name(self) -> str:
        """What sentences call it."""
        count = next((one.count for one in self.known.values()), 0)
        return "Retrain" if count < 2 else f"the mean of {count} Retrains"


def apart(value: float, fair: Spread, margin: float = AUC_MARGIN) -> bool:
    """Tell whether a value is further from Retrains than matters and, of several, than one more would be."""
    return abs(value - fair.mean) > margin and fair.beyond(value) is not False


def doubtful(value: float, fair: Spread, margin: float = AUC_MARGIN) -> bool:
    """Tell whether a value is further from Retrains than matters and outside of all, and may yet be so by chance.

    That it may be chance is no evidence that the rows are forgotten.
    """
    outside = not fair.least <= value <= fair.most
    return outside and abs(value - fair.mean) > margin and fair.beyond(value) is False


def in_deviations(value: float, fair: Spread) -> str:
    """Say how far a value is from several Retrains in their own deviations, and what that means; nothing of one."""
    if fair.count < 2:
        return ""
    away = fair.deviations(value)
    if away is None:
        return "; the Retrains do not differ in it"
    meaning = "more than one more Retrain would be" if fair.beyond(value) else "no more than one more Retrain may be"
    return f"; {abs(away):.1f} standard deviations away, {meaning}"


def verdict(measured: dict[str, Figures], *, uncertain: bool, rows: int, moved: float | None) -> list[str]:
    """Return what a reader should know of the unlearned model, what went well first."""
    unlearned, original, yardstick = measured["unlearned"], measured["original"], Yardstick.of(measured)
    return [
        *(["Nothing was changed: the model is the original one."] if moved == 0 else []),
        *_accuracy(unlearned, original, yardstick),
        *_membership(unlearned, original, yardstick, uncertain=uncertain, rows=rows),
        *_backdoor(unlearned, original, yardstick),
    ]


def _accuracy(unlearned: Figures, original: Figures, yardstick: Yardstick) -> Iterator[str]:
    fair = yardstick.get("test_accuracy")
    now, reference = unlearned["test_accuracy"], fair.mean if fair else original["test_accuracy"]
    if now is None or reference is None:
        return
    difference, whose = now - reference, "the original's"
    if fair:
        whose = "Retrain's" if fair.count < 2 else f"{yardstick.name}{in_deviations(now, fair)}"
    points = f"{abs(100 * difference):.1f} points"
    if difference >= -ACCURACY_MARGIN:
        said = f"{points} {'above' if difference >= 0 else 'below'}"
        yield f"The model kept its accuracy: test accuracy is {said} {whose}."
    elif fair and fair.beyond(now) is False:
        yield f"Whether forgetting cost accuracy is unclear: test accuracy is {points} below {whose}."
    else:
        yield f"Forgetting cost accuracy: test accuracy is {points} below {whose}."


def _membership(
    unlearned: Figures, original: Figures, yardstick: Yardstick, *, uncertain: bool, rows: int
) -> Iterator[str]:
    """Say whether the forgotten rows can still be told from rows that were never seen."""
    auc, before, fair = unlearned.get("mia_auc"), original.get("mia_auc"), yardstick.get("mia_auc")
    if auc is None or before is None or unlearned.get("backdoor_asr") is not None:
        return  # poisoned rows differ from all others whether they are remembered or not
    beside = _beside_unseen(unlearned, yardstick)
    if fair is None:
        told = f"the honest attack has AUC {auc:.3f}, the original {before:.3f}{beside}"
        yield f"Whether the rows are forgotten has no yardstick without a Retrain ({told}); {ASK}."
        return
    told = f"the honest attack has AUC {auc:.3f}, {yardstick.name} {fair.mean:.3f}{in_deviations(auc, fair)}{beside}"
    if rows < ENOUGH_ROWS:
        yield f"With {rows} forgotten {'row' if rows == 1 else 'rows'} the attack figures say little: {told}."
    elif doubtful(auc, fair):
        yield f"Whether the rows are forgotten is unclear, more Retrains would tell: {told}; the original {before:.3f}."
    elif apart(auc, fair) and auc > fair.mean:
        yield f"Something is remembered: forgotten rows can still be told from rows never seen ({told})."
    elif apart(auc, fair):
        asked = "as the goal `uncertain` asks" if uncertain else "which the goal `as-retrained` should avoid"
        yield (
            f"Over-forgetting, {asked}: the model is less sure of the forgotten rows than of rows it never saw, and "
            f"that gives them away ({told})."
        )
    else:
        yield f"Forgotten rows look like rows never seen: {told}; the original {before:.3f}."


def _beside_unseen(unlearned: Figures, yardstick: Yardstick) -> str:
    """Say how much more often the model is right about forgotten rows than about unseen ones."""
    now, fair = unlearned.get("forget_minus_unseen_accuracy"), yardstick.get("forget_minus_unseen_accuracy")
    if now is None:
        return ""
    retrain = f", Retrain {_points(fair.mean)}" if fair else ""
    return f"; right on forgotten minus unseen rows {_points(now)}{retrain}"


def _points(difference: float) -> str:
    return f"{round(100 * difference, 1) + 0.0:+.1f} points"


def _backdoor(unlearned: Figures, original: Figures, yardstick: Yardstick) -> Iterator[str]:
    """Say whether the trigger still works."""
    known = [(unlearned, "backdoor_asr"), (unlearned, "untriggered_asr"), (original, "backdoor_asr")]
    if any(figures.get(name) is None for figures, name in known):
        return
    now, before, fair = unlearned["backdoor_asr"], original["backdoor_asr"], yardstick.get("backdoor_asr")
    plain = unlearned["untriggered_asr"]
    whose = "Retrain" if fair and fair.count < 2 else yardstick.name
    beside = f", with {whose} it is {fair.mean:.1%}" if fair else ""
    told = f"{now:.1%} of triggered test rows are taken for its target, {plain:.1%} without the trigger"
    if now <= (fair.mean if fair else 0.0) + BACKDOOR_LIMIT:
        found = "The backdoor is gone"
    elif now <= plain + ACCURACY_MARGIN:
        # Some rows of other classes are taken for the target without any trigger.
        found = "The trigger has next to no effect any more"
    else:
        found = "The backdoor is weaker, but still there" if now < before / 2 else "The backdoor is still there"
    yield f"{found}: {told}; before it was {before:.1%}{beside}."


def _numbers(figures: Figures) -> dict[str, float | None]:
    """Return the figures of a model without what else is told of it."""
    return {name: value for name, value in figures.items() if isinstance(value, float) or value is None}
