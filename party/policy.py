"""A party's policy: what it computes, for whom, and which figures leave it. See docs/policy.md."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeFloat, PositiveFloat, PositiveInt

from fedora_vfl.settings.files import Settings

if TYPE_CHECKING:
    from torch import nn

OPEN = "open"  # the word that switches all rules off


class Policy(Settings):
    """The rules of one party; the defaults are safe for jobs of people it does not know."""

    submit: list[str] | None = None  # operators whose jobs are run, by their certificates' names; null: any operator
    forget: list[str] | None = None  # operators who may have rows forgotten; null: whoever may submit
    load: Literal["own", "any", "none"] = "own"  # saved models that a job may start from: its operator's own, any, none
    remembering: bool = False  # whether a job may start from a model that remembers rows dropped for good
    linear_bottom: bool = False  # whether a bottom model may be linear
    least_depth: PositiveInt = 2  # layers with weights that a bottom model has at least
    embedding_share: PositiveFloat = 1.0  # widest embedding, as a share of this party's encoded columns
    most_lr: PositiveFloat = 1.0  # largest learning rate
    most_gradient: PositiveFloat = 1000.0  # longest gradient of a row that is taken, of a loss that is a sum over rows
    most_embedding: PositiveFloat = 1000.0  # largest value of an embedding that is taken
    least_learning: NonNegativeFloat = 0.001  # learning rate × steps that a fresh model takes before it is looked at
    most_phases: PositiveInt = 2000  # epochs, rounds and looks of one job together
    jobs_per_day: PositiveInt = 50
    starts_per_day: PositiveInt = 100  # models with fresh parameters, over all jobs
    alignments_per_day: PositiveInt = 50
    releases_per_day: PositiveInt = 1000  # of one row, over all jobs
    noise: NonNegativeFloat = 0.0  # least `privacy.noise` as a share of `privacy.clip`; 0: none is needed
    smallest_group: Annotated[int, Field(ge=2)] = 10  # rows that any figure which leaves is about
    groups_per_day: PositiveInt = 50  # different groups of rows of which figures leave
    digits: PositiveInt = 3  # of figures that leave
    figures: list[str] | None = None  # names of the figures of a model that may leave; null: all

    # Each rule returns what it refuses, as one sentence, or nothing.

    def about_operator(self, operator: str) -> str | None:
        """Judge who submits a job."""
        return _named("submit", "jobs", operator, self.submit)

    def about_forgetting(self, operator: str) -> str | None:
        """Judge who asks to forget."""
        return _named("forget", "requests to forget", operator, self.forget)

    def about_loading(self, model: str, operator: str, owner: str | None) -> str | None:
        """Judge who starts from a saved model; `owner` is the operator whose job saved it, None if nobody knows."""
        if self.load == "any" or (self.load == "own" and owner == operator):
            return None
        if self.load == "none":
            return f"policy.load: is none, so that no job starts from a saved model such as {model!r}"
        saved = "nobody knows whose job" if owner is None else f"a job of {owner or 'somebody without a certificate'}"
        return f"policy.load: is own, and the model {model!r} was saved by {saved}"

    def about_replacing(self, model: str, operator: str, owner: str | None) -> str | None:
        """Judge who replaces a saved model: whoever it was saved for may, and all where all models are anybody's."""
        if self.load == "any" or owner == operator:
            return None
        return f"policy.load: is {self.load}, and the model {model!r} to be replaced was saved for somebody else"

    def about_remembering(self, model: str) -> str | None:
        """Judge a job that starts from a model which remembers rows that were dropped for good."""
        if self.remembering:
            return None
        return f"policy.remembering: is false, and the model {model!r} still remembers rows that were dropped for good"

    def about_noise(self, noise: float, clip: float | None) -> str | None:
        """Judge the noise that the party file asks for."""
        share = noise / clip if clip else 0.0
        if share >= self.noise:
            return None
        return f"policy.noise: is {self.noise:g}, and this party's privacy settings have noise of {share:g} × clip"

    def about_bottom(self, bottom: "nn.Module", shape: Sequence[int], embedding: int) -> list[str]:
        """Judge a bottom model for rows of this shape."""
        from party.models.inspection import depth, is_linear  # here: settings are read without torch

        refused, columns, layers = [], math.prod(shape), depth(bottom)
        if not self.linear_bottom and is_linear(bottom, shape):
            refused.append("policy.linear_bottom: is false, and the bottom model is linear")
        if layers < self.least_depth:
            refused.append(f"policy.least_depth: is {self.least_depth}, and the bottom model has {layers}")
        widest = max(1, int(self.embedding_share * columns))
        if embedding > widest:
            of = f"{self.embedding_share:g} × its {columns} encoded columns"
            refused.append(f"policy.embedding_share: allows embeddings up to {widest} wide ({of}), not {embedding}")
        return refused

    def about_lr(self, lr: float) -> str | None:
        """Judge a learning rate."""
        return f"policy.most_lr: is {self.most_lr:g}, and the learning rate is {lr:g}" if lr > self.most_lr else None

    def about_learning(self, learned: float) -> str | None:
        """Judge how much a model will have learned, as learning rate × steps, when a phase has looked at it."""
        if learned >= self.least_learning:
            return None
        said = f"a fresh model would be looked at after {learned:g} (learning rate × steps)"
        return f"policy.least_learning: is {self.least_learning:g}, and {said}"

    def about_phases(self, phases: int) -> str | None:
        """Judge how many phases a job takes."""
        return (
            f"policy.most_phases: is {self.most_phases}, and the job has {phases}"
            if phases > self.most_phases
            else None
        )


def read_policy(content: Any) -> Any:
    """Take the word that switches all rules off for no policy; nothing at all must not mean the same."""
    if content is None:
        raise ValueError(f"is empty; leave it out for the defaults, or write `{OPEN}` to switch all rules off")
    return None if content == OPEN else content


OptionalPolicy = Annotated[Policy | None, BeforeValidator(read_policy)]


def _named(rule: str, what: str, operator: str, allowed: list[str] | None) -> str | None:
    if allowed is None or operator in allowed:
        return None
    who = repr(operator) if operator else "somebody without a certificate"
    return f"policy.{rule}: takes {what} of {', '.join(allowed) or 'nobody'}, not of {who}"
