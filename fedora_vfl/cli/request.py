"""fedora request: somebody asks a party to be forgotten, and nobody but that party reads who."""

import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedora_vfl.errors import FedoraError, SettingsError
from fedora_vfl.settings.matching import Matching


def request(
    party: Annotated[Path, typer.Argument(help="The party file.", metavar="PARTY.yaml")],
    ids: Annotated[Path, typer.Option(help="A file of the ids to forget, one per line.", metavar="FILE")],
    name: Annotated[
        str | None, typer.Option(help="What jobs call the request. [default: a random name]", metavar="NAME")
    ] = None,
) -> None:
    """Hand in a deletion request where a party is, by its operator; a job then names it: `forget: {request: NAME}`.

    The ids stay in the party's own folder of keys. In the job the party tells the others which places in their common
    order are meant; the coordinator, its logs, the results and the certificate have the name and commitments only. Ids
    that are not in common change nothing, and nobody else is told of them.

    \b
        fedora request hospital.yaml --ids leaving.txt
        fedora submit job.yaml --coordinator 10.0.0.1:7000    # with `forget: {request: request-5f0c9a1e}`
    """
    from party.data.matching import matched
    from party.data.reading import read
    from party.handed_request import hand_in
    from party.kept_alignment import read_kept
    from party.settings import load_party

    try:
        settings, federation = load_party(party)
        wanted = _as_compared(_read(ids), ids, federation.matching, settings.data.date_format)
        records = read(settings.data, with_labels=settings.name == federation.active.name)
        own = set(matched(records, federation.matching, settings.data).ids)
        made = hand_in(settings.keys, name or f"request-{secrets.token_hex(4)}", wanted)
        kept = read_kept(settings.keys, federation.parties)
    except FedoraError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    handed = "1 id is handed in; name it" if len(made.ids) == 1 else f"{len(made.ids)} ids are handed in; name them"
    print(f"{handed} in a job with: forget: {{request: {made.name}}}")
    if unknown := [one for one in made.ids if one not in own]:
        they = "is not in {}: look whether it is" if len(unknown) == 1 else "are not in {}: look whether they are"
        print(f"{len(unknown)} of {len(made.ids)} {they.format(settings.data.path)} spelt as there")
    if kept:
        training = len(set(made.ids).intersection(kept.order.train))
        print(f"{training} of them are training rows in the alignment that is kept here; the others change nothing")


def _as_compared(lines: dict[int, str], path: Path, matching: Matching, written: str | None) -> list[str]:
    """Return ids in the form in which they are compared; parts of one stand between tabs."""
    found = []
    for number, one in lines.items():
        try:
            found.append(matching.of_written(one, date_format=written))
        except ValueError as error:
            hint = "; parts of an id stand between tabs" if matching.parts > 1 else ""
            raise SettingsError(f"--ids: {path}, line {number}: the id {error}{hint}") from None
    return found


def _read(path: Path) -> dict[int, str]:
    """Return the ids of a file, by line."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise SettingsError(f"--ids: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"--ids: {path} is not a UTF-8 text of one id per line") from None
    ids = {number: line.strip() for number, line in enumerate(lines, 1) if line.strip()}
    if not ids:
        raise SettingsError(f"--ids: {path} holds no ids")
    return ids
