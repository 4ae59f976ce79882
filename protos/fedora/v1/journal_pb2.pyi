from protos.fedora.v1 import control_pb2 as _control_pb2
from protos.fedora.v1 import meter_pb2 as _meter_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JournalEntry(_message.Message):
    __slots__ = ("number", "attempt", "asked", "digest", "commit", "answers", "seconds", "since", "readings", "uncounted", "values")
    class AnswersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _control_pb2.FromParty
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_control_pb2.FromParty, _Mapping]] = ...) -> None: ...
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    READINGS_FIELD_NUMBER: _ClassVar[int]
    UNCOUNTED_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    number: int
    attempt: int
    asked: str
    digest: bytes
    commit: bool
    answers: _containers.MessageMap[str, _control_pb2.FromParty]
    seconds: float
    since: float
    readings: _containers.RepeatedCompositeFieldContainer[_meter_pb2.Reading]
    uncounted: _containers.RepeatedCompositeFieldContainer[_meter_pb2.Reading]
    values: _containers.ScalarMap[str, str]
    def __init__(self, number: _Optional[int] = ..., attempt: _Optional[int] = ..., asked: _Optional[str] = ..., digest: _Optional[bytes] = ..., commit: _Optional[bool] = ..., answers: _Optional[_Mapping[str, _control_pb2.FromParty]] = ..., seconds: _Optional[float] = ..., since: _Optional[float] = ..., readings: _Optional[_Iterable[_Union[_meter_pb2.Reading, _Mapping]]] = ..., uncounted: _Optional[_Iterable[_Union[_meter_pb2.Reading, _Mapping]]] = ..., values: _Optional[_Mapping[str, str]] = ...) -> None: ...
