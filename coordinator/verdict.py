"""What the figures of an unlearning mean, in plain sentences."""

from collections.abc import Iterator
from typing import Any

AUC_MARGIN = 0.05  # an attack this close to its reference is no better than it
ACCURACY_MARGIN = 0.02
BACKDOOR_LIMIT = 0.05


def verdict(measured: dict[str, dict[str, Any]], *, uncertain: bool, rows: int, moved: float | None) -> list[str]:
    """Return what a reader should know of the unlearned model, what went well first."""
    unlearned, original, retrain = measured["unlearned"], measured["original"], measured.get("retrain")
    return [
        *(["Nothing was changed: the model met the constraint before the first round."] if moved == 0 else []),
        *_accuracy(unlearned, retrain or original, "retraining" if retrain else "before"),
        *_membership(unlearned, original, retrain, uncertain=uncertain, rows=rows),
        *_backdoor(unlearned, original, retrain),
    ]


def _accuracy(unlearned: dict[str, Any], reference: dict[str, Any], than: str) -> Iterator[str]:
    if unlearned["test_accuracy"] is None or reference["test_accuracy"] is None:
        return
    difference = unlearned["test_accuracy"] - reference["test_accuracy"]
    points = f"{abs(100 * difference):.1f} points"
    if difference < -ACCURACY_MARGIN:
        yield f"Forgetting cost accuracy: test accuracy is {points} below {_reference(than)}."
    else:
        said = f"{points} {'above' if difference >= 0 else 'below'}"
        yield f"The model kept its accuracy: test accuracy is {said} {_reference(than)}."


def _reference(than: str) -> str:
    return "Retrain's" if than == "retraining" else "the original's"


def _membership(
    unlearned: dict[str, Any], original: dict[str, Any], retrain: dict[str, Any] | None, *, uncertain: bool, rows: int
) -> Iterator[str]:
    """Say whether the forgotten rows can still be told from rows that were never seen."""
    if unlearned.get("mia_auc") is None or unlearned.get("backdoor_asr") is not None:
        return  # poisoned rows differ from all others whether they are remembered or not
    if original.get("mia_auc") is None or (retrain and retrain.get("mia_auc") is None):
        return
    auc, fair = unlearned["mia_auc"], retrain["mia_auc"] if retrain else 0.5
    told = f"the honest attack has AUC {auc:.3f}, {'Retrain' if retrain else 'chance'} {fair:.3f}"
    if rows < 30:
        yield f"With {rows} forgotten {'row' if rows == 1 else 'rows'} the attack figures say little: {told}."
    elif auc > fair + AUC_MARGIN:
        yield f"Something is remembered: forgotten rows can still be told from rows never seen ({told})."
    elif auc < fair - AUC_MARGIN:
        asked = "as the goal `uncertain` asks" if uncertain else "which the goal `as-retrained` should avoid"
        yield (
            f"Over-forgetting, {asked}: the model is less sure of the forgotten rows than of rows it never saw, and "
            f"that gives them away ({told})."
        )
    else:
        yield f"Forgotten rows look like rows never seen: {told}; the original {original['mia_auc']:.3f}."


def _backdoor(unlearned: dict[str, Any], original: dict[str, Any], retrain: dict[str, Any] | None) -> Iterator[str]:
    """Say whether the trigger still works."""
    known = [(unlearned, "backdoor_asr"), (unlearned, "untriggered_asr"), (original, "backdoor_asr")]
    if any(figures.get(name) is None for figures, name in known):
        return
    if retrain and retrain.get("backdoor_asr") is None:
        retrain = None
    now, before = unlearned["backdoor_asr"], original["backdoor_asr"]
    plain = unlearned["untriggered_asr"]
    beside = f", with Retrain it is {retrain['backdoor_asr']:.1%}" if retrain else ""
    told = f"{now:.1%} of triggered test rows are taken for its target, {plain:.1%} without the trigger"
    if now <= (retrain["backdoor_asr"] if retrain else 0.0) + BACKDOOR_LIMIT:
        found = "The backdoor is gone"
    elif now <= plain + ACCURACY_MARGIN:
        # Some rows of other classes are taken for the target without any trigger.
        found = "The trigger has next to no effect any more"
    else:
        found = "The backdoor is weaker, but still there" if now < before / 2 else "The backdoor is still there"
    yield f"{found}: {told}; before it was {before:.1%}{beside}."
