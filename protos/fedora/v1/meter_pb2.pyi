from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
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
    __slots__ = ("sender", "receiver", "phase", "kind", "counts")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    sender: str
    receiver: str
    phase: str
    kind: Kind
    counts: _containers.RepeatedCompositeFieldContainer[Count]
    def __init__(self, sender: _Optional[str] = ..., receiver: _Optional[str] = ..., phase: _Optional[str] = ..., kind: _Optional[_Union[Kind, str]] = ..., counts: _Optional[_Iterable[_Union[Count, _Mapping]]] = ...) -> None: ...

class Count(_message.Message):
    __slots__ = ("round", "messages", "tensor_bytes", "protobuf_bytes")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TENSOR_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROTOBUF_BYTES_FIELD_NUMBER: _ClassVar[int]
    round: int
    messages: int
    tensor_bytes: int
    protobuf_bytes: int
    def __init__(self, round: _Optional[int] = ..., messages: _Optional[int] = ..., tensor_bytes: _Optional[int] = ..., protobuf_bytes: _Optional[int] = ...) -> None: ...
