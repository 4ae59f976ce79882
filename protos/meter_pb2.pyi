from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KIND_UNSPECIFIED: _ClassVar[Kind]
    CONTROL: _ClassVar[Kind]
    ALIGNMENT: _ClassVar[Kind]
    EMBEDDING: _ClassVar[Kind]
    GRADIENT: _ClassVar[Kind]
    DUAL: _ClassVar[Kind]
KIND_UNSPECIFIED: Kind
CONTROL: Kind
ALIGNMENT: Kind
EMBEDDING: Kind
GRADIENT: Kind
DUAL: Kind

class Reading(_message.Message):
    __slots__ = ("sender", "receiver", "phase", "round", "kind", "messages", "tensor_bytes", "protobuf_bytes")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TENSOR_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROTOBUF_BYTES_FIELD_NUMBER: _ClassVar[int]
    sender: str
    receiver: str
    phase: str
    round: int
    kind: Kind
    messages: int
    tensor_bytes: int
    protobuf_bytes: int
    def __init__(self, sender: _Optional[str] = ..., receiver: _Optional[str] = ..., phase: _Optional[str] = ..., round: _Optional[int] = ..., kind: _Optional[_Union[Kind, str]] = ..., messages: _Optional[int] = ..., tensor_bytes: _Optional[int] = ..., protobuf_bytes: _Optional[int] = ...) -> None: ...
