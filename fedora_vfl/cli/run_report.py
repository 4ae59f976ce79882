"""fedora report: a run as one web page."""

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedora_vfl.cli.vouching import FederationOption, TrustedKeysOption, TrustOption
from fedora_vfl.errors import DataError, FedoraError

if TYPE_CHECKING:
    from fedora_vfl.run_report.certificate import Verified

NAME = "report.html"
MOST_BYTES = 256 * 1024 * 1024  # of a result; a job of ten thousand phases has some 10 MB


def report(
    run: Annotated[Path, typer.Argument(help="The folder of a run, with its result.json.", metavar="RUN")],
    out: Annotated[
        Path | None, typer.Option(help="The page to write. [default: RUN/report.html]", metavar="FILE")
    ] = None,
    federation: FederationOption = None,
    trusted_keys: TrustedKeysOption = None,
    trust: TrustOption = None,
) -> None:
    """Write a run as one web page that needs nothing from anywhere else.

    It says what was asked, what was run, how the models do against Retrain, what an audit found, which bytes went over
    which link, and whether the certificate holds. Keys are vouched for as for `fedora verify`; without any the page
    says that the certificate was not checked to the end.

    \b
        fedora report runs/forget
        fedora report runs/forget --trusted-keys keys.yaml --out forgotten.html
    """
    try:
        page = make(run, federation, trusted_keys, trust or [])
        target = out or run / NAME
        write(target, page)
    except FedoraError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    print(f"Written to {target}")


def make(run: Path, federation: Path | None, trusted_keys: Path | None, trust: list[str]) -> str:
    """Return the page of a run's folder."""
    from fedora_vfl.documents.webpage import webpage
    from fedora_vfl.run_report.page import compose

    result = read_result(run)
    verified = _verified(run, federation, trusted_keys, trust)
    try:
        return webpage(compose(result, verified, _picture(result)))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        said = f"lacks something, or has it in another form than release 0.5.0 and later write it ({error!r})"
        raise DataError(f"{run / 'result.json'}: {said}") from None


def read_result(run: Path) -> dict[str, Any]:
    """Return result.json of a run's folder."""
    path = run / "result.json"
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"{path}: is larger than any result of a job")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        if isinstance(error, FileNotFoundError) and (run / "federation.yaml").exists():
            said = f"still runs, was interrupted (`fedora run --resume {run}` goes on with it) or has failed"
            raise DataError(f"{run}: the run has no result: it {said}") from None
        raise DataError(f"{path}: cannot be read: {error.strerror}; name the folder of a run") from None
    except (ValueError, RecursionError):
        raise DataError(f"{path}: is no JSON, so that it is no result of a job") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: is no result of a job")
    return content


def _verified(run: Path, federation: Path | None, trusted_keys: Path | None, trust: list[str]) -> "Verified | None":
    """Check the run's certificate, if there is one."""
    from fedora_vfl.certificates.statement import now
    from fedora_vfl.certificates.verification import examine, unvouched
    from fedora_vfl.cli.verify import find_evidence, read_certificate
    from fedora_vfl.run_report.certificate import Verified

    if not (run / "certificate.json").exists():
        return None
    path, evidence = find_evidence(run, None, federation, trusted_keys, trust, [])
    made, checks = examine(read_certificate(path), evidence)
    return Verified(made, checks, unvouched(made, evidence) if made else [], now())


def _picture(result: dict[str, Any]) -> bytes | None:
    """Draw the rounds anew: a file in the folder may be another job's."""
    from fedora_vfl.cli.picture import draw

    with tempfile.TemporaryDirectory() as folder:
        name = draw(result, Path(folder))
        return (Path(folder) / name).read_bytes() if name else None


def write(target: Path, page: str) -> None:
    """Write a page."""
    from fedora_vfl.storage import write_atomically

    try:
        write_atomically(target, page)
    except OSError as error:
        raise DataError(f"{target}: cannot be written: {error.strerror}") from None
