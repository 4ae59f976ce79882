"""Pages of the documentation lead where they say."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """Return the names by which a page's headings can be linked to."""
    text = page.read_text()
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    named = re.findall(r'<a id="([^"]+)"', text)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings} | set(named)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_page_or_a_heading(page: Path) -> None:
    astray = []
    for link in LINK.findall(page.read_text()):
        if re.match(r"\w+:", link):  # out of the project
            continue
        name, _, heading = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (heading and heading not in anchors(target)):
            astray.append(link)
    assert astray == []


def test_every_page_can_be_found_from_the_readme() -> None:
    found, new = set[Path](), {ROOT / "README.md"}
    while new:
        found |= new
        links = {
            (page.parent / link.partition("#")[0]).resolve() for page in new for link in LINK.findall(page.read_text())
        }
        new = {link for link in links if link.suffix == ".md" and link.exists()} - found
    assert set(PAGES) - found == set()
