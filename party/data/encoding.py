"""Features to model input: learnt from training rows only, kept with the model as JSON, applied to any rows."""

from typing import Any

from fedora_vfl.errors import DataError
from party.data.image_encoding import ImageEncoding
from party.data.inputs import ImageInputs, Inputs, TableInputs
from party.data.label_encoding import LabelEncoding
from party.data.records import Features, Rows, Table
from party.data.table_encoding import TableEncoding

__all__ = [
    "Encoding",
    "ImageEncoding",
    "ImageInputs",
    "Inputs",
    "LabelEncoding",
    "TableEncoding",
    "TableInputs",
    "from_json",
    "learn",
]

Encoding = TableEncoding | ImageEncoding


def learn(features: Features, rows: Rows) -> Encoding:
    """Learn how to encode features from the training rows, given by number."""
    if not len(rows):
        raise DataError(f"{features.origin}: none of the rows held in common is a training row")
    if isinstance(features, Table):
        return TableEncoding.learn(features, rows)
    return ImageEncoding.learn(features, rows)


def from_json(content: dict[str, Any]) -> Encoding:
    """Rebuild an encoding from its description."""
    kinds: dict[str, type[Encoding]] = {"table": TableEncoding, "images": ImageEncoding}
    kind = kinds.get(content.get("kind", ""))
    if kind is None:
        raise DataError(f"the model's encoding is of kind {content.get('kind')!r}; allowed: {', '.join(kinds)}")
    return kind.from_json(content)
