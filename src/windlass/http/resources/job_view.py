"""Jobs as answers show them: their structs, and how they are made from stored records.

Arguments and headers are redacted by name. Why a job does not run is told in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.app import Windlass
from windlass.calls.json_calls import ShownCall, call_as_json
from windlass.calls.redaction import CallRedactor
from windlass.core.durations import instant
from windlass.core.failures import FailureText
from windlass.core.ids import release_of
from windlass.core.queues.labels import labels_of, queue_of
from windlass.core.states import Event, Hold, Reason, State
from windlass.dead_letter import shown_fingerprint
from windlass.engine.contract import Failure, JobRecord
from windlass.http.resources.fields import Instant
from windlass.job import JobInfo, latest_error


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A job in a list."""

    id: str
    task: str
    queue: str
    requires: tuple[str, ...]  # labels that its worker must have
    priority: int
    state: State
    hold: Hold  # why a ready job does not run
    reason: Reason | None  # why it ended as dead or cancelled
    attempts: int  # includes the current attempt
    enqueued_at: Instant
    due_at: Instant | None
    expires_at: Instant | None
    started_at: Instant | None  # the latest start
    finished_at: Instant | None
    worker: str | None  # the session that runs it, or ran it last
    release: str | None  # the version of the code of that session
    cancel_requested: bool


class JobError(msgspec.Struct, frozen=True, kw_only=True):
    """An error of an attempt. The type is empty for a cause outside of the task."""

    type: str
    message: str
    traceback: str


class JobProgress(msgspec.Struct, frozen=True, kw_only=True):
    """What the running attempt has reported."""

    value: float  # from 0 to 1
    message: str


class JobLogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line that the latest attempt has logged."""

    at: Instant
    message: str


class ShownArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments, redacted by name. `problem` says why there are none."""

    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    problem: str | None = None


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A failed attempt, or an edit of the arguments."""

    attempt: int
    event: str  # retry, bury, crash, suspect or lose; revive: the arguments were changed
    started_at: Instant | None
    ended_at: Instant
    worker: str | None
    release: str | None  # the version of its code
    error: JobError | None
    replaced: ShownArguments | None  # the arguments before an edit


class JobAnswer(JobSummary, frozen=True, kw_only=True):
    """All that is known about a job."""

    args: list[Any]  # redacted by name
    kwargs: dict[str, Any]
    problem: str | None  # why the arguments cannot be shown
    headers: dict[str, str]  # redacted by name
    crashes: int
    losses: int
    interruptions: int
    snoozes: int
    held_because: str | None  # why a ready job does not run
    progress: JobProgress | None
    log: tuple[JobLogLine, ...]
    error: JobError | None  # the latest one, also if a later attempt succeeded
    fingerprint: str | None  # of a dead job: the same for similar failures
    has_result: bool
    history: tuple[HistoryEntry, ...]  # the oldest entry first


def summarize(record: JobRecord) -> JobSummary:
    """A job of a page, which has no payload and no history."""
    return JobSummary(**_common(record))


def _common(record: JobRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "task": record.task,
        "queue": queue_of(record.queue),
        "requires": labels_of(record.queue),
        "priority": record.priority,
        "state": record.state,
        "hold": record.hold,
        "reason": record.reason,
        "attempts": record.counters.attempt,
        "enqueued_at": instant(record.created_ms),
        "due_at": instant(record.due_ms),
        "expires_at": instant(record.expires_ms),
        "started_at": instant(record.started_ms),
        "finished_at": instant(record.finished_ms),
        "worker": record.session,
        "release": release_of(record.session),
        "cancel_requested": record.cancel_requested,
    }


def describe_job(app: Windlass, record: JobRecord) -> JobAnswer:
    """A whole job. Calls the engine only if the job is ready, to tell what it waits for."""
    record = app.packing.reveal_failures(record)
    info = JobInfo.of(record)
    shown = show_arguments(app, record.task, call_as_json(app, record))
    error = latest_error(record)
    headers: dict[str, str] = app.redactor.redact(dict(info.headers))
    return JobAnswer(
        **_common(record),
        args=shown.args,
        kwargs=shown.kwargs,
        problem=shown.problem,
        headers=headers,
        crashes=info.crashes,
        losses=record.counters.losses,
        interruptions=record.counters.interruptions,
        snoozes=info.snoozes,
        held_because=why_held(app, info),
        progress=_describe_progress(info),
        log=tuple(JobLogLine(at=line.at, message=line.message) for line in info.log),
        error=describe_error(error),
        fingerprint=shown_fingerprint(record, app.packing),
        has_result=record.has_result,
        history=tuple(_describe_entry(app, record.task, one) for one in record.failures),
    )


def _describe_progress(info: JobInfo) -> JobProgress | None:
    progress = info.progress
    if progress is None:
        return None
    return JobProgress(value=progress.value, message=progress.message)


def show_arguments(app: Windlass, task: str, call: ShownCall) -> ShownArguments:
    """The arguments of a stored call, redacted."""
    if call.problem:
        return ShownArguments(problem=call.problem)
    plain: Mapping[str, Any] = {
        "args": [msgspec.json.decode(raw) for raw in call.args],
        "kwargs": {name: msgspec.json.decode(raw) for name, raw in call.kwargs.items()},
    }
    redacted = CallRedactor.of(app).redact(task, plain)
    return ShownArguments(args=redacted["args"], kwargs=redacted["kwargs"])


def describe_error(error: FailureText | None) -> JobError | None:
    if error is None:
        return None
    return JobError(type=error.name, message=error.message, traceback=error.traceback)


def _describe_entry(app: Windlass, task: str, failure: Failure) -> HistoryEntry:
    is_edit = failure.event == Event.REVIVE
    error = None if is_edit or not failure.error else FailureText.unpack(failure.error)
    replaced = None
    if is_edit:
        call = call_as_json(app, _OldCall(task, failure.error))
        replaced = show_arguments(app, task, call)
    return HistoryEntry(
        attempt=failure.attempt,
        event=failure.event,
        started_at=instant(failure.started_ms),
        ended_at=instant(failure.at_ms),
        worker=failure.session,
        release=release_of(failure.session),
        error=describe_error(error),
        replaced=replaced,
    )


class _OldCall(msgspec.Struct, frozen=True):
    """A call that an edit has replaced."""

    task: str
    payload: bytes


def why_held(app: Windlass, info: JobInfo) -> str | None:
    """Why a ready job does not run, if that is known."""
    if info.state is not State.READY:
        return None
    if info.hold is Hold.PAUSED:
        return f"the task {info.task} is paused"
    if info.hold is Hold.UNROUTABLE:
        return info.held_because or "no worker that claimed the job can run it"
    if info.hold is not Hold.NONE:
        return str(info.hold)
    paused = {record.queue for record in app.engine.queues() if record.paused}
    return f"the queue {info.queue} is paused" if info.queue in paused else None
