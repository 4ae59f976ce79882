"""Figures of a run's models, each against Retrain's."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedora_vfl.documents.document import Block, Bullets, Drawing, Fold, Grid, Heading, Paragraph
from fedora_vfl.documents.drawings import Dot, Scale, scales

TITLES = {
    "original": "original",
    "unlearned": "unlearned",
    "retrain": "Retrain",
    "ga": "GA",
    "ico": "ICO",
    "cvfu": "CVFU",
    "fedora": "FedORA",
    "none": "nothing done",
}


@dataclass(frozen=True)
class Figure:
    """One figure of a model, as a reader who knows no abbreviations is told of it."""

    name: str
    title: str
    means: str
    percent: bool = True

    def show(self, value: float | None) -> str:
        """Write a value."""
        if value is None:
            return "–"
        return f"{100 * value:.1f} %" if self.percent else f"{value:.3f}"

    def difference(self, value: float | None) -> str:
        """Write a difference of two values."""
        if value is None:
            return "–"
        return (f"{100 * value:+.1f} points" if self.percent else f"{value:+.3f}").replace("-", "−")


FIGURES = (
    Figure("test_accuracy", "right on test rows", "what the model is for: rows that it never learned from"),
    Figure("forgotten_classes_accuracy", "right on forgotten classes", "test rows of classes that are forgotten whole"),
    Figure("remaining_accuracy", "right on rows that stay", "training rows that nobody asked to forget"),
    Figure("forget_accuracy", "right on forgotten rows", "the rows of the request, by their true classes"),
    Figure(
        "forget_minus_unseen_accuracy",
        "… minus right on unseen rows",
        "forgotten rows against test rows of the same classes: above Retrain's, something is remembered",
    ),
    Figure("backdoor_asr", "backdoor works", "share of test rows with the trigger that are taken for its target"),
    Figure("untriggered_asr", "… without the trigger", "the same share without the trigger: plain mistakes"),
    Figure(
        "mia_asr", "the paper's attack", "how often an attack fitted to the original model is right about membership"
    ),
    Figure(
        "mia_auc",
        "honest attack, AUC",
        "chance that a forgotten row looks more like a member than an unseen one: 0.5 where they cannot be told apart",
        percent=False,
    ),
    Figure(
        "mia_tpr_at_1_fpr", "… found at 1 % false alarms", "share of forgotten rows that the honest attack is sure of"
    ),
    Figure("mia_tpr_at_1_fpr_reversed", "… turned round", "the same for rows that the model is suspiciously unsure of"),
)


def figures(result: Mapping[str, Any]) -> list[Block]:
    """Lay the models side by side."""
    if "unlearned" not in result:
        return _trained(result)
    models = [name for name in ("original", "unlearned", *compared(result)) if name in result]
    known = [one for one in FIGURES if any(result[name].get(one.name) is not None for name in models)]
    gap = result.get("gap") or {}
    several = len(_several(result).get("models") or [])
    titles = TITLES | ({"retrain": f"{several} Retrains"} if several else {})
    header = ["", *(titles.get(name, name) for name in models), *(["unlearned − Retrain"] if gap else [])]
    rows = [
        [
            one.title,
            *(_value(one, name, result) for name in models),
            *([_gap(one, result)] if gap else []),
        ]
        for one in known
    ]
    rows += list(_costs(result, models, gap))
    reference = (
        "Retrain is a model trained anew without the rows: it is what forgetting is measured against, not 0 % and not "
        "50 %. One such model is one draw: with several (`seeds` in `compare`) gaps are given in their standard "
        "deviations (sd) too."
        if gap
        else "No Retrain was asked for (`compare: [retrain]`), so that nothing here says what a model without the rows "
        "would have given: figures of the forgotten rows have no yardstick."
    )
    drawn = _drawn(result, models, known)
    left_out = result["unlearned"].get("left_out") or {}
    return [
        Heading(2, "How the models do", "figures"),
        Paragraph(reference),
        *([Drawing(drawn, "The main figures, each on a line from 0 to 100 % (AUC from 0 to 1).")] if drawn else []),
        Grid("Every figure of every model, and what each model cost to make.", header, rows),
        *([Bullets([f"Not told: {name}; {why}." for name, why in left_out.items()])] if left_out else []),
        Fold("What these figures are", [Bullets([f"{one.title}: {one.means}." for one in known])]),
    ]


def compared(result: Mapping[str, Any]) -> list[str]:
    """Return the methods that a job compares with, by the names of their models in the result."""
    return list(dict.fromkeys(one["method"] for one in result["job"].get("compare") or []))


def _gap(figure: Figure, result: Mapping[str, Any]) -> str:
    """Write a gap to Retrain, in deviations between Retrains too where there are several."""
    said = figure.difference(result["gap"].get(figure.name))
    deviations = ((_several(result).get("deviations") or {}).get("unlearned") or {}).get(figure.name)
    return said if deviations is None else f"{said} ({abs(deviations):.1f} sd)"


def _several(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is told of several Retrains; nothing where there is one, or none."""
    return result.get("retrains") or {}


