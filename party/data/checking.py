"""What ids, labels and splits have to be, whichever format they came in."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fedora_vfl.errors import DataError

NULLS = (
    *("", "?", "-", "--", "NA", "N/A", "n/a", "na", "#N/A", "#NA", "#n/a", "NaN", "nan"),
    *("null", "NULL", "Null", "None", "none", "NONE", "nil", "missing"),
)
SPLITS = {"train": "train", "validation": "validation", "val": "validation", "test": "test", "probe": "probe"}
MOST_CLASSES = 1000
LISTED = 20

_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.ASCII | re.IGNORECASE)

# Says where a row stands in the file: "line 5" of a text, "row 4" elsewhere.
Locate = Callable[[int], str]


def by_row(row: int) -> str:
    """Say where a row stands in a file that has no lines."""
    return f"row {row + 1}"


def listing(names: Iterable[str]) -> str:
    """List names for an error, the first few of very many."""
    every = list(names)
    rest = f" and {len(every) - LISTED} more" if len(every) > LISTED else ""
    return (", ".join(every[:LISTED]) or "none") + rest


def checked_names(names: Sequence[str], path: Path) -> None:
    """Refuse two columns of one name."""
    repeated = next((name for name, count in Counter(names).items() if count > 1), None)
    if repeated is not None:
        raise DataError(f"{path}: two columns are called `{repeated}`; every column needs a name of its own")


def text_of(value: object) -> str | None:
    """Write a value as text; a float that is a whole number loses its point, and a missing value is None."""
    if value is None or value != value:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, bytes):
        return value.decode(errors="replace").strip()
    return str(value).strip()


def checked_ids(ids: list[str | None], path: Path, locate: Locate) -> list[str]:
    """Refuse missing and repeated ids."""
    first: dict[str, int] = {}
    for row, name in enumerate(ids):
        if not name:
            raise DataError(f"{path}: {locate(row)} has no id; every row needs one")
        if name in first:
            places = f"{locate(first[name])} and {locate(row)}"
            raise DataError(f"{path}: id {name!r} stands at {places}; every id may stand only once")
        first[name] = row
    return list(first)


def checked_labels(labels: list[str | None], ids: list[str], path: Path, column: str) -> list[str]:
    """Refuse missing labels and labels that are not classes; 1.0 becomes 1."""
    missing = [name for name, label in zip(ids, labels, strict=True) if label is None or label in NULLS]
    if missing:
        spellings = ", ".join(spelling or "nothing" for spelling in NULLS)
        raise DataError(
            f"{path}: column `{column}` has no label in {len(missing)} of {len(ids)} rows, the first with id "
            f"{missing[0]!r}; every row needs one ({spellings} count as missing)"
        )
    present = [label for label in labels if label is not None]
    names = _class_names(set(present), path, column)
    return [names[label] for label in present]


def _class_names(distinct: set[str], path: Path, column: str) -> dict[str, str]:
    """Map labels as written to names of classes."""
    if all(_NUMBER.fullmatch(label) for label in distinct):
        fraction = min((label for label in distinct if not float(label).is_integer()), default=None)
        if fraction is not None:
            raise DataError(
                f"{path}: column `{column}` holds the number {fraction!r}; labels should be classes (text or "
                "integers), as classification cannot predict a quantity"
            )
        names = {label: label if _INTEGER.fullmatch(label) else str(int(float(label))) for label in distinct}
    else:
        names = {label: label for label in distinct}
    count = len(set(names.values()))
    if count > MOST_CLASSES:
        raise DataError(
            f"{path}: column `{column}` holds {count} different labels; classification needs classes, at most "
            f"{MOST_CLASSES}"
        )
    return names


def checked_truth(truth: list[str | None], ids: list[str], path: Path, column: str) -> list[str]:
    """Refuse what labels may not be either."""
    try:
        return checked_labels(truth, ids, path, column)
    except DataError as error:
        hint = f"`{column}` is taken for the true classes; if it is a feature, name it in `numeric` or `categorical`"
        raise DataError(f"{error} ({hint})") from None


def checked_split(split: list[str | None], ids: list[str], path: Path, column: str) -> list[str]:
    """Refuse values that are not train, validation, test or probe."""
    for name, value in zip(ids, split, strict=True):
        if (value or "").lower() not in SPLITS:
            raise DataError(
                f"{path}: column `{column}` holds {value or 'nothing'!r} for id {name!r}; allowed: {', '.join(SPLITS)} "
                f"(if it is a feature, name it in `numeric` or `categorical`)"
            )
    return [SPLITS[(value or "").lower()] for value in split]
