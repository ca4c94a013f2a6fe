"""The errors that windlass raises.

Each message says what was expected, what was found and how to fix it. The facts of the message are
also attributes of the error. All errors can be copied and pickled.

    WindlassError
    ├── SettingError            a setting is unknown or has an invalid value
    ├── AppNotFound             `module:attribute` names no app
    ├── IncludeFailed           a module that `include` names cannot be imported
    ├── InvalidTask             a function or a name that cannot become a task
    ├── TaskNotIncluded         a task of a group that no app includes yet
    ├── InvalidSchedule         a schedule that a task cannot have, or a name that is taken
    ├── InvalidMiddleware       an invalid middleware or lifespan
    ├── NoContext               no job is running here
    ├── AnnotationError         a type that a task's annotation names cannot be stored
    ├── InvalidCall             the arguments of a call do not fit its task
    ├── EncodeError             a value cannot be stored
    │   └── PayloadTooLarge     ... because it is too large
    ├── DecodeError             stored bytes cannot be decoded
    │   ├── ArgumentMismatch    ... to arguments that the function takes
    │   ├── MissingDecoder      ... because this app lacks the key or the codec
    │   └── NewerFormat         ... because a newer windlass wrote them
    ├── EngineError             the engine refused, or cannot be used
    │   ├── EngineUnavailable   the engine did not answer in time: repeat later
    │   ├── FormatTooNew        the stored format was written by a newer windlass
    │   └── InvalidCursor       a cursor that no page of this list returned
    ├── InvalidConnection       the connection of a caller cannot take a job
    ├── NoTransaction           a job cannot end in a transaction here
    ├── ClaimLost               a job was reassigned before its writes or a step were stored
    ├── OnceRefused             a step of a job cannot run, or be stored, here
    ├── TimedOut                a job ran for longer than its time-out
    ├── IdempotencyConflict     the key belongs to a job with other arguments
    ├── DuplicateJob            another job holds the unique key
    ├── QueueFull               the queue has reached its bound
    ├── JobNotFound             no such job
    ├── NotDead                 the job is in another state than dead
    ├── ScheduleNotFound        no such schedule
    ├── AccessTokenNotFound     no such access token
    ├── DuplicateAccessToken    the name of an access token is taken, or not unique
    ├── OperationNotFound       no such bulk operation
    ├── OperationRefused        a bulk operation cannot start as it was asked for
    │   └── TooManyOperations   ... because too many others are running
    ├── CopyRefused             these places cannot be copied, or not now
    ├── WorkerNotFound          no live worker has this name or session
    ├── ReleaseNotFound         no worker of this release has started
    ├── EndlessDrain            in a test: a drain reached its limit, and more jobs are due
    └── JobError                the job has no result
        ├── JobFailed           it ended as dead
        ├── JobCancelled        it was cancelled, or expired before it started
        └── ResultExpired       it succeeded, but its result is not stored any more
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windlass.core.serialization.problems import ArgumentProblem


class WindlassError(Exception):
    """The base class of all errors of windlass."""


class SettingError(WindlassError, ValueError):
    """A setting is unknown, or has an invalid value."""


class AppNotFound(WindlassError):
    """`module:attribute` names no app."""


class IncludeFailed(WindlassError):
    """A module of `include` cannot be imported, or a pattern matches no module.

    `module` is the name of the module, or the pattern."""

    def __init__(self, message: str, *, module: str = "") -> None:
        super().__init__(message)
        self.module = module


class InvalidTask(WindlassError, TypeError):
    """A function or a name cannot become a task."""


class TaskNotIncluded(WindlassError, RuntimeError):
    """A task of a group was used before an app included the group."""

    def __init__(self, task: str, group: str) -> None:
        super().__init__(task, group)
        self.task = task
        self.group = group

    def __str__(self) -> str:
        return (
            f"The task {self.task} belongs to {self.group}, and no app has included that group, "
            "so its jobs have no engine. Call app.include(...) with the group where the app is "
            "made, and import that module before anything is enqueued."
        )


class InvalidSchedule(WindlassError, ValueError):
    """A task cannot have this schedule, or the name of the schedule is taken."""


class InvalidMiddleware(WindlassError, TypeError):
    """A middleware or a lifespan is invalid."""


class NoContext(WindlassError, RuntimeError):
    """No job is running here."""

    def __str__(self) -> str:
        return (
            "current_context() was called where no job is running. It works in a task that a "
            "worker runs, and in all functions that the task calls. For a function that is also "
            "called plainly, use @app.task(takes_context=True)."
        )


# ------------------------------------------------------------------------------------- stored bytes


class AnnotationError(WindlassError, TypeError):
    """An annotation has an unknown name, or a type that cannot be stored as JSON and rebuilt."""

    def __init__(self, message: str, *, task: str = "", parameter: str = "") -> None:
        super().__init__(message)
        self.task = task
        self.parameter = parameter


class InvalidCall(WindlassError, TypeError):
    """A call that is read from JSON, or a call of a task with a schema, does not fit its task.

    `problems` has an entry for each parameter, or part of its value, that does not fit."""

    def __init__(
        self, message: str, *, task: str = "", problems: tuple[ArgumentProblem, ...] = ()
    ) -> None:
        super().__init__(message)
        self.task = task
        self.problems = problems


class EncodeError(WindlassError):
    """A value cannot be stored, or would be changed by storing and reading it.

    `parameter` is empty for a result. `path` is the place inside the value; "$" is the whole value.
    """

    def __init__(
        self, message: str, *, task: str = "", parameter: str = "", path: str = ""
    ) -> None:
        super().__init__(message)
        self.task = task
        self.parameter = parameter
        self.path = path


class PayloadTooLarge(EncodeError):
    """A value is larger than the limit. Sizes are in bytes."""

    def __init__(self, message: str, *, size: int = 0, limit: int = 0) -> None:
        super().__init__(message)
        self.size = size
        self.limit = limit


class DecodeError(WindlassError):
    """Stored bytes cannot be decoded."""

    def __init__(
        self, message: str, *, task: str = "", parameter: str = "", path: str = ""
    ) -> None:
        super().__init__(message)
        self.task = task
        self.parameter = parameter
        self.path = path


class ArgumentMismatch(DecodeError):
    """A stored call was made for another version of its task, which takes other arguments."""


class MissingDecoder(DecodeError):
    """This app lacks the key or the codec that reads the stored bytes."""


class NewerFormat(DecodeError):
    """Stored bytes were written by a newer windlass than this one."""

    def __init__(self, message: str, *, found: int = 0, supported: int = 0) -> None:
        super().__init__(message)
        self.found = found
        self.supported = supported


# ------------------------------------------------------------------------------------------ engines


class EngineError(WindlassError):
    """The engine cannot be used; repeating the call does not help."""

    def __init__(self, message: str, *, location: str = "") -> None:
        super().__init__(message)
        self.location = location


class EngineUnavailable(EngineError):
    """The engine did not answer in time. `unsent` is True if the call was not sent or was refused,
    and had no effect. Otherwise the effect is unknown. Repeating it with the same id is safe."""

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
    """The stored format was written by a newer windlass than this one."""


class InvalidCursor(EngineError):
    """A cursor that no page of the same list of jobs returned."""


class InvalidConnection(WindlassError, ValueError):
    """A job cannot be stored on the connection of the caller: the connection is in a wrong state,
    is of the wrong kind, or is to a wrong database. Nothing was stored."""


class NoTransaction(WindlassError, RuntimeError):
    """A job cannot end in a transaction here: its engine has none, no worker runs it, or it has
    ended."""


class ClaimLost(WindlassError):
    """The job was reassigned, cancelled or ended by force while it ran. What the task wrote in an
    open transaction of the job was rolled back, and no completed step is stored any more."""

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id)
        self.job_id = job_id

    def __str__(self) -> str:
        return (
            f"The claim of job {self.job_id} is over, so neither its transaction nor a step was "
            "stored: the job was reassigned, cancelled or ended by force meanwhile. Let this error "
            "end the task. If it happens often, look for workers that lose their sessions."
        )


class OnceRefused(WindlassError, RuntimeError):
    """`ctx.once` cannot run its function here, or could not store that it has run. The function was
    not run."""


# --------------------------------------------------------------------------------------------- jobs


class TimedOut(WindlassError, TimeoutError):
    """The error of an attempt that timed out, for the retry policy and the history."""

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
            "make the key from everything that distinguishes this call from others."
        )


class DuplicateJob(WindlassError):
    """Another job of the task holds the unique key. `job_id` is the id of that job. `retried` is
    the id of the job that was not retried, or empty for a call that was not enqueued."""

    def __init__(self, task: str, job_id: str, retried: str = "") -> None:
        super().__init__(task, job_id, retried)
        self.task = task
        self.job_id = job_id
        self.retried = retried

    def __str__(self) -> str:
        holder = f"Job {self.job_id} of task {self.task} holds the unique key"
        if self.retried:
            return (
                f"{holder} of job {self.retried}, which was not changed. Wait until the other job "
                "has ended, or cancel it; then retry this one."
            )
        return (
            f"{holder} of this call, which was not enqueued. Wait until that job has ended, or let "
            'the task return it with Unique(on_conflict="return"); a job can be replaced only '
            "while it waits."
        )


class QueueFull(WindlassError):
    """The queue has reached its bound; this call was not enqueued."""

    def __init__(self, queue: str, task: str, seconds: float = 0.0) -> None:
        super().__init__(queue, task, seconds)
        self.queue = queue
        self.task = task
        self.seconds = seconds  # for how long there was no room

    def __str__(self) -> str:
        waited = f" and no room was made within {self.seconds:g} s" if self.seconds else ""
        hint = (
            "With a larger enqueue_timeout an enqueue waits longer."
            if self.seconds
            else "With when_full='block' an enqueue waits for room."
        )
        return (
            f"The queue {self.queue} is full{waited}: this call of {self.task} was not enqueued. "
            "Try again later, start more workers, or raise the bound with `windlass queue set "
            f"{self.queue} --max-waiting`. {hint}"
        )


class JobNotFound(WindlassError):
    """No such job. `is_pending` is True for a job that was enqueued in a transaction, which may not
    be committed yet."""

    def __init__(self, job_id: str, location: str = "", is_pending: bool = False) -> None:
        super().__init__(job_id, location, is_pending)
        self.job_id = job_id
        self.location = location
        self.is_pending = is_pending

    def __str__(self) -> str:
        place = f" in {self.location}" if self.location else ""
        if self.is_pending:
            return (
                f"Job {self.job_id} is not{place} yet: it was enqueued in a transaction. It can be "
                "found once the transaction is committed and, with an outbox, a worker has relayed "
                "it, which takes about a second. It is never found if the transaction was rolled "
                "back, or if another job has its idempotency key or unique key."
            )
        return (
            f"There is no job {self.job_id}{place}. Check the id and the url; a job that has ended "
            "is removed after its result_ttl or dead_ttl."
        )


class NotDead(WindlassError):
    """The job is not dead, or was retried and died again since it was read."""

    def __init__(self, job_id: str, state: str) -> None:
        super().__init__(job_id, state)
        self.job_id = job_id
        self.state = state

    def __str__(self) -> str:
        return (
            f"Job {self.job_id} is {self.state}, not dead. Look at it with `windlass job show "
            f"{self.job_id}`: it may have been retried already."
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
            "a schedule declared in code exists once a worker with that code has started."
        )


class AccessTokenNotFound(WindlassError):
    """No such access token. `name` is its name or its id."""

    def __init__(self, name: str, location: str = "") -> None:
        super().__init__(name, location)
        self.name = name
        self.location = location

    def __str__(self) -> str:
        place = f" in {self.location}" if self.location else ""
        return (
            f"There is no access token {self.name}{place}: it was revoked, or has another name. "
            "`windlass token list` shows all."
        )


class DuplicateAccessToken(WindlassError):
    """An access token has this name already, or several have it. `ids` are their ids."""

    def __init__(self, name: str, ids: tuple[str, ...] = ()) -> None:
        super().__init__(name, ids)
        self.name = name
        self.ids = ids

    def __str__(self) -> str:
        ids = ", ".join(self.ids)
        if len(self.ids) > 1:
            return (
                f"{len(self.ids)} access tokens have the name {self.name} ({ids}), and none was "
                "revoked. Give the id of one of them."
            )
        return (
            f"There is already an access token {self.name} ({ids}), and none was created. Choose "
            f"another name, or revoke it first with `windlass token revoke {self.name}`."
        )


class OperationNotFound(WindlassError):
    """No such bulk operation."""

    def __init__(self, operation_id: str, location: str = "") -> None:
        super().__init__(operation_id, location)
        self.operation_id = operation_id
        self.location = location

    def __str__(self) -> str:
        place = f" in {self.location}" if self.location else ""
        return (
            f"There is no operation {self.operation_id}{place}. Check the id; an operation that "
            "has ended is removed after 7 days."
        )


class OperationRefused(WindlassError, ValueError):
    """A bulk operation cannot start as it was asked for."""


class TooManyOperations(OperationRefused):
    """A bulk operation cannot start or continue: too many others are running."""


class CopyRefused(WindlassError, ValueError):
    """Jobs cannot be copied between these engines, or not now."""


class WorkerNotFound(WindlassError):
    """No live worker has this name or session. `known` are the names of the live workers."""

    def __init__(self, name: str, location: str = "", known: tuple[str, ...] = ()) -> None:
        super().__init__(name, location, known)
        self.name = name
        self.location = location
        self.known = known

    def __str__(self) -> str:
        place = f" in {self.location}" if self.location else ""
        if not self.known:
            return (
                f"There is no live worker {self.name}{place}, and no other one. `windlass workers` "
                "lists live workers; a worker that has ended is not listed."
            )
        names = ", ".join(self.known[:10])
        more = f" and {len(self.known) - 10} more" if len(self.known) > 10 else ""
        return (
            f"There is no live worker {self.name}{place}. Give HOST:PID of one of these, or a "
            f"session of it: {names}{more}. `windlass workers` lists them."
        )


class ReleaseNotFound(WindlassError):
    """No worker of this release has started, and no job died in it. `known` are the known releases,
    the latest first."""

    def __init__(
        self, name: str, location: str = "", known: tuple[str, ...] = (), nearest: str = ""
    ) -> None:
        super().__init__(name, location, known, nearest)
        self.name = name
        self.location = location
        self.known = known
        self.nearest = nearest

    def __str__(self) -> str:
        place = f" in {self.location}" if self.location else ""
        if not self.known:
            return (
                f"There is no release {self.name}{place}, and no other one. Give workers the "
                "setting release: a release is known once its first worker has started."
            )
        names = ", ".join(self.known[:10])
        more = f" and {len(self.known) - 10} more" if len(self.known) > 10 else ""
        meant = f" Did you mean {self.nearest}?" if self.nearest else ""
        return (
            f"There is no release {self.name}{place}.{meant} Known releases, the latest first: "
            f"{names}{more}."
        )


class EndlessDrain(WindlassError, RuntimeError):
    """A drain in a test reached its limit, and more jobs are due. `task` is the next job's task."""

    def __init__(self, task: str, limit: int) -> None:
        super().__init__(task, limit)
        self.task = task
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"Expected drain() to run out of jobs, but after {self.limit} jobs one of task "
            f"{self.task} is due. If it enqueues itself, or fails without a delay, the drain never "
            "ends: give it a run_after and advance() the clock. If the test needs more jobs, call "
            "drain(limit=...)."
        )


class JobError(WindlassError):
    """The job has no result."""

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
        advice = "Fix the cause, then call retry() to make it ready again."
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
            f"({self.reason}). Call retry() to make it ready again."
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
            "has expired. Read it sooner, or give the task a longer result_ttl."
        )
