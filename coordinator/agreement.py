"""Who is at odds with the others: where parties should say the same, the one that stands alone is named."""

from collections.abc import Mapping
from typing import TypeVar

from fedora_vfl.errors import PartyError, in_one_line

T = TypeVar("T")

MOST_LETTERS = 200  # of what a party said, in a sentence about it


def agreed(told: Mapping[str, T], *, what: str) -> T:
    """Return what all parties say alike, or name the one that does not.

    The answer that most give counts. Where as many give another, nobody here can tell who is wrong, and all are named.

    Args:
        told: By party; never empty.
        what: What they were asked about, behind "says … of".
    """
    answers: list[tuple[T, list[str]]] = []
    for name, answer in told.items():
        names = next((names for other, names in answers if other == answer), None)
        if names is None:
            answers.append((answer, [name]))
        else:
            names.append(name)
    answers.sort(key=lambda one: -len(one[1]))
    (answer, most), *others = answers
    if not others:
        return answer
    other, few = others[0]
    if len(few) == len(most):
        everybody, said = " and ".join([*most, *few]), f"{_shown(answer)} and {_shown(other)}"
        raise PartyError(everybody, f"do not agree on {what}: they say {said}")
    raise PartyError(" and ".join(few), f"says {_shown(other)} of {what}, where {most[0]} says {_shown(answer)}")


def _shown(answer: object) -> str:
    return in_one_line(str(answer))[:MOST_LETTERS]
