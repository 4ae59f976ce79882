"""What an audit has found, in one word and a few sentences: never more than its yardstick allows."""

from collections.abc import Iterator, Mapping
from typing import Any

from fedora_vfl.verdicts.forgetting import (
    ASK,
    AUC_MARGIN,
    ENOUGH_ROWS,
    Figures,
    Yardstick,
    apart,
    doubtful,
    in_deviations,
)
from fedora_vfl.verdicts.retrains import names

# Figures that say how well forgotten rows are found among unseen ones, and what sentences call the attack.
ATTACKS = {
    "audit_forget_auc": "on all forgotten rows",
    "audit_forget_vulnerable_auc": "on the most vulnerable of them",
    "audit_forget_lira_auc": "by likelihood ratios",
}
HARDEST = "audit_forget_vulnerable_auc"
MARGINS = dict.fromkeys(ATTACKS, AUC_MARGIN) | {HARDEST: 0.15}  # of a tenth of the rows chance makes more
LOSSES = "audit_ks_to_retrains"
WHOLE = "forgotten_classes_accuracy"  # attacks do not see who knows a class: of its unseen rows it knows as much
STAYING = ("audit_remaining_auc", "audit_remaining_vulnerable_auc")

WORDS = {
    "forgotten": "Nothing of the forgotten rows was found that a Retrain would not show.",
    "remembered": "The model still remembers forgotten rows: attacks find them more easily than after a Retrain.",
    "hidden": "The model hides the rows and has not forgotten them as a Retrain would: it is less sure of them than a "
    "model that never saw them, and that gives them away.",
    "class known": "The model still remembers the classes that were to be forgotten whole: it recognises test rows of "
    "them, as no Retrain does.",
    "different": "Attacks do not find the forgotten rows, but the model's losses on them are spread otherwise than "
    "those of Retrains.",
    "no power": "The attacks found nothing before the forgetting either, so that finding nothing now says little.",
    "unclear": "Nobody can say: what attacks found is outside what Retrains here show, but these differ so much "
    "among each other that it may be chance; more Retrains would tell.",
    "no yardstick": "Nobody can say: no Retrain was made, and without one there is no yardstick. Chance, 0.5, is none: "
    f"rows to forget may be easier or harder than others; {ASK}.",
    "not measured": "Nothing was measured of the forgotten rows.",
}


def audited(measured: dict[str, Figures], *, references: int | list[str], rows: int, poisoned: bool) -> dict[str, Any]:
    """Return what result.json says of an audit."""
    retrains = names(measured)
    found = finding(measured)
    figures = {
        model: {name: value for name, value in one.items() if name.startswith("audit_") and value is not None}
        for model, one in measured.items()
    }
    first = "class known" if found == "remembered" and _knows_classes(measured, "unlearned") else found
    sentences = [WORDS[first], *_details(measured), *_staying(measured)]
    says_little = rows < ENOUGH_ROWS and found not in ("no yardstick", "not measured")
    if says_little:
        sentences.insert(1, f"With {rows} forgotten {'row' if rows == 1 else 'rows'} all this says little.")
    if poisoned:
        sentences[0] = (
            "Nothing was measured: the labels of the rows to forget were changed for a backdoor, so that they differ "
            "from all others whether they are remembered or not."
        )
    return {
        "finding": found,
        "verdict": sentences,
        "says_little": says_little,  # as the second sentence says: the first is not to be read without it
        "references": references,
        "retrains": len(retrains),
        "figures": figures,
    }


def finding(measured: dict[str, Figures]) -> str:
    """Return what was found of the forgotten rows, in a word of WORDS."""
    unlearned, original, yardstick = measured["unlearned"], measured["original"], Yardstick.of(measured)
    known = [name for name in (*ATTACKS, LOSSES) if unlearned.get(name) is not None]
    if not names(measured):
        return "no yardstick" if known else "not measured"
    attacks = {name: (unlearned[name], fair) for name in ATTACKS if name in known and (fair := yardstick.get(name))}
    if not attacks and LOSSES not in known:
        return "not measured"
    if _knows_classes(measured, "unlearned"):
        return "remembered"
    found = {name: value - fair.mean for name, (value, fair) in attacks.items() if apart(value, fair, MARGINS[name])}
    unsure = _unsure(unlearned, yardstick)
    if unsure and found.get(HARDEST, 0.0) > 0:
        # Models without the hardest rows are sure and wrong about them: output that says nothing looks like memory.
        del found[HARDEST]
    if found:
        return _direction(found)
    doubts = {
        name: value - fair.mean for name, (value, fair) in attacks.items() if doubtful(value, fair, MARGINS[name])
    }
    hardest = doubts.pop(HARDEST, 0.0)  # so few rows that they only count against the model, and for no direction
    unlike = _unlike(unlearned, yardstick)
    if unlike:
        # Attacks that are beyond every Retrain, but might be so by chance, then say in which way.
        return "hidden" if unsure else _direction(doubts) if doubts else "different"
    before = {name: (original.get(name) or 0.0, fair) for name, (_, fair) in attacks.items()}
    above = [(value, fair, MARGINS[name]) for name, (value, fair) in before.items() if value > fair.mean]
    if _knows_classes(measured, "original") or any(apart(*one) for one in above):
        return "unclear" if doubts or hardest > 0 or unlike is None else "forgotten"
    return "unclear" if any(doubtful(*one) for one in above) else "no power"


