"""Reads PromQL as far as a dashboard needs: which metrics an expression asks for, and with which labels."""

import re
from collections import defaultdict

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\[[^\]]*\]|[A-Za-z_:][\w:]*|\d+(?:\.\d+)?|=~|!~|!=|==|>=|<=|\S')
_GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_WORDS = {"and", "or", "unless", "offset", "bool"}


def asked_for(expression: str) -> dict[str, set[str]]:
    """Return the metrics in an expression, each with the labels that it is selected or grouped by."""
    tokens = [token for token in _TOKEN.findall(expression) if not token.startswith("[")]
    found: defaultdict[str, set[str]] = defaultdict(set)
    grouping: set[str] = set()
    place = 0
    while place < len(tokens):
        token = tokens[place]
        after = tokens[place + 1] if place + 1 < len(tokens) else ""
        if token in _GROUPING:
            inside, place = _inside(tokens, place + 1, "(", ")")
            grouping |= set(inside) - {","}
        elif _is_name(token) and token not in _WORDS and after != "(" and after not in _GROUPING:
            found[token] |= set()
            if after == "{":
                inside, place = _inside(tokens, place + 1, "{", "}")
                found[token] |= {one for one in inside if _is_name(one)}
        place += 1
    return {metric: labels | grouping for metric, labels in found.items()}


def _is_name(token: str) -> bool:
    return token[0].isalpha() or token[0] == "_"


def _inside(tokens: list[str], place: int, opening: str, closing: str) -> tuple[list[str], int]:
    """Return what stands between two brackets, and where the second one is."""
    assert tokens[place] == opening, f"{opening} is missing before {tokens[place]}"
    end = tokens.index(closing, place)
    return tokens[place + 1 : end], end
