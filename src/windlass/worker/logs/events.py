"""The log lines of a worker as data: the name of the event, and the name of each thing in the line.

Found by the text of the line before its values are put in. So the places that log stay plain, and a
line costs nothing more unless it is written as JSON. A test holds this table to the lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from windlass.core.plurals import Count


class Event(NamedTuple):
    name: str
    fields: tuple[str, ...] = ()


class LoggedValue(NamedTuple):
    """A value, and the words for it: the line has the words, the field has the value."""

    value: object
    words: str

    def __str__(self) -> str:
        return self.words


def listed(names: Iterable[str], before: str = "", none: str = "") -> LoggedValue:
    value = list(names)
    return LoggedValue(value, f"{before}{', '.join(value)}" if value else none)


#: Fields that are lists, whichever line they are in: who collects lines gives each name one type.
LISTS: Final = frozenset({"job_ids", "labels", "queues", "tasks"})


#: line -> event. Names stay when words change.
EVENTS: Final[Mapping[str, Event]] = {
    # the worker
    "started: app %s, %d x %d slots, %s%s": Event(
        "worker_started", ("app", "processes", "slots", "queues", "labels")
    ),
    "ready: %s, %s": Event("worker_ready", ("engine", "number")),
    "tasks: %s": Event("worker_tasks", ("tasks",)),
    "settings: %s": Event("worker_settings", ("settings",)),
    "the app %s knows no task: name the modules that declare them in its setting include": Event(
        "no_tasks", ("app",)
    ),
    "no task of this app has a name that the route %s is for": Event("idle_route", ("pattern",)),
    "no task of this app goes to the queue %s, and no job was ever in it: they go to %s": Event(
        "idle_queue", ("queue", "queues")
    ),
    "%s is not heeded: the code of the app says %s, which comes first": Event(
        "variable_overruled", ("variable", "setting")
    ),
    "cannot serve %s: %s": Event("worker_failed", ("app", "why")),
    "stopping on %s: jobs have %g s to finish; another signal hands them back now": Event(
        "worker_stopping", ("signal", "grace_s")
    ),
    "stopping: nothing is left to do": Event("worker_done"),
    "stopping: handing back what still runs": Event("worker_handing_back"),
    "stopped": Event("worker_stopped"),
    "windlass health cannot see this worker: %s": Event("health_unserved", ("why",)),
    # jobs
    "job %s of task %s ended as %s in attempt %d after %d ms": Event(
        "job_ended", ("job_id", "task", "outcome", "attempt", "duration_ms")
    ),
    "job %s of task %s failed in attempt %d of %d (%s), again in %s": Event(
        "job_failed", ("job_id", "task", "attempt", "max_attempts", "error", "delay")
    ),
    "job %s of task %s was cancelled while it ran": Event("job_cancelled", ("job_id", "task")),
    "job %s went on %s after its time-out, %s, and is ended with child %d": Event(
        "job_ended_by_force", ("job_id", "kill_after", "timeout", "child")
    ),
    "job %s went on %s after it was cancelled, and is ended with child %d": Event(
        "cancelled_job_ended_by_force", ("job_id", "kill_after", "child")
    ),
    "job %s of task %s has been running for longer than %s without a time-out, since %s": Event(
        "job_runs_long", ("job_id", "task", "limit", "since")
    ),
    "%s blocks the event loop, for %g s already: %s": Event(
        "loop_blocked", ("by", "blocked_s", "stack")
    ),
    "job %s of task %s is dead, %s: %s": Event("job_dead", ("job_id", "task", "reason", "error")),
    "job %s of task %s failed beside its code: %s": Event(
        "job_escaped", ("job_id", "task", "error")
    ),
    "a job of task %s is kept for workers of another version: %s": Event(
        "job_of_other_version", ("task", "why")
    ),
    "a job of task %s is kept for workers that can read it: %s": Event(
        "job_unreadable_here", ("task", "why")
    ),
    "task %s is not known to this app: its jobs are kept for a worker that knows it": Event(
        "task_unknown", ("task",)
    ),
    "the outcome of job %s cannot be reported and is dropped": Event("outcome_lost", ("job_id",)),
    "the result of job %s is too large for the engine, the job is dead: %s": Event(
        "result_too_large", ("job_id", "why")
    ),
    "could not report %s before the end, these jobs run again: %s": Event(
        "outcomes_unreported", ("number", "job_ids")
    ),
    "refused %s, for jobs that are in other hands: %s": Event(
        "outcomes_refused", ("number", "job_ids")
    ),
    "handed back %s": Event("jobs_handed_back", ("number",)),
    "what is in hand is left to the supervisor to give back: %s": Event(
        "jobs_left_to_supervisor", ("why",)
    ),
    # dead jobs
    "removing job %s of task %s, dead (%s) for longer than dead_ttl; its call: %s": Event(
        "dead_job_removed", ("job_id", "task", "reason", "call")
    ),
    "removing job %s, dead for longer than dead_ttl, of which nothing can be read: %s": Event(
        "unreadable_job_removed", ("job_id", "why")
    ),
    "there are %d dead jobs, more than %d: see windlass dead list --group": Event(
        "dead_jobs_many", ("dead", "threshold")
    ),
    "%d jobs died within 5 minutes, more than %d: see windlass dead list --group": Event(
        "dead_jobs_growing", ("grown", "threshold")
    ),
    "the alert on dead jobs could not be passed on": Event("dead_alert_failed"),
    # children
    "child %d died: %s; %s": Event("child_died", ("child", "cause", "job_ids")),
    "child %d could not start: %s": Event("child_failed", ("child", "why")),
    "a child could not be started, and is tried again: %s": Event("child_not_started", ("why",)),
    "child %d retires: %s": Event("child_retires", ("child", "why")),
    "child %d uses %s of memory before its first job, more than its limit of %s: "
    "give a larger one": Event("child_too_large", ("child", "memory", "limit")),
    "child %d has not run Python for %d s, one of its jobs keeps the interpreter to "
    "itself; running: %s": Event("interpreter_kept", ("child", "stood_s", "job_ids")),
    "child %d reports nothing any more, %s": Event("child_wedged", ("child", "where")),
    "the worker inside this process reports nothing any more, %s": Event(
        "inside_wedged", ("where",)
    ),
    "this worker is inside a program and leaves alone what runs in processes of its "
    "own, for a worker process to run: %s": Event("tasks_left_to_others", ("tasks",)),
    "the thread that watches over this child could not be started: %s": Event(
        "watch_not_started", ("why",)
    ),
    "killing child %d, which does not end by itself": Event("child_killed", ("child",)),
    "a thread for jobs could not be started, and is tried again: %s": Event(
        "thread_not_started", ("why",)
    ),
    "%s left the event loop, which goes on": Event("loop_left", ("error",)),
    "the lifespan was not entered within %g s, and is waited for": Event(
        "lifespan_slow", ("limit_s",)
    ),
    "the lifespan failed when it was left": Event("lifespan_failed"),
    "the lifespan was not left within %g s; the process ends": Event(
        "lifespan_lingered", ("limit_s",)
    ),
    "the lifespan ended by itself; this child ends its jobs": Event("lifespan_ended"),
    # sessions and the engine
    "session %s closed: %s charged a crash, %d to run alone, %d given back": Event(
        "session_closed", ("session", "crashed", "suspected", "released")
    ),
    "ended session %s of worker %d, which died on this machine: %s to run again": Event(
        "dead_worker_ended", ("session", "worker", "jobs")
    ),
    "session %s of child %d is gone": Event("session_gone", ("session", "child")),
    "session %s is gone: the engine did not hear of it for a lease. Dropped: %s; "
    "running on, and to be refused: %s; going on as session %s": Event(
        "session_renewed", ("session", "dropped", "running", "new_session")
    ),
    "taken back from workers that fell silent: %s": Event("jobs_taken_back", ("number",)),
    "dropped from indexes, for leading to no job: %s; see windlass check --repair": Event(
        "orphans_dropped", ("number",)
    ),
    "the engine is away; trying until it is back: %s": Event("engine_away", ("why",)),
    "the engine refused a call, retrying until it accepts it: %s": Event(
        "engine_refused", ("why",)
    ),
    "the engine is back: %s": Event("engine_back", ("engine",)),
    "the engine has not answered within %g s, and is waited for: %s": Event(
        "engine_slow", ("limit_s", "engine")
    ),
    "waiting for the engine, and ready when it answers: %s": Event("engine_awaited", ("why",)),
    "%s could not be closed: the jobs that they hold, and those that have ended and "
    "could not be reported, run again when the lease is over": Event(
        "unclosed_sessions", ("sessions",)
    ),
    "the supervisor cannot reach the engine, and tries on: %s": Event(
        "supervisor_engine_away", ("why",)
    ),
    "the supervisor reaches the engine again: %s": Event("supervisor_engine_back", ("engine",)),
    "the engine has come back without its data: the jobs that were in %s are gone; see how "
    "it keeps them with windlass doctor": Event("engine_emptied", ("engine",)),
    "how the engine keeps jobs: %s": Event("engine_durability", ("found",)),
    "a problem of the engine, %s: %s": Event("engine_problem", ("subject", "found")),
    # schedules
    "schedule %s left out %s from %s to %s: %s": Event(
        "runs_left_out", ("schedule", "number", "first", "last", "why")
    ),
    "schedule %s is paused, because no worker has declared it for a day": Event(
        "schedule_abandoned", ("schedule",)
    ),
    "schedule %s is another one by now than this worker declares, and stays: %s": Event(
        "declaration_outdated", ("schedule", "why")
    ),
    "schedule %s cannot be read by this worker, and is left to others: %s": Event(
        "schedule_unreadable", ("schedule", "why")
    ),
    "the engine refused to wake idle children, retrying: %s": Event("waiter_refused", ("why",)),
    "the waiter lost the connection to the engine, retrying: %s": Event(
        "waiter_engine_away", ("why",)
    ),
    # bugs
    "the fetcher of session %s failed and starts anew": Event("pump_failed", ("session",)),
    "the watch over this child failed, and looks again": Event("watch_failed"),
    "the upkeep of the worker failed and is tried again": Event("upkeep_failed"),
    "the waiter of the worker failed, restarting it": Event("waiter_failed"),
    "claims of session %s could not be given back": Event("claims_not_given_back", ("session",)),
}


def describe(message: object, arguments: object) -> dict[str, object]:
    """The event of a record and its fields; nothing for a line that is none of a worker."""
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
