"""The confidence matrix: the active party's memory of what the model last said of every training row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedora_vfl.errors import PartyError


@dataclass
class Confidence:
    """Logits by row, and the embeddings of parties that may go offline."""

    _logits: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    _places: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))  # by row; −1: not kept
    _fresh: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    _embeddings: dict[str, Tensor] = field(default_factory=dict)  # by party, in the order of the logits

    def state_dict(self) -> dict[str, Any]:
        """Return all that is kept, between two phases."""
        return {"logits": self._logits, "places": self._places, "embeddings": self._embeddings}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what was kept."""
        self._logits, self._places, self._embeddings = state["logits"], state["places"], state["embeddings"]
        self._fresh = []

    @property
    def fresh(self) -> list[list[Tensor]]:
        """What a phase under way has found so far: rows and logits, batch by batch."""
        return [list(pair) for pair in self._fresh]

    @fresh.setter
    def fresh(self, found: Sequence[Sequence[Tensor]]) -> None:
        self._fresh = [(rows, logits) for rows, logits in found]

    def move_to(self, device: torch.device) -> None:
        """Keep logits where the networks are."""
        self._logits = self._logits.to(device)

    def fill(self, rows: Tensor, logits: Tensor, embeddings: Mapping[str, Tensor]) -> None:
        """Begin anew with these rows; any other is not in the matrix any more."""
        self._places = torch.full((int(rows.max()) + 1,), -1)
        self._places[rows] = torch.arange(len(rows))
        self._logits, self._embeddings, self._fresh = logits, dict(embeddings), []

    def straight_through(self, rows: Tensor, logits: Tensor) -> Tensor:
        """Return M[b] + z − stopgrad(z): the kept logits' values with the fresh ones' gradient; z is kept for later."""
        fresh = logits.detach()
        self._fresh.append((rows, fresh))
        return self._logits[self._find(rows)] + logits - fresh

    def refresh(self) -> None:
        """Put the fresh logits in the place of the stale ones: the round is over."""
        for rows, logits in self._fresh:
            self._logits[self._find(rows)] = logits
        self._fresh = []

    def embedding(self, party: str, rows: Tensor) -> Tensor:
        """Return what a party that is offline last said of some rows."""
        if party not in self._embeddings:
            raise PartyError("coordinator", f"asked to do without {party}, whose embeddings were not kept before")
        return self._embeddings[party][self._find(rows)]

    def _find(self, rows: Tensor) -> Tensor:
        """Return the places of rows, all of which must be kept."""
        if not len(self._places) or int(rows.max()) >= len(self._places) or (places := self._places[rows]).min() < 0:
            raise PartyError("coordinator", "asked for the confidence of rows that are not in the matrix")
        return places


def gathered(names: Sequence[str], batches: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Join what some parties sent batch by batch."""
    return {name: torch.cat([batch[name] for batch in batches]) for name in names}