def _value(figure: Figure, model: str, result: Mapping[str, Any]) -> str:
    """Write a figure of a model; of several Retrains their mean and deviation."""
    spread = (_several(result).get("figures") or {}).get(figure.name)
    if model != "retrain" or not spread:
        return figure.show(result[model].get(figure.name))
    return (
        f"{figure.show(spread['mean'])} ± {100 * spread['deviation']:.1f}"
        if figure.percent
        else (f"{spread['mean']:.3f} ± {spread['deviation']:.3f}")
    )


def _costs(result: Mapping[str, Any], models: Iterable[str], gap: Mapping[str, Any]) -> Iterable[list[str]]:
    names = list(models)
    shares = [f"{gap[one]:.0%} of Retrain's" if one in gap else "–" for one in ("seconds_share", "bytes_share")]
    seconds = [f"{result[name]['seconds']:.1f}" for name in names]
    sent = [f"{result[name]['bytes']['tensor'] / 1e6:,.1f}" for name in names]
    yield ["seconds to make", *seconds, *(shares[:1] if gap else [])]
    yield ["megabytes exchanged", *sent, *(shares[1:] if gap else [])]


def _drawn(result: Mapping[str, Any], models: list[str], known: Iterable[Figure]) -> str | None:
    shown = [name for name in ("original", "retrain", "unlearned") if name in models]
    rows = []
    for one in known:
        spread = (_several(result).get("figures") or {}).get(one.name)
        values = {name: result[name].get(one.name) for name in shown}
        if one.name in _UNDRAWN or any(value is None for value in values.values()):
            continue
        if spread:
            values["retrain"] = spread["mean"]
        said = ", ".join(f"{TITLES[name]} {one.show(value)}" for name, value in values.items() if name != "original")
        dots = [Dot(float(value), TITLES[name]) for name, value in values.items() if value is not None]
        stretch = (spread["mean"] - spread["deviation"], spread["mean"] + spread["deviation"]) if spread else None
        rows.append(Scale(one.title, said, 0.0, 1.0, dots, stretch))
    if not rows:
        return None
    kinds = [TITLES[name] for name in shown]
    return scales(rows, kinds=kinds, title="Figures of the models", stretch="several Retrains: mean ± one deviation")


_UNDRAWN = {"forget_minus_unseen_accuracy", "untriggered_asr", "mia_tpr_at_1_fpr", "mia_tpr_at_1_fpr_reversed"}


def _trained(result: Mapping[str, Any]) -> list[Block]:
    original = result["original"]
    told = {
        "right on test rows": _share(original.get("test_accuracy")),
        "loss on test rows": "not told" if original.get("test_loss") is None else f"{original['test_loss']:.4f}",
        "right on validation rows": _share(original.get("validation_accuracy")),
        "seconds in training": f"{original['seconds']:.1f}",
    }
    rows = [[name, value] for name, value in told.items() if value]
    return [Heading(2, "How the model does", "figures"), Grid("The trained model.", ["", ""], rows)]


def _share(value: float | None) -> str:
    return "not told" if value is None else f"{value:.2%}"
