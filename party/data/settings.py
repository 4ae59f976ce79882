"""Which file a party reads, and what its columns are."""

from collections.abc import Container
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from fedora_vfl.settings.files import Settings


class DataSettings(Settings):
    """A party's own data file."""

    path: Path  # .csv, .csv.gz, .tsv, .parquet or .npz
    # The column, or array, of sample ids, or a list of columns that make one; an npz file may also call it `ids`.
    id: str = "id"
    id_also: list[str] = Field(default_factory=list)  # the further columns, if `id` is not written as a list
    date_format: str | None = None  # how this file writes dates in ids, such as %d.%m.%Y; by default 2026-03-01
    label: str | None = None  # the active party's column of labels; by default `label`, in an npz file `labels`
    split: str = "split"  # a column that says train, validation, test or probe; without it, the id decides
    truth: str = "truth"  # the active party's column of true classes, read if there is one; see docs/backdoors.md
    test_fraction: float = Field(default=0.2, gt=0, lt=1)  # used where there is no such column
    # The kind of a column is guessed from its values; these three lists overrule the guess.
    numeric: list[str] = Field(default_factory=list)
    categorical: list[str] = Field(default_factory=list)
    ignore: list[str] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _several_columns(cls, value: Any) -> Any:
        """Take a list of columns for the first and the further ones."""
        if isinstance(value, dict) and isinstance(value.get("id"), list) and value["id"]:
            first, *further = value["id"]
            return {**value, "id": first, "id_also": further}
        return value

    @property
    def id_columns(self) -> list[str]:
        """All columns that an id is made of."""
        return [self.id, *self.id_also]

    @model_validator(mode="after")
    def _one_kind_each(self) -> Self:
        if len(set(self.id_columns)) < len(self.id_columns):
            raise ValueError("`id` names a column twice")
        named = [*self.numeric, *self.categorical, *self.ignore]
        for name in named:
            if named.count(name) > 1:
                raise ValueError(
                    f"column `{name}` is named twice in `numeric`, `categorical` and `ignore`; once is allowed"
                )
        if len({self.id, self.label, self.split}) < 3:
            raise ValueError("`id`, `label` and `split` should name different columns")
        if "truth" in self.model_fields_set and self.truth in (self.id, self.label, self.split, *named):
            raise ValueError(f"`truth` is column `{self.truth}`, which another setting names too")
        for field in ("id", "label"):
            name = getattr(self, field)
            if name in named:
                raise ValueError(f"`{field}` is column `{name}`, which `numeric`, `categorical` or `ignore` names too")
        return self

    def holds_truth(self, names: Container[str]) -> bool:
        """Tell whether the active party's file, by its columns, says what the true classes are."""
        # Somebody's labels may be called `truth`, or a feature.
        others = (*self.id_columns, self.label, self.split, *self.numeric, *self.categorical, *self.ignore)
        return self.truth in names and self.truth not in others
