"""The log line of a job that became a dead letter, for all processes of a worker."""

from __future__ import annotations

from logging import getLogger

from windlass.core.failures import FailureText
from windlass.core.states import Reason
from windlass.worker.logs.events import LogEvent

log = getLogger("windlass.worker")


def log_dead_letter(job_id: str, task: str, reason: Reason, text: FailureText) -> None:
    """Log the type of the error and where it was raised. Its message may contain arguments."""
    cause = text.name or text.message
    if text.type and text.place:
        cause = f"{text.name} in {text.place}"
    log.error(LogEvent.JOB_DEAD, job_id, task, reason, cause)
