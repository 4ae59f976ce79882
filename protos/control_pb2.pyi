from protos import tensor_pb2 as _tensor_pb2
from protos import failure_pb2 as _failure_pb2
from protos import meter_pb2 as _meter_pb2
from protos import phase_pb2 as _phase_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FromParty(_message.Message):
    __slots__ = ("hello", "ready", "report", "progress", "saved", "readings", "failure", "idle")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    READINGS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    IDLE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    ready: Ready
    report: _phase_pb2.Report
    progress: _phase_pb2.Progress
    saved: Saved
    readings: Readings
    failure: _failure_pb2.Failure
    idle: Idle
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., ready: _Optional[_Union[Ready, _Mapping]] = ..., report: _Optional[_Union[_phase_pb2.Report, _Mapping]] = ..., progress: _Optional[_Union[_phase_pb2.Progress, _Mapping]] = ..., saved: _Optional[_Union[Saved, _Mapping]] = ..., readings: _Optional[_Union[Readings, _Mapping]] = ..., failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ..., idle: _Optional[_Union[Idle, _Mapping]] = ...) -> None: ...

class FromCoordinator(_message.Message):
    __slots__ = ("welcome", "setup", "phase", "save", "collect", "dismiss", "failure")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    SETUP_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    COLLECT_FIELD_NUMBER: _ClassVar[int]
    DISMISS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    setup: Setup
    phase: _phase_pb2.Phase
    save: Save
    collect: Collect
    dismiss: Dismiss
    failure: _failure_pb2.Failure
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., setup: _Optional[_Union[Setup, _Mapping]] = ..., phase: _Optional[_Union[_phase_pb2.Phase, _Mapping]] = ..., save: _Optional[_Union[Save, _Mapping]] = ..., collect: _Optional[_Union[Collect, _Mapping]] = ..., dismiss: _Optional[_Union[Dismiss, _Mapping]] = ..., failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "party", "version")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    party: str
    version: str
    def __init__(self, protocol: _Optional[int] = ..., party: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: str
    def __init__(self, version: _Optional[str] = ...) -> None: ...

class Setup(_message.Message):
    __slots__ = ("job", "seed", "passive", "model", "wire_dtype", "load")
    JOB_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    PASSIVE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    WIRE_DTYPE_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    job: str
    seed: int
    passive: _containers.RepeatedScalarFieldContainer[str]
    model: str
    wire_dtype: _tensor_pb2.DType
    load: str
    def __init__(self, job: _Optional[str] = ..., seed: _Optional[int] = ..., passive: _Optional[_Iterable[str]] = ..., model: _Optional[str] = ..., wire_dtype: _Optional[_Union[_tensor_pb2.DType, str]] = ..., load: _Optional[str] = ...) -> None: ...

class Ready(_message.Message):
    __slots__ = ("own_rows", "parameters", "embedding", "train", "validation", "test", "classes", "features", "identity")
    OWN_ROWS_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    TRAIN_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_FIELD_NUMBER: _ClassVar[int]
    TEST_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    own_rows: int
    parameters: int
    embedding: int
    train: int
    validation: int
    test: int
    classes: int
    features: bool
    identity: str
    def __init__(self, own_rows: _Optional[int] = ..., parameters: _Optional[int] = ..., embedding: _Optional[int] = ..., train: _Optional[int] = ..., validation: _Optional[int] = ..., test: _Optional[int] = ..., classes: _Optional[int] = ..., features: _Optional[bool] = ..., identity: _Optional[str] = ...) -> None: ...

class Save(_message.Message):
    __slots__ = ("name", "identity")
    NAME_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    name: str
    identity: str
    def __init__(self, name: _Optional[str] = ..., identity: _Optional[str] = ...) -> None: ...

class Saved(_message.Message):
    __slots__ = ("name", "sha256")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    name: str
    sha256: str
    def __init__(self, name: _Optional[str] = ..., sha256: _Optional[str] = ...) -> None: ...

class Collect(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Readings(_message.Message):
    __slots__ = ("readings",)
    READINGS_FIELD_NUMBER: _ClassVar[int]
    readings: _containers.RepeatedCompositeFieldContainer[_meter_pb2.Reading]
    def __init__(self, readings: _Optional[_Iterable[_Union[_meter_pb2.Reading, _Mapping]]] = ...) -> None: ...

class Dismiss(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Idle(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Job(_message.Message):
    __slots__ = ("protocol", "settings", "origin")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    settings: str
    origin: str
    def __init__(self, protocol: _Optional[int] = ..., settings: _Optional[str] = ..., origin: _Optional[str] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("note", "started", "progress", "finished", "failure", "result")
    NOTE_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    note: str
    started: PhaseStarted
    progress: _phase_pb2.Progress
    finished: PhaseFinished
    failure: _failure_pb2.Failure
    result: Result
    def __init__(self, note: _Optional[str] = ..., started: _Optional[_Union[PhaseStarted, _Mapping]] = ..., progress: _Optional[_Union[_phase_pb2.Progress, _Mapping]] = ..., finished: _Optional[_Union[PhaseFinished, _Mapping]] = ..., failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ..., result: _Optional[_Union[Result, _Mapping]] = ...) -> None: ...

class PhaseStarted(_message.Message):
    __slots__ = ("name", "round", "of_rounds", "phase")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    OF_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    name: str
    round: int
    of_rounds: int
    phase: int
    def __init__(self, name: _Optional[str] = ..., round: _Optional[int] = ..., of_rounds: _Optional[int] = ..., phase: _Optional[int] = ...) -> None: ...

class PhaseFinished(_message.Message):
    __slots__ = ("name", "round", "of_rounds", "loss", "accuracy", "seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    OF_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    round: int
    of_rounds: int
    loss: float
    accuracy: float
    seconds: float
    def __init__(self, name: _Optional[str] = ..., round: _Optional[int] = ..., of_rounds: _Optional[int] = ..., loss: _Optional[float] = ..., accuracy: _Optional[float] = ..., seconds: _Optional[float] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("result_json", "ledger_csv")
    RESULT_JSON_FIELD_NUMBER: _ClassVar[int]
    LEDGER_CSV_FIELD_NUMBER: _ClassVar[int]
    result_json: str
    ledger_csv: str
    def __init__(self, result_json: _Optional[str] = ..., ledger_csv: _Optional[str] = ...) -> None: ...