def _knows_classes(measured: dict[str, Figures], model: str) -> bool:
    """Tell whether a model recognises classes that are forgotten whole, more than a Retrain does."""
    right, fair = measured[model].get(WHOLE), Yardstick.of(measured).get(WHOLE)
    return bool(right is not None and fair and right > fair.mean and apart(right, fair))


def _direction(gaps: Mapping[str, float]) -> str:
    """Return what attacks come to that are some above Retrains and some below: the one furthest away decides."""
    return "remembered" if max(gaps.values(), key=abs) > 0 else "hidden"


def _unlike(unlearned: Figures, yardstick: Yardstick) -> bool | None:
    """Tell whether losses are further from Retrains' than Retrains are from each other; None where nobody can.

    Two Retrains have one distance between them, which both have: that it does not vary says nothing.
    """
    value, fair = unlearned.get(LOSSES), yardstick.get(LOSSES)
    if value is None or fair is None or value <= fair.most or value - fair.mean <= AUC_MARGIN:
        return False
    return apart(value, fair) if fair.count > 2 else None


def _unsure(unlearned: Figures, yardstick: Yardstick) -> bool:
    """Tell whether predictions of forgotten rows are nearer to uniform than those of any Retrain, by more than chance.

    Of two classes a uniform prediction is no sign of membership to an attack, as unseen rows have it too.
    """
    entropy, fair = unlearned.get("forget_entropy"), yardstick.get("forget_entropy")
    return bool(entropy is not None and fair and entropy > fair.most and fair.beyond(entropy) is not False)


def _details(measured: dict[str, Figures]) -> Iterator[str]:
    """Say what stands behind the finding."""
    unlearned, original, yardstick = measured["unlearned"], measured["original"], Yardstick.of(measured)
    for name, where in ATTACKS.items():
        if unlearned.get(name) is None or original.get(name) is None:
            continue
        fair = yardstick.get(name)
        beside = f", {yardstick.name} {fair.mean:.3f}{in_deviations(unlearned[name], fair)}" if fair else ""
        yield f"Attack {where}: AUC {original[name]:.3f} before, {unlearned[name]:.3f} after{beside}."
    if unlearned.get(WHOLE) is not None and original.get(WHOLE) is not None:
        fair = yardstick.get(WHOLE)
        beside = f", {yardstick.name} {fair.mean:.1%}" if fair else ""
        told = f"{original[WHOLE]:.1%} before, {unlearned[WHOLE]:.1%} after{beside}"
        yield f"Right on test rows of the forgotten classes: {told}."
    losses = unlearned.get(LOSSES)
    if losses is None:
        return
    between = yardstick.get(LOSSES)
    if between is None:
        beside = "; with a single Retrain nobody knows how far two are from each other"
    elif between.count == 2:
        beside = f"; the two Retrains are {between.mean:.3f} from each other, and nobody knows how much that varies"
    else:
        beside = f"; Retrains are {between.mean:.3f} from each other, {between.most:.3f} at most"
    yield f"Losses of the forgotten rows are {losses:.3f} from Retrain's (Kolmogorov–Smirnov distance){beside}."


def _staying(measured: dict[str, Figures]) -> Iterator[str]:
    """Say whether the forgetting has exposed rows that stay."""
    unlearned, original = measured["unlearned"], measured["original"]
    known = [name for name in STAYING if unlearned.get(name) is not None and original.get(name) is not None]
    if not known:
        return
    worst = max(known, key=lambda name: float(unlearned[name] - original[name]))
    exposed = unlearned[worst] > original[worst] + AUC_MARGIN
    found = "Rows that stay are easier to find than before" if exposed else "Rows that stay are no easier to find"
    which = " (the most vulnerable of them)" if "vulnerable" in worst else ""
    fair = Yardstick.of(measured).get(worst)
    beside = f", Retrain {fair.mean:.3f}" if fair else ""
    yield f"{found}{which}: AUC {original[worst]:.3f} before, {unlearned[worst]:.3f} after{beside}."
