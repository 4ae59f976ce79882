from protos.fedora.v1 import tensor_pb2 as _tensor_pb2
from protos.fedora.v1 import failure_pb2 as _failure_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Parcel(_message.Message):
    __slots__ = ("phase", "step", "greeting", "offer", "order", "dual", "failure", "forget", "piece", "call", "plan", "table", "masked", "common", "working", "echo", "embedding", "gradient", "agreed")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GREETING_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    DUAL_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    MASKED_FIELD_NUMBER: _ClassVar[int]
    COMMON_FIELD_NUMBER: _ClassVar[int]
    WORKING_FIELD_NUMBER: _ClassVar[int]
    ECHO_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_FIELD_NUMBER: _ClassVar[int]
    AGREED_FIELD_NUMBER: _ClassVar[int]
    phase: int
    step: int
    greeting: Greeting
    offer: Offer
    order: Order
    dual: Dual
    failure: _failure_pb2.Failure
    forget: Forget
    piece: Piece
    call: AlignmentCall
    plan: AlignmentPlan
    table: ShareTable
    masked: MaskedIds
    common: CommonRows
    working: Working
    echo: Echo
    embedding: _tensor_pb2.Tensor
    gradient: _tensor_pb2.Tensor
    agreed: int
    def __init__(self, phase: _Optional[int] = ..., step: _Optional[int] = ..., greeting: _Optional[_Union[Greeting, _Mapping]] = ..., offer: _Optional[_Union[Offer, _Mapping]] = ..., order: _Optional[_Union[Order, _Mapping]] = ..., dual: _Optional[_Union[Dual, _Mapping]] = ..., failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ..., forget: _Optional[_Union[Forget, _Mapping]] = ..., piece: _Optional[_Union[Piece, _Mapping]] = ..., call: _Optional[_Union[AlignmentCall, _Mapping]] = ..., plan: _Optional[_Union[AlignmentPlan, _Mapping]] = ..., table: _Optional[_Union[ShareTable, _Mapping]] = ..., masked: _Optional[_Union[MaskedIds, _Mapping]] = ..., common: _Optional[_Union[CommonRows, _Mapping]] = ..., working: _Optional[_Union[Working, _Mapping]] = ..., echo: _Optional[_Union[Echo, _Mapping]] = ..., embedding: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., gradient: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., agreed: _Optional[int] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("of", "data")
    OF_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    of: int
    data: bytes
    def __init__(self, of: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Greeting(_message.Message):
    __slots__ = ("protocol", "party", "job", "attempt")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    party: str
    job: str
    attempt: int
    def __init__(self, protocol: _Optional[int] = ..., party: _Optional[str] = ..., job: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class Offer(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class Order(_message.Message):
    __slots__ = ("train", "validation", "test", "probe")
    TRAIN_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_FIELD_NUMBER: _ClassVar[int]
    TEST_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    train: _containers.RepeatedScalarFieldContainer[str]
    validation: _containers.RepeatedScalarFieldContainer[str]
    test: _containers.RepeatedScalarFieldContainer[str]
    probe: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, train: _Optional[_Iterable[str]] = ..., validation: _Optional[_Iterable[str]] = ..., test: _Optional[_Iterable[str]] = ..., probe: _Optional[_Iterable[str]] = ...) -> None: ...

class AlignmentCall(_message.Message):
    __slots__ = ("key", "signature", "kept", "changed", "gone")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    signature: str
    kept: bytes
    changed: bool
    gone: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, key: _Optional[bytes] = ..., signature: _Optional[str] = ..., kept: _Optional[bytes] = ..., changed: _Optional[bool] = ..., gone: _Optional[_Iterable[int]] = ...) -> None: ...

class AlignmentPlan(_message.Message):
    __slots__ = ("way", "key", "signature", "others", "ids", "gone", "secret")
    class Way(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        WAY_UNSPECIFIED: _ClassVar[AlignmentPlan.Way]
        WHOLE: _ClassVar[AlignmentPlan.Way]
        DIFFERENCE: _ClassVar[AlignmentPlan.Way]
        AGAIN: _ClassVar[AlignmentPlan.Way]
    WAY_UNSPECIFIED: AlignmentPlan.Way
    WHOLE: AlignmentPlan.Way
    DIFFERENCE: AlignmentPlan.Way
    AGAIN: AlignmentPlan.Way
    WAY_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    way: AlignmentPlan.Way
    key: bytes
    signature: str
    others: _containers.RepeatedCompositeFieldContainer[MemberKey]
    ids: int
    gone: _containers.RepeatedScalarFieldContainer[int]
    secret: bytes
    def __init__(self, way: _Optional[_Union[AlignmentPlan.Way, str]] = ..., key: _Optional[bytes] = ..., signature: _Optional[str] = ..., others: _Optional[_Iterable[_Union[MemberKey, _Mapping]]] = ..., ids: _Optional[int] = ..., gone: _Optional[_Iterable[int]] = ..., secret: _Optional[bytes] = ...) -> None: ...

class MemberKey(_message.Message):
    __slots__ = ("party", "key", "signature")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    party: str
    key: bytes
    signature: str
    def __init__(self, party: _Optional[str] = ..., key: _Optional[bytes] = ..., signature: _Optional[str] = ...) -> None: ...

class ShareTable(_message.Message):
    __slots__ = ("ids", "salt", "slots")
    IDS_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    ids: int
    salt: bytes
    slots: bytes
    def __init__(self, ids: _Optional[int] = ..., salt: _Optional[bytes] = ..., slots: _Optional[bytes] = ...) -> None: ...

class MaskedIds(_message.Message):
    __slots__ = ("points",)
    POINTS_FIELD_NUMBER: _ClassVar[int]
    points: bytes
    def __init__(self, points: _Optional[bytes] = ...) -> None: ...

class CommonRows(_message.Message):
    __slots__ = ("train", "validation", "test", "probe", "unchanged", "tags")
    TRAIN_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_FIELD_NUMBER: _ClassVar[int]
    TEST_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    train: int
    validation: int
    test: int
    probe: int
    unchanged: bool
    tags: bytes
    def __init__(self, train: _Optional[int] = ..., validation: _Optional[int] = ..., test: _Optional[int] = ..., probe: _Optional[int] = ..., unchanged: _Optional[bool] = ..., tags: _Optional[bytes] = ...) -> None: ...

class Working(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Echo(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Forget(_message.Message):
    __slots__ = ("rows", "secret", "named")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    NAMED_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedScalarFieldContainer[int]
    secret: bytes
    named: bytes
    def __init__(self, rows: _Optional[_Iterable[int]] = ..., secret: _Optional[bytes] = ..., named: _Optional[bytes] = ...) -> None: ...

class Dual(_message.Message):
    __slots__ = ("norm", "largest", "positive_share", "values", "omega")
    NORM_FIELD_NUMBER: _ClassVar[int]
    LARGEST_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_SHARE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    OMEGA_FIELD_NUMBER: _ClassVar[int]
    norm: float
    largest: float
    positive_share: float
    values: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    omega: float
    def __init__(self, norm: _Optional[float] = ..., largest: _Optional[float] = ..., positive_share: _Optional[float] = ..., values: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ..., omega: _Optional[float] = ...) -> None: ...
