"""What a report consists of, whatever it is written as."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

HERE, GAP, PAPER = "here", "− Retrain", "paper"  # whose figures a line of a table has
Mood = Literal["yes", "partly", "no", "plain"]  # how something went, which decides its colour
MARKS: dict[Mood, str] = {"yes": "✓", "partly": "–", "no": "✗", "plain": "•"}


@dataclass(frozen=True)
class Heading:
    """Begins a section; its anchor is what the contents list leads to."""

    level: int
    text: str
    anchor: str


@dataclass(frozen=True)
class Paragraph:
    """Running text; `code` stands between backticks."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """A list."""

    items: list[str]


@dataclass(frozen=True)
class Code:
    """Something to type."""

    text: str


@dataclass(frozen=True)
class Row:
    """A line of a table. Lines of a block share its label, which only the first one shows."""

    label: str
    whose: str  # here, gap, paper or nothing: how it is set
    entries: list[str]
    begins: bool = True  # a block


@dataclass(frozen=True)
class Table:
    """A table with its caption and, below it, notes."""

    caption: str
    header: list[str]
    rows: list[Row]
    notes: list[str] = field(default_factory=list)
    text: bool = False  # whether its entries are words, which begin on the left


@dataclass(frozen=True)
class Plot:
    """A picture: its file beside the report, what it shows, and the same in words for who cannot see it."""

    path: Path
    caption: str
    alternative: str


@dataclass(frozen=True)
class Verdict:
    """A claim, where it is made, whether it holds, the numbers that say so, in how many cases, and the worst one."""

    claim: str
    where: str
    holds: str
    numbers: str
    cases: str
    worst: str


@dataclass(frozen=True)
class Verdicts:
    """Claims, a line of one table each; the numbers of all cases are folded away below it."""

    items: list[Verdict]


@dataclass(frozen=True)
class Grid:
    """A plain table: the first entry of each row names it."""

    caption: str
    header: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)
    text: bool = False  # whether its entries are words, which begin on the left


@dataclass(frozen=True)
class Notice:
    """What a reader should see first: a few words and, below them, sentences."""

    mood: Mood
    title: str
    sentences: list[str]


@dataclass(frozen=True)
class Marked:
    """Sentences, each behind a mark that says how it went."""

    items: list[tuple[Mood, str]]


@dataclass(frozen=True)
class Drawing:
    """A picture that is part of the page itself."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Photo:
    """A picture of dots, too wide for a narrow screen, which may be moved about there."""

    png: bytes
    caption: str
    alternative: str


@dataclass(frozen=True)
class Fold:
    """Details that are shown to who asks for them."""

    summary: str
    blocks: "list[Block]"


Block = Heading | Paragraph | Bullets | Code | Table | Verdicts | Plot | Grid | Notice | Marked | Drawing | Photo | Fold


@dataclass(frozen=True)
class Document:
    """A report."""

    title: str
    subtitle: str
    blocks: list[Block]
    letter: str = ""  # before the numbers of tables and figures: S for a supplement to a paper that has its own

    @property
    def contents(self) -> list[Heading]:
        """The sections, in order."""
        return [block for block in self.blocks if isinstance(block, Heading) and block.level <= 3]
