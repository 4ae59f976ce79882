from protos.fedora.v1 import failure_pb2 as _failure_pb2
from protos.fedora.v1 import meter_pb2 as _meter_pb2
from protos.fedora.v1 import phase_pb2 as _phase_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FromParty(_message.Message):
    __slots__ = ("hello", "ready", "report", "progress", "saved", "readings", "failure", "idle", "accepted", "dropped", "restarted", "rolled_back", "assessment", "statement", "halted", "resumed", "committed", "attempt", "commit_seconds")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    READINGS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    IDLE_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    RESTARTED_FIELD_NUMBER: _ClassVar[int]
    ROLLED_BACK_FIELD_NUMBER: _ClassVar[int]
    ASSESSMENT_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    HALTED_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    ready: Ready
    report: _phase_pb2.Report
    progress: _phase_pb2.Progress
    saved: Saved
    readings: Readings
    failure: _failure_pb2.Failure
    idle: Idle
    accepted: Accepted
    dropped: Dropped
    restarted: Restarted
    rolled_back: RolledBack
    assessment: Assessment
    statement: Statement
    halted: Halted
    resumed: Resumed
    committed: Committed
    attempt: int
    commit_seconds: float
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., ready: _Optional[_Union[Ready, _Mapping]] = ..., report: _Optional[_Union[_phase_pb2.Report, _Mapping]] = ..., progress: _Optional[_Union[_phase_pb2.Progress, _Mapping]] = ..., saved: _Optional[_Union[Saved, _Mapping]] = ..., readings: _Optional[_Union[Readings, _Mapping]] = ..., failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ..., idle: _Optional[_Union[Idle, _Mapping]] = ..., accepted: _Optional[_Union[Accepted, _Mapping]] = ..., dropped: _Optional[_Union[Dropped, _Mapping]] = ..., restarted: _Optional[_Union[Restarted, _Mapping]] = ..., rolled_back: _Optional[_Union[RolledBack, _Mapping]] = ..., assessment: _Optional[_Union[Assessment, _Mapping]] = ..., statement: _Optional[_Union[Statement, _Mapping]] = ..., halted: _Optional[_Union[Halted, _Mapping]] = ..., resumed: _Optional[_Union[Resumed, _Mapping]] = ..., committed: _Optional[_Union[Committed, _Mapping]] = ..., attempt: _Optional[int] = ..., commit_seconds: _Optional[float] = ...) -> None: ...

class FromCoordinator(_message.Message):
    __slots__ = ("welcome", "setup", "phase", "save", "collect", "dismiss", "failure", "request", "drop", "restart", "rollback", "assess", "attest", "halt", "resume", "commit_only", "number", "attempt", "commit", "confirmed", "ahead")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    SETUP_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    COLLECT_FIELD_NUMBER: _ClassVar[int]
    DISMISS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    RESTART_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_FIELD_NUMBER: _ClassVar[int]
    ASSESS_FIELD_NUMBER: _ClassVar[int]
    ATTEST_FIELD_NUMBER: _ClassVar[int]
    HALT_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    COMMIT_ONLY_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    setup: Setup
    phase: _phase_pb2.Phase
    save: Save
    collect: Collect
    dismiss: Dismiss
    failure: _failure_pb2.Failure
    request: Request
    drop: Drop
    restart: Restart
    rollback: Rollback
    assess: Assess
    attest: Attest
    halt: Halt
    resume: Resume
    commit_only: Commit
    number: int
    attempt: int
    commit: bool
    confirmed: int
    ahead: bool
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., setup: _Optional[_Union[Setup, _Mapping]] = ..., phase: _Optional[_Union[_phase_pb2.Phase, _Mapping]] = ..., save: _Optional[_Union[Save, _Mapping]] = ..., collect: _Optional[_Union[Collect, _Mapping]] = ..., dismiss: _Optional[_Union[Dismiss, _Mapping]] = ..., failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ..., request: _Optional[_Union[Request, _Mapping]] = ..., drop: _Optional[_Union[Drop, _Mapping]] = ..., restart: _Optional[_Union[Restart, _Mapping]] = ..., rollback: _Optional[_Union[Rollback, _Mapping]] = ..., assess: _Optional[_Union[Assess, _Mapping]] = ..., attest: _Optional[_Union[Attest, _Mapping]] = ..., halt: _Optional[_Union[Halt, _Mapping]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., commit_only: _Optional[_Union[Commit, _Mapping]] = ..., number: _Optional[int] = ..., attempt: _Optional[int] = ..., commit: _Optional[bool] = ..., confirmed: _Optional[int] = ..., ahead: _Optional[bool] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "party", "version", "jobs")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    party: str
    version: str
    jobs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, protocol: _Optional[int] = ..., party: _Optional[str] = ..., version: _Optional[str] = ..., jobs: _Optional[_Iterable[str]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("version", "jobs")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    version: str
    jobs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[str] = ..., jobs: _Optional[_Iterable[str]] = ...) -> None: ...

