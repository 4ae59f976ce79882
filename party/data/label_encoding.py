"""Names of classes to class numbers."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedora_vfl.errors import DataError

_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)


@dataclass(frozen=True)
class LabelEncoding:
    """The classes in their order; a class's number is its place."""

    classes: list[str]

    @classmethod
    def learn(cls, labels: list[str], *, origin: Path | str = "the labels") -> "LabelEncoding":
        """Learn the classes, sorted as numbers if all are, else as text."""
        distinct = sorted(set(labels))
        if len(distinct) < 2:
            found = f"only the class {distinct[0]!r}" if distinct else "no class"
            raise DataError(f"{origin}: training rows hold {found}; at least two classes are needed")
        if all(_INTEGER.fullmatch(label) for label in distinct):
            distinct.sort(key=int)
        return cls(distinct)

    def apply(self, labels: list[str], *, origin: Path | str = "the labels") -> NDArray[np.int64]:
        """Turn labels into class numbers."""
        numbers = {label: number for number, label in enumerate(self.classes)}
        unknown = next((label for label in labels if label not in numbers), None)
        if unknown is not None:
            known = ", ".join(map(repr, self.classes))
            raise DataError(f"{origin}: label {unknown!r} is not a class of the training rows, which are {known}")
        return np.array([numbers[label] for label in labels], dtype=np.int64)

    def to_json(self) -> dict[str, Any]:
        """Describe the encoding."""
        return {"kind": "labels", "classes": list(self.classes)}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "LabelEncoding":
        """Rebuild what `to_json` described."""
        return cls(list(content["classes"]))
