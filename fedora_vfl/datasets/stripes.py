"""Columns, of tables or of images, shared out: contiguous, in order, as even as possible."""

from fedora_vfl.datasets.settings import ACTIVE, passive_names
from fedora_vfl.errors import SettingsError


def stripes(count: int, parties: int, *, active: bool, origin: str) -> dict[str, range]:
    """Give each passive party, and the active one last if it takes part, a stripe of `count` columns."""
    names = [*passive_names(parties), *([ACTIVE] if active else [])]
    if len(names) > count:
        raise SettingsError(
            f"{origin}: {count} columns cannot be shared among {len(names)} parties; "
            f"set `parties` to at most {count - active}"
        )
    # The first `longer` stripes have one column more.
    length, longer = divmod(count, len(names))
    bounds = [place * length + min(place, longer) for place in range(len(names) + 1)]
    return {name: range(bounds[place], bounds[place + 1]) for place, name in enumerate(names)}