class Halt(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class Halted(_message.Message):
    __slots__ = ("commits",)
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    commits: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, commits: _Optional[_Iterable[int]] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("setup", "commit")
    SETUP_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    setup: Setup
    commit: int
    def __init__(self, setup: _Optional[_Union[Setup, _Mapping]] = ..., commit: _Optional[int] = ...) -> None: ...

class Resumed(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Commit(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Committed(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Setup(_message.Message):
    __slots__ = ("job", "seed", "passive", "model", "encoding", "load", "alignment", "allow_remembering", "matching", "submitted_by", "take_up_pending", "saves", "links")
    class LinksEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: LinkEncoding
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[LinkEncoding, _Mapping]] = ...) -> None: ...
    JOB_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    PASSIVE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    ALIGNMENT_FIELD_NUMBER: _ClassVar[int]
    ALLOW_REMEMBERING_FIELD_NUMBER: _ClassVar[int]
    MATCHING_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_BY_FIELD_NUMBER: _ClassVar[int]
    TAKE_UP_PENDING_FIELD_NUMBER: _ClassVar[int]
    SAVES_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    job: str
    seed: int
    passive: _containers.RepeatedScalarFieldContainer[str]
    model: str
    encoding: str
    load: str
    alignment: str
    allow_remembering: bool
    matching: str
    submitted_by: str
    take_up_pending: bool
    saves: _containers.RepeatedScalarFieldContainer[str]
    links: _containers.MessageMap[str, LinkEncoding]
    def __init__(self, job: _Optional[str] = ..., seed: _Optional[int] = ..., passive: _Optional[_Iterable[str]] = ..., model: _Optional[str] = ..., encoding: _Optional[str] = ..., load: _Optional[str] = ..., alignment: _Optional[str] = ..., allow_remembering: _Optional[bool] = ..., matching: _Optional[str] = ..., submitted_by: _Optional[str] = ..., take_up_pending: _Optional[bool] = ..., saves: _Optional[_Iterable[str]] = ..., links: _Optional[_Mapping[str, LinkEncoding]] = ...) -> None: ...

class LinkEncoding(_message.Message):
    __slots__ = ("embeddings", "gradients", "evaluation", "error_feedback", "joint_rounds")
    EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FEEDBACK_FIELD_NUMBER: _ClassVar[int]
    JOINT_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    embeddings: str
    gradients: str
    evaluation: str
    error_feedback: bool
    joint_rounds: str
    def __init__(self, embeddings: _Optional[str] = ..., gradients: _Optional[str] = ..., evaluation: _Optional[str] = ..., error_feedback: _Optional[bool] = ..., joint_rounds: _Optional[str] = ...) -> None: ...

class Ready(_message.Message):
    __slots__ = ("own_rows", "parameters", "bottom_layers", "top_layers", "embedding", "train", "validation", "test", "classes", "features", "probe", "identity", "training", "forgotten_rows", "repeatable_start", "pending", "round_trip", "aligned")
    OWN_ROWS_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    BOTTOM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    TOP_LAYERS_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    TRAIN_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_FIELD_NUMBER: _ClassVar[int]
    TEST_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_ROWS_FIELD_NUMBER: _ClassVar[int]
    REPEATABLE_START_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    ROUND_TRIP_FIELD_NUMBER: _ClassVar[int]
    ALIGNED_FIELD_NUMBER: _ClassVar[int]
    own_rows: int
    parameters: int
    bottom_layers: int
    top_layers: int
    embedding: int
    train: int
    validation: int
    test: int
    classes: int
    features: bool
    probe: int
    identity: str
    training: str
    forgotten_rows: int
    repeatable_start: bool
    pending: _containers.RepeatedScalarFieldContainer[str]
    round_trip: int
    aligned: Aligned
    def __init__(self, own_rows: _Optional[int] = ..., parameters: _Optional[int] = ..., bottom_layers: _Optional[int] = ..., top_layers: _Optional[int] = ..., embedding: _Optional[int] = ..., train: _Optional[int] = ..., validation: _Optional[int] = ..., test: _Optional[int] = ..., classes: _Optional[int] = ..., features: _Optional[bool] = ..., probe: _Optional[int] = ..., identity: _Optional[str] = ..., training: _Optional[str] = ..., forgotten_rows: _Optional[int] = ..., repeatable_start: _Optional[bool] = ..., pending: _Optional[_Iterable[str]] = ..., round_trip: _Optional[int] = ..., aligned: _Optional[_Union[Aligned, _Mapping]] = ...) -> None: ...

class Aligned(_message.Message):
    __slots__ = ("masked", "told", "kept")
    MASKED_FIELD_NUMBER: _ClassVar[int]
    TOLD_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    masked: int
    told: int
    kept: bool
    def __init__(self, masked: _Optional[int] = ..., told: _Optional[int] = ..., kept: _Optional[bool] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("ids", "classes", "samples", "pending", "request", "seed")
    IDS_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    ids: Ids
    classes: Classes
    samples: int
    pending: Pending
    request: Handed
    seed: int
    def __init__(self, ids: _Optional[_Union[Ids, _Mapping]] = ..., classes: _Optional[_Union[Classes, _Mapping]] = ..., samples: _Optional[int] = ..., pending: _Optional[_Union[Pending, _Mapping]] = ..., request: _Optional[_Union[Handed, _Mapping]] = ..., seed: _Optional[int] = ...) -> None: ...

class Ids(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class Handed(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class Pending(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, jobs: _Optional[_Iterable[str]] = ...) -> None: ...

class Classes(_message.Message):
    __slots__ = ("classes", "percent")
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    classes: _containers.RepeatedScalarFieldContainer[str]
    percent: float
    def __init__(self, classes: _Optional[_Iterable[str]] = ..., percent: _Optional[float] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("rows", "remaining", "commitment")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    COMMITMENT_FIELD_NUMBER: _ClassVar[int]
    rows: int
    remaining: int
    commitment: str
    def __init__(self, rows: _Optional[int] = ..., remaining: _Optional[int] = ..., commitment: _Optional[str] = ...) -> None: ...

class Drop(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Dropped(_message.Message):
    __slots__ = ("rows", "remaining")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    rows: int
    remaining: int
    def __init__(self, rows: _Optional[int] = ..., remaining: _Optional[int] = ...) -> None: ...

class Restart(_message.Message):
    __slots__ = ("load", "seed")
    LOAD_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    load: str
    seed: int
    def __init__(self, load: _Optional[str] = ..., seed: _Optional[int] = ...) -> None: ...

class Restarted(_message.Message):
    __slots__ = ("identity",)
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    identity: str
    def __init__(self, identity: _Optional[str] = ...) -> None: ...

class Rollback(_message.Message):
    __slots__ = ("checkpoints",)
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    checkpoints: int
    def __init__(self, checkpoints: _Optional[int] = ...) -> None: ...

class RolledBack(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Assess(_message.Message):
    __slots__ = ("fit_attack", "model", "audit")
    class Audit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NO_PART: _ClassVar[Assess.Audit]
        AUDITED: _ClassVar[Assess.Audit]
        RETRAINED: _ClassVar[Assess.Audit]
        REFERENCE: _ClassVar[Assess.Audit]
        FIGURES: _ClassVar[Assess.Audit]
    NO_PART: Assess.Audit
    AUDITED: Assess.Audit
    RETRAINED: Assess.Audit
    REFERENCE: Assess.Audit
    FIGURES: Assess.Audit
    FIT_ATTACK_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    AUDIT_FIELD_NUMBER: _ClassVar[int]
    fit_attack: bool
    model: str
    audit: Assess.Audit
    def __init__(self, fit_attack: _Optional[bool] = ..., model: _Optional[str] = ..., audit: _Optional[_Union[Assess.Audit, str]] = ...) -> None: ...

class Assessment(_message.Message):
    __slots__ = ("figures", "left_out")
    class FiguresEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class LeftOutEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    figures: _containers.ScalarMap[str, float]
    left_out: _containers.ScalarMap[str, str]
    def __init__(self, figures: _Optional[_Mapping[str, float]] = ..., left_out: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Attest(_message.Message):
    __slots__ = ("joint", "asked")
    JOINT_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    joint: str
    asked: str
    def __init__(self, joint: _Optional[str] = ..., asked: _Optional[str] = ...) -> None: ...

class Statement(_message.Message):
    __slots__ = ("statement", "public_key", "signature")
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    statement: str
    public_key: str
    signature: str
    def __init__(self, statement: _Optional[str] = ..., public_key: _Optional[str] = ..., signature: _Optional[str] = ...) -> None: ...

class Save(_message.Message):
    __slots__ = ("name", "identity", "training", "overwrite")
    NAME_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    OVERWRITE_FIELD_NUMBER: _ClassVar[int]
    name: str
    identity: str
    training: str
    overwrite: bool
    def __init__(self, name: _Optional[str] = ..., identity: _Optional[str] = ..., training: _Optional[str] = ..., overwrite: _Optional[bool] = ...) -> None: ...

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
    __slots__ = ("readings", "privacy", "uncounted")
    READINGS_FIELD_NUMBER: _ClassVar[int]
    PRIVACY_FIELD_NUMBER: _ClassVar[int]
    UNCOUNTED_FIELD_NUMBER: _ClassVar[int]
    readings: _containers.RepeatedCompositeFieldContainer[_meter_pb2.Reading]
    privacy: Privacy
    uncounted: _containers.RepeatedCompositeFieldContainer[_meter_pb2.Reading]
    def __init__(self, readings: _Optional[_Iterable[_Union[_meter_pb2.Reading, _Mapping]]] = ..., privacy: _Optional[_Union[Privacy, _Mapping]] = ..., uncounted: _Optional[_Iterable[_Union[_meter_pb2.Reading, _Mapping]]] = ...) -> None: ...

class Privacy(_message.Message):
    __slots__ = ("delta", "releases", "epsilon", "rows_sent", "epsilon_whole", "repeatable")
    DELTA_FIELD_NUMBER: _ClassVar[int]
    RELEASES_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    ROWS_SENT_FIELD_NUMBER: _ClassVar[int]
    EPSILON_WHOLE_FIELD_NUMBER: _ClassVar[int]
    REPEATABLE_FIELD_NUMBER: _ClassVar[int]
    delta: float
    releases: int
    epsilon: float
    rows_sent: int
    epsilon_whole: float
    repeatable: bool
    def __init__(self, delta: _Optional[float] = ..., releases: _Optional[int] = ..., epsilon: _Optional[float] = ..., rows_sent: _Optional[int] = ..., epsilon_whole: _Optional[float] = ..., repeatable: _Optional[bool] = ...) -> None: ...

class Dismiss(_message.Message):
    __slots__ = ("reason", "job")
    REASON_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    reason: str
    job: str
    def __init__(self, reason: _Optional[str] = ..., job: _Optional[str] = ...) -> None: ...

class Idle(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Job(_message.Message):
    __slots__ = ("protocol", "settings", "origin", "token")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    settings: str
    origin: str
    token: bytes
    def __init__(self, protocol: _Optional[int] = ..., settings: _Optional[str] = ..., origin: _Optional[str] = ..., token: _Optional[bytes] = ...) -> None: ...

class Submitted(_message.Message):
    __slots__ = ("id", "waiting", "failure")
    ID_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    id: str
    waiting: int
    failure: _failure_pb2.Failure
    def __init__(self, id: _Optional[str] = ..., waiting: _Optional[int] = ..., failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ...) -> None: ...

class JobName(_message.Message):
    __slots__ = ("protocol", "id")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    id: str
    def __init__(self, protocol: _Optional[int] = ..., id: _Optional[str] = ...) -> None: ...

class Following(_message.Message):
    __slots__ = ("job", "after")
    JOB_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    job: JobName
    after: int
    def __init__(self, job: _Optional[_Union[JobName, _Mapping]] = ..., after: _Optional[int] = ...) -> None: ...

class Listing(_message.Message):
    __slots__ = ("protocol",)
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    def __init__(self, protocol: _Optional[int] = ...) -> None: ...

class JobList(_message.Message):
    __slots__ = ("jobs", "others", "failure")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobSummary]
    others: int
    failure: _failure_pb2.Failure
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobSummary, _Mapping]]] = ..., others: _Optional[int] = ..., failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ...) -> None: ...

class JobSummary(_message.Message):
    __slots__ = ("id", "state", "submitted_by", "origin", "submitted", "started", "ended", "waiting", "missed", "reason")
    class MissedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_BY_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: str
    submitted_by: str
    origin: str
    submitted: float
    started: float
    ended: float
    waiting: int
    missed: _containers.ScalarMap[str, float]
    reason: str
    def __init__(self, id: _Optional[str] = ..., state: _Optional[str] = ..., submitted_by: _Optional[str] = ..., origin: _Optional[str] = ..., submitted: _Optional[float] = ..., started: _Optional[float] = ..., ended: _Optional[float] = ..., waiting: _Optional[int] = ..., missed: _Optional[_Mapping[str, float]] = ..., reason: _Optional[str] = ...) -> None: ...

class JobDescription(_message.Message):
    __slots__ = ("summary", "settings", "happenings", "failure")
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    HAPPENINGS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    summary: JobSummary
    settings: str
    happenings: _containers.RepeatedCompositeFieldContainer[Happening]
    failure: _failure_pb2.Failure
    def __init__(self, summary: _Optional[_Union[JobSummary, _Mapping]] = ..., settings: _Optional[str] = ..., happenings: _Optional[_Iterable[_Union[Happening, _Mapping]]] = ..., failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ...) -> None: ...

class Happening(_message.Message):
    __slots__ = ("time", "note", "phase")
    TIME_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    time: float
    note: str
    phase: PhaseHappening
    def __init__(self, time: _Optional[float] = ..., note: _Optional[str] = ..., phase: _Optional[_Union[PhaseHappening, _Mapping]] = ...) -> None: ...

class PhaseHappening(_message.Message):
    __slots__ = ("finished", "over", "attempts")
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    finished: PhaseFinished
    over: bool
    attempts: int
    def __init__(self, finished: _Optional[_Union[PhaseFinished, _Mapping]] = ..., over: _Optional[bool] = ..., attempts: _Optional[int] = ...) -> None: ...

class Cancelled(_message.Message):
    __slots__ = ("id", "failure")
    ID_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    id: str
    failure: _failure_pb2.Failure
    def __init__(self, id: _Optional[str] = ..., failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ...) -> None: ...

class Fetched(_message.Message):
    __slots__ = ("id", "result", "failure")
    ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    id: str
    result: Result
    failure: _failure_pb2.Failure
    def __init__(self, id: _Optional[str] = ..., result: _Optional[_Union[Result, _Mapping]] = ..., failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ...) -> None: ...

class Pruning(_message.Message):
    __slots__ = ("protocol", "ids", "older")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    OLDER_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    ids: _containers.RepeatedScalarFieldContainer[str]
    older: float
    def __init__(self, protocol: _Optional[int] = ..., ids: _Optional[_Iterable[str]] = ..., older: _Optional[float] = ...) -> None: ...

class Pruned(_message.Message):
    __slots__ = ("ids", "failure")
    IDS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    failure: _failure_pb2.Failure
    def __init__(self, ids: _Optional[_Iterable[str]] = ..., failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("note", "started", "progress", "finished", "failure", "result", "number")
    NOTE_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    note: str
    started: PhaseStarted
    progress: _phase_pb2.Progress
    finished: PhaseFinished
    failure: _failure_pb2.Failure
    result: Result
    number: int
    def __init__(self, note: _Optional[str] = ..., started: _Optional[_Union[PhaseStarted, _Mapping]] = ..., progress: _Optional[_Union[_phase_pb2.Progress, _Mapping]] = ..., finished: _Optional[_Union[PhaseFinished, _Mapping]] = ..., failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ..., result: _Optional[_Union[Result, _Mapping]] = ..., number: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("name", "round", "of_rounds", "loss", "accuracy", "seconds", "dual")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    OF_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    DUAL_FIELD_NUMBER: _ClassVar[int]
    name: str
    round: int
    of_rounds: int
    loss: float
    accuracy: float
    seconds: float
    dual: float
    def __init__(self, name: _Optional[str] = ..., round: _Optional[int] = ..., of_rounds: _Optional[int] = ..., loss: _Optional[float] = ..., accuracy: _Optional[float] = ..., seconds: _Optional[float] = ..., dual: _Optional[float] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("result_json", "ledger_csv", "certificate_json")
    RESULT_JSON_FIELD_NUMBER: _ClassVar[int]
    LEDGER_CSV_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_JSON_FIELD_NUMBER: _ClassVar[int]
    result_json: str
    ledger_csv: str
    certificate_json: str
    def __init__(self, result_json: _Optional[str] = ..., ledger_csv: _Optional[str] = ..., certificate_json: _Optional[str] = ...) -> None: ...
