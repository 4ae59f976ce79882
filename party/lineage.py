"""Where a model comes from: the model it was made of, and the requests to forget that it has honoured."""

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from fedora_vfl.errors import SettingsError
from party.dropped import DropList, DroppedRequest

SHOWN = 3  # so many requests are spelt out in an error


@dataclass(frozen=True)
class Lineage:
    """What a model file says of the model's past."""

    honoured: tuple[str, ...] = ()  # requests, each by the job that brought it
    parent: str = ""  # identity of the model that this one was made of; empty for one made of fresh parameters

    def honouring(self, job: str) -> "Lineage":
        """Return the lineage of a model that has honoured one request more."""
        return self if job in self.honoured else replace(self, honoured=(*self.honoured, job))

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Lineage":
        """Return what `to_json` has written; models of earlier releases have honoured nothing."""
        return cls(tuple(content.get("honoured", ())), content.get("parent", ""))


def check_lineage(lineage: Lineage, dropped: DropList, *, model: str, honouring: Collection[str]) -> None:
    """Refuse a model that remembers rows on a party's list, or whose requests are missing from the list.

    Args:
        lineage: The model's.
        dropped: The party's list.
        model: The name that errors call the model by.
        honouring: Requests that the job under way is about to honour, each by the job that brought it.
    """
    if remembered := dropped.lacking([*lineage.honoured, *honouring]):
        raise SettingsError(
            f"train.from: the saved model {model!r} still remembers rows that were dropped for good "
            f"({_some(remembered)}): take a model that has honoured these requests, have it honour them with `forget: "
            "{pending: true}`, or train anew; for an experiment, `allow_remembering: true` in the train section takes "
            "it all the same"
        )
    if unknown := set(lineage.honoured) - {*dropped.jobs, *honouring}:
        raise SettingsError(
            f"train.from: the saved model {model!r} has honoured requests that this party's list of dropped rows lacks "
            f"(jobs {', '.join(sorted(unknown)[:SHOWN])}), so that the list is not whole: bring back dropped.json and "
            "dropped.key in the party's folder of keys"
        )


def _some(requests: Iterable[DroppedRequest]) -> str:
    said = [f"{one.rows} rows by job {one.job} at {one.time}" for one in requests]
    return "; ".join(said[:SHOWN]) + (f"; and {len(said) - SHOWN} more requests" if len(said) > SHOWN else "")
