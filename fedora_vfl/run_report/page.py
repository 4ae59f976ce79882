"""A run as one document: what was asked, how it went, figures, bytes, certificate."""

from collections.abc import Mapping
from typing import Any

from fedora_vfl.documents.document import Block, Bullets, Document, Fold, Grid, Heading, Notice, Paragraph, Photo
from fedora_vfl.run_report.audit import audit
from fedora_vfl.run_report.certificate import Verified, certificate, notice
from fedora_vfl.run_report.figures import TITLES, compared, figures
from fedora_vfl.run_report.traffic import traffic
from fedora_vfl.run_report.words import with_own_words

# Phases that measure and change nothing.
LOOKS = {"test", "validation", "forgotten", "members", "probe"}
LOOKS |= {"audit-test", "audit-forgotten", "audit-members"}


def compose(result: Mapping[str, Any], verified: Verified | None, picture: bytes | None) -> Document:
    """Put the page of a run together.

    Args:
        result: result.json.
        verified: The run's certificate, checked; None where there is none.
        picture: rounds.png, drawn from the result; None where there is none.
    """
    result = with_own_words(result, moved=verified.made.final.change if verified and verified.made else None)
    forgot = "unlearned" in result
    title = f"Forgetting {_of_all(result)}" if forgot else "A model trained together"
    versions = result["versions"]
    signed = f"; {verified.made.time}" if verified and verified.made else ""
    subtitle = f"Job of {len(result['parties'])} parties{signed}; seed {result['seed']}; release {versions['fedora']}."
    blocks: list[Block] = []
    if forgot:
        blocks += [Notice("plain", "In short", _in_short(result)), notice(verified, result)]
    blocks += _asked(result)
    blocks += figures(result)
    blocks += audit(result)
    blocks += _rounds(result, picture)
    blocks += traffic(result)
    if forgot:
        blocks += certificate(verified)
    return Document(title, subtitle, [*blocks, *_made(result)])


def _in_short(result: Mapping[str, Any]) -> list[str]:
    """Return the verdict; what an audit has found comes first, as it looks closer than any other figure."""
    audited = result.get("audit")
    if not audited:
        return list(result["verdict"])
    found = " ".join(audited["verdict"][: 2 if audited["says_little"] else 1])
    return [f"The audit: {found}", *result["verdict"]]


def _of_all(result: Mapping[str, Any]) -> str:
    forget = result["forget"]
    return f"{forget['rows']:,} of {forget['rows'] + forget['remaining']:,} training rows"


def _asked(result: Mapping[str, Any]) -> list[Block]:
    """Say what the job asked for."""
    job, rows = result["job"], result["rows"]
    parties = [
        [name, one["role"], f"{one['own_rows']:,}", f"{one['forgotten_rows']:,}", f"{one['parameters']:,}"]
        for name, one in result["parties"].items()
    ]
    said = [
        f"{rows['train']:,} training and {rows['test']:,} test rows that all parties have in common, "
        f"{result['classes']} classes.",
        *_request(result),
    ]
    return [
        Heading(2, "What was asked", "asked"),
        Bullets(said),
        Grid(
            "Who took part.",
            ["", "role", "own rows", "dropped in earlier jobs", "parameters"],
            parties,
        ),
        Fold("All settings of the job", [Grid("As they were run.", ["", ""], _settings(job), text=True)]),
    ]


def _request(result: Mapping[str, Any]) -> list[str]:
    if "unlearned" not in result:
        return ["Nobody was to be forgotten."]
    job, forget = result["job"], result["forget"]
    asked = job["forget"]
    if asked.get("classes"):
        share = asked.get("percent")
        which = f"{share:g} % of the class" if share and share < 100 else "all rows of the class"
        said = f"{which}{'es' if len(asked['classes']) > 1 else ''} {', '.join(asked['classes'])}"
    elif asked.get("samples"):
        said = "drawn at random"
    elif asked.get("pending"):
        said = "the rows of earlier requests that the model had not honoured"
    else:
        said = "named by their ids"
    others = [TITLES.get(one, one) for one in compared(result)]
    beside = f" Compared on the same rows, from the same original model: {', '.join(others)}." if others else ""
    method = TITLES.get(job["unlearn"]["method"], job["unlearn"]["method"])
    ending = result.get("unlearning") or {}
    stopped = f" after {ending['rounds']} rounds: {ending['stopped']}" if ending else ""
    return [
        f"To forget: {forget['rows']:,} rows, {said}, which every party has dropped. {forget['remaining']:,} stay.",
        f"By: {method}, which stopped{stopped}.{beside}",
    ]


def _settings(content: Mapping[str, Any], *, within: str = "") -> list[list[str]]:
    """Return every setting that has a value, by its whole name."""
    rows: list[list[str]] = []
    for name, value in content.items():
        if isinstance(value, dict):
            rows += _settings(value, within=f"{within}{name}.")
        elif value is not None and value != []:
            rows.append([f"{within}{name}", str(value)])
    return rows


def _rounds(result: Mapping[str, Any], picture: bytes | None) -> list[Block]:
    """Say what was run, phase by phase."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for one in result["rounds"]:
        by_name.setdefault(one["phase"], []).append(one)
    rows = []
    for name, entries in by_name.items():
        undone = sum(bool(one.get("rolled_back")) for one in entries)
        rows.append(
            [
                f"{name} (measures only)" if name in LOOKS else name,
                f"{len(entries)}" + (f", {undone} taken back" if undone else ""),
                f"{sum(one['rows'] for one in entries):,}",
                f"{_told(entries[0]['loss'])} → {_told(entries[-1]['loss'])}",
                f"{sum(one['seconds'] for one in entries):.1f}",
            ]
        )
    whole = sum(one["seconds"] for one in result["rounds"])
    blocks: list[Block] = [
        Heading(2, "What was run", "rounds"),
        Paragraph(f"{result['seconds']:.1f} seconds in all, {whole:.1f} of them in the phases below."),
        Grid(
            "Phases, in the order in which they began.",
            ["phase", "runs", "rows", "loss, first → last", "seconds"],
            rows,
        ),
    ]
    if picture:
        caption = "The unlearning round by round: uncertainty about the rows to forget, the push, the steps, accuracy."
        blocks.append(Photo(picture, caption, "The rounds of the unlearning, drawn."))
    return blocks


def _told(loss: float | None) -> str:
    return "not told" if loss is None else f"{loss:.3f}"


def _made(result: Mapping[str, Any]) -> list[Block]:
    versions = ", ".join(f"{name} {one}" for name, one in result["versions"].items())
    said = [
        f"The run used {versions}.",
        "Figures are the active party's, who has the labels; bytes are counted at both ends of every link.",
        "This page was made from result.json and certificate.json and needs nothing from anywhere else.",
    ]
    return [Heading(2, "Where this comes from", "made"), Bullets(said)]
