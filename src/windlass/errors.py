"""Every error that windlass raises on purpose.

Each message says what was expected, what was found and what to do; the facts in it are attributes
too. All of them can be copied and pickled.

    WindlassError
    ├── SettingError            a setting is unknown or has a value that makes no sense
    ├── AppNotFound             `module:attribute` names no app
    ├── IncludeFailed           a module that `include` names cannot be imported
    ├── InvalidTask             a function or a name that cannot become a task
    ├── TaskNotIncluded         a task of a group that no app includes yet
    ├── InvalidSchedule         a schedule that a task cannot have, or a name that is taken
    ├── InvalidSurroundings     what was given as middleware or lifespan cannot be one
    ├── NoContext               no job is running here
    ├── AnnotationError         a type that a task's annotation names cannot be stored
    ├── EncodeError             a value cannot be stored
    │   └── PayloadTooLarge     ... because it is too large
    ├── DecodeError             stored bytes make no value
    │   ├── ArgumentMismatch    ... that the function of this version takes
    │   ├── UnreadableHere      ... that an app with these keys and this codec may read
    │   └── NewerFormat         ... because a newer windlass wrote them
    ├── EngineError             the engine refused or is not usable as it is
    │   ├── EngineUnavailable   the engine did not answer in time: repeat later
    │   └── FormatTooNew        the stored format was written by a newer windlass
    ├── TimedOut                a job ran for longer than its time-out
    ├── IdempotencyConflict     the key belongs to a job with other arguments
    ├── DuplicateJob            another job holds the unique key
    ├── QueueFull               as many jobs wait in the queue as may
    ├── JobNotFound             no such job
    ├── NotDead                 the job is in another state than dead
    ├── ScheduleNotFound        no such schedule
    ├── EndlessDrain            in a test: as many jobs ran as may, and more are due
    └── JobError                the job has no result to give
        ├── JobFailed           it ended as dead
        ├── JobCancelled        it was cancelled, or expired before it started
        └── ResultExpired       it succeeded, but its result is not stored any more
"""

from __future__ import annotations


class WindlassError(Exception):
    """The root: catch this to catch all of them."""


class SettingError(WindlassError, ValueError):
    """A setting is unknown, or has a value that makes no sense."""


class AppNotFound(WindlassError):
    """`module:attribute` names no app."""


class IncludeFailed(WindlassError):
    """A module that `include` names is not there or cannot be imported, or a pattern fits none.

    `module` is the one that was to be imported, or the pattern."""

    def __init__(self, message: str, *, module: str = "") -> None:
        super().__init__(message)
        self.module = module


class InvalidTask(WindlassError, TypeError):
    """A function or a name that cannot become a task."""


class TaskNotIncluded(WindlassError, RuntimeError):
    """A task of a group was used before an app has included the group."""

    def __init__(self, task: str, group: str) -> None:
        super().__init__(task, group)
        self.task = task
        self.group = group

    def __str__(self) -> str:
        return (
            f"The task {self.task} belongs to {self.group}, and no app has included that group: "
            "nobody knows where its jobs go. Call app.include(...) with the group where the app is "
            "made, and import that module before anything is enqueued."
        )


class InvalidSchedule(WindlassError, ValueError):
    """A schedule that a task cannot have, or whose name is taken."""


class InvalidSurroundings(WindlassError, TypeError):
    """What was given as middleware or as lifespan cannot be one."""


class NoContext(WindlassError, RuntimeError):
    """No job is running here."""

    def __str__(self) -> str:
        return (
            "current_context() was called where no job is running. It works in a task that a "
            "worker runs and in all that the task calls. For a function that is also called "
            "plainly, use @app.task(takes_context=True)."
        )


# ------------------------------------------------------------------------------------- stored bytes


class AnnotationError(WindlassError, TypeError):
    """An annotation names something unknown, or a type that JSON cannot carry both ways."""

    def __init__(self, message: str, *, task: str = "", parameter: str = "") -> None:
        super().__init__(message)
        self.task = task
        self.parameter = parameter


