"""What an audit of the forgetting has found, on the page of a run."""

from collections.abc import Mapping
from typing import Any

from fedora_vfl.documents.document import Block, Bullets, Drawing, Fold, Grid, Heading, Mood, Notice, Paragraph
from fedora_vfl.documents.drawings import Dot, Scale, scales
from fedora_vfl.run_report.figures import TITLES

MOODS: dict[str, Mood] = {"forgotten": "yes", "remembered": "no", "hidden": "no"}
ROWS = {
    "audit_forget_auc": ("forgotten rows, AUC", "how well a per-row attack with reference models finds them"),
    "audit_forget_vulnerable_auc": (
        "… the most vulnerable, AUC",
        "the same on the tenth of them that is hardest for models that never saw them, against as large a share of "
        "the unseen rows",
    ),
    "audit_forget_lira_auc": ("… by likelihood ratios, AUC", "the same by LiRA's score"),
    "audit_forget_tpr_at_1_fpr": ("… found at 1 % false alarms", "share of forgotten rows that the attack is sure of"),
    "audit_forget_tpr_at_1_fpr_reversed": ("… turned round", "the same for rows that the model is oddly unsure of"),
    "audit_ks_to_retrains": (
        "losses, distance to Retrains",
        "Kolmogorov–Smirnov distance of the losses on forgotten rows, on average; of a Retrain to the others",
    ),
    "audit_remaining_auc": ("rows that stay, AUC", "how well the attack finds rows that nobody asked to forget"),
    "audit_remaining_vulnerable_auc": ("… the most vulnerable, AUC", "the same on the most vulnerable tenth"),
    "audit_remaining_lira_auc": ("… by likelihood ratios, AUC", "the same by LiRA's score"),
    "audit_remaining_tpr_at_1_fpr": ("… found at 1 % false alarms", "share of them that the attack is sure of"),
}
DRAWN = ("audit_forget_auc", "audit_forget_vulnerable_auc", "audit_ks_to_retrains", "audit_remaining_auc")


def audit(result: Mapping[str, Any]) -> list[Block]:
    """Show what the audit found, with its yardstick; nothing where the job asked for none."""
    told = result.get("audit")
    if not told:
        return []
    figures: Mapping[str, Mapping[str, float]] = told["figures"]
    references = told["references"]
    count = references if isinstance(references, int) else len(references)
    models = [name for name in figures if figures[name]]
    known = [name for name in ROWS if any(name in figures[model] for model in models)]
    mood: Mood = "partly" if told["says_little"] else MOODS.get(told["finding"], "partly")
    return [
        Heading(2, "The audit", "audit"),
        Notice(mood, told["verdict"][0], list(told["verdict"][1:])),
        Paragraph(
            f"Made with {_counted(count, 'reference model')} and {_counted(told['retrains'], 'Retrain')}. What models "
            "show of single rows never left the active party; these are rates."
        ),
        *_picture(result, known),
        Fold(
            "Every figure of the audit, for every model",
            [
                Grid(
                    "Attacks on forgotten rows and on rows that stay, against unseen rows of the same classes.",
                    ["", *(TITLES.get(name, name) for name in models)],
                    [[ROWS[name][0], *(_shown(name, figures[model].get(name)) for model in models)] for name in known],
                ),
                Bullets([f"{title}: {means}." for title, means in (ROWS[name] for name in known)]),
            ],
        ),
    ]


def _counted(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    return f"{100 * value:.1f} %" if "tpr" in name else f"{value:.3f}"


def _picture(result: Mapping[str, Any], known: list[str]) -> list[Block]:
    """Draw where the models stand, and how far Retrains reach."""
    figures, rows = result["audit"]["figures"], []
    retrains = [name for name in figures if name.split("-")[0] == "retrain"]
    shown = {"before": "original", "after": "unlearned"}
    for name in known:
        values = {kind: figures[model].get(name) for kind, model in shown.items()}
        if name not in DRAWN or any(value is None for value in values.values()):
            continue
        drawn = [figures[model][name] for model in retrains if name in figures[model]]
        said = ", ".join(f"{kind} {value:.3f}" for kind, value in values.items())
        said += f", Retrain {sum(drawn) / len(drawn):.3f}" if drawn else ", no Retrain"
        dots = [Dot(value, kind) for kind, value in values.items() if value is not None]
        rows.append(Scale(ROWS[name][0], said, 0.0, 1.0, dots, (min(drawn), max(drawn)) if drawn else None))
    if not rows:
        return []
    drawing = scales(
        rows, kinds=list(shown), title="The audit before and after", stretch="as far as Retrains reach: the yardstick"
    )
    return [Drawing(drawing, "Before and after, on lines from 0 to 1; the shaded part is the yardstick.")]
