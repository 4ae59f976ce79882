"""A party's own file in, checked records out."""

import hashlib
from pathlib import Path

from fedora_vfl.errors import DataError
from party.data.records import Records
from party.data.settings import DataSettings

TEXTS = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
SUFFIXES = (*TEXTS, ".parquet", ".npz")


def read(settings: DataSettings, *, with_labels: bool) -> Records:
    """Read the file a party owns, with its labels if the party is the active one."""
    path = settings.path
    _check_file(path)
    # Each format brings its own library; a party loads the one it needs.
    if path.name.lower().endswith(".npz"):
        from party.data.archives import read_archive

        records = read_archive(settings, with_labels=with_labels)
    else:
        from party.data.tables import read_table

        records = read_table(settings, with_labels=with_labels)
    if records.features is None and not with_labels:
        raise DataError(f"{path}: holds no features; a passive party needs at least one column or array of them")
    return records


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, by which it is known whether it has changed."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_file(path: Path) -> None:
    """Refuse a file that is missing, empty, closed to us, or of an unknown kind."""
    if not path.name.lower().endswith(SUFFIXES):
        raise DataError(f"{path}: is not a known kind of file; its name should end in {', '.join(SUFFIXES)}")
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if empty:
        raise DataError(f"{path}: is empty")