class EncodeError(WindlassError):
    """A value cannot be stored so that it comes back the same.

    `parameter` is empty for a result; `path` is the place inside the value, "$" all of it.
    """

    def __init__(
        self, message: str, *, task: str = "", parameter: str = "", path: str = ""
    ) -> None:
        super().__init__(message)
        self.task = task
        self.parameter = parameter
        self.path = path


class PayloadTooLarge(EncodeError):
    """A value is larger than may be stored; sizes are in bytes."""

    def __init__(self, message: str, *, size: int = 0, limit: int = 0) -> None:
        super().__init__(message)
        self.size = size
        self.limit = limit


class DecodeError(WindlassError):
    """Stored bytes make no value."""

    def __init__(
        self, message: str, *, task: str = "", parameter: str = "", path: str = ""
    ) -> None:
        super().__init__(message)
        self.task = task
        self.parameter = parameter
        self.path = path


class ArgumentMismatch(DecodeError):
    """A stored call was made for another version of its task, which takes other arguments."""


class UnreadableHere(DecodeError):
    """Stored bytes are sealed with a key, or written by a codec, that this app does not have."""


class NewerFormat(DecodeError):
    """Stored bytes were written by a newer windlass than this one."""

    def __init__(self, message: str, *, found: int = 0, supported: int = 0) -> None:
        super().__init__(message)
        self.found = found
        self.supported = supported


# ------------------------------------------------------------------------------------------ engines


class EngineError(WindlassError):
    """The engine cannot be used as it is; repeating will not help."""

    def __init__(self, message: str, *, location: str = "") -> None:
        super().__init__(message)
        self.location = location


class EngineUnavailable(EngineError):
    """The engine did not answer in time. Whether the call took effect is unknown, unless it is
    `unsent`, or was refused, which is the same; repeating it with the same id is harmless."""

    def __init__(
        self,
        message: str,
        *,
        location: str = "",
        seconds: float | None = None,
        unsent: bool = False,
    ) -> None:
        super().__init__(message, location=location)
        self.seconds = seconds
        self.unsent = unsent


class FormatTooNew(EngineError):
    """What is stored was written by a newer windlass than this one."""


# --------------------------------------------------------------------------------------------- jobs


class TimedOut(WindlassError, TimeoutError):
    """What a retry policy is shown, and history keeps, of an attempt that ran into its time-out."""

    def __init__(self, message: str, *, timeout_ms: int = 0) -> None:
        super().__init__(message)
        self.timeout_ms = timeout_ms


class IdempotencyConflict(WindlassError):
    """The idempotency key belongs to a job of the same task with other arguments."""

    def __init__(self, task: str, key: str, job_id: str) -> None:
        super().__init__(task, key, job_id)
        self.task = task
        self.key = key
        self.job_id = job_id

    def __str__(self) -> str:
        return (
            f"The idempotency key {self.key!r} of task {self.task} belongs to job {self.job_id}, "
            "which has other arguments; this call was not enqueued. One key stands for one call: "
            "make it from everything that tells this call from others."
        )


class DuplicateJob(WindlassError):
    """Another job of the task holds the unique key. `job_id` is that job; `retried` is the job that
    was to be made ready again, or empty for a call that was to be enqueued."""

    def __init__(self, task: str, job_id: str, retried: str = "") -> None:
        super().__init__(task, job_id, retried)
        self.task = task
        self.job_id = job_id
        self.retried = retried

    def __str__(self) -> str:
        holder = f"Job {self.job_id} of task {self.task} holds the unique key"
        if self.retried:
            return (
                f"{holder} of job {self.retried}, which was left as it is. Wait until the other "
                "has ended, or cancel it, and retry this one then."
            )
        return (
            f"{holder} of this call, which was not enqueued. Wait until that job has ended, or let "
            'the task return it with Unique(on_conflict="return"); a job can be replaced only '
            "while it waits."
        )


