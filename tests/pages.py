"""Examples that pages of the docs show."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def block(page: str, language: str) -> str:
    """Return a page's first block of a language."""
    found = re.search(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return found[1]


def commands(page: str) -> list[list[str]]:
    """Return the words of every `fedora` command that a page shows on a line of its own."""
    return [
        line.split()[1:]
        for line in (DOCS / page).read_text(encoding="utf-8").splitlines()
        if line.startswith("    fedora ")
    ]
