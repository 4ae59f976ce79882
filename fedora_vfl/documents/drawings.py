"""Pictures that are part of a page: as wide as the reader's screen, letters of one size, the page's own colours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

# After Okabe and Ito: colours that readers with any kind of colour blindness can tell apart, on light and on dark.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c")
LINE = 20  # height of a line of text
BAR = 14
ROW = LINE + BAR + 12
TRACK = 10


@dataclass(frozen=True)
class Bar:
    """One bar, made of parts that stand behind each other, with words at both ends of the line above it."""

    name: str
    said: str
    parts: Mapping[str, float]


@dataclass(frozen=True)
class Dot:
    """One value on a line."""

    value: float
    kind: str  # which of the picture's kinds it is of


@dataclass(frozen=True)
class Scale:
    """A line from `least` to `most` with dots on it, and a stretch of it that counts as the reference."""

    name: str
    said: str
    least: float
    most: float
    dots: Sequence[Dot]
    stretch: tuple[float, float] | None = None


def bars(rows: Sequence[Bar], *, title: str) -> str:
    """Draw bars below each other, all to one scale, with a key of what their parts are."""
    kinds = list(dict.fromkeys(kind for row in rows for kind in row.parts if any(one.parts.get(kind) for one in rows)))
    colours = {kind: COLOURS[place % len(COLOURS)] for place, kind in enumerate(kinds)}
    longest = max((sum(row.parts.values()) for row in rows), default=0) or 1
    drawn = [_key(colours)]
    top = len(kinds) * LINE + 10
    for row in rows:
        drawn.append(_words(row.name, row.said, top + LINE - 6))
        left = 0.0
        for kind, value in row.parts.items():
            if not value:
                continue
            width = 100 * value / longest
            drawn.append(_rectangle(left, top + LINE, max(width, 0.15), BAR, colours[kind]))
            left += width
        top += ROW
    return _picture(drawn, top, title, [f"{row.name}: {row.said}" for row in rows])


def scales(rows: Sequence[Scale], *, kinds: Sequence[str], title: str, stretch: str) -> str:
    """Draw values on lines below each other, each line to its own scale; `stretch` names the shaded part of lines."""
    colours = {kind: COLOURS[place % len(COLOURS)] for place, kind in enumerate(kinds)}
    shaded = any(row.stretch for row in rows)
    drawn, top = [_key(colours, rounded=True)], len(kinds) * LINE
    if shaded:
        drawn.append(f'<rect x="0" y="{top + 4}" width="12" height="12" fill="var(--line)"/>')
        drawn.append(f'<text x="20" y="{top + 14}">{escape(stretch)}</text>')
        top += LINE
    top += 10
    for row in rows:
        middle = top + LINE + TRACK
        # Words above and below the line: beside each other they would meet on a narrow screen.
        drawn.append(_words(row.name, "", top + LINE - 6))
        drawn.append(_words("", row.said, middle + 24))
        if row.stretch:
            low, high = (_place(row, value) for value in row.stretch)
            drawn.append(_rectangle(low, middle - 9, max(high - low, 0.6), 18, "var(--line)"))
        drawn.append(f'<line x1="1%" x2="99%" y1="{middle}" y2="{middle}" stroke="var(--soft)" stroke-width="1"/>')
        for dot in row.dots:
            drawn.append(
                f'<circle cx="{_place(row, dot.value):.2f}%" cy="{middle}" r="6" fill="{colours[dot.kind]}" '
                'stroke="var(--paper)" stroke-width="1.5"/>'
            )
        top += ROW + LINE
    return _picture(drawn, top, title, [f"{row.name}: {row.said}" for row in rows])


def _place(row: Scale, value: float) -> float:
    """Return where on its line a value stands, in percent of the picture's width; 1 % is left free at both ends."""
    share = (value - row.least) / (row.most - row.least)
    return 1 + 98 * min(1.0, max(0.0, share))


def _key(colours: Mapping[str, str], *, rounded: bool = False) -> str:
    return "".join(
        f'<rect x="0" y="{place * LINE + 4}" width="12" height="12" rx="{6 if rounded else 1}" fill="{colour}"/>'
        f'<text x="20" y="{place * LINE + 14}">{escape(kind)}</text>'
        for place, (kind, colour) in enumerate(colours.items())
    )


def _words(left: str, right: str, baseline: int) -> str:
    return (
        f'<text x="0" y="{baseline}" font-weight="600">{escape(left)}</text>'
        f'<text x="100%" y="{baseline}" text-anchor="end">{escape(right)}</text>'
    )


def _rectangle(left: float, top: int, width: float, height: int, colour: str) -> str:
    return f'<rect x="{left:.2f}%" y="{top}" width="{width:.2f}%" height="{height}" fill="{colour}"/>'


def _picture(drawn: Sequence[str], height: int, title: str, described: Sequence[str]) -> str:
    words = escape("; ".join(described))
    return (
        f'<svg role="img" xmlns="http://www.w3.org/2000/svg" height="{height}"><title>{escape(title)}</title>'
        f"<desc>{words}</desc>{''.join(drawn)}</svg>"
    )