class QueueFull(WindlassError):
    """As many jobs wait in the queue as may; this one was not enqueued."""

    def __init__(self, queue: str, task: str, seconds: float = 0.0) -> None:
        super().__init__(queue, task, seconds)
        self.queue = queue
        self.task = task
        self.seconds = seconds  # for how long there was no room

    def __str__(self) -> str:
        waited = f" and no room was made within {self.seconds:g} s" if self.seconds else ""
        patience = (
            "With a larger enqueue_timeout an enqueue waits longer."
            if self.seconds
            else "With when_full='block' an enqueue waits for room."
        )
        return (
            f"The queue {self.queue} is full{waited}: this call of {self.task} was not enqueued. "
            "Try again later, start more workers, or raise the bound with `windlass queue set "
            f"{self.queue} --max-waiting`. {patience}"
        )


class JobNotFound(WindlassError):
    """No such job."""

    def __init__(self, job_id: str, location: str = "") -> None:
        super().__init__(job_id, location)
        self.job_id = job_id
        self.location = location

    def __str__(self) -> str:
        place = f" in {self.location}" if self.location else ""
        return (
            f"There is no job {self.job_id}{place}. Check the id and the url; a job that ended is "
            "kept only for as long as the settings say."
        )


class NotDead(WindlassError):
    """The job is no dead letter, or not the one that was looked at."""

    def __init__(self, job_id: str, state: str) -> None:
        super().__init__(job_id, state)
        self.job_id = job_id
        self.state = state

    def __str__(self) -> str:
        return (
            f"Job {self.job_id} is {self.state}, not dead. Look at it with `windlass job show "
            f"{self.job_id}`: somebody may have retried it already."
        )


class ScheduleNotFound(WindlassError):
    """No such schedule."""

    def __init__(self, name: str, location: str = "", nearest: str = "") -> None:
        super().__init__(name, location, nearest)
        self.name = name
        self.location = location
        self.nearest = nearest

    def __str__(self) -> str:
        place = f" in {self.location}" if self.location else ""
        meant = f" Did you mean {self.nearest}?" if self.nearest else ""
        return (
            f"There is no schedule {self.name}{place}.{meant} `windlass schedule list` shows all; "
            "one that is declared in code is there as soon as a worker has started with it."
        )


class EndlessDrain(WindlassError, RuntimeError):
    """In a test: a drain has run as many jobs as it may, and more are due. `task` is the next."""

    def __init__(self, task: str, limit: int) -> None:
        super().__init__(task, limit)
        self.task = task
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"Expected to run out of jobs, but after {self.limit} of them one of task {self.task} "
            "is due. If it enqueues itself, or fails without a delay, this has no end: give it a "
            "run_after and advance() the clock. If there are so many, call drain(limit=...)."
        )


class JobError(WindlassError):
    """The job has no result to give."""

    job_id: str
    task: str


class JobFailed(JobError):
    """The job ended as dead. `type`, `message` and `traceback` are text from the worker."""

    def __init__(
        self, job_id: str, task: str, reason: str, type: str, message: str, traceback: str
    ) -> None:
        super().__init__(job_id, task, reason, type, message, traceback)
        self.job_id = job_id
        self.task = task
        self.reason = reason
        self.type = type
        self.message = message
        self.traceback = traceback

    def __str__(self) -> str:
        head = f"Job {self.job_id} of task {self.task} is dead ({self.reason})"
        cause = ": ".join(part for part in (self.type, self.message) if part)
        trace = f"\n\nOn the worker:\n{self.traceback}" if self.traceback else ""
        advice = "Mend the cause, then retry() makes it ready again."
        return f"{head}: {cause}\n{advice}{trace}" if cause else f"{head}. {advice}{trace}"


class JobCancelled(JobError):
    """The job was cancelled, or expired before it started."""

    def __init__(self, job_id: str, task: str, reason: str) -> None:
        super().__init__(job_id, task, reason)
        self.job_id = job_id
        self.task = task
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"Job {self.job_id} of task {self.task} has no result: it ended as cancelled "
            f"({self.reason}). Its retry() makes it ready again."
        )


class ResultExpired(JobError):
    """The job succeeded, but its result is not stored."""

    def __init__(self, job_id: str, task: str) -> None:
        super().__init__(job_id, task)
        self.job_id = job_id
        self.task = task

    def __str__(self) -> str:
        return (
            f"Job {self.job_id} of task {self.task} succeeded, but its result is not stored, or "
            "not any more. Ask sooner, or give the task a longer result_ttl."
        )
