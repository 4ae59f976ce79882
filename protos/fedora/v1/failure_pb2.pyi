from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Failure(_message.Message):
    __slots__ = ("kind", "culprit", "reason", "other")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[Failure.Kind]
        SETTINGS: _ClassVar[Failure.Kind]
        DATA: _ClassVar[Failure.Kind]
        PROTOCOL: _ClassVar[Failure.Kind]
        SILENT: _ClassVar[Failure.Kind]
        LOST: _ClassVar[Failure.Kind]
        LEDGER: _ClassVar[Failure.Kind]
        ABORTED: _ClassVar[Failure.Kind]
        INTERNAL: _ClassVar[Failure.Kind]
        CERTIFICATE: _ClassVar[Failure.Kind]
        LEFT: _ClassVar[Failure.Kind]
        DIVERGED: _ClassVar[Failure.Kind]
        STORAGE: _ClassVar[Failure.Kind]
        TAKEN: _ClassVar[Failure.Kind]
    UNSPECIFIED: Failure.Kind
    SETTINGS: Failure.Kind
    DATA: Failure.Kind
    PROTOCOL: Failure.Kind
    SILENT: Failure.Kind
    LOST: Failure.Kind
    LEDGER: Failure.Kind
    ABORTED: Failure.Kind
    INTERNAL: Failure.Kind
    CERTIFICATE: Failure.Kind
    LEFT: Failure.Kind
    DIVERGED: Failure.Kind
    STORAGE: Failure.Kind
    TAKEN: Failure.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    CULPRIT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    kind: Failure.Kind
    culprit: str
    reason: str
    other: str
    def __init__(self, kind: _Optional[_Union[Failure.Kind, str]] = ..., culprit: _Optional[str] = ..., reason: _Optional[str] = ..., other: _Optional[str] = ...) -> None: ...
