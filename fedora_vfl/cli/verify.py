"""fedora verify: does an unlearning certificate hold, and what does it say?"""

import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedora_vfl.cli.vouching import FederationOption, TrustedKeysOption, TrustOption
from fedora_vfl.errors import CertificateError, DataError, FedoraError, SettingsError, UncheckedError

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
    federation: FederationOption = None,
    trusted_keys: TrustedKeysOption = None,
    trust: TrustOption = None,
    request: Annotated[
        list[Path] | None,
        typer.Option(help="A party's keys/requests/JOB.json: are these the ids it committed to?", metavar="FILE"),
    ] = None,
) -> None:
    """Check an unlearning certificate: signatures, digests, agreement, arithmetic; say what it claims and what not.

    The first line and the exit code tell the result. 0: it holds. 7: it does not. 8, not checked: nothing is wrong with
    it, but somebody else must vouch for all members' keys, by --federation, --trusted-keys or --trust; what came with
    the certificate cannot. Given the folder of a run, its models are used too. Nothing is sent anywhere, and no member
    needs to be up.

    \b
        fedora verify certificate.json --models models --federation federation.yaml
        fedora verify runs/forget --trusted-keys keys.yaml
    """
    from fedora_vfl.certificates.verification import examine, unvouched

    try:
        path, evidence = find_evidence(certificate, models, federation, trusted_keys, trust or [], request or [])
        made, checks = examine(read_certificate(path), evidence)
    except FedoraError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    failed = sum(check.holds is False for check in checks)
    if made is None or failed:
        _say(f"Does not hold: {failed} of {len(checks)} checks failed; what it claims is not repeated here")
        _show(checks)
        _end(CertificateError(f"{path}: does not hold: {failed} of {len(checks)} checks failed"))
    elif strangers := unvouched(made, evidence):
        missing = f"nothing from outside vouches for the keys of {', '.join(strangers)}"
        _say(f"Not checked: {missing}, so anybody may have written this; {_title(made)}")
        _show(checks)
        _tell(made)
        remedy = "give --federation, --trusted-keys or --trust, with keys that you have from the members themselves"
        _end(UncheckedError(f"{path}: not checked: {missing}: {remedy}"))
    else:
        _say(f"Holds: {_title(made)}")
        _show(checks)
        _tell(made)


def _end(error: FedoraError) -> None:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(error.exit_code)


# What to look at


def find_evidence(
    path: Path,
    models: Path | None,
    federation: Path | None,
    pinned: Path | None,
    given: list[str],
    requests: list[Path],
) -> tuple[Path, "Evidence"]:
    """Return the certificate's file, and what it is held against; what a run's folder brings vouches for no key."""
    from fedora_vfl.certificates.trust import trusted_keys
    from fedora_vfl.certificates.verification import Evidence
    from fedora_vfl.settings.federation import load_federation

    folder = path if path.is_dir() else None
    if folder:
        path = folder / "certificate.json"
        models = models or _if_there(folder / "models")
        federation = federation or _if_there(folder / "federation.yaml")
    if models and not models.is_dir():
        raise SettingsError(f"--models: {models} is not a folder")
    if pinned and _inside(pinned, folder):
        raise SettingsError(f"--trusted-keys: {pinned} came with the certificate and vouches for nothing: use your own")
    members = load_federation(federation) if federation else None
    vouching = members.keys if members and federation and not _inside(federation, folder) else {}
    return path, Evidence(models, members, requests, trusted_keys(vouching, pinned, given))


def _inside(path: Path, folder: Path | None) -> bool:
    """Tell whether a file came in the same folder as the certificate."""
    return folder is not None and path.resolve().is_relative_to(folder.resolve())


def _if_there(path: Path) -> Path | None:
    return path if path.exists() else None


def read_certificate(path: Path) -> bytes:
    """Return a certificate's bytes."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


# Telling


def _title(made: "Certificate") -> str:
    form = f", {made.method.dual} dual variable" if made.method.dual else ""
    return f"certificate of job {made.job}, {made.time}: {made.request.rows} rows, {made.method.name}{form}"


def _show(checks: "Sequence[Check]") -> None:
    """Print every check, with a mark for how it went."""
    print()
    for check in checks:
        _say(check.said, mark={True: "✓", False: "✗", None: "–"}[check.holds])


def _tell(made: "Certificate") -> None:
    """Print what a certificate says."""
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
    if final.unseen and final.unseen.forgotten_level is not None:
        said.append(
            f"loss of forgotten rows {final.unseen.forgotten_level:.6g}, of {final.unseen.unseen_rows} rows never seen "
            f"{final.unseen.unseen_level:.6g}, tolerance {final.unseen.tolerance:.6g}"
        )
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
    if final.change is None:
        said.append("how far the parameters moved is not told: it would be about few rows")
    else:
        said.append(f"the parameters moved by {final.change:.6g}, all parties together")
    return said


def _say(text: str, *, mark: str = "") -> None:
    """Print a paragraph, its lines hanging behind the mark."""
    first, rest = (f"  {mark} ", "    ") if mark else ("", "")
    width = min(WIDEST, shutil.get_terminal_size().columns)
    # A certificate may come from anybody; its words must not steer the reader's terminal.
    shown = "".join(one if one.isprintable() else "�" for one in text)
    print(textwrap.fill(shown, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False))
