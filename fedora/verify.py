"""fedora verify: does an unlearning certificate hold, and what does it say?"""

import hashlib
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wire.errors import CertificateError, DataError, FedoraError, SettingsError

if TYPE_CHECKING:
    from coordinator.certificate_form import Certificate
    from settings.federation import Federation
    from wire.attestation import SavedModel

WIDEST = 120  # characters of a line


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: it holds, it does not, or (None) it could not be checked."""

    holds: bool | None
    said: str


@dataclass(frozen=True)
class Evidence:
    """What a certificate is held against, besides itself."""

    models: Path | None = None
    federation: "Federation | None" = None
    requests: Sequence[Path] = ()


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


def _find(path: Path, models: Path | None, federation: Path | None, requests: list[Path]) -> tuple[Path, Evidence]:
    """Return the certificate's file, and what it is held against: a run's folder brings its own."""
    from settings.federation import load_federation

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


# Looking


def examine(data: bytes, evidence: Evidence) -> tuple["Certificate | None", list[Check]]:
    """Check a certificate's bytes; return it, if it can be read at all, and all checks."""
    from coordinator.certificate_form import read
    from coordinator.consistency import consistency
    from wire.signing import parse_canonical

    try:
        content = parse_canonical(data)
        made = read(content)
    except CertificateError as error:
        return None, [Check(False, f"the file {error}; nothing in it can be relied on")]
    except SettingsError as error:
        said = "; ".join(str(error).splitlines())
        return None, [Check(False, f"a field is missing or not of its form: {said}; nothing else was checked")]
    return made, [
        Check(True, "the file is canonical JSON, which has one way to write each value, and has every field"),
        *_signatures(made, content),
        *_keys(made, evidence.federation),
        *(Check(not broken, "; ".join(broken) if broken else what) for what, broken in consistency(made)),
        *_alone(made),
        *_models(made, evidence.models),
        *_requests(made, evidence.requests),
    ]


def _signatures(made: "Certificate", content: Mapping[str, Any]) -> Iterable[Check]:
    from coordinator.certificate_form import sealed_bytes, signed_bytes
    from wire.signing import verify as fits

    seal, signed = made.coordinator, signed_bytes(content)
    yield _signature("the coordinator", "the whole", fits(seal.public_key, sealed_bytes(content), seal.signature))
    for party, one in made.statements.items():
        yield _signature(party, "its statement", fits(one.public_key, signed[party], one.signature))


def _signature(who: str, what: str, fits: bool) -> Check:
    return Check(fits, f"{who} signed {what}" if fits else f"{who}'s signature does not fit: {what} was changed since")


def _keys(made: "Certificate", federation: "Federation | None") -> Iterable[Check]:
    from wire.protocol import COORDINATOR

    if federation is None:
        yield Check(None, "whose keys these are, nobody here vouches for: give --federation with the members' `keys`")
        return
    active = [name for name, one in made.statements.items() if one.statement.role == "active"]
    if set(made.statements) == set(federation.parties) and active == [federation.active.name]:
        yield Check(True, f"the parties are those of the federation: {', '.join(federation.parties)}")
    else:
        there, here = ", ".join(sorted(federation.parties)), ", ".join(sorted(made.statements))
        yield Check(False, f"the federation's parties are {there}, the certificate's {here}, or another one is active")
    used = {COORDINATOR: made.coordinator.public_key, **{name: one.public_key for name, one in made.statements.items()}}
    for name, key in used.items():
        known = federation.keys.get(name)
        if known is None:
            yield Check(None, f"whose key {name} signed with, nobody vouches for: the federation file has none for it")
        elif known == key:
            yield Check(True, f"{name} signed with the key that the federation file gives for it")
        else:
            yield Check(False, f"{name}'s signature is by another key than the federation file gives for it")


def _alone(made: "Certificate") -> Iterable[Check]:
    """Name the figures that the coordinator alone stands for."""
    signed = {
        (model, figure)
        for one in made.statements.values()
        for model, figures in (one.statement.metrics or {}).items()
        for figure in figures
    }
    models = {model for model, figures in made.metrics.items() for figure in figures if (model, figure) not in signed}
    if models:
        yield Check(None, f"some metrics are the coordinator's word alone: those of {', '.join(sorted(models))}")


def _models(made: "Certificate", folder: Path | None) -> Iterable[Check]:
    if folder is None:
        yield Check(None, "the model files were not looked at: give --models with their folder")
        return
    if not any((folder / party).is_dir() for party in made.models):
        folder = _if_there(folder / "models") or folder
    for party, models in made.models.items():
        yield _model(party, "before", models.before, folder)
        yield _model(party, "after", models.after, folder)


def _model(party: str, when: str, model: "SavedModel", folder: Path) -> Check:
    path = folder / party / f"{model.name}.safetensors"
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return Check(None, f"{party}'s model {when} was not looked at: there is no {path}")
    except OSError as error:
        return Check(False, f"{party}'s model {when} cannot be read: {path}: {error.strerror}")
    if digest == model.sha256:
        return Check(True, f"{party}'s model {when} is {path}")
    return Check(False, f"{party}'s model {when} is not {path}, whose digest is {digest}")


def _requests(made: "Certificate", paths: Sequence[Path]) -> Iterable[Check]:
    if not paths:
        yield Check(None, "which ids were asked for was not looked at: a party can show them with --request")
    for path in paths:
        yield _request(made, path)


def _request(made: "Certificate", path: Path) -> Check:
    from party.statement import open_request
    from wire.attestation import commit_to

    try:
        opening = open_request(path)
    except DataError as error:
        return Check(False, str(error))
    if opening.job != made.job:
        return Check(False, f"{path}: is a request of job {opening.job}, not of {made.job}")
    signed = made.statements.get(opening.party)
    if signed is None:
        return Check(False, f"{path}: is a request to {opening.party}, who has no statement here")
    commitment = commit_to(opening.ids, bytes.fromhex(opening.key))
    if not commitment == opening.commitment == signed.statement.commitment:
        return Check(False, f"{path}: these are not the ids that {opening.party} committed to")
    if len(opening.ids) != signed.statement.rows.dropped:
        dropped = signed.statement.rows.dropped
        return Check(False, f"{path}: has {len(opening.ids)} ids, but {opening.party} dropped {dropped} rows")
    return Check(True, f"the {len(opening.ids)} ids in {path} are those that {opening.party} committed to")


# Telling


def _show(made: "Certificate | None", checks: Sequence[Check]) -> None:
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
