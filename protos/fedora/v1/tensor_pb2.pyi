from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Encoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENCODING_UNSPECIFIED: _ClassVar[Encoding]
    FLOAT32: _ClassVar[Encoding]
    FLOAT16: _ClassVar[Encoding]
    BFLOAT16: _ClassVar[Encoding]
    INT8: _ClassVar[Encoding]
    INT4: _ClassVar[Encoding]
    INT2: _ClassVar[Encoding]
    TOPK: _ClassVar[Encoding]
    RANDTOPK: _ClassVar[Encoding]
    INT3: _ClassVar[Encoding]
ENCODING_UNSPECIFIED: Encoding
FLOAT32: Encoding
FLOAT16: Encoding
BFLOAT16: Encoding
INT8: Encoding
INT4: Encoding
INT2: Encoding
TOPK: Encoding
RANDTOPK: Encoding
INT3: Encoding

class Tensor(_message.Message):
    __slots__ = ("encoding", "shape", "data")
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    encoding: Encoding
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    def __init__(self, encoding: _Optional[_Union[Encoding, str]] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...
