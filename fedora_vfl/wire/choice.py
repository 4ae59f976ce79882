"""Which encoding a tensor travels in: by link, direction, and by what the phase does."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from fedora_vfl.wire.encodings import Float32, TensorEncoding, encoding_named
from protos.fedora.v1.control_pb2 import LinkEncoding, Setup
from protos.fedora.v1.meter_pb2 import Kind
from protos.fedora.v1.phase_pb2 import Phase

# Update rules that take a step with every batch, down one loss or up: error feedback is for them.
STEPPING = frozenset({"sgd", "adam", "primal_descent", "ascent", "correction"})


@dataclass(frozen=True)
class Way:
    """How one kind of tensor travels in one phase."""

    encoding: type[TensorEncoding]
    feedback: bool = False  # whether the sender makes up for what the encoding has left out before
    random: bool = False  # whether the encoding may round or choose at random

    @cached_property
    def draws(self) -> bool:
        """Whether the encoding has anything that could be random."""
        return self.encoding.draw_from is not TensorEncoding.draw_from


@dataclass(frozen=True)
class Encodings:
    """What a job has chosen for one link."""

    embeddings: type[TensorEncoding]
    gradients: type[TensorEncoding]
    evaluation: type[TensorEncoding]  # of embeddings that nobody makes up for: see `way`
    error_feedback: bool = False
    joint_rounds: type[TensorEncoding] | None = None  # both ways, and in comparisons; None: as in other phases

    @classmethod
    def of(cls, link: LinkEncoding) -> Self:
        """Return what a setup says of a link."""
        return cls(
            encoding_named(link.embeddings),
            encoding_named(link.gradients),
            encoding_named(link.evaluation),
            link.error_feedback,
            encoding_named(link.joint_rounds) if link.joint_rounds else None,
        )

    def way(self, kind: Kind, phase: Phase) -> Way:
        """Return how embeddings or gradients travel in a phase.

        Error feedback is for phases that take steps: a row comes again, and what was left out is made up for. In others
        an embedding is seen as it arrives, and travels in the encoding of evaluation; what gradients add up to there is
        right on average, as they are rounded at random. Joint rounds, few and of other rows each time, may have an
        encoding of their own.
        """
        if self.joint_rounds and phase.HasField("joint"):
            return Way(self.joint_rounds, random=not phase.forward_only)
        feedback = self.error_feedback and phase.update.WhichOneof("rule") in STEPPING
        if kind == Kind.GRADIENT:
            return Way(self.gradients, feedback, random=not feedback)
        if phase.forward_only or (self.error_feedback and not feedback):
            return Way(self.evaluation)
        return Way(self.embeddings, feedback, random=not feedback)


def told(setup: Setup) -> dict[str, dict[str, str | bool]]:
    """Return what a signed statement says of how tensors travelled, by passive party; nothing if as they are."""
    links = encodings_of(setup)
    if all(link == Encodings(Float32, Float32, Float32) for link in links.values()):
        return {}
    return {
        name: {
            "embeddings": link.embeddings.name,
            "gradients": link.gradients.name,
            "evaluation": link.evaluation.name,
            "error_feedback": link.error_feedback,
            **({"joint_rounds": link.joint_rounds.name} if link.joint_rounds else {}),
        }
        for name, link in links.items()
    }


def encodings_of(setup: Setup) -> Mapping[str, Encodings]:
    """Return what a job has chosen, by passive party."""
    plain = LinkEncoding(embeddings=setup.encoding, gradients=setup.encoding, evaluation=setup.encoding)
    return {name: Encodings.of(setup.links.get(name, plain)) for name in setup.passive}
