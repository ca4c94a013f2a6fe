"""windlass: a distributed task queue for Python."""

from typing import TYPE_CHECKING

from windlass.app import Windlass
from windlass.context import Context, LogLine, Progress, current_context
from windlass.core.alerts.rules import Alert, AlertEvent
from windlass.core.failures import FailureText
from windlass.core.retry import Retry
from windlass.core.signals import Interrupted, Reject, RetryLater, Snooze
from windlass.core.states import Hold, Reason, State
from windlass.core.unique import Unique
from windlass.errors import (
    AccessTokenNotFound,
    AnnotationError,
    AppNotFound,
    ArgumentMismatch,
    ClaimLost,
    CopyRefused,
    DecodeError,
    DuplicateAccessToken,
    DuplicateJob,
    EncodeError,
    EndlessDrain,
    EngineError,
    EngineUnavailable,
    FormatTooNew,
    IdempotencyConflict,
    IncludeFailed,
    InvalidCall,
    InvalidConnection,
    InvalidCursor,
    InvalidMiddleware,
    InvalidSchedule,
    InvalidTask,
    JobCancelled,
    JobError,
    JobFailed,
    JobNotFound,
    MissingDecoder,
    NewerFormat,
    NoContext,
    NotDead,
    NoTransaction,
    OnceRefused,
    OperationNotFound,
    OperationRefused,
    PayloadTooLarge,
    QueueFull,
    ReleaseNotFound,
    ResultExpired,
    ScheduleNotFound,
    SettingError,
    TaskNotIncluded,
    TimedOut,
    TooManyOperations,
    WindlassError,
    WorkerNotFound,
)
from windlass.hooks import JobEvent
from windlass.job import Job, JobInfo
from windlass.middleware import EnqueueCall
from windlass.settings import Settings
from windlass.task import Call, Task
from windlass.task_group import Tasks
from windlass.transaction import JobTransaction

if TYPE_CHECKING:
    from windlass.access_tokens import AccessToken, Role
    from windlass.alerts.alert_list import AlertInfo
    from windlass.audit_log import AuditRecord
    from windlass.core.schedules.triggers import All, Cron, Every
    from windlass.dead_letter import DeadGroup, DeadLetter
    from windlass.fleet import ChildInfo, RunningJob, WorkerInfo, WorkerState
    from windlass.history import Activity, AppHistory, HistoryRow, QueueDepth
    from windlass.jobs import AppStats, QueueStats
    from windlass.operations.operations import Operation
    from windlass.queue import Queue, QueueInfo
    from windlass.schedules import ScheduleInfo

__all__ = [
    "AccessToken",
    "AccessTokenNotFound",
    "Activity",
    "Alert",
    "AlertEvent",
    "AlertInfo",
    "All",
    "AnnotationError",
    "AppHistory",
    "AppNotFound",
    "AppStats",
    "ArgumentMismatch",
    "AuditRecord",
    "Call",
    "ChildInfo",
    "ClaimLost",
    "Context",
    "CopyRefused",
    "Cron",
    "DeadGroup",
    "DeadLetter",
    "DecodeError",
    "DuplicateAccessToken",
    "DuplicateJob",
    "EncodeError",
    "EndlessDrain",
    "EngineError",
    "EngineUnavailable",
    "EnqueueCall",
    "Every",
    "FailureText",
    "FormatTooNew",
    "HistoryRow",
    "Hold",
    "IdempotencyConflict",
    "IncludeFailed",
    "Interrupted",
    "InvalidCall",
    "InvalidConnection",
    "InvalidCursor",
    "InvalidMiddleware",
    "InvalidSchedule",
    "InvalidTask",
    "Job",
    "JobCancelled",
    "JobError",
    "JobEvent",
    "JobFailed",
    "JobInfo",
    "JobNotFound",
    "JobTransaction",
    "LogLine",
    "MissingDecoder",
    "NewerFormat",
    "NoContext",
    "NoTransaction",
    "NotDead",
    "OnceRefused",
    "Operation",
    "OperationNotFound",
    "OperationRefused",
    "PayloadTooLarge",
    "Progress",
    "Queue",
    "QueueDepth",
    "QueueFull",
    "QueueInfo",
    "QueueStats",
    "Reason",
    "Reject",
    "ReleaseNotFound",
    "ResultExpired",
    "Retry",
    "RetryLater",
    "Role",
    "RunningJob",
    "ScheduleInfo",
    "ScheduleNotFound",
    "SettingError",
    "Settings",
    "Snooze",
    "State",
    "Task",
    "TaskNotIncluded",
    "Tasks",
    "TimedOut",
    "TooManyOperations",
    "Unique",
    "Windlass",
    "WindlassError",
    "WorkerInfo",
    "WorkerNotFound",
    "WorkerState",
    "current_context",
]


def __getattr__(name: str) -> object:
    """Import rarely used names on first access.

    Schedules alone take a tenth of the time of `import windlass`, and most programs use none."""
    if name in ("All", "Cron", "Every", "ScheduleInfo"):
        from windlass import schedules

        return getattr(schedules, name)
    if name in ("DeadGroup", "DeadLetter"):
        from windlass import dead_letter

        return getattr(dead_letter, name)
    if name in ("Activity", "AppHistory", "HistoryRow", "QueueDepth"):
        from windlass import history

        return getattr(history, name)
    if name in ("AppStats", "QueueStats"):
        from windlass import jobs

        return getattr(jobs, name)
    if name in ("ChildInfo", "RunningJob", "WorkerInfo", "WorkerState"):
        from windlass import fleet

        return getattr(fleet, name)
    if name in ("Queue", "QueueInfo"):
        from windlass import queue

        return getattr(queue, name)
    if name in ("AccessToken", "Role"):
        from windlass import access_tokens

        return getattr(access_tokens, name)
    if name == "AlertInfo":
        from windlass.alerts.alert_list import AlertInfo

        return AlertInfo
    if name == "AuditRecord":
        from windlass.audit_log import AuditRecord

        return AuditRecord
    if name == "Operation":
        from windlass.operations.operations import Operation

        return Operation
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
