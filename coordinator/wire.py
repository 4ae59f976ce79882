"""How values travel: the `wire` section of a job."""

from typing import Annotated

from pydantic import AliasChoices, Field, field_validator

from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.files import Settings
from fedora_vfl.wire.encodings import encoding_named
from protos.fedora.v1.control_pb2 import LinkEncoding

MOST_PARTIES = 32
# What an embedding travels in where nobody makes up for what is left out of it, but does elsewhere: a byte a value.
LOOKED_AT = "int8"
# What joint rounds travel in, unless a job's values take fewer bytes anyway: the bytes that a request may cost then pay
# for several times the rows, which is worth more than exact values.
JOINT_ROUNDS = "int8"
_ANY_WIDTH = 64  # by which encodings are compared


class LinkWire(Settings):
    """What a job may choose for every link, or for one party's."""

    encoding: Annotated[str | None, Field(validation_alias=AliasChoices("encoding", "dtype"))] = None  # both directions
    embeddings: str | None = None  # to the active party
    gradients: str | None = None  # from it
    evaluation: str | None = None  # embeddings that are only looked at
    error_feedback: bool | None = None
    joint_rounds: str | None = None  # both directions of FedORA's rounds that set their own scales

    @field_validator("encoding", "embeddings", "gradients", "evaluation", "joint_rounds")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        try:
            return None if name is None else encoding_named(name).name
        except SettingsError as error:
            raise ValueError(str(error).removeprefix("wire.encoding: ")) from None


class Wire(LinkWire):
    """How values travel: on all links, and on those of some parties otherwise."""

    encoding: Annotated[str, Field(validation_alias=AliasChoices("encoding", "dtype"))] = "float32"
    parties: dict[str, LinkWire] = Field(default_factory=dict, max_length=MOST_PARTIES)

    def link(self, party: str) -> LinkEncoding:
        """Return the encodings of one passive party's link; what its own section leaves open, the job's says."""
        own = self.parties.get(party, LinkWire())
        embeddings = own.embeddings or own.encoding or self.embeddings or self.encoding
        feedback = self.error_feedback if own.error_feedback is None else own.error_feedback
        evaluation = own.evaluation or self.evaluation or (LOOKED_AT if feedback else embeddings)
        gradients = own.gradients or own.encoding or self.gradients or self.encoding
        smaller = _size(JOINT_ROUNDS) < min(_size(embeddings), _size(gradients))
        return LinkEncoding(
            embeddings=embeddings,
            gradients=gradients,
            evaluation=evaluation,
            error_feedback=bool(feedback),
            joint_rounds=own.joint_rounds or self.joint_rounds or (JOINT_ROUNDS if smaller else ""),
        )

    def links(self, passive: list[str]) -> dict[str, LinkEncoding]:
        """Return the encodings of every passive party's link."""
        if strange := sorted(set(self.parties) - set(passive)):
            raise SettingsError(f"wire.parties: {strange[0]!r} is no passive party; allowed: {', '.join(passive)}")
        return {name: self.link(name) for name in passive}


def _size(encoding: str) -> int:
    return encoding_named(encoding).nbytes(1, _ANY_WIDTH)
