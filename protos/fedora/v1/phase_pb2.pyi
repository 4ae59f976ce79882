from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Samples(_message.Message):
    __slots__ = ("set", "share", "part")
    class Set(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SET_UNSPECIFIED: _ClassVar[Samples.Set]
        TRAIN: _ClassVar[Samples.Set]
        VALIDATION: _ClassVar[Samples.Set]
        TEST: _ClassVar[Samples.Set]
        FORGET: _ClassVar[Samples.Set]
        REMAINING: _ClassVar[Samples.Set]
        PROBE: _ClassVar[Samples.Set]
    SET_UNSPECIFIED: Samples.Set
    TRAIN: Samples.Set
    VALIDATION: Samples.Set
    TEST: Samples.Set
    FORGET: Samples.Set
    REMAINING: Samples.Set
    PROBE: Samples.Set
    SET_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    set: Samples.Set
    share: float
    part: Part
    def __init__(self, set: _Optional[_Union[Samples.Set, str]] = ..., share: _Optional[float] = ..., part: _Optional[_Union[Part, _Mapping]] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("share", "seed")
    SHARE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    share: float
    seed: int
    def __init__(self, share: _Optional[float] = ..., seed: _Optional[int] = ...) -> None: ...

class Plan(_message.Message):
    __slots__ = ("seed", "batch_size", "shuffle")
    SEED_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    seed: int
    batch_size: int
    shuffle: bool
    def __init__(self, seed: _Optional[int] = ..., batch_size: _Optional[int] = ..., shuffle: _Optional[bool] = ...) -> None: ...

class CrossEntropy(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Uncertainty(_message.Message):
    __slots__ = ("omega",)
    OMEGA_FIELD_NUMBER: _ClassVar[int]
    omega: float
    def __init__(self, omega: _Optional[float] = ...) -> None: ...

class StaleCrossEntropy(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Loss(_message.Message):
    __slots__ = ("cross_entropy", "uncertainty", "stale_cross_entropy", "reduction")
    class Reduction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BATCH_MEAN: _ClassVar[Loss.Reduction]
        SET_MEAN: _ClassVar[Loss.Reduction]
        SUM: _ClassVar[Loss.Reduction]
    BATCH_MEAN: Loss.Reduction
    SET_MEAN: Loss.Reduction
    SUM: Loss.Reduction
    CROSS_ENTROPY_FIELD_NUMBER: _ClassVar[int]
    UNCERTAINTY_FIELD_NUMBER: _ClassVar[int]
    STALE_CROSS_ENTROPY_FIELD_NUMBER: _ClassVar[int]
    REDUCTION_FIELD_NUMBER: _ClassVar[int]
    cross_entropy: CrossEntropy
    uncertainty: Uncertainty
    stale_cross_entropy: StaleCrossEntropy
    reduction: Loss.Reduction
    def __init__(self, cross_entropy: _Optional[_Union[CrossEntropy, _Mapping]] = ..., uncertainty: _Optional[_Union[Uncertainty, _Mapping]] = ..., stale_cross_entropy: _Optional[_Union[StaleCrossEntropy, _Mapping]] = ..., reduction: _Optional[_Union[Loss.Reduction, str]] = ...) -> None: ...

class Observe(_message.Message):
    __slots__ = ("record", "confidence", "cache")
    RECORD_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    record: bool
    confidence: bool
    cache: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, record: _Optional[bool] = ..., confidence: _Optional[bool] = ..., cache: _Optional[_Iterable[str]] = ...) -> None: ...

class Sgd(_message.Message):
    __slots__ = ("lr", "momentum", "weight_decay", "nesterov")
    LR_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    NESTEROV_FIELD_NUMBER: _ClassVar[int]
    lr: float
    momentum: float
    weight_decay: float
    nesterov: bool
    def __init__(self, lr: _Optional[float] = ..., momentum: _Optional[float] = ..., weight_decay: _Optional[float] = ..., nesterov: _Optional[bool] = ...) -> None: ...

class Adam(_message.Message):
    __slots__ = ("lr", "beta1", "beta2", "epsilon", "weight_decay")
    LR_FIELD_NUMBER: _ClassVar[int]
    BETA1_FIELD_NUMBER: _ClassVar[int]
    BETA2_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    lr: float
    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    def __init__(self, lr: _Optional[float] = ..., beta1: _Optional[float] = ..., beta2: _Optional[float] = ..., epsilon: _Optional[float] = ..., weight_decay: _Optional[float] = ...) -> None: ...

class DualAscent(_message.Message):
    __slots__ = ("form", "sigma", "gamma", "audit", "level")
    class Form(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PARAMETERWISE: _ClassVar[DualAscent.Form]
        SCALAR: _ClassVar[DualAscent.Form]
    PARAMETERWISE: DualAscent.Form
    SCALAR: DualAscent.Form
    FORM_FIELD_NUMBER: _ClassVar[int]
    SIGMA_FIELD_NUMBER: _ClassVar[int]
    GAMMA_FIELD_NUMBER: _ClassVar[int]
    AUDIT_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    form: DualAscent.Form
    sigma: float
    gamma: float
    audit: bool
    level: float
    def __init__(self, form: _Optional[_Union[DualAscent.Form, str]] = ..., sigma: _Optional[float] = ..., gamma: _Optional[float] = ..., audit: _Optional[bool] = ..., level: _Optional[float] = ...) -> None: ...

class PrimalDescent(_message.Message):
    __slots__ = ("tau", "rho", "push")
    class Push(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        AS_IT_IS: _ClassVar[PrimalDescent.Push]
        NONE: _ClassVar[PrimalDescent.Push]
    AS_IT_IS: PrimalDescent.Push
    NONE: PrimalDescent.Push
    TAU_FIELD_NUMBER: _ClassVar[int]
    RHO_FIELD_NUMBER: _ClassVar[int]
    PUSH_FIELD_NUMBER: _ClassVar[int]
    tau: float
    rho: float
    push: PrimalDescent.Push
    def __init__(self, tau: _Optional[float] = ..., rho: _Optional[float] = ..., push: _Optional[_Union[PrimalDescent.Push, str]] = ...) -> None: ...

class JointRounds(_message.Message):
    __slots__ = ("form", "sigma", "ceiling", "omega_max", "gamma", "step", "falling", "rho", "audit", "allowance")
    FORM_FIELD_NUMBER: _ClassVar[int]
    SIGMA_FIELD_NUMBER: _ClassVar[int]
    CEILING_FIELD_NUMBER: _ClassVar[int]
    OMEGA_MAX_FIELD_NUMBER: _ClassVar[int]
    GAMMA_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    FALLING_FIELD_NUMBER: _ClassVar[int]
    RHO_FIELD_NUMBER: _ClassVar[int]
    AUDIT_FIELD_NUMBER: _ClassVar[int]
    ALLOWANCE_FIELD_NUMBER: _ClassVar[int]
    form: DualAscent.Form
    sigma: float
    ceiling: float
    omega_max: float
    gamma: float
    step: float
    falling: bool
    rho: float
    audit: bool
    allowance: float
    def __init__(self, form: _Optional[_Union[DualAscent.Form, str]] = ..., sigma: _Optional[float] = ..., ceiling: _Optional[float] = ..., omega_max: _Optional[float] = ..., gamma: _Optional[float] = ..., step: _Optional[float] = ..., falling: _Optional[bool] = ..., rho: _Optional[float] = ..., audit: _Optional[bool] = ..., allowance: _Optional[float] = ...) -> None: ...

class Retreat(_message.Message):
    __slots__ = ("share",)
    SHARE_FIELD_NUMBER: _ClassVar[int]
    share: float
    def __init__(self, share: _Optional[float] = ...) -> None: ...

class Soften(_message.Message):
    __slots__ = ("level",)
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    level: float
    def __init__(self, level: _Optional[float] = ...) -> None: ...

class Compare(_message.Message):
    __slots__ = ("ceiling", "errors", "loss_of_accuracy", "carried")
    CEILING_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    LOSS_OF_ACCURACY_FIELD_NUMBER: _ClassVar[int]
    CARRIED_FIELD_NUMBER: _ClassVar[int]
    ceiling: float
    errors: float
    loss_of_accuracy: float
    carried: float
    def __init__(self, ceiling: _Optional[float] = ..., errors: _Optional[float] = ..., loss_of_accuracy: _Optional[float] = ..., carried: _Optional[float] = ...) -> None: ...

class Residual(_message.Message):
    __slots__ = ("rho",)
    RHO_FIELD_NUMBER: _ClassVar[int]
    rho: float
    def __init__(self, rho: _Optional[float] = ...) -> None: ...

class Ascent(_message.Message):
    __slots__ = ("lr", "clip")
    LR_FIELD_NUMBER: _ClassVar[int]
    CLIP_FIELD_NUMBER: _ClassVar[int]
    lr: float
    clip: float
    def __init__(self, lr: _Optional[float] = ..., clip: _Optional[float] = ...) -> None: ...

class Influence(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Shift(_message.Message):
    __slots__ = ("by",)
    BY_FIELD_NUMBER: _ClassVar[int]
    by: float
    def __init__(self, by: _Optional[float] = ...) -> None: ...

class Correction(_message.Message):
    __slots__ = ("sgd", "adam")
    SGD_FIELD_NUMBER: _ClassVar[int]
    ADAM_FIELD_NUMBER: _ClassVar[int]
    sgd: Sgd
    adam: Adam
    def __init__(self, sgd: _Optional[_Union[Sgd, _Mapping]] = ..., adam: _Optional[_Union[Adam, _Mapping]] = ...) -> None: ...

class Update(_message.Message):
    __slots__ = ("observe", "sgd", "adam", "dual_ascent", "primal_descent", "residual", "ascent", "influence", "shift", "correction", "joint_rounds", "retreat", "compare", "soften", "fresh")
    OBSERVE_FIELD_NUMBER: _ClassVar[int]
    SGD_FIELD_NUMBER: _ClassVar[int]
    ADAM_FIELD_NUMBER: _ClassVar[int]
    DUAL_ASCENT_FIELD_NUMBER: _ClassVar[int]
    PRIMAL_DESCENT_FIELD_NUMBER: _ClassVar[int]
    RESIDUAL_FIELD_NUMBER: _ClassVar[int]
    ASCENT_FIELD_NUMBER: _ClassVar[int]
    INFLUENCE_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    CORRECTION_FIELD_NUMBER: _ClassVar[int]
    JOINT_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    RETREAT_FIELD_NUMBER: _ClassVar[int]
    COMPARE_FIELD_NUMBER: _ClassVar[int]
    SOFTEN_FIELD_NUMBER: _ClassVar[int]
    FRESH_FIELD_NUMBER: _ClassVar[int]
    observe: Observe
    sgd: Sgd
    adam: Adam
    dual_ascent: DualAscent
    primal_descent: PrimalDescent
    residual: Residual
    ascent: Ascent
    influence: Influence
    shift: Shift
    correction: Correction
    joint_rounds: JointRounds
    retreat: Retreat
    compare: Compare
    soften: Soften
    fresh: bool
    def __init__(self, observe: _Optional[_Union[Observe, _Mapping]] = ..., sgd: _Optional[_Union[Sgd, _Mapping]] = ..., adam: _Optional[_Union[Adam, _Mapping]] = ..., dual_ascent: _Optional[_Union[DualAscent, _Mapping]] = ..., primal_descent: _Optional[_Union[PrimalDescent, _Mapping]] = ..., residual: _Optional[_Union[Residual, _Mapping]] = ..., ascent: _Optional[_Union[Ascent, _Mapping]] = ..., influence: _Optional[_Union[Influence, _Mapping]] = ..., shift: _Optional[_Union[Shift, _Mapping]] = ..., correction: _Optional[_Union[Correction, _Mapping]] = ..., joint_rounds: _Optional[_Union[JointRounds, _Mapping]] = ..., retreat: _Optional[_Union[Retreat, _Mapping]] = ..., compare: _Optional[_Union[Compare, _Mapping]] = ..., soften: _Optional[_Union[Soften, _Mapping]] = ..., fresh: _Optional[bool] = ...) -> None: ...

class Augmentation(_message.Message):
    __slots__ = ("flip", "shift")
    FLIP_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    flip: bool
    shift: int
    def __init__(self, flip: _Optional[bool] = ..., shift: _Optional[int] = ...) -> None: ...

class Joint(_message.Message):
    __slots__ = ("rounds", "forget", "remaining", "held_out", "held_out_set")
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    HELD_OUT_FIELD_NUMBER: _ClassVar[int]
    HELD_OUT_SET_FIELD_NUMBER: _ClassVar[int]
    rounds: int
    forget: int
    remaining: int
    held_out: int
    held_out_set: Samples.Set
    def __init__(self, rounds: _Optional[int] = ..., forget: _Optional[int] = ..., remaining: _Optional[int] = ..., held_out: _Optional[int] = ..., held_out_set: _Optional[_Union[Samples.Set, str]] = ...) -> None: ...

class Schedule(_message.Message):
    __slots__ = ("overlap", "local_steps", "goes_on")
    OVERLAP_FIELD_NUMBER: _ClassVar[int]
    LOCAL_STEPS_FIELD_NUMBER: _ClassVar[int]
    GOES_ON_FIELD_NUMBER: _ClassVar[int]
    overlap: int
    local_steps: int
    goes_on: bool
    def __init__(self, overlap: _Optional[int] = ..., local_steps: _Optional[int] = ..., goes_on: _Optional[bool] = ...) -> None: ...

class Phase(_message.Message):
    __slots__ = ("number", "name", "round", "over", "plan", "loss", "update", "train_mode", "augmentation", "checkpoint", "offline", "forward_only", "joint", "first_step", "steps", "schedule")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    TRAIN_MODE_FIELD_NUMBER: _ClassVar[int]
    AUGMENTATION_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_FIELD_NUMBER: _ClassVar[int]
    FORWARD_ONLY_FIELD_NUMBER: _ClassVar[int]
    JOINT_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    number: int
    name: str
    round: int
    over: Samples
    plan: Plan
    loss: Loss
    update: Update
    train_mode: bool
    augmentation: Augmentation
    checkpoint: bool
    offline: _containers.RepeatedScalarFieldContainer[str]
    forward_only: bool
    joint: Joint
    first_step: int
    steps: int
    schedule: Schedule
    def __init__(self, number: _Optional[int] = ..., name: _Optional[str] = ..., round: _Optional[int] = ..., over: _Optional[_Union[Samples, _Mapping]] = ..., plan: _Optional[_Union[Plan, _Mapping]] = ..., loss: _Optional[_Union[Loss, _Mapping]] = ..., update: _Optional[_Union[Update, _Mapping]] = ..., train_mode: _Optional[bool] = ..., augmentation: _Optional[_Union[Augmentation, _Mapping]] = ..., checkpoint: _Optional[bool] = ..., offline: _Optional[_Iterable[str]] = ..., forward_only: _Optional[bool] = ..., joint: _Optional[_Union[Joint, _Mapping]] = ..., first_step: _Optional[int] = ..., steps: _Optional[int] = ..., schedule: _Optional[_Union[Schedule, _Mapping]] = ...) -> None: ...

class RoundReport(_message.Message):
    __slots__ = ("change_squared", "loss_sum", "correct", "unlearning_loss", "omega")
    CHANGE_SQUARED_FIELD_NUMBER: _ClassVar[int]
    LOSS_SUM_FIELD_NUMBER: _ClassVar[int]
    CORRECT_FIELD_NUMBER: _ClassVar[int]
    UNLEARNING_LOSS_FIELD_NUMBER: _ClassVar[int]
    OMEGA_FIELD_NUMBER: _ClassVar[int]
    change_squared: float
    loss_sum: float
    correct: int
    unlearning_loss: float
    omega: float
    def __init__(self, change_squared: _Optional[float] = ..., loss_sum: _Optional[float] = ..., correct: _Optional[int] = ..., unlearning_loss: _Optional[float] = ..., omega: _Optional[float] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("phase", "rows", "steps", "change_squared", "compute_seconds", "wait_seconds", "loss_sum", "correct", "figures", "left_out", "within_bounds", "rounds", "partial")
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
    PHASE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    CHANGE_SQUARED_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LOSS_SUM_FIELD_NUMBER: _ClassVar[int]
    CORRECT_FIELD_NUMBER: _ClassVar[int]
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    WITHIN_BOUNDS_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    phase: int
    rows: int
    steps: int
    change_squared: float
    compute_seconds: float
    wait_seconds: float
    loss_sum: float
    correct: int
    figures: _containers.ScalarMap[str, float]
    left_out: _containers.ScalarMap[str, str]
    within_bounds: bool
    rounds: _containers.RepeatedCompositeFieldContainer[RoundReport]
    partial: bool
    def __init__(self, phase: _Optional[int] = ..., rows: _Optional[int] = ..., steps: _Optional[int] = ..., change_squared: _Optional[float] = ..., compute_seconds: _Optional[float] = ..., wait_seconds: _Optional[float] = ..., loss_sum: _Optional[float] = ..., correct: _Optional[int] = ..., figures: _Optional[_Mapping[str, float]] = ..., left_out: _Optional[_Mapping[str, str]] = ..., within_bounds: _Optional[bool] = ..., rounds: _Optional[_Iterable[_Union[RoundReport, _Mapping]]] = ..., partial: _Optional[bool] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("phase", "steps", "of_steps", "loss")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    OF_STEPS_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    phase: int
    steps: int
    of_steps: int
    loss: float
    def __init__(self, phase: _Optional[int] = ..., steps: _Optional[int] = ..., of_steps: _Optional[int] = ..., loss: _Optional[float] = ...) -> None: ...
