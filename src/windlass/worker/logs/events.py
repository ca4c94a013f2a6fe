"""The events of a worker's log lines for JSON: the name of the event, and names of its fields.

The template of a line is the key. So logging calls stay plain, and a line that is written as text
costs nothing extra. A test compares this table with the logging calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from windlass.core.quantities import Count


class LogEvent(NamedTuple):
    name: str
    fields: tuple[str, ...] = ()


class LoggedValue(NamedTuple):
    """A value and its text: the line shows the text, the JSON field has the value."""

    value: object
    words: str

    def __str__(self) -> str:
        return self.words


def listed(names: Iterable[str], before: str = "", none: str = "") -> LoggedValue:
    value = list(names)
    return LoggedValue(value, f"{before}{', '.join(value)}" if value else none)


#: Fields that are lists in every event: log collectors need one type for each name.
LISTS: Final = frozenset({"job_ids", "labels", "queues", "tasks"})


#: template -> event. A name stays when its template changes.
EVENTS: Final[Mapping[str, LogEvent]] = {
    # the worker
    "started: app %s, %d x %d slots, %s%s": LogEvent(
        "worker_started", ("app", "processes", "slots", "queues", "labels")
    ),
    "ready: %s, %s": LogEvent("worker_ready", ("engine", "number")),
    "tasks: %s": LogEvent("worker_tasks", ("tasks",)),
    "settings: %s": LogEvent("worker_settings", ("settings",)),
    "app %s has no tasks: list the modules that declare them in its setting include": LogEvent(
        "no_tasks", ("app",)
    ),
    "route %s matches no task of this app": LogEvent("idle_route", ("pattern",)),
    "queue %s is unused: no job was ever in it, and the tasks of this app go to %s": LogEvent(
        "idle_queue", ("queue", "queues")
    ),
    "%s ignored: overridden in code by %s": LogEvent("variable_overruled", ("variable", "setting")),
    "cannot serve %s: %s": LogEvent("worker_failed", ("app", "why")),
    "stopping on %s: jobs have %g s to finish; another signal hands them back now": LogEvent(
        "worker_stopping", ("signal", "grace_s")
    ),
    "stopping: nothing is left to do": LogEvent("worker_done"),
    "stopping: handing back running jobs": LogEvent("worker_handing_back"),
    "stopped": LogEvent("worker_stopped"),
    "windlass health cannot see this worker: %s": LogEvent("health_unserved", ("why",)),
    # jobs
    "job %s of task %s ended as %s in attempt %d after %d ms": LogEvent(
        "job_ended", ("job_id", "task", "outcome", "attempt", "duration_ms")
    ),
    "job %s of task %s failed in attempt %d of %d (%s), retrying in %s": LogEvent(
        "job_failed", ("job_id", "task", "attempt", "max_attempts", "error", "delay")
    ),
    "job %s of task %s was cancelled while it ran": LogEvent("job_cancelled", ("job_id", "task")),
    "job %s still ran %s after its time-out of %s, ending child %d": LogEvent(
        "job_ended_by_force", ("job_id", "kill_after", "timeout", "child")
    ),
    "job %s still ran %s after it was cancelled, ending child %d": LogEvent(
        "cancelled_job_ended_by_force", ("job_id", "kill_after", "child")
    ),
    "job %s of task %s has been running for longer than %s without a time-out, since %s": LogEvent(
        "job_runs_long", ("job_id", "task", "limit", "since")
    ),
    "%s has blocked the event loop for %g s: %s": LogEvent(
        "loop_blocked", ("by", "blocked_s", "stack")
    ),
    "job %s of task %s is dead, %s: %s": LogEvent(
        "job_dead", ("job_id", "task", "reason", "error")
    ),
    "job %s of task %s failed outside the task function: %s": LogEvent(
        "job_escaped", ("job_id", "task", "error")
    ),
    "cannot run a job of task %s, leaving it to workers of another version: %s": LogEvent(
        "job_of_other_version", ("task", "why")
    ),
    "cannot read a job of task %s, leaving it to other workers: %s": LogEvent(
        "job_unreadable_here", ("task", "why")
    ),
    "task %s is unknown to this app, leaving its jobs to other workers": LogEvent(
        "task_unknown", ("task",)
    ),
    "cannot report the result of job %s, dropping it": LogEvent("outcome_lost", ("job_id",)),
    "the result of job %s is too large for the engine, the job is dead: %s": LogEvent(
        "result_too_large", ("job_id", "why")
    ),
    "could not report %s before shutdown, these jobs run again: %s": LogEvent(
        "outcomes_unreported", ("number", "job_ids")
    ),
    "rejected %s, the jobs were reassigned: %s": LogEvent(
        "outcomes_refused", ("number", "job_ids")
    ),
    "handed back %s": LogEvent("jobs_handed_back", ("number",)),
    "cannot hand back jobs, leaving them to the supervisor: %s": LogEvent(
        "jobs_left_to_supervisor", ("why",)
    ),
    # dead jobs
    "removing job %s of task %s, dead (%s) for longer than dead_ttl; its call: %s": LogEvent(
        "dead_job_removed", ("job_id", "task", "reason", "call")
    ),
    "removing unreadable job %s, dead for longer than dead_ttl: %s": LogEvent(
        "unreadable_job_removed", ("job_id", "why")
    ),
    "there are %d dead jobs, more than %d: see windlass dead list --group": LogEvent(
        "dead_jobs_many", ("dead", "threshold")
    ),
    "%d jobs died within 5 minutes, more than %d: see windlass dead list --group": LogEvent(
        "dead_jobs_growing", ("grown", "threshold")
    ),
    "alert hook for dead jobs failed": LogEvent("dead_alert_failed"),
    # children
    "child %d died: %s; %s": LogEvent("child_died", ("child", "cause", "job_ids")),
    "child %d could not start: %s": LogEvent("child_failed", ("child", "why")),
    "could not start a child, retrying: %s": LogEvent("child_not_started", ("why",)),
    "child %d retires: %s": LogEvent("child_retires", ("child", "why")),
    "child %d uses %s of memory before its first job, more than its limit of %s: "
    "raise the limit": LogEvent("child_too_large", ("child", "memory", "limit")),
    "child %d has not run Python for %d s, a job holds the interpreter; running: %s": LogEvent(
        "interpreter_kept", ("child", "stood_s", "job_ids")
    ),
    "child %d stopped reporting: %s": LogEvent("child_wedged", ("child", "where")),
    "embedded worker stopped reporting: %s": LogEvent("inside_wedged", ("where",)),
    "embedded worker cannot run tasks that need their own process, leaving them to "
    "worker processes: %s": LogEvent("tasks_left_to_others", ("tasks",)),
    "could not start the watchdog of this child: %s": LogEvent("watch_not_started", ("why",)),
    "killing child %d, it did not exit": LogEvent("child_killed", ("child",)),
    "could not start a thread for jobs, retrying: %s": LogEvent("thread_not_started", ("why",)),
    "%s stopped the event loop, restarting it": LogEvent("loop_left", ("error",)),
    "lifespan has not started within %g s, still waiting": LogEvent("lifespan_slow", ("limit_s",)),
    "lifespan failed at shutdown": LogEvent("lifespan_failed"),
    "lifespan has not ended within %g s, ending the process": LogEvent(
        "lifespan_lingered", ("limit_s",)
    ),
    "lifespan ended unexpectedly, draining this child": LogEvent("lifespan_ended"),
    # sessions and the engine
    "session %s closed: %s charged a crash, %d to run alone, %d given back": LogEvent(
        "session_closed", ("session", "crashed", "suspected", "released")
    ),
    "ended session %s of worker %d, which died on this machine: %s to run again": LogEvent(
        "dead_worker_ended", ("session", "worker", "jobs")
    ),
    "session %s of child %d expired": LogEvent("session_gone", ("session", "child")),
    "session %s expired, no heartbeat for a lease: dropped %s, results of %s will be "
    "rejected, continuing as session %s": LogEvent(
        "session_renewed", ("session", "dropped", "running", "new_session")
    ),
    "reclaimed %s from workers that stopped responding": LogEvent("jobs_taken_back", ("number",)),
    "dropped %s without a job; see windlass check --repair": LogEvent(
        "orphans_dropped", ("number",)
    ),
    "lost connection to engine, retrying: %s": LogEvent("engine_away", ("why",)),
    "engine refused a call, retrying: %s": LogEvent("engine_refused", ("why",)),
    "engine is available again: %s": LogEvent("engine_back", ("engine",)),
    "engine has not answered within %g s, still waiting: %s": LogEvent(
        "engine_slow", ("limit_s", "engine")
    ),
    "waiting for the engine to answer: %s": LogEvent("engine_awaited", ("why",)),
    "could not close %s: their running and unreported jobs run again when the lease "
    "expires": LogEvent("unclosed_sessions", ("sessions",)),
    "supervisor lost connection to engine, retrying: %s": LogEvent(
        "supervisor_engine_away", ("why",)
    ),
    "supervisor reached the engine again: %s": LogEvent("supervisor_engine_back", ("engine",)),
    "engine lost its data: the jobs in %s are gone; check its durability with windlass "
    "doctor": LogEvent("engine_emptied", ("engine",)),
    "durability: %s": LogEvent("engine_durability", ("found",)),
    "engine problem, %s: %s": LogEvent("engine_problem", ("subject", "found")),
    # schedules
    "schedule %s skipped %s from %s to %s: %s": LogEvent(
        "runs_left_out", ("schedule", "number", "first", "last", "why")
    ),
    "paused schedule %s: no worker has declared it for a day": LogEvent(
        "schedule_abandoned", ("schedule",)
    ),
    "schedule %s differs from this worker's declaration, keeping the stored one: %s": LogEvent(
        "declaration_outdated", ("schedule", "why")
    ),
    "cannot read schedule %s, leaving it to other workers: %s": LogEvent(
        "schedule_unreadable", ("schedule", "why")
    ),
    "engine refused to wake idle children, retrying: %s": LogEvent("waiter_refused", ("why",)),
    "waiter lost connection to engine, retrying: %s": LogEvent("waiter_engine_away", ("why",)),
    # bugs
    "fetcher of session %s failed, restarting it": LogEvent("pump_failed", ("session",)),
    "watchdog of this child failed, retrying": LogEvent("watch_failed"),
    "maintenance of the worker failed, retrying": LogEvent("upkeep_failed"),
    "waiter of the worker failed, restarting it": LogEvent("waiter_failed"),
    "could not release claims of session %s": LogEvent("claims_not_given_back", ("session",)),
}


def describe(message: object, arguments: object) -> dict[str, object]:
    """The event of a record and its fields; empty for a line that is not in the table."""
    event = EVENTS.get(message) if isinstance(message, str) else None
    if event is None or not isinstance(arguments, tuple):
        return {}
    fields = zip(event.fields, arguments, strict=False)
    return {"event": event.name, **{name: _value(name, one) for name, one in fields}}


def _value(name: str, given: object) -> object:
    if isinstance(given, LoggedValue):
        return given.value
    if isinstance(given, Count):
        return int(given)
    return given.split(", ") if name in LISTS and isinstance(given, str) else given
