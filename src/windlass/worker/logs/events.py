"""The events of a worker's log: name, text of the line, and field names for JSON.

A log call names its event and passes the values: `log.warning(LogEvent.ENGINE_AWAY, error)`. A
`LogEvent` is a string, the text of its line, so that every handler gets a plain record.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from logging import getLogger
from time import monotonic
from typing import Final, NamedTuple

from windlass.core.failures import FailureText
from windlass.core.quantities import Count
from windlass.core.states import Reason

log = getLogger("windlass.worker")

#: Fields that are lists in every event: log collectors need one type for each name.
LISTS: Final = frozenset({"job_ids", "labels", "queues", "tasks"})
#: The shortest time between two lines for the same key, in seconds.
INTERVAL_S: Final = 60.0


class LogEvent(StrEnum):
    """Log lines by name. A name stays when its line changes. In JSON it is in small letters."""

    fields: tuple[str, ...]

    def __new__(cls, line: str, fields: str = "") -> LogEvent:
        event = str.__new__(cls, line)
        event._value_ = line
        event.fields = tuple(fields.split())
        return event

    # the worker
    WORKER_STARTED = "started: app %s, %s x %d slots, %s%s", "app processes slots queues labels"
    WORKER_READY = "ready: %s, %s", "engine number"
    WORKER_TASKS = "tasks: %s", "tasks"
    WORKER_SETTINGS = "settings: %s", "settings"
    NO_TASKS = (
        "app %s has no tasks: list the modules that declare them in its setting include",
        "app",
    )
    IDLE_ROUTE = "route %s matches no task of this app", "pattern"
    IDLE_QUEUE = (
        "queue %s is unused: no job was ever in it, and the tasks of this app go to %s",
        "queue queues",
    )
    VARIABLE_OVERRULED = "%s ignored: overridden in code by %s", "variable setting"
    WORKER_FAILED = "cannot serve %s: %s", "app why"
    WORKER_STOPPING = (
        "stopping on %s: jobs have %g s to finish; another signal hands them back now",
        "signal grace_s",
    )
    WORKER_STOP_COMMANDED = (
        "stopping on command: jobs have %g s to finish; a signal hands them back now",
        "grace_s",
    )
    WORKER_QUIET = "quiet on command: claiming no more jobs, running jobs continue"
    WORKER_RESUMED = "resumed on command: claiming jobs again"
    WORKER_SCALED_UP = (
        "scaled up from %d to %s: %s ready, demand of %d slots, %s",
        "before children ready demand_slots drain_s",
    )
    WORKER_SCALED_DOWN = (
        "scaled down from %d to %s: the busiest moment of the last %g s used %d slots",
        "before children hold_s busy_slots",
    )
    WORKER_DONE = "stopping: nothing is left to do"
    WORKER_HANDING_BACK = "stopping: handing back running jobs"
    WORKER_STOPPED = "stopped"
    METRICS_SERVED = "metrics: %s", "url"
    METRICS_UNSERVED = (
        "cannot serve metrics on %s: %s; give --metrics an address of this machine and a free port",
        "address why",
    )
    METRICS_FAILED = "a request for metrics failed"
    HEALTH_UNSERVED = "no health socket, windlass health cannot check this worker: %s", "why"
    # jobs
    JOB_ENDED = (
        "job %s of task %s %s in %s, attempt %d",
        "job_id task outcome duration_ms attempt",
    )
    JOBS_SUCCEEDED = "%s succeeded within a second", "number"
    JOB_FAILED = (
        "job %s of task %s failed in attempt %d of %d (%s), retrying in %s",
        "job_id task attempt max_attempts error delay",
    )
    JOB_CANCELLED = "job %s of task %s was cancelled while it ran", "job_id task"
    JOB_ENDED_BY_FORCE = (
        "job %s still ran %s after its time-out of %s, ending child %d",
        "job_id kill_after timeout child",
    )
    CANCELLED_JOB_ENDED_BY_FORCE = (
        "job %s still ran %s after it was cancelled, ending child %d",
        "job_id kill_after child",
    )
    JOB_RUNS_LONG = (
        "job %s of task %s has been running for longer than %s without a time-out, since %s",
        "job_id task limit since",
    )
    LOOP_BLOCKED = "%s has blocked the event loop for %g s: %s", "by blocked_s stack"
    JOB_DEAD = "job %s of task %s is dead, %s: %s", "job_id task reason error"
    JOB_ESCAPED = "job %s of task %s failed outside the task function: %s", "job_id task error"
    JOB_FAILED_AFTER_END = (
        "job %s of task %s raised an error after its end was committed, keeping its success",
        "job_id task",
    )
    COMMIT_UNKNOWN = (
        "lost the reply to the commit of job %s, asking the engine for the outcome: %s",
        "job_id why",
    )
    STEP_WAITS = (
        "lost connection to engine in a step of job %s, retrying: %s",
        "job_id why",
    )
    JOB_OF_OTHER_VERSION = (
        "cannot run a job of task %s, leaving it to workers of another version: %s",
        "task why",
    )
    JOB_UNREADABLE_HERE = (
        "cannot read a job of task %s, leaving it to other workers: %s",
        "task why",
    )
    TASK_UNKNOWN = "task %s has no code in this app, leaving its jobs to other workers", "task"
    OUTCOME_LOST = "cannot report the result of job %s, dropping it", "job_id"
    RESULT_TOO_LARGE = (
        "the result of job %s is too large for the engine, the job is dead: %s",
        "job_id why",
    )
    OUTCOMES_UNREPORTED = (
        "could not report %s before shutdown, these jobs run again: %s",
        "number job_ids",
    )
    OUTCOMES_REFUSED = "rejected %s, the jobs were reassigned: %s", "number job_ids"
    JOBS_HANDED_BACK = "handed back %s", "number"
    JOBS_LEFT_TO_SUPERVISOR = "cannot hand back jobs, leaving them to the supervisor: %s", "why"
    # dead jobs
    DEAD_JOB_REMOVED = (
        "removing job %s of task %s, dead (%s) for longer than dead_ttl; its call: %s",
        "job_id task reason call",
    )
    UNREADABLE_JOB_REMOVED = (
        "removing unreadable job %s, dead for longer than dead_ttl: %s",
        "job_id why",
    )
    # alerts
    ALERT_FIRING = "alert firing: %s", "found"
    ALERT_CLEARED = "alert cleared: %s", "found"
    ALERT_TEST = "test of an alert: %s", "found"
    ALERT_UNDELIVERED = (
        "webhook did not accept the alert %s, %s, giving up: %s",
        "rule state why",
    )
    ALERT_HOOK_FAILED = "alert hook failed"
    # hooks
    HOOK_FAILED = "hook %s, %s, failed for job %s of task %s", "hook function job_id task"
    HOOK_SLOW = (
        "hook %s, %s, has run for %s for job %s of task %s: other hooks of this child wait for it",
        "hook function duration job_id task",
    )
    HOOK_NOT_CALLED = "could not call a hook, dropping the call"
    HOOKS_DROPPED = "dropped %s: hooks take longer than jobs, or did not end in time", "number"
    # children
    CHILD_DIED = "child %d died: %s; %s", "child cause job_ids"
    CHILD_FAILED = "child %d could not start: %s", "child why"
    CHILD_NOT_STARTED = "could not start a child, retrying: %s", "why"
    CHILD_RETIRES = "child %d retires: %s", "child why"
    CHILD_TOO_LARGE = (
        "child %d uses %s of memory before its first job, more than its limit of %s: "
        "raise the limit",
        "child memory limit",
    )
    INTERPRETER_KEPT = (
        "child %d has not run Python for %d s, a job holds the interpreter; running: %s",
        "child stood_s job_ids",
    )
    CHILD_WEDGED = "child %d stopped reporting: %s", "child where"
    INSIDE_WEDGED = "embedded worker stopped reporting: %s", "where"
    INSIDE_STOPPED = "embedded worker stopped on command: running jobs continue"
    TASKS_LEFT_TO_OTHERS = (
        "embedded worker cannot run tasks that need their own process, leaving them to "
        "worker processes: %s",
        "tasks",
    )
    WATCH_NOT_STARTED = "could not start the watchdog of this child: %s", "why"
    CHILD_KILLED = "killing child %d, it did not exit", "child"
    THREAD_NOT_STARTED = "could not start a thread for jobs, retrying: %s", "why"
    LOOP_LEFT = "%s stopped the event loop, restarting it", "error"
    LIFESPAN_SLOW = "lifespan has not started within %g s, still waiting", "limit_s"
    LIFESPAN_FAILED = "lifespan failed at shutdown"
    LIFESPAN_LINGERED = "lifespan has not ended within %g s, ending the process", "limit_s"
    LIFESPAN_ENDED = "lifespan ended unexpectedly, draining this child"
    # sessions and the engine
    SESSION_CLOSED = (
        "closed session %s: charged %s with a crash, marked %d to run alone, released %d",
        "session crashed suspected released",
    )
    DEAD_WORKER_ENDED = (
        "ended session %s of worker %d, which died on this machine: %s to run again",
        "session worker jobs",
    )
    SESSION_GONE = "session %s of child %d expired, telling the child", "session child"
    SESSION_RENEWED = (
        "session %s expired, no heartbeat for a lease: dropped %s, results of %s will be "
        "rejected, continuing as session %s",
        "session dropped running new_session",
    )
    JOBS_TAKEN_BACK = "reclaimed %s from workers that stopped responding", "number"
    ORPHANS_DROPPED = "dropped %s without a job; see windlass check --repair", "number"
    ENGINE_AWAY = "lost connection to engine, retrying: %s", "why"
    ENGINE_REFUSED = "engine refused a call, retrying: %s", "why"
    ENGINE_BACK = "engine is available again: %s", "engine"
    ENGINE_SLOW = "engine has not answered within %g s, still waiting: %s", "limit_s engine"
    ENGINE_AWAITED = "waiting for the engine to answer: %s", "why"
    UNCLOSED_SESSIONS = (
        "could not close %s: their running and unreported jobs run again when the lease expires",
        "sessions",
    )
    MEASURES_DROPPED = (
        "could not record %s in the history of the engine: it counts too few runs",
        "runs",
    )
    SUPERVISOR_ENGINE_AWAY = "supervisor lost connection to engine, retrying: %s", "why"
    SUPERVISOR_ENGINE_BACK = "supervisor reached the engine again: %s", "engine"
    ENGINE_EMPTIED = (
        "engine lost its data: the jobs in %s are gone; check its durability with windlass doctor",
        "engine",
    )
    SUSPENDED_CALL_ENDED = (
        "ended a call of a suspended process, %s: it kept its locks without progress for %s",
        "client duration",
    )
    ENGINE_DURABILITY = "durability: %s", "found"
    ENGINE_PROBLEM = "engine problem, %s: %s", "subject found"
    # schedules
    RUNS_LEFT_OUT = "schedule %s skipped %s from %s to %s: %s", "schedule number first last why"
    SCHEDULE_ABANDONED = "paused schedule %s: no worker has declared it for a day", "schedule"
    DECLARATION_OUTDATED = (
        "schedule %s differs from this worker's declaration, keeping the stored one: %s",
        "schedule why",
    )
    SCHEDULE_UNREADABLE = "cannot read schedule %s, leaving it to other workers: %s", "schedule why"
    # the outbox
    OUTBOX_AWAY = "cannot read the outbox, retrying: %s", "why"
    OUTBOX_BACK = "outbox is available again: %s", "outbox"
    OUTBOX_ENGINE_AWAY = "relay of the outbox lost connection to engine, retrying: %s", "why"
    OUTBOX_JOB_REFUSED = (
        "cannot relay job %s of the outbox, retrying in %s: %s",
        "job_id delay why",
    )
    OUTBOX_QUEUE_FULL = "queue %s is full, its jobs wait in the outbox", "queue"
    OUTBOX_KEY_CONFLICT = (
        "dropped job %s of task %s from the outbox: its idempotency key belongs to job %s, which "
        "has other arguments",
        "job_id task other_job_id",
    )
    OUTBOX_DUPLICATE = (
        "dropped job %s of task %s from the outbox: job %s holds its unique key",
        "job_id task other_job_id",
    )
    WAITER_REFUSED = "engine refused to wake idle children, retrying: %s", "why"
    WAITER_ENGINE_AWAY = "waiter lost connection to engine, retrying: %s", "why"
    # bugs
    PUMP_FAILED = "fetcher of session %s failed, restarting it", "session"
    OUTBOX_FAILED = "relay of the outbox failed, retrying"
    WATCH_FAILED = "watchdog of this child failed, retrying"
    UPKEEP_FAILED = "maintenance of the worker failed, retrying"
    WAITER_FAILED = "waiter of the worker failed, restarting it"
    CLAIMS_NOT_GIVEN_BACK = (
        "could not release claims of session %s, a later heartbeat releases them",
        "session",
    )


class LoggedValue(NamedTuple):
    """A value and its text: the line shows the text, the JSON field has the value."""

    value: object
    words: str

    def __str__(self) -> str:
        return self.words


def listed(names: Iterable[str], before: str = "", none: str = "") -> LoggedValue:
    value = list(names)
    return LoggedValue(value, f"{before}{', '.join(value)}" if value else none)


def describe(message: object, arguments: object) -> dict[str, object]:
    """Return the event of a record and its fields; empty for a record without an event."""
    if not isinstance(message, LogEvent) or not isinstance(arguments, tuple):
        return {}
    fields = zip(message.fields, arguments, strict=False)
    return {"event": message.name.lower(), **{name: _value(name, one) for name, one in fields}}


def _value(name: str, given: object) -> object:
    if isinstance(given, LoggedValue):
        return given.value
    if isinstance(given, Count):
        return int(given)
    return given.split(", ") if name in LISTS and isinstance(given, str) else given


def log_dead_letter(job_id: str, task: str, reason: Reason, text: FailureText) -> None:
    """Log a dead letter with the type and place of its error. The message may contain arguments."""
    cause = text.name or text.message
    if text.type and text.place:
        cause = f"{text.name} in {text.place}"
    log.error(LogEvent.JOB_DEAD, job_id, task, reason, cause)


class Notices:
    """Throttle lines that would repeat for every job. There are few keys: names of tasks."""

    def __init__(self) -> None:
        self._logged_at: dict[str, float] = {}

    def is_due(self, key: str) -> bool:
        """Return whether to log now, and mark the key as logged if so."""
        now = monotonic()
        if now - self._logged_at.get(key, -INTERVAL_S) < INTERVAL_S:
            return False
        self._logged_at[key] = now
        return True
