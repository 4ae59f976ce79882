"""How ids of different files are taken for the same: settings of the federation that all parties share."""

import re
import unicodedata
from collections.abc import Sequence
from datetime import date, datetime
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from fedora_vfl.settings.files import Settings

SEPARATOR = "\x1f"  # between the parts of an id that is made of several columns
WRITTEN = "\t"  # between them where people write ids: in the file of a request

_DIGITS = re.compile(r"\d+", re.ASCII)


class Matching(Settings):
    """What may differ between two spellings of one id; by default nothing."""

    parts: Annotated[int, Field(ge=1, le=16)] = 1  # columns that an id is made of
    unicode: Literal["keep", "nfkc"] = "keep"  # nfkc: composed and decomposed, wide and narrow letters are one
    spaces: Literal["keep", "collapse", "remove"] = "keep"  # between words; those at the ends never count
    case: Literal["keep", "fold"] = "keep"
    zeros: Literal["keep", "strip"] = "keep"  # strip: a part of digits alone loses its leading zeros
    dates: list[PositiveInt] = Field(default=[])  # parts that are dates, counted from 1: each file has its own form

    @model_validator(mode="after")
    def _dates_are_parts(self) -> Self:
        if any(part > self.parts for part in self.dates):
            raise ValueError(f"matching.dates: names a part beyond the {self.parts} that an id is made of")
        return self

    def matched(self, parts: Sequence[str], *, date_format: str | None = None) -> str:
        """Return the one form of an id; a ValueError says what is wrong with it."""
        if len(parts) != self.parts:
            raise ValueError(f"has {len(parts)} parts, and the federation's `matching` says {self.parts}")
        normal = [
            _as_date(part, date_format) if number in self.dates else self._normal(part)
            for number, part in enumerate(parts, 1)
        ]
        if not all(normal):
            raise ValueError("has a part that is empty")
        return SEPARATOR.join(normal)

    def of_written(self, one: str, *, date_format: str | None = None) -> str:
        """Return the one form of an id as people write it, with tabs between its parts if it has several."""
        return self.matched(one.split(WRITTEN) if self.parts > 1 else [one], date_format=date_format)

    def _normal(self, part: str) -> str:
        if self.unicode == "nfkc":
            part = unicodedata.normalize("NFKC", part)
        if self.spaces != "keep":
            part = (" " if self.spaces == "collapse" else "").join(part.split())
        if self.case == "fold":
            part = part.casefold()
            if self.unicode == "nfkc":
                part = unicodedata.normalize("NFKC", part)  # folding may have taken letters apart
        if self.zeros == "strip" and _DIGITS.fullmatch(part):
            part = part.lstrip("0") or "0"
        return part


def _as_date(part: str, written: str | None) -> str:
    """Write a date as 2026-03-01."""
    try:
        if written:
            return datetime.strptime(part, written).date().isoformat()
        return date.fromisoformat(part[:10]).isoformat()
    except ValueError:
        form = (
            f"written as {written}" if written else "such as 2026-03-01; `date_format` in the party file says another"
        )
        raise ValueError(f"has a part that is no date {form}") from None
