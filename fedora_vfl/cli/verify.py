"""fedora verify: does an unlearning certificate hold, and what does it say?"""

import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedora_vfl.errors import CertificateError, DataError, FedoraError, SettingsError

if TYPE_CHECKING:
    from fedora_vfl.certificates.form import Certificate
    from fedora_vfl.certificates.verification import Check, Evidence

WIDEST = 120  # characters of a line


def verify(
    certificate: Annotated[
        Path, typer.Argument(help="certificate.json, or the folder of a run.", metavar="CERTIFICATE")
    ],
    models: Annotated[
        Path | None, typer.Option(help="Folder with PARTY/NAME.safetensors, to check the digests of the models.")
    ] = None,
    federation: Annotated[
        Path | None, typer.Option(help="Federation file, whose `keys` say which key is whose.", metavar="FILE")
    ] = None,
    request: Annotated[
        list[Path] | None,
        typer.Option(help="A party's keys/requests/JOB.json: are these the ids it committed to?", metavar="FILE"),
    ] = None,
) -> None:
    """Check an unlearning certificate: signatures, digests, agreement, arithmetic; say what it claims and what not.

    Given the folder of a run, its models and its federation file are used too. Nothing is sent anywhere, and no member
    needs to be up. The exit code is 0 if nothing failed, 7 if something did; a dash marks what could not be checked.

    \b
        fedora verify runs/forget
        fedora verify certificate.json --models models --federation federation.yaml
    """
    from fedora_vfl.certificates.verification import examine

    try:
        path, evidence = _find(certificate, models, federation, request or [])
        made, checks = examine(_read(path), evidence)
    except FedoraError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    failed = [check for check in checks if check.holds is False]
    _show(made if not failed else None, checks)
    if failed:
        told = f"{path}: does not hold: {len(failed)} of {len(checks)} checks failed"
        print(f"error: {told}", file=sys.stderr)
        sys.exit(CertificateError.exit_code)


# What to look at


def _find(path: Path, models: Path | None, federation: Path | None, requests: list[Path]) -> tuple[Path, "Evidence"]:
    """Return the certificate's file, and what it is held against: a run's folder brings its own."""
    from fedora_vfl.certificates.verification import Evidence
    from fedora_vfl.settings.federation import load_federation

    if path.is_dir():
        folder, path = path, path / "certificate.json"
        models = models or _if_there(folder / "models")
        federation = federation or _if_there(folder / "federation.yaml")
    if models and not models.is_dir():
        raise SettingsError(f"--models: {models} is not a folder")
    return path, Evidence(models, load_federation(federation) if federation else None, requests)


def _if_there(path: Path) -> Path | None:
    return path if path.exists() else None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


# Telling


def _show(made: "Certificate | None", checks: "Sequence[Check]") -> None:
    """Print the checks and, of a certificate that holds, what it says."""
    if made:
        form = f", {made.method.dual} dual variable" if made.method.dual else ""
        _say(f"Certificate of job {made.job}, {made.time}: {made.request.rows} rows, {made.method.name}{form}")
        print()
    for check in checks:
        _say(check.said, mark={True: "✓", False: "✗", None: "–"}[check.holds])
    print()
    if made is None:
        _say("It does not hold. What it claims is not repeated here.")
        return
    open_ends = sum(check.holds is None for check in checks)
    _say("All that was checked holds" + (f"; {open_ends} things were not checked (–)." if open_ends else "."))
    for title, sentences in (
        ("Where the final model stands:", _standing(made)),
        ("What the certificate claims:", made.claims),
        ("What it does not claim:", made.does_not_claim),
    ):
        print()
        _say(title)
        for sentence in sentences:
            _say(sentence, mark="•")


def _standing(made: "Certificate") -> list[str]:
    final, said = made.final, []
    if final.uncertainty:
        loss, largest = final.uncertainty.loss, final.largest_uncertainty
        said.append(f"L_u is {loss:.6g}; a uniform prediction would give {largest:.6g}")
    if final.uncertainty and final.constraint_residual is not None:
        said.append(
            f"γ is {final.uncertainty.gamma:.6g}; constraint residual max(0, γ − L_u) {final.constraint_residual:.6g}"
        )
    if final.complementary_slackness is not None:
        said.append(f"complementary slackness Ω·(γ − L_u) {final.complementary_slackness:.6g}")
    if final.no_slackness:
        said.append(f"no complementary slackness: {final.no_slackness}")
    if final.stationarity_residual is not None:
        said.append(f"stationarity residual {final.stationarity_residual:.6g}, measured on {final.residual_rows} rows")
    said.append(f"the parameters moved by {final.change:.6g}, all parties together")
    return said


def _say(text: str, *, mark: str = "") -> None:
    """Print a paragraph, its lines hanging behind the mark."""
    first, rest = (f"  {mark} ", "    ") if mark else ("", "")
    width = min(WIDEST, shutil.get_terminal_size().columns)
    # A certificate may come from anybody; its words must not steer the reader's terminal.
    shown = "".join(one if one.isprintable() else "�" for one in text)
    print(textwrap.fill(shown, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False))
