"""A report as one web page that needs nothing from anywhere else."""

import base64
import re
from collections.abc import Iterator
from html import escape
from itertools import groupby
from pathlib import Path

from fedora_vfl.documents.document import (
    GAP,
    HERE,
    MARKS,
    PAPER,
    Block,
    Bullets,
    Code,
    Document,
    Drawing,
    Fold,
    Grid,
    Heading,
    Marked,
    Notice,
    Paragraph,
    Photo,
    Plot,
    Row,
    Table,
    Verdicts,
)

STYLE = Path(__file__).parent / "report.css"
CLASSES = {HERE: "here", GAP: "gap", PAPER: "paper"}


def webpage(document: Document) -> str:
    """Write a report as HTML, style and pictures inside."""
    numbers = Numbers(document.letter)
    body = "\n".join(_block(block, numbers) for block in document.blocks)
    sections = [one for one in document.contents if one.level == 2]
    links = "".join(f'<li><a href="#{one.anchor}">{_inline(one.text)}</a></li>' for one in sections)
    contents = f'<nav aria-label="Contents"><ol>{links}</ol></nav>\n' if len(sections) > 1 else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(document.title)}</title>\n<style>\n{STYLE.read_text(encoding='utf-8')}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{_inline(document.title)}</h1>\n"
        f'<p class="subtitle">{_inline(document.subtitle)}</p>\n{contents}'
        f"{body}\n</main>\n</body>\n</html>\n"
    )


class Numbers:
    """Counts tables and plots, with a letter before each number where a paper has tables of its own."""

    def __init__(self, letter: str) -> None:
        self._letter, self._tables, self._plots = letter, 0, 0

    def table(self) -> str:
        """Return the next table's name."""
        self._tables += 1
        return f"Table {self._letter}{self._tables}"

    def plot(self) -> str:
        """Return the next plot's name."""
        self._plots += 1
        return f"Figure {self._letter}{self._plots}"


def _block(block: Block, numbers: Numbers) -> str:
    match block:
        case Heading():
            return f'<h{block.level} id="{block.anchor}">{_inline(block.text)}</h{block.level}>'
        case Paragraph():
            return f"<p>{_inline(block.text)}</p>"
        case Bullets():
            return f"<ul>{''.join(f'<li>{_inline(item)}</li>' for item in block.items)}</ul>"
        case Code():
            return f"<pre>{escape(block.text)}</pre>"
        case Plot():
            return _plot(block, numbers)
        case Table():
            return _table(block, numbers)
        case Verdicts():
            return _verdicts(block)
        case Grid():
            return _grid(block, numbers)
        case Notice():
            said = "".join(f"<li>{_inline(one)}</li>" for one in block.sentences)
            return f'<div class="notice {block.mood}"><p>{_inline(block.title)}</p><ul>{said}</ul></div>'
        case Marked():
            return _marked(block)
        case Drawing():
            caption = f"<figcaption><b>{numbers.plot()}.</b> {_inline(block.caption)}</figcaption>"
            return f'<figure class="drawing">{block.svg}{caption}</figure>'
        case Photo():
            return _photo(block, numbers)
        case Fold():
            inside = "\n".join(_block(one, numbers) for one in block.blocks)
            return f"<details><summary>{_inline(block.summary)}</summary>\n{inside}</details>"


def _inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))


def _plot(plot: Plot, numbers: Numbers) -> str:
    picture = base64.b64encode(plot.path.read_bytes()).decode()
    return (
        f'<figure><img alt="{escape(plot.alternative)}" src="data:image/svg+xml;base64,{picture}">'
        f"<figcaption><b>{numbers.plot()}.</b> {_inline(plot.caption)}</figcaption></figure>"
    )


def _photo(photo: Photo, numbers: Numbers) -> str:
    picture = base64.b64encode(photo.png).decode()
    return (
        f'<figure><div class="scroll wide"><img alt="{escape(photo.alternative)}" '
        f'src="data:image/png;base64,{picture}"></div>'
        f"<figcaption><b>{numbers.plot()}.</b> {_inline(photo.caption)}</figcaption></figure>"
    )


def _marked(block: Marked) -> str:
    items = "".join(
        f'<li class="{mood}"><span aria-hidden="true">{MARKS[mood]}</span> {_inline(text)}</li>'
        for mood, text in block.items
    )
    return f'<ul class="marked">{items}</ul>'


def _grid(grid: Grid, numbers: Numbers) -> str:
    head = "".join(f'<th scope="col">{_inline(name)}</th>' for name in grid.header)
    rows = "".join(
        f'<tr><th scope="row">{_inline(first)}</th>{"".join(f"<td>{_inline(one)}</td>" for one in others)}</tr>'
        for first, *others in grid.rows
    )
    notes = "".join(f'<p class="note">{_inline(note)}</p>' for note in grid.notes)
    kind = "text" if grid.text else "figures"
    return (
        f'<div class="scroll"><table class="grid {kind}">'
        f"<caption><b>{numbers.table()}.</b> {_inline(grid.caption)}</caption>"
        f"<thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table>{notes}</div>"
    )


def _table(table: Table, numbers: Numbers) -> str:
    head = "".join(f'<th scope="col">{_inline(name)}</th>' for name in table.header)
    bodies = "\n".join(f"<tbody>{''.join(_rows(block))}</tbody>" for block in _blocks(table.rows))
    notes = "".join(f'<p class="note">{_inline(note)}</p>' for note in table.notes)
    return (
        f'<div class="scroll"><table class="{"text" if table.text else "figures"}">'
        f"<caption><b>{numbers.table()}.</b> {_inline(table.caption)}</caption>"
        f"<thead><tr>{head}</tr></thead>\n{bodies}</table>{notes}</div>"
    )


def _blocks(rows: list[Row]) -> Iterator[list[Row]]:
    """Return the rows that share a label, block by block."""
    number = 0

    def block(row: Row) -> int:
        nonlocal number
        number += row.begins
        return number

    for _, members in groupby(rows, key=block):
        yield list(members)


def _rows(block: list[Row]) -> Iterator[str]:
    for place, row in enumerate(block):
        label = f'<th scope="rowgroup" rowspan="{len(block)}">{_inline(row.label)}</th>' if place == 0 else ""
        entries = "".join(f"<td>{_inline(entry)}</td>" for entry in row.entries)
        whose = f'<td class="whose">{_inline(row.whose)}</td>'
        yield f'<tr class="{CLASSES.get(row.whose, "")}">{label}{whose}{entries}</tr>'


def _verdicts(block: Verdicts) -> str:
    rows = "".join(
        f'<tr><th scope="row">{_inline(one.claim)} <span class="where">{_inline(one.where)}</span></th>'
        f'<td><span class="verdict {one.holds.split()[0]}">{escape(one.holds)}</span></td>'
        f"<td>{_inline(one.cases)}</td><td>{_inline(one.worst)}</td></tr>"
        for one in block.items
    )
    items = "".join(
        f'<li><p class="claim">{_inline(one.claim)}</p><p class="numbers">{_inline(one.numbers)}</p></li>'
        for one in block.items
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("claim", "holds", "in cases", "the worst case"))
    return (
        f'<div class="scroll"><table class="grid text claims"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
        f'<details><summary>All cases of every claim</summary><ol class="verdicts">{items}</ol></details>'
    )
