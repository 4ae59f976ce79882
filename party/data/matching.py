"""A party's ids in the form that all parties compare."""

from collections.abc import Iterator
from dataclasses import replace

from fedora_vfl.errors import DataError
from fedora_vfl.settings.matching import SEPARATOR, Matching
from party.data.records import Records
from party.data.settings import DataSettings


def matched(records: Records, matching: Matching, settings: DataSettings) -> Records:
    """Return the rows under the ids that all parties compare; two rows that become one are an error."""
    first: dict[str, str] = {}
    for written, normal in spellings(records, matching, settings):
        if normal in first:
            said = f"by the federation's `matching` the ids {shown(first[normal])} and {shown(written)} are one"
            raise DataError(f"{records.origin}: {said}; every id may stand only once: correct the file, or match less")
        first[normal] = written
    return replace(records, ids=list(first))


def spellings(records: Records, matching: Matching, settings: DataSettings) -> Iterator[tuple[str, str]]:
    """Yield every id as the file has it, and as it is compared."""
    several = bool(settings.id_also)
    for one in records.ids:
        parts = one.split(SEPARATOR) if several else [one]
        try:
            yield one, matching.matched(parts, date_format=settings.date_format)
        except ValueError as error:
            hint = "" if len(parts) == matching.parts else "; `id` in the party file names the columns"
            raise DataError(f"{records.origin}: id {shown(one)} {error}{hint}") from None


def shown(one: str) -> str:
    """Write an id for a person."""
    return " + ".join(repr(part) for part in one.split(SEPARATOR))
