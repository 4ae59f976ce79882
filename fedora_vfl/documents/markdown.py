"""A report as Markdown."""

from pathlib import Path

from fedora_vfl.documents.document import (
    MARKS,
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
    Table,
    Verdicts,
)


def markdown(document: Document, folder: Path) -> str:
    """Write a report as Markdown; pictures are links to files below `folder`."""
    parts = [f"# {document.title}", document.subtitle]
    parts.append("\n".join(f"{'  ' * (one.level - 2)}- [{one.text}](#{one.anchor})" for one in document.contents))
    parts += [_block(block, folder) for block in document.blocks]
    return "\n\n".join(parts) + "\n"


def _block(block: Block, folder: Path) -> str:
    match block:
        case Heading():
            return f'<a id="{block.anchor}"></a>\n\n{"#" * block.level} {block.text}'
        case Paragraph():
            return block.text
        case Bullets():
            return "\n".join(f"- {item}" for item in block.items)
        case Code():
            return "\n".join(f"    {line}" for line in block.text.splitlines())
        case Plot():
            return f"![{block.caption}]({block.path.relative_to(folder).as_posix()})\n\n*{block.caption}*"
        case Verdicts():
            return _verdicts(block)
        case Table():
            return _table(block)
        case Grid():
            return _grid(block)
        case Notice():
            return "\n".join([f"**{block.title}**", "", *(f"- {one}" for one in block.sentences)])
        case Marked():
            return "\n".join(f"- {MARKS[mood]} {text}" for mood, text in block.items)
        case Drawing() | Photo():
            return f"*{block.caption}* (The picture is in the web page.)"
        case Fold():
            inside = "\n\n".join(_block(one, folder) for one in block.blocks)
            return f"<details><summary>{block.summary}</summary>\n\n{inside}\n\n</details>"


def _verdicts(block: Verdicts) -> str:
    lines = [_line(["claim", "where", "holds", "in cases", "the worst case"]), _line(["---"] * 5)]
    lines += [_line([one.claim, one.where, f"**{one.holds}**", one.cases, one.worst]) for one in block.items]
    items = "\n".join(f"1. {one.claim}.\n   {one.numbers}" for one in block.items)
    folded = f"<details><summary>All cases of every claim</summary>\n\n{items}\n\n</details>"
    return "\n".join(lines) + f"\n\n{folded}"


def _table(table: Table) -> str:
    lines = [
        f"**{table.caption}**",
        "",
        _line(table.header),
        _line(["---", "---", *["---:"] * (len(table.header) - 2)]),
    ]
    lines += [_line([row.label if row.begins else "", row.whose, *row.entries]) for row in table.rows]
    return "\n".join([*lines, *(f"\n{note}" for note in table.notes)])


def _grid(grid: Grid) -> str:
    rule = "---" if grid.text else "---:"
    lines = [f"**{grid.caption}**", "", _line(grid.header), _line(["---", *[rule] * (len(grid.header) - 1)])]
    lines += [_line(row) for row in grid.rows]
    return "\n".join([*lines, *(f"\n{note}" for note in grid.notes)])


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
