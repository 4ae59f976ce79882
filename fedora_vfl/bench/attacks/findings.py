"""What the figures come to, in words that are chosen by the figures."""

from collections.abc import Iterator

from fedora_vfl.bench.attacks.catalogue import LABEL_ATTACKS
from fedora_vfl.bench.attacks.defences import DEFENCES
from fedora_vfl.bench.attacks.results import Figure, Results
from fedora_vfl.bench.attacks.tables import NO_DEFENCE, rows_attack

SMALL = 0.25  # an advantage below which a leak counts as mostly closed
DEAR = 0.03  # a loss of accuracy that counts as a price
CLOSE = 0.05  # AUCs that differ by less are alike


def lines(results: Results) -> Iterator[str]:
    """Yield a sentence for every finding that the figures allow."""
    for finding in (_labels, _completion, _rows, _membership, _coordinator, _defences_of_labels, _defences_of_rows):
        if said := finding(results):
            yield said


def _labels(results: Results) -> str:
    found = _over_scenes(results, LABEL_ATTACKS)
    if not found:
        return ""
    first = {scene: results.figure(scene, NO_DEFENCE, "label.direction.first") for scene in found}
    early = [one.mean for one in first.values() if one]
    return (
        f"**Gradients give labels away.** A passive party names {_span([one.mean for one in found.values()])} of the "
        f"training labels (balanced), {_span(early)} after a single epoch with one known label per class. Without noise "
        "on gradients, take it that passive parties know the labels."
    )


def _completion(results: Results) -> str:
    better = [
        (one.mean, raw.mean)
        for scene in results.scenes
        if (one := results.figure(scene, NO_DEFENCE, "label.completion.100"))
        and (raw := results.figure(scene, NO_DEFENCE, "label.own.100"))
    ]
    if not better:
        return ""
    return (
        f"The trained bottom alone, with 100 labels, names {_span([one for one, _ in better])}; the same head on raw "
        f"columns {_span([raw for _, raw in better])}. The difference is what training taught the bottom about labels; no "
        "noise on gradients takes all of it away, as it is also what makes the model useful."
    )


def _rows(results: Results) -> str:
    rows = {scene: rows_attack(results, scene, NO_DEFENCE, often=False) for scene in results.scenes}
    found = [one.mean for one in rows.values() if one]
    if not found:
        return ""
    return (
        f"**Embeddings give rows away.** Of the variance of a passive party's columns the active party recovers "
        f"{_span(found)}, with the bottom or with 200 known rows. An embedding as wide as the row is a copy of it."
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
    verdict = "as after Retrain" if max(gaps) < CLOSE else f"up to {max(gaps):.2f} from Retrain's"
    return (
        f"Membership is a small leak of these models: AUC {min(before):.2f} to {max(before):.2f} at the active party "
        f"before unlearning. After FedORA forgotten rows are told from unseen ones {verdict}."
    )


def _coordinator(results: Results) -> str:
    singles = [one for scene in results.scenes if (one := results.figure(scene, NO_DEFENCE, "coordinator.group.1"))]
    tens = [one for scene in results.scenes if (one := results.figure(scene, NO_DEFENCE, "coordinator.group.10"))]
    if not singles or not tens:
        return ""
    gain = max(one.mean - (one.guess or 0.0) for one in tens)
    return (
        f"A figure about one row is that row: {_span([one.mean for one in singles])} of labels, from accuracies of groups "
        f"of one. In groups of ten at most {100 * gain:.0f} points above the majority are left. Sizes of messages say "
        "nothing of labels."
    )


def _defences_of_labels(results: Results) -> str:
    return _defended("Labels", results, lambda scene, defence: _best_labels(results, scene, defence))


def _defences_of_rows(results: Results) -> str:
    return _defended("Rows", results, lambda scene, defence: rows_attack(results, scene, defence, often=True))


def _best_labels(results: Results, scene: str, defence: str) -> Figure | None:
    best = results.best(scene, defence, LABEL_ATTACKS)
    return best[1] if best else None


def _defended(what: str, results: Results, leak) -> str:  # type: ignore[no-untyped-def]
    """Say which defences close a leak on every data set they were tried on, and what each costs."""
    closed = []
    for defence in DEFENCES:
        tried = [scene for scene in results.scenes if defence.name in results.defences(scene)]
        figures = [leak(scene, defence.name) for scene in tried]
        if not tried or defence.name == NO_DEFENCE or any(one is None for one in figures):
            continue
        if max(one.advantage for one in figures) < SMALL:
            costs = [_cost(results, scene, defence.name) for scene in tried]
            closed.append(f"{defence.name} (accuracy −{100 * max(0.0, min(costs)):.0f} to −{100 * max(costs):.0f} points)")
    if not closed:
        return f"{what}: no defence that was tried brings the leak below {SMALL:.0%} of the way from guessing to certainty on every data set."
    return f"{what}: below {SMALL:.0%} of the way from guessing to certainty, on every data set, only by {', '.join(closed)}."


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
