"""The certificate of a run on its page, and how it stood up to being checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedora_vfl.certificates.form import Certificate
from fedora_vfl.certificates.verification import Check
from fedora_vfl.documents.document import Block, Bullets, Fold, Grid, Heading, Marked, Mood, Notice, Paragraph


@dataclass(frozen=True)
class Verified:
    """A certificate, if it can be read at all, each thing that was checked, and whose keys nobody vouches for."""

    made: Certificate | None
    checks: Sequence[Check]
    strangers: Sequence[str]
    when: str

    @property
    def holds(self) -> bool | None:
        """Whether it holds; None if nothing is wrong but not all keys are vouched for."""
        if self.made is None or any(check.holds is False for check in self.checks):
            return False
        return None if self.strangers else True


def unsigned(verified: Verified, result: Mapping[str, Any]) -> list[str]:
    """Return the figures of a result that are not the ones which the active party signed, each by model and name."""
    if verified.made is None:
        return []
    signed, rows = verified.made.metrics, verified.made.request.rows
    others = [
        f"{name} of {model}"
        for model, figures in signed.items()
        for name, value in figures.items()
        if (result.get(model) or {}).get(name) != value
    ]
    return [*(["the number of rows"] if result["forget"]["rows"] != rows else []), *others]


def notice(verified: Verified | None, result: Mapping[str, Any]) -> Notice:
    """Say in a few words what there is to say of the certificate."""
    if verified is None:
        if result["job"].get("certificate") is not False:
            said = "The job asked for one; without it nothing shows that the figures below are those of the parties."
            return Notice("no", "The certificate is missing: there is no certificate.json beside result.json.", [said])
        return Notice("partly", "There is no certificate: the job did not ask for one.", [])
    if verified.holds is False:
        failed = [check.said for check in verified.checks if check.holds is False]
        return Notice("no", f"The certificate does not hold: {len(failed)} checks failed.", [_ended(failed[0])])
    if others := unsigned(verified, result):
        return Notice(
            "no",
            "The certificate is of another run, or result.json was changed: their figures differ.",
            [f"This page shows other values than were signed for {', '.join(others[:3])}."],
        )
    if verified.holds is None:
        missing = ", ".join(verified.strangers)
        said = (
            f"Nothing is wrong with it, but nothing from outside vouches for the keys of {missing}, so that anybody "
            "may have written it: make this page again with `--federation`, `--trusted-keys` or `--trust`."
        )
        return Notice("partly", "The certificate was not checked to the end.", [said])
    return Notice(
        "yes",
        "The certificate holds: signed by every member, with keys that are vouched for, for the figures below.",
        [],
    )


def certificate(verified: Verified | None) -> list[Block]:
    """Show the certificate and every check."""
    heading = Heading(2, "The certificate", "certificate")
    if verified is None:
        return [heading, Paragraph("There is none.")]
    moods: dict[bool | None, Mood] = {True: "yes", False: "no", None: "partly"}
    checks = Marked([(moods[check.holds], _ended(check.said)) for check in verified.checks])
    blocks: list[Block] = [
        heading,
        Paragraph(
            f"Checked when this page was made, {verified.when}. `fedora verify` says the same again at any time."
        ),
    ]
    if verified.made is None or verified.holds is False:
        return [*blocks, Paragraph("As it does not hold, what it claims is not repeated here."), checks]
    made = verified.made
    blocks += [_standing(made), Fold(f"All {len(verified.checks)} checks", [checks])]
    blocks += [Heading(3, "What it claims", "claims"), Bullets(list(made.claims))]
    return [*blocks, Heading(3, "What it does not claim", "no-claims"), Bullets(list(made.does_not_claim))]


def _standing(made: Certificate) -> Grid:
    """Return where the final model stands, as the certificate has it."""
    final = made.final
    rows = [
        ["job", made.job],
        ["signed", made.time],
        ["rows forgotten", f"{made.request.rows:,}"],
        ["method", f"{made.method.name}, {made.method.rounds} rounds; {made.method.stopped}"],
        ["parameters moved by", "not told" if final.change is None else f"{final.change:.4g}"],
    ]
    if final.uncertainty:
        rows.append(["uncertainty L_u on the forgotten rows", f"{final.uncertainty.loss:.4g}"])
    if final.constraint_residual is not None:
        rows.append(["short of the constraint by", f"{final.constraint_residual:.4g}"])
    if final.complementary_slackness is not None:
        rows.append(["complementary slackness", f"{final.complementary_slackness:.4g}"])
    if final.stationarity_residual is not None:
        rows.append(["stationarity residual", f"{final.stationarity_residual:.4g}, on {final.residual_rows:,} rows"])
    return Grid("What the certificate says.", ["", ""], rows, text=True)


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith(".") else f"{sentence}."
