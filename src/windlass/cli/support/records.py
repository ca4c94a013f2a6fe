"""Show one job, as text or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from windlass.app import Windlass
from windlass.calls.json_calls import call_as_json, result_as_json
from windlass.cli.support.output import print_fields
from windlass.cli.support.wording import age, clock, count, span
from windlass.client.payloads import PLAIN
from windlass.core.durations import instant
from windlass.core.failures import FailureText
from windlass.core.ids import release_of
from windlass.core.states import Event, Hold, State
from windlass.dead_letter import shown_fingerprint
from windlass.engine.contract import Engine, Failure, Filter, JobRecord
from windlass.job import JobInfo

#: Jobs are read and changed in pages of this size.
PAGE: Final = 200
#: Words for the events of a history. Other events are shown by name.
_PAST: Final[Mapping[str, str]] = {
    Event.RETRY: "failed",
    Event.BURY: "failed for good",
    Event.CRASH: "crashed its process",
    Event.SUSPECT: "was in a process that died",
    Event.LOSE: "was lost with its worker",
}


def find_all(engine: Engine, filter: Filter) -> Iterator[JobRecord]:
    """Return all matching jobs in the order of `Engine.find`, read lazily in pages."""
    cursor: str | None = None
    while True:
        page = engine.find(filter, cursor, PAGE)
        yield from page.records
        if page.cursor is None:
            return
        cursor = page.cursor


def describe(app: Windlass, record: JobRecord, why_held: str | None = None) -> dict[str, Any]:
    """Convert a job to plain data for `--json`, with call and result as stored JSON."""
    info = msgspec.to_builtins(JobInfo.of(record), builtin_types=())
    call, result = call_as_json(app, record), result_as_json(app, record)
    return {
        **info,
        "held_because": why_held,
        "fingerprint": shown_fingerprint(record, app.packing),
        "starts": record.counters.starts,
        "losses": record.counters.losses,
        "interruptions": record.counters.interruptions,
        "suspect": record.suspect,
        "call": call.call,
        "has_result": record.has_result,
        "result": result.result,
        "undecodable": call.problem or result.problem or None,
        "history": [_entry(record, failure) for failure in record.failures],
    }


def print_record(app: Windlass, record: JobRecord, why_held: str | None = None) -> None:
    info, now = JobInfo.of(record), datetime.now(UTC)
    print_fields(
        [
            ("id", info.id),
            ("task", info.task),
            ("state", info.state),
            ("reason", info.reason),
            ("fingerprint", shown_fingerprint(record, app.packing)),
            ("cancel", _cancel_words(record)),
            ("held", _held_words(info, why_held)),
            ("alone", "yes: in its own process" if record.suspect else None),
            ("queue", info.queue),
            ("requires", ", ".join(info.requires)),
            ("priority", info.priority),
            ("call", _call_text(app, record)),
            ("unique", info.unique_key),
            ("attempts", f"{info.attempts} ({_budgets(record)})"),
            ("enqueued", info.enqueued_at),
            ("due", info.due_at),
            ("expires", info.expires_at),
            ("started", _started_at(record, info)),
            ("finished", info.finished_at),
            ("worker", info.worker),
            ("release", info.release),
            ("headers", "\n".join(f"{name}: {value}" for name, value in info.headers.items())),
            ("progress", _progress_words(info)),
            ("log", "\n".join(f"{clock(line.at)} {line.message}" for line in info.log)),
            ("result", _result_text(app, record) if record.has_result else None),
            ("history", "\n".join(_line(record, failure, now) for failure in record.failures)),
            ("last error", info.error.traceback or info.error.message if info.error else None),
        ],
        now,
    )


def _call_text(app: Windlass, record: JobRecord) -> str:
    shown = call_as_json(app, record)
    return f"({shown.problem})" if shown.call is None else bytes(shown.call).decode()


def _result_text(app: Windlass, record: JobRecord) -> str:
    shown = result_as_json(app, record)
    if shown.problem:
        return f"({shown.problem})"
    return "" if shown.result is None else bytes(shown.result).decode()


def _started_at(record: JobRecord, info: JobInfo) -> datetime | None:
    """A worker may have claimed a held job without starting it."""
    is_started = info.hold is Hold.NONE or record.counters.starts
    return info.started_at if is_started else None


def _held_words(info: JobInfo, why_held: str | None) -> str | None:
    if info.hold is Hold.NONE:
        return None
    return f"{info.hold}: {why_held}" if why_held else str(info.hold)


def _cancel_words(record: JobRecord) -> str | None:
    if not record.cancel_requested or record.state is State.CANCELLED:
        return None
    if record.state.is_final:
        return "requested, but it ended first"
    return "requested: it ends as cancelled unless it succeeds"


def _progress_words(info: JobInfo) -> str | None:
    return f"{info.progress.value:.0%} {info.progress.message}".rstrip() if info.progress else None


def _budgets(record: JobRecord) -> str:
    counters = record.counters
    return (
        f"{count(counters.starts, 'start')}, {count(counters.crashes, 'crash', 'crashes')}, "
        f"{count(counters.losses, 'loss', 'losses')}, "
        f"{count(counters.interruptions, 'interruption')}, {count(counters.snoozes, 'snooze')}"
    )


def _entry(record: JobRecord, failure: Failure) -> dict[str, Any]:
    error = _error_of(failure)
    return {
        "at": instant(failure.at_ms),
        "started": None if failure.started_ms is None else instant(failure.started_ms),
        "event": failure.event,
        "attempt": failure.attempt if _has_started(record, failure) else None,
        "worker": failure.session,
        "release": release_of(failure.session),
        "error": None if error is None else msgspec.to_builtins(error),
        "replaced": _replaced(failure),
    }


def _has_started(record: JobRecord, failure: Failure) -> bool:
    """Whether a failed attempt had started. The engine does not count an attempt that ended its job
    before the start, as for undecodable arguments; its number is then above the count."""
    is_last = record.state is State.DEAD and failure is record.failures[-1]
    is_uncounted = failure.event == Event.BURY and failure.attempt > record.counters.attempt
    return not (is_last and is_uncounted)


def _line(record: JobRecord, failure: Failure, now: datetime) -> str:
    ago = age(instant(failure.at_ms), now)
    if failure.event == Event.REVIVE:
        return f"its arguments were changed {ago}; before: {_replaced(failure)}"
    error = _error_of(failure)
    where = "" if failure.session is None else f" on {failure.session}"
    cause = "" if error is None else f": {error}"
    words = _PAST.get(failure.event, failure.event)
    if not _has_started(record, failure):
        return f"{words} before its start {ago}{where}{cause}"
    ran = "" if failure.started_ms is None else f" after {span(failure.at_ms - failure.started_ms)}"
    return f"attempt {failure.attempt} {words} {ago}{ran}{where}{cause}"


def _error_of(failure: Failure) -> FailureText | None:
    """Return the error of a failure. A cause outside the task has no type."""
    if not failure.error or failure.event == Event.REVIVE:
        return None
    return FailureText.unpack(failure.error)


def _replaced(failure: Failure) -> str | None:
    """Return the old call, if an operator has replaced it."""
    return PLAIN.call_text(failure.error, "") if failure.event == Event.REVIVE else None
