"""windlass: a distributed task queue for Python."""

from windlass.app import Windlass
from windlass.context import Context, Progress, current_context
from windlass.core.failure import FailureText
from windlass.core.retry import Retry
from windlass.core.signals import Interrupted, Reject, RetryLater, Snooze
from windlass.core.states import Hold, Reason, State
from windlass.core.unique import Unique
from windlass.errors import (
    AnnotationError,
    AppNotFound,
    ArgumentMismatch,
    DecodeError,
    DuplicateJob,
    EncodeError,
    EngineError,
    EngineUnavailable,
    FormatTooNew,
    IdempotencyConflict,
    InvalidSurroundings,
    InvalidTask,
    JobCancelled,
    JobError,
    JobFailed,
    JobNotFound,
    NewerFormat,
    NoContext,
    PayloadTooLarge,
    QueueFull,
    ResultExpired,
    SettingError,
    TimedOut,
    WindlassError,
)
from windlass.job import Job, JobInfo
from windlass.queue import Queue, QueueInfo
from windlass.settings import Settings
from windlass.task import Call, Task

__all__ = [
    "AnnotationError",
    "AppNotFound",
    "ArgumentMismatch",
    "Call",
    "Context",
    "DecodeError",
    "DuplicateJob",
    "EncodeError",
    "EngineError",
    "EngineUnavailable",
    "FailureText",
    "FormatTooNew",
    "Hold",
    "IdempotencyConflict",
    "Interrupted",
    "InvalidSurroundings",
    "InvalidTask",
    "Job",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobInfo",
    "JobNotFound",
    "NewerFormat",
    "NoContext",
    "PayloadTooLarge",
    "Progress",
    "Queue",
    "QueueFull",
    "QueueInfo",
    "Reason",
    "Reject",
    "ResultExpired",
    "Retry",
    "RetryLater",
    "SettingError",
    "Settings",
    "Snooze",
    "State",
    "Task",
    "TimedOut",
    "Unique",
    "Windlass",
    "WindlassError",
    "current_context",
]
