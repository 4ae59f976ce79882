"""A user's own files, one per party: looked into, and left where they are."""

from pathlib import Path

from fedora_vfl.datasets.datafile import DataFile, data_file
from fedora_vfl.datasets.settings import ACTIVE, FilesData, party_names
from fedora_vfl.errors import DataError


def describe(settings: FilesData) -> dict[str, DataFile]:
    """Look into every file, and give each party the settings that are about its columns."""
    contents = {party: _content(settings.files[party]) for party in party_names(settings)}
    lists = {"numeric": settings.numeric, "categorical": settings.categorical, "ignore": settings.ignore}
    for field, names in lists.items():
        for name in names:
            if not any(name in columns for _, columns in contents.values()):
                raise DataError(f"data.{field}: no party's file has a column `{name}`")
    described = {}
    for party, (rows, columns) in contents.items():
        reading: dict[str, object] = {"id": settings.id, "split": settings.split}
        if party == ACTIVE:
            reading["test_fraction"] = settings.test_fraction
            reading |= {} if settings.label is None else {"label": settings.label}
        own = {field: [name for name in names if name in columns] for field, names in lists.items()}
        reading |= {field: names for field, names in own.items() if names}
        described[party] = data_file(settings.files[party], rows, columns, reading)
    return described


def _content(path: Path) -> tuple[int, tuple[str, ...]]:
    """Count rows and name columns."""
    if path.suffix.lower() == ".npz":
        from fedora_vfl.datasets.images import open_archive

        arrays = open_archive(path)
        return max((len(array) for array in arrays.values() if array.ndim), default=0), tuple(arrays)
    from fedora_vfl.datasets import tables

    table = tables.read(path)
    return table.num_rows, tuple(table.column_names)
