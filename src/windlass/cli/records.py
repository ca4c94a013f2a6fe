"""How one job is shown, to people and to programs."""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.cli.output import print_fields
from windlass.core.envelope import unpack
from windlass.core.failure import FailureText
from windlass.engine.contract import Failure, JobRecord
from windlass.errors import DecodeError
from windlass.job import JobInfo


def describe(record: JobRecord) -> dict[str, Any]:
    """A job as plain data for `--json`."""
    info = msgspec.to_builtins(JobInfo.of(record), builtin_types=())
    return {
        **info,
        "call": call_of(record),
        "result": decoded(record.result),
        "history": [_entry(failure) for failure in record.failures],
    }


def print_record(record: JobRecord) -> None:
    info = JobInfo.of(record)
    counters = record.counters
    print_fields(
        [
            ("id", info.id),
            ("task", info.task),
            ("state", info.state),
            ("reason", info.reason),
            ("held", info.hold if info.hold != "none" else None),
            ("queue", info.queue),
            ("priority", info.priority),
            ("call", call_of(record)),
            ("attempts", f"{counters.attempt} ({_budgets(record)})"),
            ("enqueued", info.enqueued_at),
            ("due", info.due_at),
            ("expires", info.expires_at),
            ("started", info.started_at),
            ("finished", info.finished_at),
            ("worker", info.worker),
            (
                "progress",
                f"{info.progress.value:.0%} {info.progress.message}" if info.progress else None,
            ),
            ("result", decoded(record.result) if record.has_result else None),
            ("history", "\n".join(_line(failure) for failure in record.failures)),
            ("error", info.error.traceback or info.error.message if info.error else None),
        ]
    )


def call_of(record: JobRecord) -> str:
    """The stored call as text; bytes that make no call are said to be such."""
    try:
        return bytes(unpack(record.payload).call).decode()
    except DecodeError as error:
        return f"(undecodable: {error})"


def decoded(stored: bytes | None) -> Any:
    return None if stored is None else msgspec.json.decode(stored)


def _budgets(record: JobRecord) -> str:
    counters = record.counters
    return (
        f"{counters.starts} starts, {counters.crashes} crashes, {counters.losses} losses, "
        f"{counters.interruptions} interruptions, {counters.snoozes} snoozes"
    )


def _entry(failure: Failure) -> dict[str, Any]:
    text = error_of(failure)
    return {
        "at_ms": failure.at_ms,
        "event": failure.event,
        "attempt": failure.attempt,
        "worker": failure.session,
        "error": None if text is None else msgspec.to_builtins(text),
    }


def _line(failure: Failure) -> str:
    text = error_of(failure)
    summary = "" if text is None else f": {text.type}: {text.message}".splitlines()[0]
    return f"attempt {failure.attempt} {failure.event}{summary}"


def error_of(failure: Failure) -> FailureText | None:
    """The error of a history entry: a worker's report, or a cause found outside as plain text."""
    if not failure.error:
        return None
    try:
        return FailureText.unpack(failure.error)
    except DecodeError:
        cause = failure.error.decode(errors="replace")
        return FailureText(type=failure.event, message=cause, traceback="")
