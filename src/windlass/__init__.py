"""windlass: a distributed task queue for Python."""

from typing import TYPE_CHECKING

from windlass.app import Windlass
from windlass.context import Context, LogLine, Progress, current_context
from windlass.core.failures import FailureText
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
    EndlessDrain,
    EngineError,
    EngineUnavailable,
    FormatTooNew,
    IdempotencyConflict,
    IncludeFailed,
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
    PayloadTooLarge,
    QueueFull,
    ResultExpired,
    ScheduleNotFound,
    SettingError,
    TaskNotIncluded,
    TimedOut,
    WindlassError,
)
from windlass.hooks import JobEvent
from windlass.job import Job, JobInfo
from windlass.middleware import EnqueueCall
from windlass.settings import Settings
from windlass.task import Call, Task
from windlass.task_group import Tasks

if TYPE_CHECKING:
    from windlass.core.schedules.triggers import All, Cron, Every
    from windlass.dead_letter import DeadAlert, DeadGroup, DeadLetter
    from windlass.fleet import ChildInfo, RunningJob, WorkerInfo
    from windlass.jobs import AppStats, QueueStats
    from windlass.queue import Queue, QueueInfo
    from windlass.schedules import ScheduleInfo

__all__ = [
    "All",
    "AnnotationError",
    "AppNotFound",
    "AppStats",
    "ArgumentMismatch",
    "Call",
    "ChildInfo",
    "Context",
    "Cron",
    "DeadAlert",
    "DeadGroup",
    "DeadLetter",
    "DecodeError",
    "DuplicateJob",
    "EncodeError",
    "EndlessDrain",
    "EngineError",
    "EngineUnavailable",
    "EnqueueCall",
    "Every",
    "FailureText",
    "FormatTooNew",
    "Hold",
    "IdempotencyConflict",
    "IncludeFailed",
    "Interrupted",
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
    "LogLine",
    "MissingDecoder",
    "NewerFormat",
    "NoContext",
    "NotDead",
    "PayloadTooLarge",
    "Progress",
    "Queue",
    "QueueFull",
    "QueueInfo",
    "QueueStats",
    "Reason",
    "Reject",
    "ResultExpired",
    "Retry",
    "RetryLater",
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
    "Unique",
    "Windlass",
    "WindlassError",
    "WorkerInfo",
    "current_context",
]


def __getattr__(name: str) -> object:
    """Import rarely used names on first access.

    Schedules alone take a tenth of the time of `import windlass`, and most programs use none."""
    if name in ("All", "Cron", "Every", "ScheduleInfo"):
        from windlass import schedules

        return getattr(schedules, name)
    if name in ("DeadAlert", "DeadGroup", "DeadLetter"):
        from windlass import dead_letter

        return getattr(dead_letter, name)
    if name in ("AppStats", "QueueStats"):
        from windlass import jobs

        return getattr(jobs, name)
    if name in ("ChildInfo", "RunningJob", "WorkerInfo"):
        from windlass import fleet

        return getattr(fleet, name)
    if name in ("Queue", "QueueInfo"):
        from windlass import queue

        return getattr(queue, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
