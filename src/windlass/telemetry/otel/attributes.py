"""The names of attributes, from OpenTelemetry's messaging conventions, and the error of a span."""

from __future__ import annotations

from typing import Final

from opentelemetry.trace import Span, StatusCode

from windlass.core.failures import FailureText

SYSTEM: Final = "messaging.system"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
QUEUE: Final = "messaging.destination.name"
JOB_ID: Final = "messaging.message.id"
BATCH_COUNT: Final = "messaging.batch.message_count"
ERROR_TYPE: Final = "error.type"
TASK: Final = "windlass.task"
ATTEMPT: Final = "windlass.attempt"

#: The attributes that all spans and durations of enqueues share, and those of runs.
OF_ENQUEUES: Final = {SYSTEM: "windlass", OPERATION: "enqueue", OPERATION_TYPE: "send"}
OF_RUNS: Final = {SYSTEM: "windlass", OPERATION: "run", OPERATION_TYPE: "process"}


def set_error(span: Span, error: BaseException, error_type: str) -> None:
    """Give a span the status and the event of an error."""
    span.set_attribute(ERROR_TYPE, error_type)
    span.record_exception(error)
    span.set_status(StatusCode.ERROR, str(FailureText.brief(error)))


def type_of(error: BaseException | None) -> str | None:
    return None if error is None else FailureText.brief(error).type
