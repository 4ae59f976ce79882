"""What the figures come to, in words that are chosen by the figures."""

from collections.abc import Callable, Iterator

from fedora_vfl.bench.attacks.catalogue import LABEL_ATTACKS
from fedora_vfl.bench.attacks.defences import DEFENCES
from fedora_vfl.bench.attacks.results import Figure, Results
from fedora_vfl.bench.attacks.tables import NO_DEFENCE, rows_attack

SMALL = 0.25  # an advantage below which a leak counts as mostly closed


def lines(results: Results) -> Iterator[str]:
    """Yield a sentence for every finding that the figures allow."""
    for finding in (_labels, _completion, _rows, _membership, _coordinator, _defences_of_labels, _defences_of_rows):
        if said := finding(results):
            yield said


def _labels(results: Results) -> str:
    found = _over_scenes(results, LABEL_ATTACKS)
    if not found:
        return ""
    first = (results.figure(scene, NO_DEFENCE, "label.direction.first") for scene in found)
    early = [one.mean for one in first if one]
    return (
        f"**Gradients give labels away.** A passive party names {_span([one.mean for one in found.values()])} of the "
        f"training labels (balanced accuracy); {_span(early)} after one epoch, with one known label per class. Unless "
        "gradients are defended, take it that passive parties know the labels."
    )


def _completion(results: Results) -> str:
    pairs = [
        (one.mean, raw.mean)
        for scene in results.scenes
        if (one := results.figure(scene, NO_DEFENCE, "label.completion.100"))
        and (raw := results.figure(scene, NO_DEFENCE, "label.own.100"))
    ]
    if not pairs:
        return ""
    return (
        f"A trained bottom and 100 labels, without any gradient, name {_span([one for one, _ in pairs])} of the "
        f"others; raw columns and the same labels {_span([raw for _, raw in pairs])}. The difference is what training "
        "has taught the bottom about labels, and what makes the model useful."
    )


def _rows(results: Results) -> str:
    found = [one.mean for scene in results.scenes if (one := rows_attack(results, scene, NO_DEFENCE, often=False))]
    if not found:
        return ""
    return (
        "**Embeddings give rows away.** The active party recovers "
        f"{_span(found)} of the variance of a passive party's columns, with its bottom or with 200 of its rows at hand."
    )


def _membership(results: Results) -> str:
    gaps, before = [], []
    for scene in results.scenes:
        original, after, mark = (
            results.figure(scene, NO_DEFENCE, f"membership.active.{model}.gone")
            for model in ("original", "unlearned", "retrain")
        )
        if original and after and mark:
            gaps.append(abs(after.mean - mark.mean))
            before.append(original.mean)
    if not gaps:
        return ""
    return (
        f"Membership leaks little from these models: before unlearning the active party's AUC is {min(before):.2f} to "
        f"{max(before):.2f}. After FedORA the AUC of forgotten rows is at most {max(gaps):.2f} from Retrain's."
    )


def _coordinator(results: Results) -> str:
    singles = [one for scene in results.scenes if (one := results.figure(scene, NO_DEFENCE, "coordinator.group.1"))]
    tens = [one for scene in results.scenes if (one := results.figure(scene, NO_DEFENCE, "coordinator.group.10"))]
    if not singles or not tens:
        return ""
    gain = max(one.mean - (one.guess or 0.0) for one in tens)
    return (
        "**A figure about one row is that row.** From accuracies of groups of one the coordinator can say of "
        f"{_span([one.mean for one in singles])} of the rows whether they are of a class; from groups of ten at most "
        f"{100 * gain:.1f} points more than by naming the majority. Sizes of messages tell an outsider how many rows "
        "there are, and nothing of labels."
    )


def _defences_of_labels(results: Results) -> str:
    return _defended("the label leak of gradients", results, lambda *place: _best_labels(results, *place))


def _defences_of_rows(results: Results) -> str:
    return _defended("the row leak of embeddings", results, lambda *place: rows_attack(results, *place, often=True))


def _best_labels(results: Results, scene: str, defence: str) -> Figure | None:
    best = results.best(scene, defence, LABEL_ATTACKS)
    return best[1] if best else None


def _defended(leak: str, results: Results, measured: Callable[[str, str], Figure | None]) -> str:
    """Say which defences close a leak on every data set they were tried on, and what each costs."""
    closed = []
    for defence in (one.name for one in DEFENCES if one.name != NO_DEFENCE):
        tried = [scene for scene in results.scenes if defence in results.defences(scene)]
        left = [one.advantage for scene in tried if (one := measured(scene, defence)) and one.advantage is not None]
        if tried and len(left) == len(tried) and max(left) < SMALL:
            costs = [100 * _cost(results, scene, defence) for scene in tried]
            closed.append(f"{defence} (accuracy {_points(-max(costs))} to {_points(-min(costs))} points)")
    where = f"below {SMALL:.0%} of the way from guessing to certainty, on every data set it was tried on"
    if not closed:
        return f"No defence that was tried brings {leak} {where}."
    return f"What brings {leak} {where}: {', '.join(closed)}."


def _points(value: float) -> str:
    return f"{value:+.0f}".replace("-", "−").replace("−0", "0").replace("+0", "0")


def _cost(results: Results, scene: str, defence: str) -> float:
    """Return how much accuracy a defence takes."""
    plain, left = (results.figure(scene, one, "test_accuracy") for one in (NO_DEFENCE, defence))
    return plain.mean - left.mean if plain and left else 0.0


def _over_scenes(results: Results, names: tuple[str, ...]) -> dict[str, Figure]:
    """Return the strongest of some attacks on each data set."""
    best = {scene: results.best(scene, NO_DEFENCE, names) for scene in results.scenes}
    return {scene: one[1] for scene, one in best.items() if one}


def _span(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.0%}" if f"{low:.0%}" == f"{high:.0%}" else f"{low:.0%} to {high:.0%}"
