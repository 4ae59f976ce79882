"""A user's own files, one per party: looked into, and left where they are."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from fedora_vfl.datasets import tables
from fedora_vfl.datasets.datafile import DataFile, data_file
from fedora_vfl.datasets.images import open_archive
from fedora_vfl.datasets.registry import SOURCES
from fedora_vfl.datasets.settings import ACTIVE, ReadySource, check_kinds, check_parties, party_names
from fedora_vfl.errors import DataError


@SOURCES.register("files")
class FilesData(ReadySource):
    """A user's own files, one per party, used where they are."""

    files: dict[str, Path]
    id: str = "id"
    label: str | None = None
    split: str = "split"
    test_fraction: float = Field(default=0.2, gt=0, lt=1)
    numeric: list[str] = Field(default_factory=list)
    categorical: list[str] = Field(default_factory=list)
    ignore: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        check_kinds(self.numeric, self.categorical, self.ignore, special=(self.id, self.label))
        if ACTIVE not in self.files:
            raise ValueError(f"`files` names no file for `{ACTIVE}`, the party with the labels")
        check_parties([name for name in self.files if name != ACTIVE], "files", self.parties)
        return self

    @property
    def parties(self) -> int:
        """The number of passive parties."""
        return len(self.files) - 1

    def describe(self) -> dict[str, DataFile]:
        """Look into every file, and give each party the settings that are about its columns."""
        contents = {party: _content(self.files[party]) for party in party_names(self)}
        lists = {"numeric": self.numeric, "categorical": self.categorical, "ignore": self.ignore}
        for field, names in lists.items():
            for name in names:
                if not any(name in columns for _, columns in contents.values()):
                    raise DataError(f"data.{field}: no party's file has a column `{name}`")
        described = {}
        for party, (rows, columns) in contents.items():
            reading: dict[str, object] = {"id": self.id, "split": self.split}
            if party == ACTIVE:
                reading["test_fraction"] = self.test_fraction
                reading |= {} if self.label is None else {"label": self.label}
            own = {field: [name for name in names if name in columns] for field, names in lists.items()}
            reading |= {field: names for field, names in own.items() if names}
            described[party] = data_file(self.files[party], rows, columns, reading)
        return described


def _content(path: Path) -> tuple[int, tuple[str, ...]]:
    """Count rows and name columns."""
    if path.suffix.lower() == ".npz":
        arrays = open_archive(path)
        return max((len(array) for array in arrays.values() if array.ndim), default=0), tuple(arrays)
    table = tables.read(path)
    return table.num_rows, tuple(table.column_names)
